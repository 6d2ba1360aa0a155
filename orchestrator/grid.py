"""From a sweep config to its points, and to the cells that it loses with the reasons.

The grid has two layers. A *variant* is one choice of group options and of the values of every extra axis (``drafter.topk``,
``workload.padding``): its config is composed and hashed once. The scalar axes (batch size, ISL, …) are a plain product under
it, where a point costs one hash of a string that is put together from fragments which are already canonical. That is why a
hundred thousand points take seconds; ``identity.point_id`` of a point's ``declared`` gives the same id, and a test says so.

Drafter ``none`` has no draft length and no drafter settings: it appears once, and what is collapsed is told in one line.

``engine.max_batch``, if unset, follows from the point's own batch size (:data:`MAX_BATCH_LADDER`) and from nothing else in the
sweep. If it followed from the sweep's largest batch size, adding 16 to a sweep of 1, 4, 8 would rename every old point.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specsweep.orchestrator import identity, relations, rules
from specsweep.orchestrator.config import Part, SweepConfig
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import GROUP_AXES, SCALAR_AXES, SWEEP_WIDE, check_required, check_tree, leaves
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.overrides import Setting
from specsweep.orchestrator.points import AXES, Dropped, Point
from specsweep.orchestrator.settings import apply, unknown_key, unset_reference

MAX_BATCH_LADDER = (8, 32, 128, 512, 2048)
MAX_CELLS = 2_000_000

_SCALAR_REFERENCE = re.compile(r"\$\{\s*(" + "|".join(SCALAR_AXES) + r")\s*\}")


@dataclass(frozen=True, slots=True)
class Grid:
    points: tuple[Point, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Variant:
    """One choice of everything but the scalar axes. ``config`` lacks the scalars of a point; ``missing`` names an override that it
    cannot take, ``unset`` a reference to a value that nobody gave."""

    axes: dict[str, Any]
    config: dict[str, Any]
    missing: Setting | None = None
    unset: str | None = None

    @property
    def is_none(self) -> bool:
        return bool(self.config["drafter"].get("method") == "none")


def expand(sweep: SweepConfig, contents: Contents | None = None) -> Grid:
    """Every cell of the sweep, as a point or as dropped with its reason. Raises ConfigError for an override that fits nowhere."""
    contents = contents or Contents()
    _refuse_too_many(sweep)
    parts = [(part, list(_variants(sweep, part))) for part in sweep.parts]
    _refuse_missing_everywhere(parts)
    found: list[list[Point]] = []
    dropped: list[Dropped] = []
    for part, variants in parts:
        points: list[Point] = []
        for variant in variants:
            if variant.missing is not None or variant.unset is not None:
                dropped.extend(_lost(part, variant))
            else:
                _expand_variant(part, variant, contents, points, dropped)
        points, twins = relations.without_twins(points)
        found.append(points)
        dropped += [*twins, *_collapsed(part, variants)]
    points = found[0] if len(found) == 1 else relations.union(found, _extra_keys(sweep))
    if sweep.base["cluster"]["kind"] == "attach":
        points, other_servers = relations.on_one_server(points)
        dropped += other_servers
    points = relations.with_baselines(points)
    return Grid(tuple(points), tuple(dropped), _warnings(points))


def _warnings(points: Sequence[Point]) -> tuple[str, ...]:
    return (*relations.lonely(points), *rules.warnings(point.config for point in points))


def _extra_keys(sweep: SweepConfig) -> list[str]:
    """The keys of which parts may hold different values, besides the axes that every point has."""
    return list(dict.fromkeys(s.key for part in sweep.parts for s in part.settings if not s.key.startswith(SWEEP_WIDE)))


# -- variants


def _variants(sweep: SweepConfig, part: Part) -> Iterator[Variant]:
    extras = [s for s in part.settings if s.swept]
    for options in itertools.product(*(part.groups[g] for g in GROUP_AXES)):
        choices = dict(zip(GROUP_AXES, options, strict=True))
        composed = sweep.tree.compose({**choices, "cluster": part.groups["cluster"][0]})
        check_tree(composed)
        is_none = composed["drafter"].get("method") == "none"
        seen: set[tuple[Any, ...]] = set()
        for values in itertools.product(*(s.values for s in extras)):
            chosen = {id(s): v for s, v in zip(extras, values, strict=True)}
            axes: dict[str, Any] = dict(choices)
            for setting, value in zip(extras, values, strict=True):
                axes[setting.key] = None if is_none and _of_drafter(setting) else value
            mark = tuple(repr(v) for v in axes.values())
            if mark not in seen:  # the values of drafter settings make no difference to none
                seen.add(mark)
                yield _variant(sweep.name, part, composed, axes, chosen, is_none)


def _variant(name: str, part: Part, composed: dict[str, Any], axes: dict[str, Any], chosen: Mapping[int, Any], is_none: bool) -> Variant:
    config = composed
    for setting in part.settings:
        if is_none and _of_drafter(setting):
            continue
        applied = apply(config, setting, chosen.get(id(setting)))
        if applied is None:
            return Variant(axes, config, missing=setting)
        config = applied
    if (unset := unset_reference(config)) is not None:
        return Variant(axes, config, unset=unset)
    config = {**_resolved(config), "name": name}
    check_required(config)
    return Variant(axes, _with_preset(_with_state(config)))


def _with_state(config: dict[str, Any]) -> dict[str, Any]:
    """A drafter that learns in this engine, whatever its file says: SGLang's n-gram does, llama.cpp's does not."""
    if not rules.learns(config) or config["drafter"].get("stateful"):
        return config
    return {**config, "drafter": {**config["drafter"], "stateful": True}}


def _with_preset(config: dict[str, Any]) -> dict[str, Any]:
    """A simulated target whose preset follows from its name says so: two of them may share a tokenizer, and are two points all the same."""
    engine = config["engine"]
    if engine["name"] != "sim" or engine.get("preset") or engine.get("model"):
        return config
    from specsweep.client.sim.model import presets

    target = str(config["target"]["name"]).rpartition("/")[2]
    return {**config, "engine": {**engine, "preset": target}} if target in presets() else config


def _of_drafter(setting: Setting) -> bool:
    return setting.key.startswith("drafter.") and setting.key != "drafter.method"


def _resolved(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` without interpolations. Without any it is the given one, whose dictionaries variants share."""
    texts = [(key, value) for key, value in leaves(config) if isinstance(value, str) and "${" in value]
    if not texts:
        return config
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key, value in texts:
        if reference := _SCALAR_REFERENCE.search(value):
            raise ConfigError(f"{key}={value}: {reference[1]} differs from point to point and cannot be referred to; write the value")
    try:
        resolved: dict[str, Any] = OmegaConf.to_container(OmegaConf.create(config), resolve=True)  # type: ignore[assignment]
    except OmegaConfBaseException as error:
        raise ConfigError(f"{', '.join(f'{k}={v}' for k, v in texts)}: {str(error).splitlines()[0]}") from error
    check_tree(resolved)
    return resolved


# -- points of one variant


def _scalars(part: Part, variant: Variant) -> Iterator[dict[str, Any]]:
    lengths: Sequence[Any] = (None,) if variant.is_none else part.scalars["draft_length"]
    rest = [part.scalars[a] for a in SCALAR_AXES[1:]]
    for values in itertools.product(lengths, *rest):
        yield dict(zip(SCALAR_AXES, values, strict=True))


def _expand_variant(part: Part, variant: Variant, contents: Contents, points: list[Point], dropped: list[Dropped]) -> None:
    parts = _Parts(variant, contents)
    template = (
        dict.fromkeys((*AXES, *variant.axes)) | variant.axes | identity.capture(variant.config)
    )  # in the order of AXES, extra axes last
    for scalars in _scalars(part, variant):
        axes = template | scalars
        config = {**variant.config, **scalars, "engine": parts.engine_config(scalars["batch_size"])}
        reasons = list(rules.broken(config))
        if reasons:
            dropped.append(Dropped(axes, reasons[0][0], "; ".join(reason for _, reason in reasons)))
            continue
        declared, text = parts.declared(config)
        points.append(Point(identity.digest(text), axes, config, declared, None))


def default_max_batch(batch_size: int) -> int:
    """The smallest step of the ladder that holds ``batch_size``; beyond it, the next power of two."""
    for step in MAX_BATCH_LADDER:
        if batch_size <= step:
            return step
    return 1 << math.ceil(math.log2(batch_size))


class _Parts:
    """The parts of configs and of ``declared`` that points of one variant share, each made once, with its canonical JSON."""

    def __init__(self, variant: Variant, contents: Contents) -> None:
        self._config = variant.config
        self._contents = contents
        self._engines: dict[int, dict[str, Any]] = {}
        self._made: dict[Any, tuple[Any, str]] = {}

    def engine_config(self, batch_size: int) -> dict[str, Any]:
        """The engine's part with ``max_batch`` filled in. An attached server's limit is what the user says, or not known."""
        engine: dict[str, Any] = self._config["engine"]
        if engine.get("max_batch") is not None or self._config["cluster"]["kind"] == "attach":
            return engine
        size = default_max_batch(batch_size)
        if size not in self._engines:
            self._engines[size] = {**engine, "max_batch": size}
        return self._engines[size]

    def declared(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """What names this point, as :func:`identity.declared` has it, and its canonical JSON put together from the shared parts."""
        isl, captured = config["isl"], identity.capture(config)
        parts = (  # names in the order of canonical JSON
            _atom(config["batch_size"]),
            *(_atom(found) for found in captured.values()),
            _atom(config["draft_length"]),
            self._part("drafter", None, config),
            self._part("engine", config["engine"].get("max_batch"), config),
            _atom(config["hardware"]),
            _atom(isl),
            _atom(config["repeat"]),
            _atom(config["measure"]["requests_per_slot"]),
            self._part("sampling", config["temperature"], config),
            _atom(identity.SCHEMA_VERSION),
            self._part("target", None, config),
            self._part("workload", isl, config),
        )
        values, texts = zip(*parts, strict=True)
        names, form = (_CAPTURE_NAMES, _CAPTURE_FORM) if captured else (_NAMES, _FORM)
        return dict(zip(names, values, strict=True)), form % texts

    def _part(self, name: str, key: Any, config: Mapping[str, Any]) -> tuple[Any, str]:
        made = self._made.get((name, key))
        if made is None:
            part = self._make(name, config)
            made = self._made[name, key] = part, identity.canonical_json(part)
        return made

    def _make(self, name: str, config: Mapping[str, Any]) -> Any:
        if name == "sampling":
            return identity.sampling(config)
        if name == "workload":
            return self._contents.workload(identity.recipe(config["workload"]), config["isl"])
        if name == "engine":
            return identity.declared_group("engine", config["engine"])
        return identity.declared_model(name, config[name], self._contents)


_NAMES = (  # in the order of canonical JSON
    "batch_size",
    "draft_length",
    "drafter",
    "engine",
    "hardware",
    "isl",
    "repeat",
    "requests_per_slot",
    "sampling",
    "schema_version",
    "target",
    "workload",
)
_CAPTURE_NAMES = (_NAMES[0], "capture", *_NAMES[1:])
_FORM, _CAPTURE_FORM = ("{" + ",".join(f'"{name}":%s' for name in names) + "}" for names in (_NAMES, _CAPTURE_NAMES))


@lru_cache(maxsize=100_000, typed=True)
def _atom(value: int | str | None) -> tuple[int | str | None, str]:
    return value, identity.canonical_json(value)


# -- what the grid as a whole refuses or collapses


def cells(sweep: SweepConfig) -> int:
    """How many combinations of values the grids have, before anything is left out."""
    return sum(math.prod(_sizes(part).values()) for part in sweep.parts)


def _sizes(part: Part) -> dict[str, int]:
    sizes = {**{g: len(v) for g, v in part.groups.items()}, **{a: len(v) for a, v in part.scalars.items()}}
    return sizes | {s.key: len(s.values) for s in part.settings if s.swept}


def _refuse_too_many(sweep: SweepConfig) -> None:
    if (count := cells(sweep)) > MAX_CELLS:
        largest = max(map(_sizes, sweep.parts), key=lambda sizes: math.prod(sizes.values()))
        factors = " × ".join(f"{name} {n}" for name, n in largest.items() if n > 1)
        raise ConfigError(f"the grid has {count:,} cells ({factors}); at most {MAX_CELLS:,} can be planned, split the sweep")


def _refuse_missing_everywhere(parts: Sequence[tuple[Part, Sequence[Variant]]]) -> None:
    """An override that no combination of any part can take is a slip of the pen, not a rule."""
    having: dict[int, list[tuple[Setting, Part, Sequence[Variant]]]] = {}
    for part, variants in parts:
        for setting in part.settings:
            having.setdefault(id(setting), []).append((setting, part, variants))
    for members in having.values():
        setting, reached = members[0][0], []
        for _, part, variants in members:
            earlier = part.settings[: part.settings.index(setting)]
            reached += [v for v in variants if v.missing not in earlier and not (v.is_none and _of_drafter(setting))]
        if setting.typed and not reached and all(v.is_none for *_, variants in members for v in variants):
            raise ConfigError(f"{setting.text}: the only drafter is none, which has no settings; choose one, or leave this out")
        if reached and all(v.missing is setting for v in reached):
            raise unknown_key(setting, [v.config for v in reached])


def _lost(part: Part, variant: Variant) -> Iterator[Dropped]:
    """The cells of a variant that cannot be made."""
    rule, reason = (rules.NOT_SET, str(variant.unset)) if variant.missing is None else (rules.NO_SUCH_KEY, _missing_reason(variant))
    return (Dropped({**variant.axes, **scalars}, rule, reason) for scalars in _scalars(part, variant))


def _missing_reason(variant: Variant) -> str:
    assert variant.missing is not None
    group, _, name = variant.missing.key.partition(".")
    return f"{group}={variant.axes.get(group, '')} has no key {name} ({variant.missing.text}); +{variant.missing.key}=… would add it"


def _collapsed(part: Part, variants: Sequence[Variant]) -> list[Dropped]:
    """One line for all that makes no difference to drafter none."""
    names = sorted({v.axes["drafter"] for v in variants if v.is_none})
    lengths = part.scalars["draft_length"]
    settings = {s.key: list(s.values) for s in part.settings if _of_drafter(s)}
    if not names or (len(lengths) < 2 and not settings):
        return []
    axes: dict[str, Any] = {"drafter": names[0] if len(names) == 1 else names}
    if len(lengths) > 1:
        axes["draft_length"] = list(lengths)
    axes |= settings
    what = " and no ".join(name for name in ("draft length" if len(lengths) > 1 else "", "drafter settings" if settings else "") if name)
    return [Dropped(axes, rules.NONE_HAS_NO_DRAFT, f"drafter none has no {what}: it is measured once for all of them")]
