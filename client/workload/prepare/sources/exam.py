"""Humanity's Last Exam: its questions as they are, and, to a token target, behind demonstrations (few-shot).

The few-shot prompts of one config come from one generator, ``numpy.random.default_rng(42)``, which every row moves on: the third row
can only be made after the first two. A preparation that goes on where another stopped therefore makes all rows again, from the first.

What the official preparation does to their length, kept in official mode: the loop stops at *target* tokens, but the list is cut to
*target* − question + 1, so a prompt has target + 1 tokens; the last demonstration ends mid-way; a question longer than the target is
not cut, and the cut that would make room for it has gone negative by then, so it takes that many tokens (less one) from the *end* of
the intro instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsweep.client.workload import buckets
from specsweep.client.workload.prepare import texts
from specsweep.client.workload.prepare.errors import RowError
from specsweep.client.workload.prepare.registry import Context, Filled, seed_of, source
from specsweep.client.workload.prepare.tables import Record, Table
from specsweep.client.workload.rows import Row

NAME = "cais/hle"
SEED = 42
EXAM = Table(
    NAME, ("data/test-*.parquet",), "021a3d71f516a7ac28ceb8d284969902edf1edeb", ("id", "question", "rationale", "category", "image")
)


@source(NAME, in_order=True)
def exam(row: Row, at: Context) -> Filled:
    if at.target is None:
        return Filled((at.by_key(EXAM, "id", row.src_id)["question"],))
    shots = at.once("few-shot", lambda: FewShot(at.tables.rows(EXAM)))
    question = shots.question(row.src_id)
    if at.is_official:
        text = shots.official(question, at.target, at.once("few-shot generator", lambda: np.random.default_rng(SEED)))
        longer = buckets.count(question["question"]) > at.target
        return Filled((text,), ("the question is longer than the target and is not cut",) if longer else ())
    return Filled((shots.plain(question, at.target, np.random.default_rng(seed_of(row))),))


class FewShot:
    """The exam in two halves: one gives demonstrations, the other the questions. ``exam``: all its rows."""

    def __init__(self, exam: Sequence[Record]) -> None:
        demonstrations, questions = halves(len(exam))
        self._questions = {str(exam[i]["id"]): exam[i] for i in reversed(questions)}  # of two with one id the first counts
        self._pools: dict[str, list[list[int]]] = {}
        for i in demonstrations:
            if exam[i]["image"] == "":
                text = texts.EXAM_DEMONSTRATION.format(question=exam[i]["question"], answer=exam[i]["rationale"])
                self._pools.setdefault(exam[i]["category"], []).append(buckets.encode(text))

    def question(self, src_id: str) -> Record:
        if src_id not in self._questions:
            raise RowError(f"{EXAM}: the half that gives questions has none with id={src_id!r}")
        return self._questions[src_id]

    def official(self, question: Record, target: int, rng: np.random.Generator) -> str:
        asked = buckets.encode(question["question"])
        head = self._head(question["category"], target - len(asked), rng)
        return buckets.decode(head[: target - len(asked) + 1] + asked)  # the stop may be negative, see above

    def plain(self, question: Record, target: int, rng: np.random.Generator) -> str:
        asked = buckets.encode(question["question"])
        room = max(0, target - len(asked))
        head = self._head(question["category"], room, rng)[:room]
        return buckets.fit(buckets.decode(head) + question["question"], target).text

    def _head(self, category: str, room: int, rng: np.random.Generator) -> list[int]:
        """Intro and as many demonstrations, drawn with replacement, as it takes to have ``room`` tokens or more."""
        head = buckets.encode(texts.EXAM_INTRO.format(category=category))
        pool = self._pools.get(category, [])
        if not pool and len(head) < room:
            raise RowError(f"{EXAM}: category {category!r} has no demonstration")
        while len(head) < room:
            # One at a time and without replacement inside of the one: how DataFrame.sample(1) moves a generator on.
            head += pool[int(rng.choice(len(pool), size=1, replace=False)[0])]
        return head


def halves(n: int) -> tuple[list[int], list[int]]:
    """Row numbers of the demonstrations and of the questions, as ``Dataset.train_test_split(test_size=0.5, shuffle=True, seed=42)`` has it."""
    shuffled = np.random.default_rng(SEED).permutation(n).tolist()
    questions = -(-n // 2)
    return shuffled[questions:], shuffled[:questions]
