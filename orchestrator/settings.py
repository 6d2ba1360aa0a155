"""Applies overrides to plain dictionaries, as Hydra would apply them to a config in struct mode.

A key must be there to be changed, ``+`` adds, ``++`` does either, ``~`` removes, and a dictionary is merged into what is there.
The given config is never changed: only the dictionaries on the path are copied, so that ten thousand variants of one config
share all that they have in common. One thing is not merged: a ``model`` with another ``source`` replaces the old one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import FIELDS, OPEN_MAPPINGS, checked, is_text, leaves
from specsweep.orchestrator.overrides import Setting

_REFERENCE = re.compile(r"(?<!\\)\$\{\s*([A-Za-z_][\w.]*)\s*\}")


def apply(config: Mapping[str, Any], setting: Setting, value: Any) -> dict[str, Any] | None:
    """``config`` with one setting applied, copied along its path only; None if its key is not there.

    ``value`` stands for the setting's own when it is swept. As in Hydra, a dictionary is merged, everything else is replaced,
    ``+`` adds, ``++`` adds or replaces, ``~`` removes.
    """
    if setting.action != "delete" and not setting.swept:
        value = setting.value
    path = setting.key.split(".")
    if setting.action != "delete":
        value = _checked_tree(path, value)
    result = dict(config)
    node = result
    is_open = setting.action in ("add", "force")
    for part in path[:-1]:
        inner = node.get(part)
        if inner is None and is_open:
            inner = {}
        if not isinstance(inner, Mapping):
            return None
        is_open = is_open or part in OPEN_MAPPINGS
        node[part] = dict(inner)
        node = node[part]
    name = path[-1]
    if setting.action == "delete":
        if name not in node or (setting.values and node[name] != setting.value):
            return None
        del node[name]
        return result
    if name not in node and not is_open:
        return None
    if setting.action == "add" and node.get(name) is not None and not isinstance(value, dict):
        raise ConfigError(f"{setting.text}: {setting.key} is there already (it is {node[name]!r}); leave the + out to change it")
    old = node.get(name)
    _refuse_other_shape(setting, old, value)
    if isinstance(value, dict) and isinstance(old, Mapping) and not _is_another_source(old, value):
        merged = _merge(old, value, is_open or name in OPEN_MAPPINGS)
        if merged is None:
            return None
        node[name] = merged
    else:
        node[name] = value
    return result


def _refuse_other_shape(setting: Setting, old: Any, value: Any) -> None:
    """A mapping stays one (a model may be unset), and what holds one value does not become a mapping."""
    key = setting.key
    if isinstance(old, Mapping) and not isinstance(value, dict) and not (value is None and key.endswith("model")):
        names = ", ".join(map(str, old)) or "any names"
        raise ConfigError(f"{setting.text}: {key} is a mapping (of {names}); set one of its keys with {key}.KEY=…")
    if isinstance(value, dict) and (is_text(key) or key in FIELDS):
        raise ConfigError(f"{setting.text}: {key} holds one value, not a mapping")


def _is_another_source(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """A model from elsewhere has other fields (``path`` instead of ``repo`` and ``revision``): it replaces, a mixture means nothing."""
    return "source" in new and new["source"] != old.get("source")


def _merge(old: Mapping[str, Any], new: Mapping[str, Any], is_open: bool) -> dict[str, Any] | None:
    merged = dict(old)
    for key, value in new.items():
        if key not in merged and not is_open:
            return None
        before = merged.get(key)
        if isinstance(value, dict) and isinstance(before, Mapping):
            inner = _merge(before, value, is_open)
            if inner is None:
                return None
            merged[key] = inner
        else:
            merged[key] = value
    return merged


def _checked_tree(path: Sequence[str], value: Any) -> Any:
    """Known keys checked, wherever they stand in ``value``; open mappings hold what their reader understands."""
    if isinstance(value, dict):
        return {k: _checked_tree([*path, str(k)], v) for k, v in value.items()}
    if OPEN_MAPPINGS.intersection(path) or (isinstance(value, str) and "${" in value):
        return value
    return checked(".".join(path), value)


def resolved_keys(config: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """``config`` with the interpolations under ``keys`` replaced by what they stand for (``store: ${oc.env:SCRATCH}/results``)."""
    texts = [(k, v) for k, v in leaves(config) if isinstance(v, str) and "${" in v and any(k == n or k.startswith(f"{n}.") for n in keys)]
    if not texts:
        return config
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    whole = OmegaConf.create(config)
    for key, text in texts:
        try:
            value = OmegaConf.select(whole, key)
        except OmegaConfBaseException as error:
            raise ConfigError(f"{key}={text}: {str(error).splitlines()[0]}") from error
        setting = Setting(key, "force", (value,), False, f"{key}={text}")
        config = apply(config, setting, None) or config
    return config


def unset_reference(config: Mapping[str, Any]) -> str | None:
    """What to say of a text that is built on a key which is null (``${heads}/full``); None if there is none. ``${a.b}`` alone may be null."""
    for key, value in leaves(config):
        for reference in _REFERENCE.findall(value) if isinstance(value, str) and "${" in value else ():
            if (
                value.strip() != f"${{{reference}}}"
                and _at(config, reference.split(".")) is None
                and _at(config, reference.split(".")[:-1]) is not None
            ):
                return f"{key}={value}: {reference} is not set; give it with {reference}=…"
    return None


def unknown_key(setting: Setting, configs: Sequence[Mapping[str, Any]]) -> ConfigError:
    """The error for a setting whose key none of ``configs`` has."""
    if setting.key == "cluster.endpoint":
        return ConfigError(f"{setting.text}: cluster={_at(configs[0], ['cluster', 'name'])} starts its own engines; add cluster=attach")
    parts = setting.key.split(".")
    for depth in range(len(parts)):
        nodes = [n for c in configs if isinstance(n := _at(c, parts[:depth]), Mapping)]
        if not any(parts[depth] in n for n in nodes):
            known = sorted({str(k) for n in nodes for k in n})
            where = f"the keys of {'.'.join(parts[:depth])}" if depth else "the known keys"
            add = "" if setting.action == "delete" else f"; to add a key write +{setting.key}=…"
            return ConfigError(f"{setting.text}: {one_of(parts[depth], known, where)}{add}")
    return ConfigError(f"{setting.text}: {setting.key} is there, but not what the override expects: it is {_at(configs[0], parts)!r}")


def _at(config: Any, path: Sequence[str]) -> Any:
    for part in path:
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def one_of(value: str, known: Sequence[str], what: str) -> str:
    close = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{value!r} is not known; {hint}{what}: {', '.join(known) or 'none'}"
