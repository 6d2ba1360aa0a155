"""`AXIS=VALUE` filters of the commands that read measured points: which of a sweep's points a question is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsweep.analysis.axis_words import format_axis
from specsweep.orchestrator.errors import ConfigError

Record = Mapping[str, Any]


def filtered(records: Sequence[Record], filters: Sequence[str], option: str) -> list[Record]:
    """The points that every filter lets through, each ``AXIS=VALUE[,VALUE…]``. ``option`` names where they were given, for the message.

    Raises ``ConfigError`` for a filter that is none, an axis that no point has, and a value that no point has.
    """
    chosen = list(records)
    for text in filters:
        name, equals, listed = text.partition("=")
        if not equals or not name or not listed:
            raise ConfigError(f"{option} {text}: write AXIS=VALUE, or AXIS=VALUE,VALUE")
        there = {format_axis(axes_of(r)[name], name): None for r in records if name in axes_of(r)}
        if not there:
            known = ", ".join(dict.fromkeys(n for r in records for n in axes_of(r))) or "none"
            raise ConfigError(f"{option} {text}: no point has an axis {name!r}; axes: {known}")
        wanted = {format_axis(_typed(v.strip()), name) for v in listed.split(",")}
        if unknown := sorted(wanted - there.keys()):
            raise ConfigError(f"{option} {text}: no point has {name} {unknown[0]!r}; there are: {', '.join(there)}")
        chosen = [r for r in chosen if name in axes_of(r) and format_axis(axes_of(r)[name], name) in wanted]
    if records and not chosen:
        raise ConfigError(f"{option} {' '.join(filters)}: no point has all of these together")
    return chosen


def axes_of(record: Record) -> Mapping[str, Any]:
    axes: Mapping[str, Any] = record["point"].get("axes") or {}
    return axes


def _typed(text: str) -> object:
    """A number where it reads like one, so that ``1e3`` and ``1000`` are one ISL."""
    try:
        return float(text)
    except ValueError:
        return text
