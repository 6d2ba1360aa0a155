"""From overrides to a sweep config: what is fixed, what is swept, and the composed config of any choice of group options.

Hydra composes the config groups, because a user's own files may build on ours (``defaults: [llamacpp, _self_]``). It does so
once per combination of groups and not once per point: the values of a sweep are applied to plain dictionaries afterwards, in
the order in which they were written, whether a key has one value or ten. So two overrides of one dictionary mean the same
with and without a sweep, and a hundred thousand points cost what their values cost.

``hydra.compose`` is not called: nine tenths of its 90 ms go into Hydra's own settings (logging, run folders), which have no
meaning here. The two functions under it that compose a defaults list are; a test holds them to ``hydra.compose`` on every
option that ships.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import (
    GROUP_AXES,
    GROUPS,
    MAX_REPEATS,
    SCALAR_AXES,
    SWEEP_WIDE,
    check_tree,
    checked,
    endpoint,
    folder,
    missing_database_folder,
    sweep_name,
)
from specsweep.orchestrator.overrides import Setting, parse_overrides
from specsweep.orchestrator.settings import apply, one_of, resolved_keys, unknown_key
from specsweep.orchestrator.sweep_file import FilePart, over, read_parts


@dataclass(frozen=True)
class Part:
    """One grid of a sweep.

    ``groups`` holds the chosen options of each config group, ``scalars`` the values of each scalar axis, ``settings`` every other
    override in the order in which it applies (``swept`` ones are the extra axes).
    """

    groups: Mapping[str, tuple[str, ...]]
    scalars: Mapping[str, tuple[Any, ...]]
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class SweepConfig:
    """One sweep, before it is expanded to the union of its parts.

    ``base`` is the config of the first option of every group of the first part, with the sweep-wide settings applied: where results
    go, how the sweep is driven.
    """

    name: str
    description: str
    parts: tuple[Part, ...]
    base: Mapping[str, Any]
    tree: ConfigTree
    warnings: tuple[str, ...] = ()


class ConfigTree:
    """The config groups on the search path: the user's folders first, then the ones that ship."""

    def __init__(self, config_dirs: Sequence[str | Path] = ()) -> None:
        self.folders = [*(_user_folder(d) for d in config_dirs), Path(_sweeps_folder())]
        self._options: dict[str, list[str]] = {}

    @cached_property
    def _loader(self) -> Any:
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
        from hydra._internal.core_plugins.file_config_source import FileConfigSource
        from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
        from hydra._internal.sources_registry import SourcesRegistry
        from hydra.version import setbase

        setbase("1.3")
        for source in (FileConfigSource, StructuredConfigSource):  # instead of a search for plugins among all that is installed
            SourcesRegistry.instance().register(source)
        search = ConfigSearchPathImpl()
        for i, home in enumerate(self.folders):
            search.append("main" if i == len(self.folders) - 1 else f"--config-dir {i + 1}", f"file://{home}")
        search.append("schema", "structured://")
        return ConfigLoaderImpl(search)

    @cached_property
    def _repository(self) -> Any:
        from hydra._internal.config_repository import CachingConfigRepository

        return CachingConfigRepository(self._loader.repository)

    def options(self, group: str) -> list[str]:
        """The options of a group, sub-folders included (``llama/70b``), sorted."""
        if group not in self._options:
            homes = [folder / group for folder in self.folders]
            self._options[group] = sorted({str(file.relative_to(home))[: -len(".yaml")] for home in homes for file in home.rglob("*.yaml")})
        return self._options[group]

    def compose(self, choices: Mapping[str, str]) -> dict[str, Any]:
        """The config of one option per group, as plain dictionaries with interpolations unresolved. Raises ConfigError."""
        from hydra._internal.defaults_list import create_defaults_list
        from hydra.core.override_parser.types import Override, OverrideType, ValueType
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        for group, option in choices.items():
            if option not in self.options(group):
                raise ConfigError(f"{group}={option}: {one_of(option, self.options(group), f'the options of {group}')}{self._where()}")
        overrides = [
            Override(OverrideType.CHANGE, group, ValueType.ELEMENT, option, input_line=f"{group}={option}")
            for group, option in choices.items()
        ]
        try:
            defaults = create_defaults_list(self._repository, "config", overrides, prepend_hydra=False, skip_missing=False)
            composed = self._loader._compose_config_from_defaults_list(defaults.defaults, self._repository)
        except (HydraException, OmegaConfBaseException, YAMLError, ValueError, OSError) as error:
            chosen = " ".join(f"{g}={o}" for g, o in choices.items())
            raise ConfigError(f"the config of {chosen} cannot be composed: {_words(error)}{self._where()}") from error
        config: dict[str, Any] = OmegaConf.to_container(composed, resolve=False)  # type: ignore[assignment]
        for group in GROUPS:
            if not isinstance(config.get(group), dict) or not config[group]:
                raise ConfigError(f"{group}={choices.get(group)}: the file holds no keys; every option of {group} is a mapping")
            config[group].setdefault("name", choices.get(group))
        return config

    def defaults(self) -> dict[str, str]:
        """The option of each group that ``config.yaml`` names. Raises ConfigError if one is missing."""
        loaded = self._repository.load_config("config")
        found = {d.group: d.value for d in loaded.defaults_list if hasattr(d, "group")}
        return {group: str(found[group]) for group in GROUPS}

    def _where(self) -> str:
        return "" if len(self.folders) == 1 else f" (looked in {', '.join(map(str, self.folders))})"


def compose(overrides: Sequence[str], config_dirs: Sequence[str | Path] = ()) -> SweepConfig:
    """Reads a sweep from overrides as typed. Raises ConfigError naming the field, the value and what is known instead."""
    tree = ConfigTree(config_dirs)
    typed = parse_overrides(overrides, options=tree.options)
    file = _sweep_name(typed)
    read = cache(lambda name: _sweep_file(tree, name))
    content, parts = (read(file), read_parts(file, read, tree.options)) if file else ({}, [FilePart((), "")])
    command = [s for s in typed if s.key != "sweep"]
    made = [_part(tree, over(part.settings, command)) for part in parts]
    _refuse_other_places(made, parts)
    base = made[0][1]
    base["name"] = sweep_name(base.get("name") or content.get("name") or (file or "adhoc").replace("/", "-"))
    warnings = dict.fromkeys((*(w for _, _, told in made for w in told), *_no_token(base)))
    return SweepConfig(base["name"], str(content.get("description") or ""), tuple(part for part, *_ in made), base, tree, tuple(warnings))


def _part(tree: ConfigTree, settings: Sequence[Setting]) -> tuple[Part, dict[str, Any], list[str]]:
    """One grid, its base, and what is to be told of it."""
    groups: dict[str, tuple[str, ...]] = {group: (option,) for group, option in tree.defaults().items()}
    last: dict[str, Setting] = {}
    others: list[Setting] = []
    for setting in settings:
        if setting.key in GROUPS or setting.key in SCALAR_AXES:
            _refuse_action(setting)
            last[setting.key] = setting  # of two settings of one key the later counts, as in Hydra
        else:
            others.append(setting)
    for group in GROUPS:
        if group in last:
            groups[group] = _options(last[group])
    first = tree.compose({group: options[0] for group, options in groups.items()})
    scalars = {axis: _axis_values(axis, last.get(axis), first) for axis in SCALAR_AXES}
    others = _last_of_each(others)
    _refuse_unknown_top(others, first)
    base = _sweep_wide(first, others)
    warnings = [
        f"{s.text}: specsweep reads no key {s.key!r}; it is carried in the config and names no point"
        for s in others
        if s.action in ("add", "force") and s.key.partition(".")[0] not in first
    ]
    scalars["repeat"], warning = _repeats(base, scalars["repeat"], "repeat" in last)
    return Part(groups, scalars, tuple(others)), base, [*warnings, *warning]


def _refuse_other_places(made: Sequence[tuple[Part, Mapping[str, Any], Any]], parts: Sequence[FilePart]) -> None:
    """What has one value for the whole sweep has the same in every part."""
    for key in SWEEP_WIDE:
        values = [_value_at(base, key) for _, base, _ in made]
        for value, part in zip(values, parts, strict=True):
            if value != values[0]:
                ours, theirs = (v.get("name") if isinstance(v, Mapping) and v.get("name") else v for v in (value, values[0]))
                raise ConfigError(
                    f"{key}: {ours} in {part.where} and {theirs} in {parts[0].where}: it has one value for the whole sweep; "
                    f"set it at the top of the file or on the command line"
                )


def _value_at(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def _sweep_name(typed: Iterable[Setting]) -> str | None:
    chosen = [s for s in typed if s.key == "sweep"]
    if not chosen:
        return None
    setting = chosen[-1]
    if setting.swept or setting.action != "set" or not isinstance(setting.value, str):
        raise ConfigError(f"{setting.text}: name one sweep; its axes are replaced by key on the command line")
    return setting.value


def _sweep_file(tree: ConfigTree, name: str) -> Mapping[str, Any]:
    if name not in tree.options("sweep"):
        raise ConfigError(f"sweep={name}: {one_of(name, tree.options('sweep'), 'the sweeps')}{tree._where()}")
    sweep = tree.compose({**tree.defaults(), "sweep": name}).get("sweep")
    if not isinstance(sweep, dict) or not sweep:
        raise ConfigError(f"sweep/{name}.yaml holds no keys; it has axes and set, parts, or include")
    return sweep


def _refuse_action(setting: Setting) -> None:
    if setting.action == "delete":
        advice = "drafter=none" if setting.key == "drafter" else f"{setting.key}=…"
        raise ConfigError(f"{setting.text}: every point has a {setting.key}; choose one with {advice}")
    if setting.action == "add":
        raise ConfigError(f"{setting.text}: {setting.key} is there already; leave the + out")


def _options(setting: Setting) -> tuple[str, ...]:
    group = setting.key
    if group not in GROUP_AXES and setting.swept:
        raise ConfigError(f"{setting.text}: a sweep runs in one place; give one {group} and start another sweep for the next")
    for option in setting.values:
        if isinstance(option, dict):
            raise ConfigError(f"{setting.text}: {group} is chosen by name; set a key of it with {group}.{next(iter(option), 'key')}=…")
        if not isinstance(option, str) or not option:
            raise ConfigError(
                f"{setting.text}: {option!r} is not the name of an option" + ("; did you mean none?" if option is None else "")
            )
    return _unique(setting.values)


def _axis_values(axis: str, setting: Setting | None, config: Mapping[str, Any]) -> tuple[Any, ...]:
    return _unique(checked(axis, v) for v in ((config[axis],) if setting is None else setting.values))


def _unique(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _last_of_each(settings: list[Setting]) -> list[Setting]:
    """Drops what a later setting of the same key replaces; dictionaries merge, so all of them stay."""
    kept: list[Setting] = []
    for i, setting in enumerate(settings):
        later = [s for s in settings[i + 1 :] if s.key == setting.key and s.action in ("set", "force")]
        merges = all(isinstance(v, dict) for s in (setting, *later) for v in s.values)
        if setting.action != "set" or not later or merges:
            kept.append(setting)
    for key in {s.key for s in kept}:
        same = [s for s in kept if s.key == key]
        if sum(s.swept for s in same) > 1:
            raise ConfigError(f"{same[0].text} and {same[1].text} sweep one dictionary twice; write one sweep")
    return kept


def _refuse_unknown_top(settings: Iterable[Setting], config: Mapping[str, Any]) -> None:
    known = sorted({*config, *GROUPS, *SCALAR_AXES, "sweep"})
    for setting in settings:
        top = setting.key.partition(".")[0]
        if top not in known and setting.action in ("set", "delete"):
            raise ConfigError(f"{setting.text}: {one_of(top, known, 'the known keys')}; to add a key of your own write +{setting.key}=…")
        always = setting.key in (f"{g}.name" for g in GROUPS) if top in GROUPS else top in config
        if setting.action == "delete" and always:
            raise ConfigError(f"{setting.text}: {setting.key} cannot be removed, only set: {_how_to_set(setting.key, config)}")
        if setting.swept and any(setting.key == k or setting.key.startswith(f"{k}.") for k in SWEEP_WIDE):
            raise ConfigError(f"{setting.text}: {setting.key} has one value for the whole sweep, it is not an axis")


def _how_to_set(key: str, config: Mapping[str, Any]) -> str:
    """``key=…``, or of a mapping its keys."""
    inner = config.get(key)
    return ", ".join(f"{key}.{name}=…" for name in inner) if isinstance(inner, Mapping) else f"{key}=…"


def _sweep_wide(config: dict[str, Any], settings: Iterable[Setting]) -> dict[str, Any]:
    """Applies what has one value. A key of a group that can be an axis may be missing from its first option: the grid looks at all."""
    base = config
    for setting in settings:
        if setting.swept:
            continue
        applied = apply(base, setting, None)
        if applied is None and setting.key.partition(".")[0] not in GROUP_AXES:
            raise unknown_key(setting, [base])
        base = applied or base
    base = dict(base)
    check_tree(base)
    base = resolved_keys(base, SWEEP_WIDE)
    _check_places(base)
    return base


def _check_places(base: Mapping[str, Any]) -> None:
    """Folders, server and database that the sweep as a whole works with: what a run would stumble over, a plan tells."""
    for key in ("store", "cache"):
        folder(key, base[key])
    if base["cluster"].get("kind") == "attach":
        if not base["cluster"].get("endpoint"):
            raise ConfigError("cluster=attach: no endpoint is given; name the running server with endpoint=http://host:port")
        endpoint(base["cluster"]["endpoint"])
    uri = str(base["tracking"].get("uri") or "")
    missing = missing_database_folder(uri)
    if missing is not None and missing != folder("store", base["store"]).absolute():  # the store is made by the run itself
        raise ConfigError(f"tracking.uri={uri}: the folder {missing} does not exist; make it, or leave tracking.uri out")


def _no_token(base: Mapping[str, Any]) -> list[str]:
    """A warning: plans are made on other machines than the one that measures. A run refuses it."""
    name = base["cluster"].get("token_env")
    if base["cluster"].get("kind") != "attach" or not name or os.environ.get(str(name), "").strip():
        return []
    return [f"cluster.token_env={name}: the environment has no such variable; a run needs it, or cluster.token_env=null"]


def _repeats(base: Mapping[str, Any], repeat: tuple[Any, ...], given: bool) -> tuple[tuple[Any, ...], list[str]]:
    """``repeats=3`` is short for the axis ``repeat=1,2,3``."""
    count = base.get("repeats")
    if count is not None:
        if given:
            raise ConfigError(
                f"repeats={count} and repeat={','.join(map(str, repeat))} both say which repetitions to measure; give one of them"
            )
        return tuple(range(1, count + 1)), []
    if len(repeat) > MAX_REPEATS:
        raise ConfigError(f"repeat has {len(repeat):,} values; at most {MAX_REPEATS:,} make sense")
    if given and len(repeat) == 1 and repeat[0] > 1:
        return repeat, [
            f"repeat={repeat[0]} measures repetition number {repeat[0]} alone; for {repeat[0]} repetitions write repeats={repeat[0]}"
        ]
    return repeat, []


def _words(error: BaseException) -> str:
    """An exception of Hydra or YAML as one line, its cause included."""
    texts = [str(error), str(error.__cause__ or "")]
    return "; ".join(" ".join(t.split()) for t in texts if t.strip())


def _user_folder(folder: str | Path) -> Path:
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise ConfigError(f"--config-dir {folder}: no such folder")
    if (path / "config.yaml").exists():
        raise ConfigError(
            f"--config-dir {folder}: its config.yaml would replace specsweep's own; keep groups only (engine/, target/, sweep/, …)"
        )
    if not any((path / group).is_dir() for group in (*GROUPS, "sweep")):
        raise ConfigError(f"--config-dir {folder}: it holds none of the groups {', '.join((*GROUPS, 'sweep'))}")
    return path


@cache
def _sweeps_folder() -> str:
    from importlib.resources import files

    return str(files("specsweep.sweeps"))
