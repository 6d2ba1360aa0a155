"""The llama-spec-bench formats: its definitions, its field names, and nothing that no engine said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_samples import attempt, axes

from specsweep.analysis.spec_bench import SILENT, TOTALS_ONLY, stage_of, total
from specsweep.analysis.spec_bench_jsonl import jsonl, rows
from specsweep.analysis.spec_bench_rows import Point, Said, pooled
from specsweep.analysis.spec_bench_text import markdown
from specsweep.client.trace import RequestTrace, Turn


def turn(drafts: list[tuple[int, int]] = (), **more: Any) -> Turn:  # type: ignore[assignment]
    """A successful answer whose server told (drafted, accepted) of each verify step."""
    facts: dict[str, Any] = {"outcome": "ok", "finish_reason": "length", "chunk_t_ns": [2 * 10**9, 4 * 10**9], "chunk_tokens": [1, 8]}
    lists = {"srv_drafted_per_step": [d for d, _ in drafts], "srv_accepted_per_step": [a for _, a in drafts], "srv_steps": len(drafts)}
    return Turn(**(facts | (lists if drafts else {}) | more))


def request(
    index: int, read: Turn, prompt: str = "p", *, turn: int = 0, pass_index: int = 0, phase: str = "main", retried: tuple[str, ...] = ()
) -> RequestTrace:
    return RequestTrace(
        index=index, prompt_id=prompt, conversation_id=prompt, turn=turn, category="code", phase=phase, pass_index=pass_index,  # type: ignore[arg-type]
        n_prompt=20, max_tokens=9, actor=0, slot=0, t_send_ns=10**9 + index, t_end_ns=5 * 10**9, connect_ns=0, attempts=1, ended="complete",
        read=read, retried=list(retried),
    )  # fmt: skip


def point(*requests: RequestTrace, drafter: str = "ngram", repeat: int = 1, config: dict[str, Any] | None = None, **more: Any) -> Point:
    record = attempt(axes(drafter, None if drafter == "none" else 4, repeat=repeat))
    record["point"]["config"] = {"drafter": {"method": drafter}, "workload": {"chat": True, "osl": 9, "corpus": "tasks"}, **(config or {})}
    return Point(record, requests, **more)


DRAFTS = [(4, 4), (4, 0), (2, 2), (0, 0), (4, 1)]


def test_counts_by_position_as_the_program_has_them() -> None:
    stage = stage_of(turn(DRAFTS), "ngram")
    assert (stage.num_drafts, stage.accepted_drafts, stage.draft_tokens, stage.accepted_tokens) == (4, 3, 14, 7)
    assert stage.drafted_by_position == (4, 4, 3, 3)
    assert stage.accepted_by_position == (3, 2, 1, 1)
    assert stage.acceptance_rate == 7 / 14
    assert stage.acceptance_length == 1 + 7 / 4  # the step without a draft is no step here
    assert stage.acceptance_rate_by_position == [3 / 4, 2 / 4, 1 / 3, 1 / 3]
    assert stage.conditional_acceptance_rate == [None, 2 / 3, 1 / 2, 1.0]


def test_conditional_rates_are_null_where_nothing_was_accepted_before() -> None:
    assert stage_of(turn([(3, 0), (3, 1)]), "ngram").conditional_acceptance_rate == [None, 0.0, None]


def test_steps_of_the_stream_count_if_they_are_proved() -> None:
    steps = {"step_tokens": [1, 3, 1], "step_drafted": [0, 3, 0], "step_accepted": [0, 2, 0]}
    assert stage_of(turn(step_state="exact", **steps), "m").accepted_by_position == (1, 1, 0)
    assert stage_of(turn(step_state="assumed", **steps), "m").num_drafts is None


def test_totals_of_a_request_give_no_positions() -> None:
    stage = stage_of(turn(srv_steps=5, srv_drafted=15, srv_accepted=6), "eagle3")
    assert (stage.num_drafts, stage.draft_tokens, stage.accepted_tokens) == (5, 15, 6)
    assert stage.acceptance_length == 1 + 6 / 5
    assert (stage.drafted_by_position, stage.conditional_acceptance_rate, stage.accepted_drafts) == (None, None, None)
    assert stage.reason == TOTALS_ONLY


def test_a_silent_engine_gives_nothing_and_the_reason() -> None:
    stage = stage_of(turn(step_state="unknown"), "eagle3")
    assert (stage.num_drafts, stage.acceptance_rate, stage.acceptance_length, stage.reason) == (None, None, None, SILENT)


def test_an_answer_without_drafts_has_no_rate() -> None:
    stage = stage_of(turn(srv_steps=0, srv_drafted=0, srv_accepted=0), "ngram")
    assert (stage.num_drafts, stage.drafted_by_position, stage.acceptance_rate, stage.acceptance_length) == (0, (), None, None)


@given(
    st.lists(st.lists(st.integers(1, 6).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))), max_size=8), min_size=1, max_size=5)
)
def test_pooling_adds_counts_and_stays_consistent(requests: list[list[tuple[int, int]]]) -> None:
    stages = [stage_of(turn(drafts) if drafts else turn(srv_steps=0), "m") for drafts in requests]
    pool = total("m", stages)
    assert pool.num_drafts == sum(map(len, requests))
    assert pool.drafted_by_position is not None
    assert pool.accepted_by_position is not None
    assert sum(pool.drafted_by_position) == pool.draft_tokens
    assert sum(pool.accepted_by_position) == pool.accepted_tokens
    assert (pool.accepted_by_position[:1] or (0,))[0] == pool.accepted_drafts
    assert list(pool.drafted_by_position) == sorted(pool.drafted_by_position, reverse=True)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    pool = total("m", [stage_of(turn(DRAFTS), "m"), stage_of(turn(step_state="unknown"), "m")])
    assert (pool.num_drafts, pool.accepted_by_position) == (None, None)
    assert pool.reason == f"of 1 of 2 requests: {SILENT}"


def test_compact_lines_hold_raw_counts_and_detailed_ones_the_rates_too() -> None:
    found = pooled([point(request(0, turn(DRAFTS)), names={"p": "code"})])
    compact, summary = rows(found)
    assert compact["stages"][0]["drafted_by_position"] == [4, 4, 3, 3]
    assert compact["stages"][0]["accepted_by_position"] == [3, 2, 1, 1]
    assert compact["stages"][0]["accept_length"] == summary["speculative"]["acceptance_length"] == 1 + 7 / 4
    assert not {"acceptance_rate_by_position", "conditional_acceptance_rate"} & compact["stages"][0].keys()
    assert (compact["row_type"], summary["row_type"], compact["task"], compact["stop"]) == ("attempt", "summary", "code", "limit")
    assert (compact["decode_s"], compact["decode_tps"]) == (2.0, 4.0)  # eight tokens after the first one
    detailed, _ = rows(found, detailed=True)
    stage = detailed["speculative"]["stages"][0]
    assert stage["conditional_acceptance_rate"][0] is None
    assert stage["acceptance_rate_by_position"] == [3 / 4, 2 / 4, 1 / 3, 1 / 3]
    assert stage["t_draft_s"] is None
    assert stage["absent"]["t_draft_s"]
    assert detailed["chat_template"]["mode"] == "target"
    assert (detailed["prompts"], detailed["prompt"], detailed["task_id"]) == ("builtin-default", None, "p")


@pytest.mark.parametrize("detailed", [False, True])
def test_every_null_count_says_why(detailed: bool) -> None:
    first, _ = rows(pooled([point(request(0, turn(step_state="unknown")))]), detailed=detailed)
    stage = (first["speculative"]["stages"] if detailed else first["stages"])[0]
    assert stage["drafted_by_position"] is None
    assert stage["absent"]["drafted_by_position"] == SILENT


def test_lines_are_json_in_ascii_with_texts_and_without_ramp_requests() -> None:
    said = {1: Said("Größe\n", "é", ""), 2: Said(None, None, "gone")}
    found = pooled([point(request(0, turn(DRAFTS), phase="ramp"), request(1, turn(DRAFTS)), request(2, turn(DRAFTS), "q"), texts=said)])
    text = jsonl(found, detailed=True)
    assert text.isascii()
    one, two, summary = map(json.loads, text.splitlines())
    assert (one["prompt"], one["output"]) == ("Größe\n", "é")
    assert (two["prompt"], two["absent"]["prompt"]) == (None, "gone")
    assert summary["attempts"] == 2


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ({"workload": {"chat": False}}, "none"),
        ({"engine": {"dialect": "openai_chat"}}, "server"),
        ({}, "target"),
    ],
)
def test_the_chat_template_mode_is_recorded(config: dict[str, Any], mode: str) -> None:
    found = pooled([point(request(0, turn(DRAFTS)), config=config)])
    assert [row["chat_template"]["mode"] for row in rows(found, detailed=True)] == [mode, mode]
    assert found[0].point.chat_template["words"] in markdown("s", "done", found)


def test_runs_of_a_task_are_numbered_over_passes_and_repeats() -> None:
    points = [
        point(request(0, turn(DRAFTS)), repeat=2),
        point(request(0, turn(DRAFTS)), request(1, turn(DRAFTS), pass_index=1), repeat=1),
    ]
    found = pooled(points)
    assert [(p.point.axes["repeat"], t.run) for p in found for t in p.tried] == [(1, 1), (1, 2), (2, 3)]
    text = markdown("s", "done", found)
    assert "Repeat summary (3 runs/task)" in text
    assert "50.00%/0.00%" in text


def test_a_drafter_that_learns_marks_every_attempt_with_what_it_had_seen() -> None:
    requests = [request(0, turn(DRAFTS), phase="ramp"), request(1, turn(DRAFTS)), request(2, turn(DRAFTS), "q")]
    learns = {"drafter": {"method": "ngram", "stateful": True}, "cluster": {"kind": "local"}}
    found = pooled([point(*requests, config=learns)])
    marks = [row["learned"] for row in rows(found) if row["row_type"] == "attempt"]
    assert "the 1 requests before it" in marks[0]
    assert "the 2 requests before it" in marks[1]
    assert "earlier repeats left nothing behind" in marks[0]
    assert "learns from earlier answers" in markdown("s", "done", found)
    attached = pooled([point(*requests, config={**learns, "cluster": {"kind": "attach"}})])
    assert "those of earlier repeats and points included" in next(rows(attached))["learned"]
    assert "learned" not in next(rows(pooled([point(*requests)])))


def test_what_was_sent_again_says_so() -> None:
    found = pooled([point(request(0, turn(DRAFTS), retried=("HTTP 503", "HTTP 503")), request(1, turn(DRAFTS), "q"))])
    first, second, summary = rows(found)
    assert (first["retries_used"], first["retried_after"], second["retries_used"]) == (2, ["HTTP 503", "HTTP 503"], 0)
    assert summary["retries_used"] == 2
    assert "Sent again" in markdown("s", "done", found)


def test_failures_have_no_numbers_and_are_listed() -> None:
    bad = Turn(outcome="failed", error_kind="http_status", error="500 |oops|")
    found = pooled([point(request(0, bad), request(1, turn(DRAFTS), "q"))])
    first, _, summary = rows(found)
    assert (first["stop"], first["ok"], first["stages"], first["error"]) == ("fail", False, [], "http_status: 500 |oops|")
    assert (summary["failures"], summary["generated"]) == (1, 9)
    assert "## Errors" in markdown("s", "done", found)


def test_a_point_without_a_drafter_has_no_stage() -> None:
    first, summary = rows(pooled([point(request(0, turn()), drafter="none")]))
    assert (first["stages"], summary["speculative"]["stages"], summary["speculative"]["acceptance_length"]) == ([], [], None)
    assert "| base |" in markdown("s", "done", pooled([point(request(0, turn()), drafter="none")]))


def test_a_point_without_requests_still_has_its_summary_and_the_reason() -> None:
    (summary,) = rows(pooled([point(missing="its trace cannot be read: torn")]))
    assert (summary["attempts"], summary["error"]) == (0, "its trace cannot be read: torn")


def test_no_text_ends_its_own_block() -> None:
    text = "a\n`````\nb"
    page = markdown("s", "done", pooled([point(request(0, turn(DRAFTS)), texts={0: Said(text, "ok")})]), detailed=True)
    assert f"``````\n{text}\n``````" in page
    assert page.index("Prompt and response details") < page.index("| task |")
    assert "Detailed metrics" in page


def test_later_turns_have_rows_of_their_own() -> None:
    found = pooled([point(request(0, turn(DRAFTS)), request(1, turn(DRAFTS), turn=1), names={"p": "talk"})])
    assert [(t.task, t.run) for t in found[0].tried] == [("talk", 1), ("talk turn 2", 1)]


def test_an_answer_that_one_read_brought_has_no_decode_time_and_no_part_in_the_rate() -> None:
    burst = turn(DRAFTS, chunk_t_ns=[2 * 10**9, 2 * 10**9])
    first, second, summary = rows(pooled([point(request(0, burst), request(1, turn(DRAFTS), "q"))]))
    assert (first["decode_s"], first["decode_tps"], second["decode_tps"]) == (None, None, 4.0)
    assert (summary["decode_s"], summary["decode_tps"]) == (None, 4.0)
    alone = next(rows(pooled([point(request(0, turn(chunk_t_ns=[2 * 10**9], chunk_tokens=[1])))])))
    assert (alone["decode_s"], alone["decode_tps"]) == (0.0, None)
