"""Sweep files: one grid, several (``parts:``), or what other sweep files hold (``include:``), read to lists of settings.

A figure of a paper is seldom one grid: each target has drafters and an engine of its own. So a file may hold parts, and build on others.
One rule says what wins, the one that holds between a file and the command line: an outer setting replaces an inner one of the same key.
From the inside out: an included file, then the ``axes:`` and ``set:`` at the top of the file that includes it, then the command line. The
top of a file is inside its own parts' only in so far as a part may say it otherwise.

``replace:`` goes one step further than a replacement of keys: ``replace: {engine: {trtllm: sim_trtllm}}`` changes single values of what is
included, each part keeping what it says besides. That is how a sweep on GPUs becomes the same sweep on a simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.overrides import Setting, from_axis, literal
from specsweep.orchestrator.settings import one_of

Read = Callable[[str], Mapping[str, Any]]  # the keys of a sweep file by name; raises ConfigError
Options = Callable[[str], Sequence[str]]

_MAPPINGS = ("axes", "set", "replace")
_PART_KEYS = ("axes", "set")
_KEYS = ("name", "description", *_MAPPINGS, "parts", "include")


@dataclass(frozen=True, slots=True)
class FilePart:
    """One grid of a sweep file. ``where`` names it in messages: ``sweep/fig7.yaml, part 2``."""

    settings: tuple[Setting, ...]
    where: str


def read_parts(name: str, read: Read, options: Options) -> list[FilePart]:
    """The grids of one sweep file, those of included files first. Raises ConfigError for what a sweep file cannot hold."""
    return _parts(name, read, options, ())


def over(inner: Iterable[Setting], outer: Sequence[Setting]) -> tuple[Setting, ...]:
    """``inner`` with what ``outer`` says instead or besides. Dictionaries stay, since they merge."""
    replaced = {s.key for s in outer}
    return (*(s for s in inner if s.key not in replaced or isinstance(s.values[0], dict)), *outer)


def _parts(name: str, read: Read, options: Options, above: tuple[str, ...]) -> list[FilePart]:
    if name in above:
        raise ConfigError(f"sweep/{above[-1]}.yaml: include: {name} includes it in turn ({' → '.join((*above, name))}); leave one out")
    origin, content = f"sweep/{name}.yaml", read(name)
    _check(content, origin)
    _check_includes(content, origin, name, options("sweep"))
    top = _settings(content, origin, options)
    included = [part for file in content.get("include") or () for part in _parts(file, read, options, (*above, name))]
    changed = _replaced(included, content.get("replace") or {}, origin)
    found = [FilePart(over(part.settings, top), part.where) for part in changed]
    own = content.get("parts") or ([] if content.get("include") else [{}])
    for i, part in enumerate(own, 1):
        where = f"{origin}, part {i}" if len(own) > 1 else origin
        found.append(FilePart(over(top, _settings(part, where, options)), where))
    return found


def _settings(content: Mapping[str, Any], origin: str, options: Options) -> tuple[Setting, ...]:
    fixed = [literal(key, value, origin=origin) for key, value in (content.get("set") or {}).items()]
    return (*fixed, *(from_axis(key, value, origin=origin, options=options) for key, value in (content.get("axes") or {}).items()))


def _replaced(parts: Sequence[FilePart], changes: Mapping[str, Mapping[Any, Any]], origin: str) -> list[FilePart]:
    unused = {(key, old) for key, values in changes.items() for old in values}
    found = []
    for part in parts:
        settings = []
        for setting in part.settings:
            values = changes.get(setting.key) or {}
            hit = [v for v in setting.values if not isinstance(v, dict | list) and v in values]
            unused -= {(setting.key, v) for v in hit}
            changed = tuple(values[v] if v in hit else v for v in setting.values)
            settings.append(replace(setting, values=changed) if hit else setting)
        found.append(FilePart(tuple(settings), part.where))
    for key, old in sorted(unused, key=str):
        raise ConfigError(f"{origin}: replace.{key}.{old}: no included part has that value of {key}")
    return found


def _check(content: Mapping[str, Any], origin: str) -> None:
    for key in content:
        if key not in _KEYS:
            raise ConfigError(f"{origin}: {one_of(key, sorted(_KEYS), 'what a sweep file has')}")
    for key in _MAPPINGS:
        if not isinstance(content.get(key) or {}, dict):
            raise ConfigError(f"{origin}: {key} is a mapping of keys to values")
    for key in ("parts", "include"):
        if not isinstance(content.get(key) or [], list):
            raise ConfigError(f"{origin}: {key} is a list")
    for key, values in (content.get("replace") or {}).items():
        if not isinstance(values, dict) or any(isinstance(v, dict | list) for v in values.values()):
            raise ConfigError(f"{origin}: replace.{key} is a mapping of values to values, {{old: new}}")
    if content.get("replace") and not content.get("include"):
        raise ConfigError(f"{origin}: replace changes values of what is included, and include names nothing")
    for i, part in enumerate(content.get("parts") or (), 1):
        if not isinstance(part, dict) or any(not isinstance(part.get(key) or {}, dict) for key in _PART_KEYS):
            raise ConfigError(f"{origin}: part {i} is a mapping with {' and '.join(_PART_KEYS)}")
        for key in part:
            if key not in _PART_KEYS:
                raise ConfigError(f"{origin}: part {i}: {one_of(key, _PART_KEYS, 'what a part has')}")


def _check_includes(content: Mapping[str, Any], origin: str, name: str, known: Sequence[str]) -> None:
    for file in content.get("include") or ():
        if not isinstance(file, str):
            raise ConfigError(f"{origin}: include is a list of names of sweep files, {file!r} is none")
        if file not in known:
            raise ConfigError(f"{origin}: include: {one_of(file, known, 'the sweeps')}")
        if file == name:
            raise ConfigError(f"{origin}: include: {name} is the file itself; leave it out")
