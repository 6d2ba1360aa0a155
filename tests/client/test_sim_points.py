"""A whole point on the simulator without Ray: real server, real client, real analysis. What was true is measured, what was wrong is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sim_server import get, started
from test_sim_wire import prompt_of

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.actor import read_sent
from specsweep.client.dialects import dialect
from specsweep.client.load import LoadSpec, run_load
from specsweep.client.load_plan import plan_requests
from specsweep.client.sim.truth import TrueRequest, read_truth
from specsweep.client.sim.wire import WIRES
from specsweep.client.trace import PointTrace, Sampling
from specsweep.client.workload.prompts import Prompt

BATCH = 4
STALL_S = 3.0


async def point(
    folder: Path, name: str = "vllm", *, draft_length: int = 3, **settings: Any
) -> tuple[PointTrace, dict[str, Any], list[TrueRequest]]:
    """One point of 4 requests in flight on a server with these settings: its trace, its measurement, and the truth."""
    wire, drafter, log = dialect(name), "eagle3" if draft_length else "none", folder / "truth.jsonl"
    prompts = [Prompt(f"p{i}", "mixed", tuple(prompt_of(i)), "", 40) for i in range(28)]
    requests = plan_requests(
        prompts[BATCH:], prompts[:BATCH], batch_size=BATCH, sampling=Sampling(max_tokens=40), dialect=wire, model="m", stateful=False
    )
    server = {"dialect": name, "drafter": drafter, "draft_length": draft_length, "truth_log": str(log), **settings}
    with started(folder, **server) as (process, url):
        path = wire.metrics_path or ""
        before = wire.counters(get(url + path)[1])
        sent, report = await run_load(LoadSpec(url, wire.path, (), BATCH, requests, STALL_S))
        after = wire.counters(get(url + path)[1])
        process.terminate()
        process.wait(30)
    rows = read_sent(sent, actor=0, dialect=name, draft_length=draft_length)
    trace = PointTrace(BATCH, rows, [report], counters=after - before, simulated=True)
    facts = PointFacts(
        batch_size=BATCH,
        draft_length=draft_length,
        drafter=drafter,
        stateful=False,
        gpus=0,
        step_clock="server" if name == "llamacpp" else "client",
    )
    return trace, measure(trace, facts), read_truth(log)


def failed(measurement: dict[str, Any]) -> set[str]:
    return {check["name"] for check in measurement["checks"] if not check["ok"]}


@pytest.mark.parametrize("name", WIRES)
async def test_acceptance_of_the_point_is_the_truth_of_the_run(tmp_path: Path, name: str) -> None:
    trace, measurement, truths = await point(tmp_path, name)
    assert measurement["simulated"] is True
    assert {row.read.outcome for row in trace.requests} == {"ok"}
    assert {row.read.step_state for row in trace.requests} == {"exact"}
    assert not failed(measurement) & {"failed_share", "prompt_tokens", "merged_requests", "step_size", "drafter_contributed"}
    if name != "trtllm":  # whose counter has what the cap cut off the last step, which its streams do not tell
        assert not {check for check in failed(measurement) if check.startswith("counter_")}
    ramp = BATCH  # the first that arrived are the ramp's
    main = [truth for truth in truths if truth.ordinal >= ramp]
    steps = [step for truth in main for step in truth.steps[1:-1]]  # the first is the prefill's, the last one may be cut
    whole = [row for row in trace.requests if row.phase == "main"]
    read = [n for row in whole for n in row.read.step_tokens[1:-1]]
    assert sorted(read) == sorted(step.tokens for step in steps)
    if name in ("vllm", "llamacpp"):
        assert trace.counters is not None
        every = [step for truth in truths for step in truth.steps if step.drafted]
        assert (trace.counters.drafts, trace.counters.accepted_tokens) == (len(every), sum(step.accepted for step in every))
        assert measurement["metrics"]["al_verify"] == pytest.approx(1 + sum(s.accepted for s in every) / len(every), abs=0.15)


async def test_broken_streams_are_counted_by_kind_and_the_point_is_invalid(tmp_path: Path) -> None:
    troubles = {"stall_share": 0.1, "cut_share": 0.15, "error_share": 0.15, "wrong_prompt_share": 0.15}
    trace, measurement, truths = await point(tmp_path, troubles=troubles, seed=1)
    kinds = {row.read.error_kind for row in trace.requests if row.read.outcome != "ok"}
    assert kinds == {"stalled", "disconnected", "stream_error", "prompt_mismatch"}
    assert "failed_share" in failed(measurement)
    assert measurement["validity"]["valid"] is False
    ended = [truth.finish for truth in truths]
    by_kind = measurement["counts"]["failed_by_kind"]
    assert by_kind["disconnected"] == ended.count("cut")
    assert by_kind["stream_error"] == ended.count("error")
    assert by_kind["stalled"] == ended.count("stall")


@pytest.mark.parametrize(
    ("name", "troubles", "check"),
    [
        ("vllm", {"wrong_counters": 0.3}, "counter_accepted_tokens"),
        ("sglang", {"merge_share": 0.3}, "merged_requests"),
        ("trtllm", {"stream_interval": 4}, "merged_requests"),
    ],
)
async def test_what_makes_a_number_untrue_is_found_by_its_check(tmp_path: Path, name: str, troubles: dict[str, float], check: str) -> None:
    trace, measurement, _ = await point(tmp_path, name, troubles=troubles)
    assert {row.read.outcome for row in trace.requests} == {"ok"}
    assert check in failed(measurement), failed(measurement)


async def test_merged_chunks_with_the_truth_beside_them_are_no_harm(tmp_path: Path) -> None:
    trace, measurement, truths = await point(tmp_path, troubles={"merge_share": 0.3})
    assert {row.read.step_state for row in trace.requests} in ({"repaired"}, {"repaired", "exact"})
    assert "merged_requests" not in failed(measurement)
    assert sum(len(row.read.step_tokens) for row in trace.requests) == sum(len(truth.steps) for truth in truths)


async def test_cached_prompts_are_no_cold_prompts(tmp_path: Path) -> None:
    _, measurement, _ = await point(tmp_path, troubles={"cached_prompt_share": 0.5})
    assert {name for name in failed(measurement) if "cache" in name}, failed(measurement)


async def test_an_overloaded_server_refuses_and_the_point_says_so(tmp_path: Path) -> None:
    trace, measurement, _ = await point(tmp_path, troubles={"overload_limit": 2})
    bad = [row.read for row in trace.requests if row.read.outcome != "ok"]
    assert bad
    assert {read.error_kind for read in bad} == {"http_status"}
    assert all("503" in read.error for read in bad)
    assert "failed_share" in failed(measurement)
