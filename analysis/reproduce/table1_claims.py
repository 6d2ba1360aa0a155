"""What the paper's text says about Table 1, each statement over the columns that were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Protocol

from specsweep.analysis.attempts import Cell, Estimate
from specsweep.analysis.reproduce.arms import Arm
from specsweep.analysis.reproduce.claims import Claim, Verdict, about_equal
from specsweep.analysis.reproduce.contrasts import (
    above,
    al_contrast,
    at_most,
    categories,
    category_al,
    combination,
    macro_al,
    macro_contrast,
)
from specsweep.analysis.reproduce.judging import Part, against, almost_all, difference, judged, most
from specsweep.analysis.speedup import Speedup, ratio_text

SOURCE = "Table 1"
EQUAL_AL = 0.05  # relative: "nearly equal AL"
LEVELS = ("coding", "math"), ("roleplay", "writing")


class Column(Protocol):
    """A target with a drafter by temperature."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def drafter(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def at(self) -> Mapping[int, Arm]: ...
    @property
    def speedup(self) -> Mapping[int, Speedup]: ...


def claims(columns: Sequence[Column]) -> list[Claim]:
    greedy = [c for c in columns if 0 in c.at]
    return [
        judged(
            "easy-domains-longer",
            "Coding and math have larger AL than roleplay and writing, in almost every column",
            SOURCE,
            _easy(greedy),
            "AL of coding, math, roleplay and writing at temperature 0",
            almost_all,
        ),
        judged(
            "roleplay-lowest",
            "Roleplay has the lowest AL in most columns",
            SOURCE,
            _extreme(greedy, "roleplay", lowest=True),
            "AL of roleplay and other domains at temperature 0",
            most,
        ),
        judged(
            "multilingual-separates",
            "In multilingual, separate draft models and MTP have larger AL than EAGLE3 heads of the same target",
            SOURCE,
            _multilingual(greedy),
            "AL of multilingual with EAGLE3, and with Vanilla or MTP, on one target",
        ),
        judged(
            "ngram-best-multilingual",
            "Multilingual is N-Gram's best domain",
            SOURCE,
            _extreme([c for c in greedy if c.drafter == "N-Gram"], "multilingual", lowest=False),
            "AL of N-Gram by domain at temperature 0",
        ),
        judged("ngram-slows", "N-Gram is a slowdown at BS 32", SOURCE, _ngram_slows(greedy), "N-Gram and its baseline at BS 32"),
        judged(
            "vanilla-gains-less",
            "At nearly equal AL a separate draft model gains less than an EAGLE3 head",
            SOURCE,
            _gains(greedy),
            f"Vanilla and EAGLE3 on one target with AL within {EQUAL_AL:.0%} and a speedup of both",
        ),
        judged(
            "temperature-lowers-al",
            "Temperature 1 lowers AL in every column that is supported",
            SOURCE,
            [Part(c.name, at_most(fall, 0), difference(fall)) for c, fall in _al_falls(columns)],
            "AL at temperature 0 and 1",
        ),
        judged(
            "temperature-lowers-speedup",
            "Temperature 1 lowers the speedup in every column that is supported",
            SOURCE,
            [Part(c.name, at_most(fall, 0), difference(fall)) for c, fall in _speedup_falls(columns)],
            "speedups at temperature 0 and 1",
        ),
        judged(
            "vanilla-falls-most",
            "Of all columns, AL and speedup of the separate draft model (of Llama, in the paper) fall most at temperature 1",
            SOURCE,
            [*_falls_most(_al_falls(columns), "AL"), *_falls_most(_speedup_falls(columns), "speedup")],
            "AL and speedups of Vanilla and another drafter at temperature 0 and 1",
        ),
    ]


def _cell(column: Column, temperature: int = 0) -> Cell:
    return column.at[temperature].cell


def _easy(columns: Sequence[Column]) -> Iterator[Part]:
    for column in columns:
        known = set(categories(_cell(column)))
        for easy in LEVELS[0]:
            for hard in LEVELS[1]:
                if {easy, hard} <= known:
                    yield _within_cell(column, easy, hard)


def _within_cell(column: Column, larger: str, smaller: str) -> Part:
    """Two domains of one arm hold different prompts, so they are independent."""
    a, b = category_al(_cell(column), larger), category_al(_cell(column), smaller)
    gap = combination([a, b], [1, -1]) if a and b else None
    return Part(f"{column.name}, {larger} over {smaller}", above(gap), against(a, b))


def _extreme(columns: Sequence[Column], domain: str, *, lowest: bool) -> Iterator[Part]:
    for column in columns:
        others = [c for c in categories(_cell(column)) if c != domain]
        if domain not in categories(_cell(column)) or not others:
            continue
        parts = [_within_cell(column, *((c, domain) if lowest else (domain, c))) for c in others]
        verdict: Verdict = "failed" if any(p.verdict == "failed" for p in parts) else _shown(parts)
        telling = next((p for v in ("failed", "not decidable", "holds") for p in parts if p.verdict == v), parts[0])
        yield Part(column.name, verdict, f"{telling.name.partition(', ')[2]}: {telling.words}")


def _shown(parts: Sequence[Part]) -> Verdict:
    return "holds" if all(p.verdict == "holds" for p in parts) else "not decidable"


def _pairs(columns: Sequence[Column], first: Sequence[str], second: str) -> Iterator[tuple[Column, Column]]:
    """Columns of one target and engine whose drafters are of the first kinds, and of the second."""
    for a in columns:
        for b in columns:
            if a.drafter in first and b.drafter == second and (a.target, a.engine) == (b.target, b.engine):
                yield a, b


def _multilingual(columns: Sequence[Column]) -> Iterator[Part]:
    for model, head in _pairs(columns, ("Vanilla", "MTP"), "EAGLE3"):
        a, b = (category_al(_cell(c), "multilingual") for c in (model, head))
        if a and b:
            gap = al_contrast([(_cell(model), 1), (_cell(head), -1)], "multilingual")
            yield Part(f"{model.name} over {head.drafter}", above(gap), against(a, b))


def _ngram_slows(columns: Sequence[Column]) -> Iterator[Part]:
    for column in columns:
        if column.drafter == "N-Gram" and column.at[0].batch_size == 32 and 0 in column.speedup:
            ratio = column.speedup[0].user_tps
            yield Part(column.name, at_most(ratio, 1), ratio_text(ratio) if ratio else column.speedup[0].reason)


def _gains(columns: Sequence[Column]) -> Iterator[Part]:
    for model, head in _pairs(columns, ("Vanilla",), "EAGLE3"):
        a, b = (macro_al(_cell(c)) or category_al(_cell(c)) for c in (model, head))
        if not (a and b) or abs(a.value / b.value - 1) > EQUAL_AL or about_equal(a, b, 2 * EQUAL_AL) == "failed":
            continue
        gains = [c.speedup[0].user_tps if 0 in c.speedup else None for c in (head, model)]
        gap = combination([gains[0], gains[1]], [1, -1]) if gains[0] and gains[1] else None
        yield Part(
            f"{model.target}, AL {a.value:.2f} and {b.value:.2f}", above(gap), f"{ratio_text(gains[1])} against {ratio_text(gains[0])}"
        )


def _both(columns: Sequence[Column]) -> list[Column]:
    return [c for c in columns if 0 in c.at and 1 in c.at]


def _al_falls(columns: Sequence[Column]) -> list[tuple[Column, Estimate | None]]:
    return [(c, macro_contrast([(_cell(c, 1), 1), (_cell(c, 0), -1)])) for c in _both(columns)]


def _speedup_falls(columns: Sequence[Column]) -> list[tuple[Column, Estimate | None]]:
    falls: list[tuple[Column, Estimate | None]] = []
    for c in _both(columns):
        hot, cold = c.speedup[1].user_tps, c.speedup[0].user_tps
        if hot and cold:
            falls.append((c, combination([hot, cold], [1, -1])))
    return falls


def _falls_most(falls: Sequence[tuple[Column, Estimate | None]], what: str) -> Iterator[Part]:
    known = [(c, f) for c, f in falls if f is not None]
    models = [c for c, _ in known if c.drafter == "Vanilla"]
    model = next((c for c in models if c.target.startswith("Llama")), models[0] if models else None)
    for (a, fall_a), (b, fall_b) in combinations(known, 2):
        if model in (a, b):
            mine, other, name = (fall_a, fall_b, b.name) if a is model else (fall_b, fall_a, a.name)
            yield Part(
                f"{what}, beyond {name}", at_most(combination([mine, other], [1, -1]), 0), f"{difference(mine)} against {difference(other)}"
            )
