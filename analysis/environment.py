"""What was found of two attempts' environments, field by field, apart from the fields that are the drafter's.

A speedup compares two engine starts that differ in the drafter and in nothing else. What was found (``env`` of point.json) is
a nested dict whose content belongs to the engine adapters, so the fields are flattened to dotted names and a field is
the drafter's if a word of its name says so. What the adapters call ``unstable`` (a port, a temporary path) is not compared.
Resolved command lines (lists with ``--flag value``) are compared flag by flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsweep.analysis.attempts import Attempt, env_of

_DRAFTER_WORD = re.compile(
    r"(?:^|[._\-\s])(?:spec|speculative|speculation|draft|drafter|ngram|eagle3?|mtp|lookahead|dflash|medusa)(?:$|[._\-\s])"
)


def is_drafter_field(name: str) -> bool:
    """``flags.speculative-config`` and ``drafter.sha256`` are; ``flags.max-num-seqs`` is not."""
    return _DRAFTER_WORD.search(name.lower()) is not None


def environment_differences(a: Attempt, b: Attempt, *, drafter_too: bool = False) -> list[str]:
    """One line a differing field, ``name: value of a against value of b``; empty if the environments agree."""
    mine, theirs = (dict(flatten({k: v for k, v in env_of(x).items() if k != "unstable"})) for x in (a, b))
    names = sorted(mine.keys() | theirs.keys())
    return [
        f"{n}: {mine.get(n, 'not there')} against {theirs.get(n, 'not there')}"
        for n in names
        if mine.get(n) != theirs.get(n) and (drafter_too or not is_drafter_field(n))
    ]


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str) and any(str(v).startswith("--") for v in value):
        yield from ((f"{name}.{flag}", setting) for flag, setting in _flags([str(v) for v in value]).items())
    elif isinstance(value, list):
        yield name, tuple(repr(v) if isinstance(v, list | dict) else v for v in value)
    else:
        yield name, value


def _flags(argv: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    current = ""
    for word in argv:
        if word.startswith("--"):
            current, _, setting = word.removeprefix("--").partition("=")
            flags[current] = setting
        else:
            flags[current or word] = f"{flags.get(current, '')} {word}".strip() if current else ""
    return flags
