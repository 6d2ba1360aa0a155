"""Records of data sets, choices and stability for ``specsweep reproduce``: what the experiments about prompts look at.

Without a word from the user everything is taken from what is there: the published split where it was prepared, else the offline one, which says
that it stands in; a choice by ``hashed`` embeddings, judged by an independent sketch. SpecBench's questions, another pool and another
embedder are named by options, see :data:`~specsweep.orchestrator.reproduction_extras.OPTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.analysis.attempts import Estimate, cells
from specsweep.analysis.data_stats import describe
from specsweep.analysis.reproduce.collected import CategoryChoice, Choices, DataSet, DataSets, Role
from specsweep.client.workload.buckets import count
from specsweep.client.workload.embedders import Embedder, Vectors, embedder, judge_of
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.mini import qualitative_rows
from specsweep.client.workload.question_files import SPECBENCH_ROWS, read_any
from specsweep.client.workload.rows import Row, read_rows, require_filled
from specsweep.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from specsweep.analysis.reproduce.stability_tables import Stability
    from specsweep.orchestrator.reproduction_extras import Request

PUBLISHED = "qualitative/test.parquet"
MATRICES = ("multilingual", "translation", "math")  # categories of Figures 9 and 10, SpecBench's name too
OFFLINE, LARGEST_K, RANDOM_CHOICES = "mini/qualitative", 80, 20
_STAND_IN = "the offline split"
_PAPER = ("llama-3.3-70b", "eagle3")  # whose stability the paper measured


def data_sets(request: Request) -> DataSets:
    """Raises ConfigError for a file that cannot be read."""
    judge = _embedders(request)[1]
    found: list[DataSet] = []
    try:
        name, rows, published = _benchmark(request)
        found.append(_data_set("benchmark", name, rows, published, judge))
        if path := request.options.get("specbench"):
            questions = read_any(path) if Path(path).suffix in (".jsonl", ".json") else read_rows(path)
            found.append(_data_set("specbench", "SpecBench", questions, len(questions) == SPECBENCH_ROWS, judge))
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    return DataSets(tuple(found))


def choices(request: Request) -> Choices:
    """Choices of k prompts of each category of the pool by all ways. Raises ConfigError for a pool or a k that does not fit."""
    chooser, judge = _embedders(request)
    try:
        name, rows = _pool(request)
        members = _distinct(rows)
        k = _k(request, {c: len(of) for c, of in members.items()})
        categories = tuple(_chosen(c, of, k, chooser, judge) for c, of in members.items())
    except (WorkloadError, ValueError) as error:
        raise ConfigError(str(error)) from error
    return Choices(name, k, chooser.name, judge.name, categories, name == _STAND_IN)


def stability(request: Request) -> Stability | None:
    """None if no point with a drafter has the AL of the pool's prompts. Raises ConfigError for a pool that was measured in part only."""
    from specsweep.analysis.reproduce.stability_tables import study

    try:
        name, rows = _pool(request)
        pool: dict[str, list[Row]] = {}
        for row in rows:
            pool.setdefault(row.category, []).append(row)
        measured, of_the_paper = _measured(request.attempts, {c: {r.question_id: n for n, r in enumerate(of)} for c, of in pool.items()})
        if not measured:
            return None
        chooser = _embedders(request)[0]
        x = {category: chooser.embed([_text(row) for row in of]) for category, of in pool.items()}
        k = _k(request, {c: len(of) for c, of in pool.items()})
        return study(name, x, measured, k, embedder=chooser.name, of_the_paper=of_the_paper)
    except (WorkloadError, ValueError) as error:
        raise ConfigError(str(error)) from error


def _benchmark(request: Request) -> tuple[str, Sequence[Row], bool]:
    """Name, rows, and whether it is the published set."""
    path = Path(request.options.get("data", "data/speed")) / PUBLISHED
    if path.is_file():
        return "SPEED-Bench", read_rows(path), True
    return "offline split", qualitative_rows(), False


def _pool(request: Request) -> tuple[str, Sequence[Row]]:
    if path := request.options.get("pool"):
        rows = read_rows(path)
        require_filled(rows, path)
        return path, rows
    published = Path(request.options.get("data", "data/speed")) / PUBLISHED
    corpora = {str(a["point"]["config"]["workload"].get("corpus")) for a in request.attempts}
    if published.is_file() and corpora and OFFLINE not in corpora:
        return "SPEED-Bench", read_rows(published)
    return _STAND_IN, qualitative_rows()


def _embedders(request: Request) -> tuple[Embedder, Embedder]:
    """Who chooses, and who judges."""
    name, cache = request.options.get("embedder", "hashed"), request.options.get("embeddings")
    folder = Path(cache) if cache else None
    try:
        chooser = embedder(name, cache=folder)
        judge = judge_of(name)
        return chooser, embedder(judge, cache=folder) if judge else chooser
    except WorkloadError as error:
        raise ConfigError(str(error)) from error


def _text(row: Row) -> str:
    """As ``specsweep data select`` compares them."""
    from specsweep.orchestrator.cli.data_select import text_of

    return text_of(row)


def _data_set(role: Role, name: str, rows: Sequence[Row], published: bool, judge: Embedder) -> DataSet:
    from specsweep.analysis.selection import average_similarity
    from specsweep.analysis.similarity import LARGEST, similarity_matrix

    texts: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_placeholder:
            texts.setdefault(row.category, []).append(_text(row))
    vectors: dict[str, Vectors] = {category: judge.embed(of) for category, of in texts.items() if len(of) > 1}
    isl = [None if row.is_placeholder else sum(map(count, row.turns)) for row in rows]
    stats = describe(name, rows, isl, similarity={c: average_similarity(x) for c, x in vectors.items()}, embedder=judge.name)
    matrices = {c: similarity_matrix(x[:LARGEST]).tolist() for c, x in vectors.items() if c in MATRICES}
    return DataSet(role, published, stats, matrices)


def _distinct(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The texts of each category, each once: a copy could be chosen too, and would be no other prompt."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(row.category, {})[_text(row)] = None
    return {category: list(texts) for category, texts in found.items()}


def _k(request: Request, sizes: Mapping[str, int]) -> int:
    text = request.options.get("k")
    if text is not None and not text.isdecimal():
        raise ConfigError(f"k={text}: a whole number of prompts a category")
    smallest = min(sizes, key=lambda c: sizes[c])
    k = int(text) if text else min(LARGEST_K, sizes[smallest] // 2)
    if not 2 <= k < sizes[smallest]:
        raise ConfigError(f"k={k}: category {smallest} has {sizes[smallest]} prompts; a choice needs 2 or more and leaves some out")
    return k


def _chosen(category: str, texts: Sequence[str], k: int, chooser: Embedder, judge: Embedder) -> CategoryChoice:
    import numpy as np

    from specsweep.analysis import relaxation, selection

    x, seen = chooser.embed(texts), judge.embed(texts)
    random = [selection.average_similarity(seen, selection.uniform(x, k, seed=seed).indices) for seed in range(RANDOM_CHOICES)]
    low, high = np.quantile(random, [0.025, 0.975])
    best, relaxed = selection.greedy_swap(x, k), relaxation.relax(x, k)
    by = (selection.greedy(x, k), best, relaxation.rounded(x, relaxed))
    greedy, swapped, qp = (selection.average_similarity(seen, found.indices) for found in by)
    estimate = Estimate(float(np.mean(random)), float(low), float(high), method="range of 95 % of random choices", clusters=RANDOM_CHOICES)
    return CategoryChoice(category, len(texts), estimate, greedy, swapped, qp, best.average_similarity, relaxed.similarity_bound)


def _measured(
    attempts: Sequence[Mapping[str, Any]], places: Mapping[str, Mapping[str, int]]
) -> tuple[dict[int, dict[str, dict[int, float]]], bool]:
    """Draft length → category → row of the pool → AL, from the first cell of each draft length that has all rows; and whether all are of the
    paper's target and drafter. ``places``: category → question id → row."""
    found: dict[int, dict[str, dict[int, float]]] = {}
    of_the_paper = True
    for cell in cells(attempts):
        length = int(cell.axes.get("draft_length") or 0)
        if cell.baseline or not length or length in found or not cell.valid("acceptance"):
            continue
        al: dict[str, dict[int, float]] = {category: {} for category in places}
        for row in cell.counted("acceptance")[0]["measurement"].get("per_conversation") or ():
            place = places.get(str(row["category"]), {}).get(str(row["conversation_id"]))
            if place is not None and row.get("steps"):
                al[str(row["category"])][place] = row["step_tokens"] / row["steps"]
        if all(len(al[category]) == len(rows) for category, rows in places.items()):
            found[length] = al
            of_the_paper &= (cell.axes.get("target"), cell.axes.get("drafter")) == _PAPER
    return found, of_the_paper
