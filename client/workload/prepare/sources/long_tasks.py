"""Ada-LEval's long tasks: which answer helps most (stackselect), and in which order four parts of a book belong (textsort).

What the official preparation does for stackselect, kept in official mode: each answer is asked alone whether it fits beside question,
closing request and right answer; those taken before it are not counted. A prompt may thus be far longer than its target, and cutting
then takes the closing request off, sometimes the right answer too. The note of such a row says so.

In ``plain`` answers are taken while all of them fit, so the closing request stays, and the right answer is one of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from specsweep.client.workload import buckets
from specsweep.client.workload.prepare import texts
from specsweep.client.workload.prepare.errors import RowError
from specsweep.client.workload.prepare.registry import Context, Filled, number, part, seed_of, source
from specsweep.client.workload.prepare.tables import Table
from specsweep.client.workload.rows import Row

SHUFFLE_SEED = 42  # again for every row


@source("AdaLEval/stackselect")
def stack_select(row: Row, at: Context) -> Filled:
    target = at.tokens(row)
    entry = at.by_key(Table(row.source, columns=("question_id", "question", "all_answers", "answer")), "question_id", row.src_id)
    answers, right = list(entry["all_answers"]), number(row, entry["answer"].strip("A")) - 1
    if not 0 <= right < len(answers):
        raise RowError(f"row {row.question_id}: the right answer is {entry['answer']} of {len(answers)}")
    notes = []
    if at.is_official:
        kept = _fitting_alone(entry["question"], answers, right, target)
        shown = answers[: kept + 1] if kept >= right else [answers[right], *answers[: kept + 1]]
        random.Random(SHUFFLE_SEED).shuffle(shown)
    else:
        shown = _fitting_together(entry["question"], answers, right, target)
        random.Random(seed_of(row)).shuffle(shown)
    text = best_answer(entry["question"], shown)
    if buckets.count(text) > target:
        notes.append("longer than the target: the closing request is cut off")
    return Filled((buckets.fit(text, target).text,), tuple(notes))


def best_answer(question: str, answers: Sequence[str]) -> str:
    numbered = (_named(n, answer) for n, answer in enumerate(answers))
    return _before(question) + "".join(numbered) + texts.BEST_ANSWER_CLOSING


def _fitting_alone(question: str, answers: Sequence[str], right: int, target: int) -> int:
    """The number of the last answer that is taken; 0 if none is, so that one is shown anyway."""
    fixed = _fixed(question, answers, right)
    last = 0
    for n, answer in enumerate(answers):
        if n == right:
            continue
        if fixed + buckets.count(_named(n, answer)) > target:
            break
        last = n
    return last


def _fitting_together(question: str, answers: Sequence[str], right: int, target: int) -> list[str]:
    used = _fixed(question, answers, right)
    shown = [answers[right]]
    for n, answer in enumerate(answers):
        if n == right:
            continue
        used += buckets.count(_named(n, answer))
        if used > target:
            break
        shown.append(answer)
    return shown


def _fixed(question: str, answers: Sequence[str], right: int) -> int:
    parts = _before(question), texts.BEST_ANSWER_CLOSING, _named(right, answers[right])
    return sum(map(buckets.count, parts))


def _before(question: str) -> str:
    return texts.BEST_ANSWER_OPENING + texts.BEST_ANSWER_QUESTION.format(question=question)


def _named(n: int, answer: str) -> str:
    return texts.BEST_ANSWER_ANSWER.format(name=f"A{n + 1}", answer=answer)


@source("AdaLEval/textsort")
def text_sort(row: Row, at: Context) -> Filled:
    """Asked for the sorted text and not for its order, so that the answer stands in the prompt (low entropy)."""
    target = at.tokens(row)
    prompt = at.at(Table(row.source, columns=("prompt",)), number(row, part(row, 1)))["prompt"]
    notes = () if texts.SORT_ASKS_ORDER in prompt else ("the instruction to be replaced is not in the source's prompt; it is as it was",)
    return Filled((buckets.fit(prompt.replace(texts.SORT_ASKS_ORDER, texts.SORT_ASKS_TEXT, 1), target).text,), notes)
