"""SpecBench and SPEED-Bench side by side: how alike the prompts of a category are, beside the acceptance length that was measured on them.

Likeness and AL in one row is the paper's argument against SpecBench: where all prompts of a category are one template, its AL is that of the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.data_stats_tables import SAME_CATEGORY
from specsweep.analysis.reproduce.arms import Arm
from specsweep.analysis.reproduce.collected import DataSets, Role, named
from specsweep.analysis.reproduce.contrasts import categories, category_al
from specsweep.analysis.tabular import Column, Row, Table, put, with_interval

_BENCHMARKS: tuple[tuple[str, str, Role], ...] = (("SpecBench", "specbench", "specbench"), ("SPEED-Bench", "qualitative", "benchmark"))


def side_by_side(name: str, sets: DataSets | None, arms: Sequence[Arm]) -> Table:
    """One row a category, SpecBench's translation under multilingual; columns alternate between the two benchmarks. A set that stands in for
    SPEED-Bench has its own name in the header."""
    columns, cells = [Column("category", "category")], []
    for shown, material, role in _BENCHMARKS:
        found = named(sets, role)
        likeness = {SAME_CATEGORY.get(c.category, c.category): c.similarity for c in found.stats.categories} if found else {}
        title = found.stats.name if found and not found.published else shown
        if any(value is not None for value in likeness.values()):
            columns.append(Column(f"similarity_{role}", f"similarity, {title}", right=True))
            cells.append({c: Estimate(v) for c, v in likeness.items() if v is not None})
        for arm in arms:
            if arm.material == material:
                columns.append(Column(f"al_{arm.pair}_{role}", f"AL {arm.pair}, {shown}", right=True))
                of_arm = {SAME_CATEGORY.get(c, c): category_al(arm.cell, c) for c in categories(arm.cell)}
                cells.append({c: e for c, e in of_arm.items() if e is not None})
    rows = []
    for category in sorted({c for column in cells for c in column}):
        record: dict[str, Any] = {"category": category}
        for column, values in zip(columns[1:], cells, strict=True):
            put(record, column.key, values.get(category))
        rows.append(Row((category, *(with_interval(values.get(category)) for values in cells)), record))
    notes = (
        "Similarity: mean cosine over the pairs of a category's prompts, lower is more diverse; translation stands under multilingual.",
    )
    return Table(name, "SpecBench and SPEED-Bench: likeness of the prompts and AL", tuple(columns), tuple(rows), notes)
