"""Questions with material: multiple choice, retrieved passages, a translation pair, an article."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specsweep.client.workload.prepare import texts
from specsweep.client.workload.prepare.errors import RowError
from specsweep.client.workload.prepare.registry import Context, Filled, last_number, number, part, source, template
from specsweep.client.workload.prepare.tables import Table
from specsweep.client.workload.rows import Row

MMLU_PRO = Table("TIGER-Lab/MMLU-Pro", ("data/test-*.parquet",), "30527804ea8854662078e457808040d872ecdf29", ("question", "options"))
CHATRAG = Table(
    "nvidia/ChatRAG-Bench",
    ("data/hybridial/test.json", "data/sqa/test.json"),  # in this order: row numbers run through both
    "af6c7d420ddddf21f54f8ab3394bbf462aad2577",
    ("ctxs", "messages"),
)
OPUS_REVISION = "805090dc28bf78897da9641cdf08b61287580df9"


@source("TIGER-Lab/MMLU-Pro")
def mmlu_pro(row: Row, at: Context) -> Filled:
    """As many questions as the row has turns, from one on; only the first turn has the preamble."""
    named = re.search(r"\((\d+),", row.src_id)
    if named is None:
        raise RowError(f"row {row.question_id}: src_id {row.src_id!r} holds no (first row, …)")
    first = int(named[1])
    questions = [at.at(MMLU_PRO, first + n) for n in range(len(row.turns))]
    turns = [multiple_choice(q["question"], q["options"]) for q in questions]
    return Filled((texts.MULTIPLE_CHOICE_PREAMBLE.format(subject=row.sub_category) + turns[0], *turns[1:]))


def multiple_choice(question: str, options: Sequence[str]) -> str:
    lettered = "\n".join(f"({chr(ord('A') + n)}) {option}" for n, option in enumerate(options))
    return texts.MULTIPLE_CHOICE.format(question=question, options=lettered)


@source("nvidia/ChatRAG-Bench")
def chatrag(row: Row, at: Context) -> Filled:
    """All passages stand before the first question; the further questions follow alone."""
    entry = at.at(CHATRAG, last_number(row))
    first, *further = (message["content"] for message in entry["messages"] if message["role"] == "user")
    context = "\n\n".join(passage["text"] for passage in entry["ctxs"])
    return Filled((texts.PASSAGES.format(context=context, question=first), *further))


@source("Helsinki-NLP/opus-100")
def opus_100(row: Row, at: Context) -> Filled:
    """``src_id``: ``opus100_<pair>_<row>``. The template takes the pair itself and picks the language out of it."""
    pair = part(row, 1)
    table = Table("Helsinki-NLP/opus-100", (f"{pair}/test-*.parquet",), OPUS_REVISION, ("translation",))
    return Filled((template(row, question=at.at(table, number(row, part(row, 2)))["translation"]),))


@source("abisee/cnn_dailymail")
def cnn_dailymail(row: Row, at: Context) -> Filled:
    """The official preparation takes whatever the hub has; rows name the commit that they were chosen from, so that one is taken."""
    named = re.search(r"/(?:tree|blob)/([0-9a-f]{40})", row.source)
    table = Table("abisee/cnn_dailymail", ("3.0.0/test-*.parquet",), named[1] if named else "main", ("id", "article"))
    return Filled((template(row, article=at.by_key(table, "id", row.src_id)["article"]),))
