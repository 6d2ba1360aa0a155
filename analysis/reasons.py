"""Sentences that differ only in a number are one sentence: ``client_lag_request = 20 … 101 % of the median request time``.

A busy machine fails one check at every point, each with its own percentage. A dozen lines that say so hide the second reason among
them, if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# A number that stands alone: not the 50 of p50 nor the 3 of a version.
_NUMBER = re.compile(r"(?<![\w.,-])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\w)")


@dataclass(frozen=True, slots=True)
class Reason:
    text: str  # a number that is not the same in all of them is a range, least … greatest
    texts: tuple[str, ...]  # the different sentences that it stands for
    count: int  # how many sentences it stands for


def merged(texts: Iterable[str]) -> list[Reason]:
    """The different reasons, in order of first appearance; sentences that differ only in numbers are one."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(_NUMBER.sub("#", text), []).append(text)
    return [Reason(_one(same), tuple(dict.fromkeys(same)), len(same)) for same in groups.values()]


def _one(texts: Sequence[str]) -> str:
    columns = iter(zip(*(_NUMBER.findall(text) for text in texts), strict=True))
    return _NUMBER.sub(lambda _: _range(next(columns)), texts[0])


def _range(numbers: Sequence[str]) -> str:
    ordered = sorted(numbers, key=lambda n: float(n.replace(",", "")))
    low, high = ordered[0], ordered[-1]
    return low if low == high else f"{low} … {high}"


def in_one_sentence(texts: Iterable[str], noun: str = "point") -> str:
    """The commonest reason, with how many others there are: ``A (at 9 points); 2 other reasons at 3 points``."""
    found = sorted(merged(texts), key=lambda r: -r.count)
    if len(found) == 1:
        return found[0].text
    others = sum(r.count for r in found[1:])
    more = f"{len(found) - 1} other reason{'s' if len(found) > 2 else ''} at {others} {noun}{'s' if others > 1 else ''}"
    return f"{found[0].text} (at {found[0].count} {noun}{'s' if found[0].count > 1 else ''}); {more}"
