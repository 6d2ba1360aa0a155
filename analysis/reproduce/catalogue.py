"""All tables and figures of the paper that can be reproduced, by their id, in the paper's order.

Every module about some of them has its own ``EXPERIMENTS``; a module that is added here is known to ``specsweep reproduce`` and to ``all``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from specsweep.analysis.reproduce import (
    benchmarks_and_heads,
    blog_example,
    dataset_tables,
    draft_lengths,
    expert_figures,
    input_lengths,
    proxy_table,
    selection_table,
    similarity_figures,
    similarity_matrices,
    speed_curves,
    stability_tables,
    table1,
    vocabulary_table,
)
from specsweep.analysis.reproduce.claims import Experiment

_PARTS: Sequence[Sequence[Experiment]] = (
    benchmarks_and_heads.EXPERIMENTS,
    blog_example.EXPERIMENTS,
    dataset_tables.EXPERIMENTS,
    draft_lengths.EXPERIMENTS,
    expert_figures.EXPERIMENTS,
    input_lengths.EXPERIMENTS,
    proxy_table.EXPERIMENTS,
    selection_table.EXPERIMENTS,
    similarity_figures.EXPERIMENTS,
    similarity_matrices.EXPERIMENTS,
    speed_curves.EXPERIMENTS,
    stability_tables.EXPERIMENTS,
    table1.EXPERIMENTS,
    vocabulary_table.EXPERIMENTS,
)


def _paper_order(experiment: Experiment) -> tuple[int, int]:
    """Tables first, then figures, each kind by its number, then what has no number."""
    kind, number = re.fullmatch(r"(\D+)(\d*)", experiment.id).groups()  # type: ignore[union-attr]
    return {"table": 0, "fig": 1}.get(kind, 2), int(number or 0)


EXPERIMENTS: Mapping[str, Experiment] = {e.id: e for e in sorted(chain.from_iterable(_PARTS), key=_paper_order)}


def chosen(ids: Iterable[str]) -> list[Experiment]:
    """The named ones in the order of their names, each once; ``all`` is every one. Raises ``ValueError`` for an id that is not known."""
    wanted: dict[str, Experiment] = {}
    for name in ids:
        if name != "all" and name not in EXPERIMENTS:
            raise ValueError(f"{name} is no table or figure that can be reproduced; those are {', '.join(EXPERIMENTS)}, and all")
        wanted |= EXPERIMENTS if name == "all" else {name: EXPERIMENTS[name]}
    return list(wanted.values())
