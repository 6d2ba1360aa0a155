"""Table 8 of the paper: a random choice, Algorithm 1 and the continuous relaxation ("QP"), by how alike the chosen prompts are.

The paper's candidates are not published, so its numbers are shown beside ours and compared only where the user names a pool as the paper's. Beside
them stands what the paper does not give: the bound that the relaxation puts below every choice, which says how much better any could be.
"""

from __future__ import annotations

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome, Verdict, all_of
from specsweep.analysis.reproduce.collected import Choices, below, embedders, extra, with_range, worded
from specsweep.analysis.reproduce.judging import most
from specsweep.analysis.tabular import Column, Row, Table

QP_REACH = 0.01  # the largest difference between greedy + swap and QP that the table prints
_COLUMNS = (("random", "random choice"), ("greedy_swap", "greedy + swap"), ("qp", "QP"))


def choice_of_method(evidence: Evidence) -> Outcome:
    """Table 8. Extras: ``choices``."""
    choices = extra(evidence, "choices", Choices)
    numbers = []
    for row in printed.table8():
        ours = _choice(choices, row.category, row.selection) if choices and choices.of_the_paper else None
        paper = row.avg_pairwise_similarity
        numbers.append(
            NumberCheck(f"similarity, {row.category}, {row.selection}", float(paper), ours, paper.rounding, "rounding of the print")
        )
    lower: dict[str, Verdict] = {}
    equal: dict[str, Verdict] = {}
    for c in choices.categories if choices else ():
        lower[c.category] = all_of((below(c.greedy_swap, c.random), below(c.qp, c.random)))
        equal[c.category] = "holds" if abs(c.greedy_swap - c.qp) <= QP_REACH else "failed"
    claims = (
        Claim(
            "below-random",
            "Both optimising choices are less alike than random ones, in every category",
            "Table 8",
            all_of(lower.values()),
            worded(lower),
        ),
        Claim(
            "qp-equal",
            f"Greedy + swap and the continuous relaxation reach the same similarity within {QP_REACH} in most categories",
            "Table 8",
            most(list(equal.values())),
            worded(equal),
        ),
    )
    return Outcome((_table8(choices),), tuple(numbers), claims, notes=embedders(None, choices))


def _choice(choices: Choices, category: str, selection: str) -> Estimate | None:
    for c in choices.categories:
        if c.category == category:
            return {"random": c.random, "greedy_swap": Estimate(c.greedy_swap), "qp": Estimate(c.qp)}[selection]
    return None


def _table8(choices: Choices | None) -> Table:
    paper = {(r.category, r.selection): r.avg_pairwise_similarity for r in printed.table8()}
    of_pool = {c.category: c for c in choices.categories} if choices else {}
    rows = []
    for category in dict.fromkeys([*(c for c, _ in paper), *of_pool]):
        c = of_pool.get(category)
        printed_values = [paper.get((category, key)) for key, _ in _COLUMNS]
        ours = [_choice(choices, category, key) if choices else None for key, _ in _COLUMNS]
        limits = [c.reached, c.bound] if c else [None, None]
        cells = (
            category,
            *("–" if v is None else f"{v:.2f}" for v in printed_values),
            *(with_range(v) for v in ours),
            *("–" if v is None else f"{v:.3f}" for v in limits),
        )
        record = {
            "category": category,
            **{f"paper_{key}": v for (key, _), v in zip(_COLUMNS, printed_values, strict=True)},
            **{key: v.value if v else None for (key, _), v in zip(_COLUMNS, ours, strict=True)},
            "reached": limits[0],
            "bound": limits[1],
        }
        rows.append(Row(cells, record))
    columns = (
        Column("category", "category"),
        *(Column(f"paper_{key}", f"paper: {header}", right=True) for key, header in _COLUMNS),
        *(Column(key, header, right=True) for key, header in _COLUMNS),
        Column("reached", "reached", right=True),
        Column("bound", "no choice below", right=True),
    )
    notes = ("Reached by greedy + swap, and what no choice goes below: both as the embedder that chose sees them.",)
    return Table("table8", "Average pairwise similarity by way of choosing", columns, tuple(rows), notes)


EXPERIMENTS = (Experiment("table8", "Similarity by way of choosing", "", choice_of_method, ("choices",)),)
