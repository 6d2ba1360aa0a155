"""Programming tasks: the published template (which names the language) filled in with the task."""

from __future__ import annotations

from specsweep.client.workload.prepare.registry import Context, Filled, source, template
from specsweep.client.workload.prepare.tables import Table
from specsweep.client.workload.rows import Row

LIVE_CODE_BENCH = Table(
    "livecodebench/code_generation_lite",
    ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"),
    "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    ("question_id", "question_content", "starter_code"),  # beside them are megabytes of hidden tests
)
CODE_CONTESTS = Table(
    "deepmind/code_contests", ("data/test-*.parquet",), "802411c3010cb00d1b05bad57ca77365a3c699d6", ("name", "description")
)


@source("livecodebench/code_generation_lite")
def live_code_bench(row: Row, at: Context) -> Filled:
    task = at.by_key(LIVE_CODE_BENCH, "question_id", row.src_id)
    return Filled((template(row, question=task["question_content"], starter_code=task["starter_code"]),))


@source("deepmind/code_contests")
def code_contests(row: Row, at: Context) -> Filled:
    return Filled((template(row, question=at.by_key(CODE_CONTESTS, "name", row.src_id)["description"]),))
