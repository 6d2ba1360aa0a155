"""The Prometheus text format, as far as engines' run counters need it.

Two engines write it through the Python client library and one by hand, so the parser takes what they really send: labels with
escaped quotes, ``+Inf`` and ``NaN``, time stamps, ``_created`` series (kept under their own names: they are not counters), and a
page whose last line has no newline. A line that is not a sample is skipped: one bad line must not cost the point its counters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

Labels = frozenset[tuple[str, str]]
Samples = Mapping[tuple[str, Labels], float]

_SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)\s*(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$')
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_MOST = 1e18  # of any value: a sum of larger ones has no digits of its own left, and of some no float
_MOST_POSITION_DIGITS = 4  # of a draft position: the positions become a tuple as long as the largest
_ESCAPE = re.compile(r"\\(.)")


def parse(text: str) -> dict[tuple[str, Labels], float]:
    """Every sample of a page: ``(name, labels)`` → value."""
    samples: dict[tuple[str, Labels], float] = {}
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        found = _SAMPLE.match(line)
        if found is None:
            continue
        name, labels, value = found.groups()
        try:
            samples[name, _labels(labels)] = float(value)
        except ValueError:
            continue
    return samples


def _labels(text: str | None) -> Labels:
    if not text:
        return frozenset()
    if _LABEL.sub("", text).strip():
        raise ValueError(f"not labels: {text!r}")
    return frozenset((name, _ESCAPE.sub(_unescape, value)) for name, value in _LABEL.findall(text))


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def total(samples: Samples, name: str) -> float | None:
    """The sum of one metric over all its label sets (engines of a data-parallel server, models). None if it is not there."""
    values = [value for (key, _), value in samples.items() if key == name and abs(value) <= _MOST]
    return math.fsum(values) if values else None


def by_label(samples: Samples, name: str, label: str) -> dict[str, float]:
    """The sums of one metric for each value of one label."""
    sums: dict[str, float] = {}
    for (key, labels), value in samples.items():
        if key == name and abs(value) <= _MOST:
            for label_name, label_value in labels:
                if label_name == label:
                    sums[label_value] = sums.get(label_value, 0.0) + value
    return sums


def by_position(samples: Samples, name: str) -> tuple[float, ...]:
    """A counter by ``position`` (0, 1, …) as a tuple in that order; a position that the page leaves out counts 0."""
    sums = {
        int(p): v for p, v in by_label(samples, name, "position").items() if p.isascii() and p.isdigit() and len(p) <= _MOST_POSITION_DIGITS
    }
    return tuple(sums.get(p, 0.0) for p in range(max(sums) + 1)) if sums else ()
