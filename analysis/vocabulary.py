"""How much of what a target says lies within a smaller vocabulary: the price that a drafter with a pruned one pays (Table 14 of the paper).

A drafter that knows only the K most frequent tokens of its training data can never guess another one. So the share of the target's output tokens that
lie within those K bounds its acceptance, and the share that does not is what pruning costs, by category: languages that the training
data had little of lose most. Tokens of one answer are alike, so intervals are over conversations.

The vocabulary is either the top K of a reference corpus, counted with the target's tokenizer, or a head's own map (``d2t`` of an EAGLE3 checkpoint). Of
tokens that are equally frequent the lower id comes first, so a vocabulary is a function of its corpus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.stats import Interval, ratio_interval
from specsweep.analysis.tabular import Column, Row, Table
from specsweep.client.trace import RequestTrace

SIZES: Mapping[str, int] = {"16k": 16_000, "32k": 32_000, "64k": 64_000}  # of the paper's table
PAPER_VOCABULARY = 201_088  # GPT-OSS's, in which those sizes are 8, 16 and 32 percent
FULL = "full"  # all tokens that the reference corpus holds
OVERALL = "overall"
FEWEST_CATEGORIES = 4  # of a correlation with an interval

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the target said in one conversation, over all its turns."""

    conversation: str
    category: str
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of the output tokens within one vocabulary, 0 to 1. ``size``: how many tokens it has; ``label``: ``32k``, ``full``, or a head's name."""

    label: str
    size: int
    overall: Estimate
    by_category: Mapping[str, Estimate]


def answers(requests: Iterable[RequestTrace]) -> list[Answer]:
    """The answers of the measured prompts, each prompt once, in order of appearance. Raises ``ValueError`` if no request carried its token ids."""
    found: dict[str, tuple[str, list[int]]] = {}
    for r in requests:
        if r.phase == "main" and r.pass_index == 0 and r.read.outcome == "ok" and r.read.output_ids:
            found.setdefault(r.prompt_id, (r.category, []))[1].extend(r.read.output_ids)
    if not found:
        raise ValueError("no answer in the trace has its token ids: the engine's stream holds text only")
    return [Answer(name, category, ids) for name, (category, ids) in found.items()]


def counted(ids: Iterable[int], size: int) -> NDArray[np.int64]:
    """How often each token of a vocabulary of ``size`` occurs. Raises ``ValueError`` for an id outside of it."""
    found = np.fromiter(ids, dtype=np.int64)
    if found.size and not (found.min() >= 0 and found.max() < size):
        raise ValueError(f"token ids {found.min()} to {found.max()} in a vocabulary of {size}: counts of another tokenizer")
    return np.bincount(found, minlength=size)


def top(counts: ArrayLike, k: int) -> Mask:
    """The ``k`` most frequent tokens as a mask over ids. Tokens that never occur are among them only if all that do are.

    Raises ``ValueError`` for k outside 1 … number of tokens."""
    found = np.asarray(counts)
    if not 1 <= k <= found.size:
        raise ValueError(f"the {k} most frequent of {found.size} tokens: give a size from 1 to {found.size}")
    mask = np.zeros(found.size, dtype=np.bool_)
    mask[np.argsort(-found, kind="stable")[:k]] = True
    return mask


def seen(counts: ArrayLike) -> Mask:
    """The tokens that occur at all."""
    return np.asarray(np.asarray(counts) > 0)


def kept_by_head(size: int, *, d2t: ArrayLike | None = None, t2d: ArrayLike | None = None) -> Mask:
    """The target's tokens that a head can draft, of a vocabulary of ``size``. ``d2t``: what to add to each of its own ids to get the target's (the form of
    the EAGLE3 code); ``t2d``: true for the target's ids that it has. Raises ``ValueError`` if neither is given or one does not fit."""
    if t2d is not None:
        mask = np.asarray(t2d).astype(np.bool_)
        if mask.ndim != 1 or len(mask) > size:
            raise ValueError(f"t2d of shape {mask.shape} for a vocabulary of {size} tokens")
        return np.pad(mask, (0, size - len(mask)))
    if d2t is None:
        raise ValueError("a head's map is d2t or t2d, and neither was given")
    offsets = np.asarray(d2t)
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        raise ValueError(f"d2t of shape {offsets.shape} and type {offsets.dtype}: one whole number for each of the head's tokens is needed")
    ids = np.arange(len(offsets)) + offsets.astype(np.int64)
    if not (ids.size and ids.min() >= 0 and ids.max() < size and np.unique(ids).size == ids.size):
        raise ValueError(f"d2t does not name {len(offsets)} different tokens of a vocabulary of {size}: it is of another target")
    mask = np.zeros(size, dtype=np.bool_)
    mask[ids] = True
    return mask


def sizes_for(vocabulary: int) -> dict[str, int]:
    """The sizes of the table, or, of a vocabulary that the largest of them would not prune, the same shares of it."""
    if vocabulary > max(SIZES.values()):
        return dict(SIZES)
    scaled = [round(vocabulary * size / PAPER_VOCABULARY) for size in SIZES.values()]
    return {f"{size:,}": size for size in scaled if size}


def coverage(label: str, mask: Mask, said: Sequence[Answer]) -> Coverage:
    """Raises ``ValueError`` if nothing was said."""
    sums = [(a.category, _within(mask, a.ids), len(a.ids)) for a in said if a.ids]
    if not sums:
        raise ValueError("no output token to look at")
    categories = dict.fromkeys(category for category, _, _ in sums)
    by_category = {c: _share([(n, d) for category, n, d in sums if category == c]) for c in categories}
    return Coverage(label, int(mask.sum()), _share([(n, d) for _, n, d in sums]), by_category)


def _within(mask: Mask, ids: Sequence[int]) -> int:
    """Ids beyond the mask are tokens that the vocabulary does not have."""
    found = np.asarray(ids, dtype=np.int64)
    return int(mask[found[(found >= 0) & (found < len(mask))]].sum())


def _share(sums: Sequence[tuple[int, int]]) -> Estimate:
    found: Interval = ratio_interval([n for n, _ in sums], [d for _, d in sums], scale="logit")
    return Estimate(found.value, found.low, found.high, method=found.method, clusters=found.n)


# --- what it has to do with acceptance -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """Share of tokens outside the head's vocabulary against the loss of AL, by category, and their correlation with its interval (Fisher's z)."""

    pruned: str
    full: str
    missing: Mapping[str, float]
    loss: Mapping[str, float]
    correlation: Estimate | None


def link(pruned: str, full: str, covered: Mapping[str, float], al_pruned: Mapping[str, float], al_full: Mapping[str, float]) -> Link:
    """Of the categories that all three have. The correlation is None with fewer than three, or where one of both does not vary."""
    shared = [c for c in covered if c in al_pruned and al_full.get(c, 0) > 0]
    missing = {c: 1 - covered[c] for c in shared}
    loss = {c: 1 - al_pruned[c] / al_full[c] for c in shared}
    return Link(pruned, full, missing, loss, correlation(list(missing.values()), list(loss.values())))


def correlation(a: Sequence[float], b: Sequence[float]) -> Estimate | None:
    """Pearson's, with a 95 % interval by Fisher's z from :data:`FEWEST_CATEGORIES` pairs on."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values: a correlation is of pairs")
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    value = float(np.clip(np.corrcoef(a, b)[0, 1], -1.0, 1.0))
    if len(a) < FEWEST_CATEGORIES or abs(value) == 1.0:
        return Estimate(value, clusters=len(a))
    reach = 1.959964 / math.sqrt(len(a) - 3)
    middle = math.atanh(value)
    return Estimate(value, math.tanh(middle - reach), math.tanh(middle + reach), method="Fisher's z", clusters=len(a))


def coverage_table(found: Sequence[Coverage], reference: str, title: str = "Output tokens within a vocabulary") -> Table:
    """One row a vocabulary; overall, then the categories with least coverage first (as the smallest vocabulary sees them)."""
    first = min(found, key=lambda c: c.size)
    categories = sorted(first.by_category, key=lambda c: first.by_category[c].value)
    rows = []
    for one in found:
        shares = {OVERALL: one.overall, **{c: one.by_category[c] for c in categories if c in one.by_category}}
        record: dict[str, Any] = {"vocabulary": one.label, "size": one.size, "reference": reference}
        for name, share in shares.items():
            record |= {f"covered_{name}": share.value, f"covered_{name}_ci_low": share.low, f"covered_{name}_ci_high": share.high}
        rows.append(Row((one.label, f"{one.size:,}", *(percent(shares.get(c)) for c in (OVERALL, *categories))), record))
    columns = (
        Column("vocabulary", "vocabulary"),
        Column("size", "tokens", right=True),
        *(Column(c, c, right=True) for c in (OVERALL, *categories)),
    )
    notes = (
        f"Percent of the output tokens, with 95 % intervals over conversations. Most frequent tokens of: {reference}; full: all that it holds.",
    )
    return Table("vocabulary", title, columns, tuple(rows), notes)


def percent(share: Estimate | None) -> str:
    if share is None:
        return "–"
    interval = f" [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share.low is not None and share.high is not None else ""
    return f"{100 * share.value:.1f}{interval}"
