"""One client process without Ray: what it reads of its own exchanges, and what is said of one that ended."""

from __future__ import annotations

import pytest
from stream_stubs import Call, answer_tokens, planned, stub_in_thread

from specsweep.client.actor import ClientActor
from specsweep.client.actors import default_processes
from specsweep.client.load import LoadSpec
from specsweep.client.team import exit_fact
from specsweep.client.trace import from_table

PATH = "/v1/completions"


@pytest.mark.parametrize(("batch_size", "processes"), [(1, 1), (64, 1), (65, 2), (128, 2), (256, 4), (512, 8), (4096, 8)])
def test_default_number_of_processes(batch_size: int, processes: int) -> None:
    assert default_processes(batch_size) == processes


def test_one_process_reads_its_own_exchanges_after_the_window() -> None:
    async def handler(call: Call) -> None:
        if b'"n":3' in call.body:
            await call.send(b'HTTP/1.1 400 Bad Request\r\nContent-Length: 18\r\n\r\n{"error":"no way"}')
        else:
            await answer_tokens(call)

    with stub_in_thread(handler) as server:
        actor = ClientActor(5)
        assert actor.prepare(LoadSpec(server.base_url, PATH, (), 2, planned(6, ramp=2), 5.0, actor=5)) == 2
        actor.run(0)
        table, raw = actor.read("vllm", 3, True)
    trace = from_table(table)
    assert trace.batch_size == 2
    assert [a.actor for a in trace.actors] == [5]
    assert {r.actor for r in trace.requests} == {5}
    by_index = {r.index: r for r in trace.requests}
    assert by_index[0].read.output_ids == [1, 2, 3, 4]
    assert by_index[0].read.chunk_tokens == [1, 2, 1]
    assert [by_index[i].phase for i in (0, 1, 2)] == ["ramp", "ramp", "main"]
    assert by_index[3].read.outcome == "failed"
    assert by_index[3].read.error_kind == "http_status"
    assert by_index[0].t_send_ns < by_index[0].read.chunk_t_ns[0] <= by_index[0].t_end_ns
    assert sorted(index for index, _, _ in raw) == list(range(6))
    assert all(exchange.reads for _, _, exchange in raw)


def test_requests_that_were_never_sent_are_connect_failures() -> None:
    actor = ClientActor(0)
    actor.prepare(LoadSpec("http://127.0.0.1:9", PATH, (), 1, planned(9), 5.0))
    actor.run(0)
    trace = from_table(actor.read("vllm", None, False)[0])
    assert [r.read.error_kind for r in trace.requests] == ["connect"] * 9


def test_order_of_calls_is_checked() -> None:
    with pytest.raises(RuntimeError, match="run before prepare"):
        ClientActor(0).run(0)
    with pytest.raises(RuntimeError, match="read before run"):
        ClientActor(0).read("vllm", None, False)


def test_exit_fact_leaves_the_guesses_out() -> None:
    words = (
        "The actor died unexpectedly before finishing this task.\n\tpid: 1\nThe actor is dead because its worker process has died. "
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. "
        "Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop"
    )
    assert exit_fact(words) == "SYSTEM_ERROR: Worker unexpectedly exits with a connection error code 2. End of file."
    assert exit_fact("class\n  node died  \n") == "node died"
    assert exit_fact("") == "no reason was given"
