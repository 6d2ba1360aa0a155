"""The numbers that the paper prints, as typed rows: the one reader of the CSV files in ``paper/``.

A number keeps how far it was rounded (:attr:`Printed.rounding`), because agreement with a printed number can never be closer than its last
digit. Empty fields are None: not applicable, or not reported. The files ship with the package; a file or a field that does not fit its
row's type raises ``ValueError`` with file, line and column.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

_FOLDER = Path(__file__).with_name("paper")


class Printed(float):
    """A printed number. ``Printed("2.40").rounding`` is 0.005: half a unit of its last digit, which is all that the print can be off."""

    __slots__ = ("rounding",)
    rounding: float

    def __new__(cls, text: str) -> Printed:
        made = super().__new__(cls, text)
        made.rounding = 0.5 * 10.0 ** -len(text.strip().partition(".")[2])
        return made


@dataclass(frozen=True, slots=True)
class DomainRow:
    """Table 1. ``metric``: al (of one domain, only at temperature 0), mean_al or mean_speedup; ``value`` is None where (–) is printed."""

    temperature: int
    target_model: str
    drafter: str
    engine: str
    batch_size: int
    draft_length: int
    metric: str
    domain: str | None
    value: Printed | None
    supported: bool


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """Table 2: a property of SpecBench or SPEED-Bench. ``value`` as printed: mostly a number, yes and no as 1 and 0, some are words."""

    metric: str
    scope: str | None
    benchmark: str
    value: str
    note: str | None


@dataclass(frozen=True, slots=True)
class InputLengthRow:
    """Table 3: tokens of prompts by category. ``statistic``: mean or median."""

    benchmark: str
    category: str
    statistic: str
    isl_tokens: Printed


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """Table 6: (max - min) / mean of AL over benchmarks that were built independently, in percent."""

    category: str
    selection: str
    draft_length: int
    relative_al_range_percent: Printed


@dataclass(frozen=True, slots=True)
class RankingRow:
    """Table 7: disagreement of category rankings. ``statistic``: mean or max over pairs of benchmarks."""

    selection: str
    draft_length: int
    statistic: str
    normalized_kendall_tau_distance: Printed


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """Table 8: average pairwise similarity of a selection. ``selection``: random, greedy_swap or qp."""

    category: str
    selection: str
    avg_pairwise_similarity: Printed


@dataclass(frozen=True, slots=True)
class TreeRow:
    """Table 9: AL of tree drafting."""

    target_model: str
    drafter: str
    engine: str
    top_k: int
    draft_length: int
    al: Printed


@dataclass(frozen=True, slots=True)
class ProxyRow:
    """Table 10: measured and projected speedup; step times in ms."""

    target_model: str
    drafter: str
    target_category: str
    isl_tokens: int
    batch_size: int
    draft_length: int
    al: Printed
    t_ar_ms: Printed
    t_sd_ms: Printed
    speedup_actual: Printed
    speedup_projected: Printed


@dataclass(frozen=True, slots=True)
class TargetRow:
    """Table 11."""

    target_model: str
    checkpoint: str
    tensor_parallel: int
    expert_parallel: int
    note: str | None


@dataclass(frozen=True, slots=True)
class DrafterRow:
    """Table 12."""

    target_model: str
    drafter: str
    checkpoint: str
    note: str | None


@dataclass(frozen=True, slots=True)
class EngineRow:
    """Table 13."""

    engine: str
    image: str
    use: str


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """Table 14: output tokens that lie among the K most frequent training tokens. ``vocabulary_size`` is None for the full vocabulary."""

    target_model: str
    vocabulary_label: str
    vocabulary_size: int | None
    reasoning_effort: str
    subset: str
    output_tokens_covered_percent: Printed


def table1() -> tuple[DomainRow, ...]:
    return _rows("table1", DomainRow)


def table2() -> tuple[BenchmarkRow, ...]:
    return _rows("table2", BenchmarkRow)


def table3() -> tuple[InputLengthRow, ...]:
    return _rows("table3", InputLengthRow)


def table6() -> tuple[SpreadRow, ...]:
    return _rows("table6", SpreadRow)


def table7() -> tuple[RankingRow, ...]:
    return _rows("table7", RankingRow)


def table8() -> tuple[SelectionRow, ...]:
    return _rows("table8", SelectionRow)


def table9() -> tuple[TreeRow, ...]:
    return _rows("table9", TreeRow)


def table10() -> tuple[ProxyRow, ...]:
    return _rows("table10", ProxyRow)


def targets() -> tuple[TargetRow, ...]:
    return _rows("table11_targets", TargetRow)


def drafters() -> tuple[DrafterRow, ...]:
    return _rows("table12_drafters", DrafterRow)


def engines() -> tuple[EngineRow, ...]:
    return _rows("table13_engines", EngineRow)


def table14() -> tuple[CoverageRow, ...]:
    return _rows("table14", CoverageRow)


def blog_example() -> Mapping[str, Any]:
    """The example output of the announcement: ``setup``, ``printed`` and what follows from it, ``derived``."""
    example: dict[str, Any] = json.loads((_FOLDER / "blog_example.json").read_text(encoding="utf-8"))
    return example


RowType = TypeVar("RowType")


@lru_cache(maxsize=32)
def _rows(name: str, kind: type[RowType]) -> tuple[RowType, ...]:
    return parse((_FOLDER / f"{name}.csv").read_text(encoding="utf-8"), kind, f"{name}.csv")


def parse(text: str, kind: type[RowType], name: str) -> tuple[RowType, ...]:
    """CSV ``text`` with the columns of ``kind`` as its rows. ``name`` is of the file, for messages."""
    fields = get_type_hints(kind)
    lines = list(csv.reader(text.splitlines()))
    if not lines or lines[0] != list(fields):
        raise ValueError(f"{name}: its columns are {', '.join(lines[0]) if lines else 'missing'}; they must be {', '.join(fields)}")
    made = []
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(fields):
            raise ValueError(f"{name}, line {number}: {len(line)} fields for {len(fields)} columns")
        made.append(kind(*(_value(field, *column, f"{name}, line {number}") for field, column in zip(line, fields.items(), strict=True))))
    return tuple(made)


def _value(text: str, column: str, hint: Any, where: str) -> Any:
    kinds = get_args(hint) or (hint,)
    if not text and type(None) in kinds:
        return None
    try:
        return _READERS[kinds[0]](text)
    except (ValueError, KeyError):
        raise ValueError(f"{where}: {column} is {text!r}, which is no {kinds[0].__name__}") from None


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


_READERS: Mapping[type, Callable[[str], Any]] = {
    str: _text,
    int: int,
    Printed: Printed,
    bool: {"true": True, "false": False}.__getitem__,
}
