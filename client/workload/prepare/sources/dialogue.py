"""Conversations that are replayed or carried on: MT-Bench-101 turn by turn, BAMBOO's long dialogues in one prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specsweep.client.workload import buckets
from specsweep.client.workload.prepare import texts
from specsweep.client.workload.prepare.registry import Context, Filled, last_number, source
from specsweep.client.workload.prepare.tables import Table
from specsweep.client.workload.rows import Row


@source("mtbench101/mt-bench-101")
def mt_bench_101(row: Row, at: Context) -> Filled:
    """The user's messages in order; how many there are is known only now, a published row has one turn."""
    history = at.at(Table(row.source, columns=("history",)), last_number(row))["history"]
    return Filled(tuple(exchange["user"] for exchange in history))


@source("RUCAIBox/BAMBOO")
def bamboo(row: Row, at: Context) -> Filled:
    """One dialogue, or several where one does not fill the target, then padded or cut."""
    target = at.tokens(row)
    table = Table(row.source, columns=("content",))
    contents = [at.at(table, int(n))["content"] for n in re.findall(r"_(\d+)", row.src_id)]
    return Filled((buckets.fit(dialogues(contents), target).text,))


def dialogues(contents: Sequence[str]) -> str:
    numbered = (texts.DIALOGUE.format(n=n, content=content) for n, content in enumerate(contents, 1))
    return texts.DIALOGUES.format(content="\n\n".join(numbered))
