"""The comparison with other clients: their saved result files against the truth log of the very run, and the arithmetic around them."""

from __future__ import annotations

import copy
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.peers import aiperf, guidellm, ours, page, run, vllm_bench, work
from bench.peers.figures import Pair, served
from bench.peers.process_cpu import CpuSeries, FamilyWatch, processes
from bench.peers.simulator import settings
from specsweep.client.sim.service_settings import read_service
from specsweep.client.sim.truth import TrueChunk, TrueRequest, TrueStep, read_truth
from specsweep.client.trace import PointTrace, RequestTrace, Turn
from specsweep.client.workload.tokenizer import load_tokenizer

SAMPLES = Path(__file__).with_name("peer_samples")
READERS = {"vllm_bench": lambda r, t: vllm_bench.reported([r], t), "aiperf": aiperf.reported, "guidellm": guidellm.reported}


def sample(client: str, folder: Path) -> tuple[dict[str, Any], list[TrueRequest]]:
    """Results and truth of 40 requests with DL 3 at BS 8, steps of 10 ms."""
    log = folder / "truth.jsonl"
    log.write_bytes(gzip.decompress((SAMPLES / f"{client}.truth.jsonl.gz").read_bytes()))
    return json.loads((SAMPLES / f"{client}.json").read_text("utf-8")), read_truth(log)


@pytest.mark.parametrize("client", READERS)
def test_what_a_peer_counts_is_the_truth_by_its_own_definition(client: str, tmp_path: Path) -> None:
    found = READERS[client](*sample(client, tmp_path))
    assert found["al"].error == pytest.approx(0, abs=1e-6)
    assert abs(found["token_ms_mean"].error) < 0.05
    assert found["ttft_ms_mean"].error > 0, "a client cannot see a token before it was sent"


@pytest.mark.parametrize("client", ["vllm_bench", "aiperf"])
def test_time_from_chunk_to_chunk_is_that_of_the_steps(client: str, tmp_path: Path) -> None:
    found = READERS[client](*sample(client, tmp_path))
    assert found["step_ms_p50"].true == pytest.approx(10, rel=0.01)
    assert abs(found["step_ms_p50"].error) < 0.05
    assert found["step_ms_mean"].true > 2 * found["token_ms_mean"].true, "with drafting, a step brings more than one token"


def test_a_client_without_times_between_chunks_reports_no_step(tmp_path: Path) -> None:
    assert not [key for key in guidellm.reported(*sample("guidellm", tmp_path)) if key.startswith("step_ms")]


@pytest.mark.parametrize(
    ("client", "path", "value"),
    [
        ("vllm_bench", ("failed",), 1),
        ("aiperf", ("error_summary",), [{"count": 1}]),
        ("guidellm", ("benchmarks", 0, "metrics", "request_totals", "incomplete"), 1),
    ],
)
def test_failed_requests_are_no_result(client: str, path: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    result, truth = sample(client, tmp_path)
    bad = copy.deepcopy(result)
    place = bad
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match="failed"):
        READERS[client](bad, truth)


def true_request(ordinal: int, at_ms: list[float], tokens: list[int], *, finish: str = "length") -> TrueRequest:
    """Arrives at 0; one chunk a step."""
    chunks = [TrueChunk(round(t * 1e6), n, 1, 0) for t, n in zip(at_ms, tokens, strict=True)]
    steps = [TrueStep(i + 1, n, 3 if i else 0, n - 1) for i, n in enumerate(tokens)]
    return TrueRequest(ordinal, f"r{ordinal}", f"k{ordinal}", "", 5, 0, finish, chunks, steps)


def test_values_of_several_processes_are_pooled_not_averaged(tmp_path: Path) -> None:
    truth = [true_request(i, [10.0, 20.0, 30.0], [1, 1, 1]) for i in range(4)]
    one = {"failed": 0, "completed": 3, "mean_tpot_ms": 10.0, "ttfts": [0.01] * 3, "itls": [[0.01, 0.01]] * 3}
    two = {"failed": 0, "completed": 1, "mean_tpot_ms": 30.0, "ttfts": [0.05], "itls": [[0.03, 0.03]]}
    found = vllm_bench.reported([one, two], truth)
    assert found["ttft_ms_mean"].reported == pytest.approx(20)
    assert found["ttft_ms_p50"].reported == pytest.approx(10)
    assert found["step_ms_mean"].reported == pytest.approx(15)
    assert found["token_ms_mean"].reported == pytest.approx(15)
    assert found["token_ms_mean"].true == pytest.approx(10)


def test_lag_is_how_much_longer_steps_were_than_planned() -> None:
    found = served([true_request(0, [10.0, 21.0, 32.0], [1, 2, 2])], planned_step_ms=10)
    assert found.lag == pytest.approx(0.1)
    assert found.chunks == 3
    assert found.chunks_per_s == pytest.approx(3 / 0.032)


def test_every_client_is_given_the_same_work_in_the_same_order() -> None:
    rung = work.Rung(4, 0, 10, 32, 2)
    tokenizer = load_tokenizer(work.MODEL_FOLDER)
    requests, texts = work.planned(rung, tokenizer), work.items(rung)
    assert len(requests) == len(texts) == 12
    for request, item in zip(requests, texts, strict=True):
        body = json.loads(request.body)
        assert body["prompt"] == tokenizer.encode(item.text)
        assert body["max_tokens"] == item.cap
        assert body["ignore_eos"] is True
    hands = work.dealt(texts, 2)
    assert sorted(i.text for hand in hands for i in hand) == sorted(i.text for i in texts)


@pytest.mark.parametrize("tokens", [4, 17, 64, 96])
def test_a_sample_answer_has_the_length_that_is_asked_for(tokens: int) -> None:
    tokenizer = load_tokenizer(work.MODEL_FOLDER)
    assert len(tokenizer.encode(work.text_of_length(tokenizer, tokens))) == tokens


def test_a_length_beyond_the_sample_text_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens=1000000"):
        work.text_of_length(load_tokenizer(work.MODEL_FOLDER), 1_000_000)


@pytest.mark.parametrize("rung", work.LADDER, ids=lambda r: r.name)
def test_the_server_stays_below_its_own_limit_with_steps_of_one_length(rung: work.Rung, tmp_path: Path) -> None:
    assert rung.batch_size / rung.step_ms * 1e3 < 15_000
    engine = read_service(settings(rung, tmp_path / "log")).engine()
    for context in (10, 1000):
        assert engine.model.decode_step_s(rung.batch_size, context, rung.draft_length) == pytest.approx(rung.step_ms / 1e3)


@pytest.mark.parametrize(
    ("truth", "said"),
    [
        ([true_request(0, [1.0, 2.0], [1, 1]), true_request(1, [1.0, 2.0], [1, 2])], ""),
        ([true_request(0, [1.0, 2.0], [1, 1])], "sent 1 requests, not 2"),
        ([true_request(0, [1.0, 2.0], [1, 1]), true_request(1, [1.0], [1])], "2 of 2 answers were of another length"),
        ([true_request(0, [1.0], [1]), true_request(1, [1.0], [1], finish="aborted")], "ended by 'aborted'"),
    ],
)
def test_other_work_than_was_given_is_told(truth: list[TrueRequest], said: str) -> None:
    found = run.wrong_work(truth, [2, 3])
    assert said in found
    assert bool(found) == bool(said)


def test_cpu_between_two_looks_is_in_proportion() -> None:
    series = CpuSeries([100, 200], [1.0, 3.0])
    assert [series.at(t) for t in (0, 100, 150, 200, 900)] == [1.0, 1.0, 2.0, 3.0, 3.0]
    with pytest.raises(ValueError, match="ended before"):
        CpuSeries().at(1)


def test_cpu_of_a_child_counts_and_stays_counted_after_its_end() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = 0\\nfor i in range(3_000_000): x += i\\ninput()']); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        watch = FamilyWatch([parent.pid], os.getpid())
        deadline = time.monotonic() + 20  # a hang guard
        while not (watch.processes_max == 2 and watch.series.cpu_s[-1] > 0.05) and time.monotonic() < deadline:
            watch.look()
            time.sleep(0.01)
        before = watch.series.cpu_s[-1]
        parent.stdin.write(b"\n\n")
        parent.stdin.close()
        parent.wait()
        watch.look()
    assert watch.processes_max == 2
    assert watch.series.cpu_s[-1] >= before > 0.05
    assert processes()[os.getpid()][0] == os.getppid()


def our_row(index: int, stamps: list[int]) -> RequestTrace:
    read = Turn(outcome="ok", chunk_t_ns=stamps, chunk_tokens=[1] * len(stamps), step_t_ns=stamps, step_tokens=[1] * len(stamps))
    return RequestTrace(index, f"p{index}", f"p{index}", 0, "", "main", 0, 5, 9, 0, 0, 100, stamps[-1], 0, 1, "complete", read)


def test_our_truth_is_our_trace_with_the_times_and_steps_of_the_server() -> None:
    trace = PointTrace(1, [our_row(0, [11_500_000, 22_500_000])], [])
    (row,) = ours.as_it_was(trace, {"p0": "k0"}, [true_request(0, [10.0, 20.0], [1, 3])]).requests
    assert (row.t_send_ns, row.t_end_ns) == (0, 20_000_000)
    assert row.read.step_t_ns == row.read.chunk_t_ns == [10_000_000, 20_000_000]
    assert (row.read.step_tokens, row.read.step_drafted, row.read.step_accepted) == ([1, 3], [0, 3], [0, 2])
    with pytest.raises(ValueError, match="request 0 has 2 chunks, in the truth log 1"):
        ours.as_it_was(trace, {"p0": "k0"}, [true_request(0, [10.0], [1])])


def row(client: str, rate: float, error: float, *, cost_s: float = 1.0, problem: str = "", batch_size: int = 8) -> run.Row:
    chunks = round(rate * 10)
    pairs = {key: Pair(key, 1 + error, 1.0) for key in ("ttft_ms_mean", "step_ms_mean")}
    return run.Row(
        client,
        work.Rung(batch_size, 0, 10, 64, 3),
        problem,
        run.Served(10, chunks, 0, 10_000_000_000, 0.0),
        run.Cpu(2.0, cost_s, 0.5, 3),
        reported=pairs,
    )


def test_the_largest_rate_is_that_of_a_row_with_true_times_that_counts() -> None:
    rows = [row("ours", 100, 0.01), row("ours", 900, 0.2), row("ours", 500, -0.04), row("ours", 700, 0.0, problem="void: lag")]
    best = page.largest_rates(rows, ["ours", "aiperf"])
    assert best["ours"] is rows[2]
    assert best["aiperf"] is None


def test_a_peer_that_is_better_is_named_and_void_rows_prove_nothing() -> None:
    rows = [
        row("ours", 100, 0.02, cost_s=2.0),
        row("aiperf", 100, 0.03, cost_s=1.0),
        row("guidellm", 100, 0.0, cost_s=0.1, problem="void: lag"),
    ]
    said = page.where_peers_are_better(rows, {"ours": "specsweep", "aiperf": "aiperf", "guidellm": "guidellm"})
    assert [line for line in said if "in the load" in line and "aiperf 1,000, specsweep 2,000" in line]
    assert not [line for line in said if "guidellm" in line or "error" in line]


def test_without_drafting_a_time_per_token_is_a_step_time_and_with_it_it_is_not() -> None:
    pairs = {"token_ms_mean": Pair("itl", 1.01, 1.0)}
    assert run.Row("guidellm", work.Rung(8, 0, 10, 64, 3), reported=pairs).step_error == pytest.approx(0.01)
    assert run.Row("guidellm", work.Rung(8, 3, 10, 64, 3), reported=pairs).step_error is None


def test_rows_survive_being_written_and_make_the_same_page(tmp_path: Path) -> None:
    rows = [row("ours", 100, 0.01), row("aiperf", 100, 0.3, problem="void: other processes used 50% of the machine")]
    file = tmp_path / "results" / "peers.json"
    run.write_rows(rows, file, {"cores": 2})
    again = [run.Row.from_json(entry) for entry in json.loads(file.read_text("utf-8"))["rows"]]
    facts = {"versions": {"ours": "1", "aiperf": "2"}, "cpu": "c", "cores": 2, "kernel": "k", "python": "p", "utc": "now"}
    names = {"ours": "specsweep", "aiperf": "aiperf"}
    assert page.page(again, facts, names) == page.page(rows, facts, names)
    assert "void" in page.page(rows, facts, names)
    assert np.isclose(again[0].reported["ttft_ms_mean"].error, 0.01)
