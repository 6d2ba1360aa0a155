"""Tables 6 and 7 of the paper: how far benchmarks that were built independently from one pool agree, by chance and by Algorithm 1.

The paper draws ten benchmarks of each kind once. What is measured of a pool's prompts serves any number of such draws, so here they are drawn several
times, and a number has the range over the draws: whether the optimised choice agrees better than a random one is decided only where
these ranges are apart. The paper's pool is not published; its numbers are beside ours and compared where target and drafter are the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from numpy.typing import ArrayLike

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome, Verdict, all_of
from specsweep.analysis.reproduce.collected import below, extra, worded
from specsweep.analysis.reproduce.judging import all_but
from specsweep.analysis.stability import BENCHMARKS, KINDS, Kind, agreement, benchmarks, category_al, overlap
from specsweep.analysis.tabular import Column, Row, Table

DRAWS = 10
RANDOM_DRAW = 0.5  # of the printed value: what one draw of ten benchmarks from another pool can be off
_REASON = "ten benchmarks are one random draw, and the paper's pool is not published"
EXCEPTIONS = 1  # categories in which the print has the random choice ahead: qa


@dataclass(frozen=True, slots=True)
class Spread:
    """Of benchmarks of one kind, with the range over the draws: relative range of AL by category (a share), and Kendall distances."""

    relative_range: Mapping[str, Estimate]
    distance_mean: Estimate
    distance_max: Estimate


@dataclass(frozen=True, slots=True)
class Stability:
    """``found``: draft length → kind → spread. ``overlap``: share of the prompts that two benchmarks of a kind have in common. ``of_the_paper``: measured
    with the paper's target and drafter."""

    pool: str
    k: int
    embedder: str
    draws: int
    overlap: Mapping[Kind, float]
    found: Mapping[int, Mapping[Kind, Spread]]
    of_the_paper: bool = False


def study(
    pool: str, candidates: Mapping[str, ArrayLike], measured: Mapping[int, Mapping[str, Mapping[int, float]]], k: int, *, embedder: str,
    draws: int = DRAWS, count: int = BENCHMARKS, of_the_paper: bool = False,
) -> Stability:  # fmt: skip
    """``candidates``: category → unit rows; ``measured``: draft length → category → row → AL. Raises ``ValueError`` as
    :func:`~specsweep.analysis.stability.benchmarks` and :func:`~specsweep.analysis.stability.category_al` do."""
    made = [benchmarks(candidates, k, count=count, seed=seed) for seed in range(draws)]
    found: dict[int, dict[Kind, Spread]] = {}
    for length, al in sorted(measured.items()):
        for kind in KINDS:
            agreed = [agreement(category_al(draw[kind], al)) for draw in made]
            found.setdefault(length, {})[kind] = Spread(
                {c: _range([a.relative_range[c] for a in agreed]) for c in candidates},
                _range([a.distance_mean for a in agreed]),
                _range([a.distance_max for a in agreed]),
            )
    shares = {kind: fmean(overlap(draw[kind]) for draw in made) for kind in KINDS}
    return Stability(pool, k, embedder, draws, shares, found, of_the_paper)


def _range(values: Sequence[float]) -> Estimate:
    return Estimate(fmean(values), min(values), max(values), method="range over draws", clusters=len(values))


def spread_of_al(evidence: Evidence) -> Outcome:
    """Table 6. Extras: ``stability``."""
    found = extra(evidence, "stability", Stability)
    shared = _shared(found)
    claims = [_narrower(length, by_kind, shared) for length, by_kind in (found.found if found else {}).items()] or [_narrower(None, {}, "")]
    numbers = []
    for row in printed.table6():
        spread = _spread(found, row.draft_length, row.selection)
        ours = _percent(spread.relative_range.get(row.category)) if spread and found and found.of_the_paper else None
        paper = row.relative_al_range_percent
        name = f"relative range of AL, {row.category}, {row.selection} (%)"
        numbers.append(NumberCheck(name, float(paper), ours, max(paper.rounding, RANDOM_DRAW * paper), _REASON))
    return Outcome((_range_table(found),), tuple(numbers), tuple(claims), notes=_notes(found))


def rankings(evidence: Evidence) -> Outcome:
    """Table 7. Extras: ``stability``."""
    found = extra(evidence, "stability", Stability)
    claims = []
    for statistic in ("mean", "max"):
        parts: dict[str, Verdict] = {}
        words = []
        for length, by_kind in (found.found if found else {}).items():
            optimized, uniform = (_distance(by_kind[kind], statistic) for kind in ("optimized", "uniform"))
            parts[f"DL {length}"] = below(optimized, uniform)
            words.append(f"DL {length}: {_words(optimized)} against {_words(uniform)}")
        text = "largest" if statistic == "max" else "mean"
        claims.append(
            Claim(
                f"closer-{statistic}",
                f"Rankings of categories disagree less among optimised benchmarks than among random ones ({text} Kendall τ distance)",
                "Table 7",
                all_of(parts.values()),
                "; ".join(words) + _shared(found) if words else "needs a measured pool",
            )
        )
    numbers = []
    for row in printed.table7():
        spread = _spread(found, row.draft_length, row.selection)
        ours = _distance(spread, row.statistic) if spread and found and found.of_the_paper else None
        paper = row.normalized_kendall_tau_distance
        name = f"Kendall τ distance, {row.statistic}, {row.selection}, DL {row.draft_length}"
        numbers.append(NumberCheck(name, float(paper), ours, max(paper.rounding, RANDOM_DRAW * paper), _REASON))
    return Outcome((_ranking_table(found),), tuple(numbers), tuple(claims), notes=_notes(found))


def _narrower(length: int | None, by_kind: Mapping[Kind, Spread], shared: str) -> Claim:
    parts = {c: below(by_kind["optimized"].relative_range[c], e) for c, e in by_kind["uniform"].relative_range.items()} if by_kind else {}
    at = "" if length is None else f" at DL {length}"
    return Claim(
        "narrower" + ("" if length is None else f"-dl{length}"),
        f"AL differs less between optimised benchmarks than between random ones{at}, in every category but at most {EXCEPTIONS}",
        "Table 6",
        all_but(EXCEPTIONS)(list(parts.values())),
        worded(parts) + shared if parts else "needs a measured pool",
    )


def _spread(found: Stability | None, length: int, selection: str) -> Spread | None:
    kind: Kind = "optimized" if selection == "optimized" else "uniform"
    return found.found.get(length, {}).get(kind) if found else None


def _distance(spread: Spread, statistic: str) -> Estimate:
    return spread.distance_max if statistic == "max" else spread.distance_mean


def _percent(share: Estimate | None) -> Estimate | None:
    if share is None or share.low is None or share.high is None:
        return None
    return Estimate(100 * share.value, 100 * share.low, 100 * share.high, method=share.method, clusters=share.clusters)


def _words(value: Estimate | None, decimals: int = 3) -> str:
    if value is None or value.low is None or value.high is None:
        return "–"
    return f"{value.value:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"


def _range_table(found: Stability | None) -> Table:
    paper = {(r.category, r.selection): r.relative_al_range_percent for r in printed.table6()}
    series = [(length, kind, spread) for length, by_kind in (found.found if found else {}).items() for kind, spread in by_kind.items()]
    categories = dict.fromkeys([*(c for c, _ in paper), *(c for _, _, s in series for c in s.relative_range)])
    rows = []
    for category in categories:
        values = [paper.get((category, kind)) for kind in KINDS]
        ours = [_percent(s.relative_range.get(category)) for _, _, s in series]
        record: dict[str, object] = {"category": category, **{f"paper_{kind}": v for kind, v in zip(KINDS, values, strict=True)}}
        record |= {f"{kind}_dl{length}": e.value if e else None for (length, kind, _), e in zip(series, ours, strict=True)}
        rows.append(Row((category, *("–" if v is None else f"{v:.1f}" for v in values), *(_words(e, 1) for e in ours)), record))
    columns = (
        Column("category", "category"),
        *(Column(f"paper_{kind}", f"paper: {kind}", right=True) for kind in KINDS),
        *(Column(f"{kind}{length}", f"{kind}, DL {length}", right=True) for length, kind, _ in series),
    )
    notes = (
        "(largest AL − smallest AL) / mean AL over the benchmarks of a kind, in percent, with the range over the draws. The paper's are at DL 7.",
    )
    return Table("table6", "Relative range of AL over independently built benchmarks", columns, tuple(rows), notes)


def _ranking_table(found: Stability | None) -> Table:
    paper = {(r.selection, r.draft_length, r.statistic): r.normalized_kendall_tau_distance for r in printed.table7()}
    rows = []
    lengths = sorted({length for _, length, _ in paper} | set(found.found if found else ()))
    for length in lengths:
        for kind in KINDS:
            values = [paper.get((kind, length, statistic)) for statistic in ("mean", "max")]
            spread = _spread(found, length, kind)
            ours = [_distance(spread, statistic) if spread else None for statistic in ("mean", "max")]
            cells = (kind, str(length), *("–" if v is None else f"{v:.3f}" for v in values), *(_words(e) for e in ours))
            record = {"selection": kind, "draft_length": length, "paper_mean": values[0], "paper_max": values[1]}
            rows.append(Row(cells, {**record, **{k: e.value if e else None for k, e in zip(("mean", "max"), ours, strict=True)}}))
    columns = (
        Column("selection", "selection"),
        *(Column(k, h, right=True) for k, h in (("dl", "DL"), ("paper_mean", "paper: mean"), ("paper_max", "paper: max"), ("mean", "mean"), ("max", "max"))),
    )  # fmt: skip
    return Table("table7", "Normalised Kendall τ distance of category rankings", columns, tuple(rows))


def _notes(found: Stability | None) -> tuple[str, ...]:
    if found is None:
        return ()
    return (
        f"{found.draws} draws of {BENCHMARKS} benchmarks of each kind, {found.k} prompts a category out of {found.pool}, chosen by {found.embedder}.",
        "What is nearly the same set agrees by itself: read agreement beside the share of prompts that two benchmarks have in common.",
    )


def _shared(found: Stability | None) -> str:
    if found is None:
        return ""
    return (
        f"; two of the optimised ones share {found.overlap['optimized']:.0%} of their prompts, random ones {found.overlap['uniform']:.0%}"
    )


EXPERIMENTS = (
    Experiment("table6", "Spread of AL over independently built benchmarks", "table6", spread_of_al, ("stability",)),
    Experiment("table7", "Disagreement of category rankings", "table7", rankings, ("stability",)),
)
