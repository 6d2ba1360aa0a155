"""The simulator against the recordings: the same requests, and answers of the same shape, field by field and byte by byte where it can be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sim_harness import Call, Simulation

from specsweep.client.dialects import dialect
from specsweep.client.recording import RecordedRequest, Recording, read_recording

FOLDER = Path(__file__).parents[1] / "recordings"
VLLM = {"dialect": "vllm", "vocab_size": 4096, "max_model_len": 2048, "model_name": "m"}
LLAMA = {"dialect": "llamacpp", "vocab_size": 4096, "max_model_len": 2048, "max_batch": 8, "model_name": "target.f16.gguf"}
SIMULATIONS: dict[str, dict[str, Any]] = {
    "vllm-none": VLLM,
    "vllm-draft3": {**VLLM, "drafter": "draft_model", "draft_length": 3},
    "vllm-ngram3": {**VLLM, "drafter": "ngram", "draft_length": 3},
    "vllm-eagle3-5": {**VLLM, "drafter": "eagle3", "draft_length": 5},
    "vllm-draft3-interval4": {**VLLM, "drafter": "draft_model", "draft_length": 3, "troubles": {"stream_interval": 4}},
    "vllm-engine_killed": {**VLLM, "troubles": {"fails_after_steps": 200}},
    "vllm-server_killed": {**VLLM, "troubles": {"dies_after_steps": 200}},
    "vllm-server_terminated": {**VLLM, "troubles": {"stall_share": 1.0}},
    "llamacpp-none": LLAMA,
    "llamacpp-draft3": {**LLAMA, "drafter": "draft_model", "draft_length": 3},
    "llamacpp-ngram": {**LLAMA, "drafter": "ngram", "draft_length": 48},
    "llamacpp-silent": {
        **LLAMA,
        "vocab_size": 49152,
        "drafter": "ngram",
        "draft_length": 6,
        "max_model_len": 1024,
        "max_batch": 2,
        "troubles": {"lost_id_share": 1.0},
    },
    "sglang-none": {"dialect": "sglang", "incremental": False, "vocab_size": 4096, "max_model_len": 32768, "model_name": "target"},
}
WHOLE = [name for name in SIMULATIONS if not name.endswith(("killed", "terminated", "silent"))]


@cache
def recording(name: str) -> Recording:
    return read_recording(FOLDER / f"{name}.jsonl.gz")


@cache
def replayed(name: str) -> tuple[Simulation, dict[str, Call]]:
    """Every request of a recording, each after the one before has ended; those of a batch together."""
    simulation = Simulation(**SIMULATIONS[name])
    calls: dict[str, Call] = {}
    for request in recording(name).requests:
        if request.body is None:
            continue
        calls[request.name] = simulation.post(request.body)
        if request.name == "client_abort":
            simulation.run(5)
            calls[request.name].connection.connection_lost(None)
        if not request.name.startswith("batch"):
            simulation.run()
    simulation.run()
    return simulation, calls


def recorded(exchange: Any) -> list[bytes]:
    """As ``payloads``. The folder of the model was cut out of llama.cpp's last events when they were recorded, so their chunk sizes are off."""
    raw = b"".join(data for _, data in exchange.reads)
    if ("Server", "llama.cpp") in exchange.headers and exchange.status == 200:
        assert raw.endswith(b"\n\n\r\n0\r\n\r\n")
        return [*re.findall(rb"(?<=\r\n)data: .*?\n\n(?=\r\n)", raw, re.DOTALL), b""]
    return payloads(exchange)


def payloads(exchange: Any) -> list[bytes]:
    """The chunks of a chunked body, which must be well-formed; the body itself if it has a length."""
    raw = b"".join(data for _, data in exchange.reads)
    if not any(k.lower() == "transfer-encoding" for k, _ in exchange.headers):
        return [raw]
    found, at = [], 0
    while at < len(raw):
        line = raw.index(b"\r\n", at)
        size = int(raw[at:line], 16)
        found.append(raw[line + 2 : line + 2 + size])
        assert raw[line + 2 + size : line + 4 + size] == b"\r\n"
        at = line + 4 + size
    return found


def shape(value: Any) -> Any:
    """Keys in their order and kinds of values. Lists of numbers are one kind, whatever their length."""
    if isinstance(value, dict):
        return tuple((key, shape(inner)) for key, inner in value.items())
    if isinstance(value, list):
        kinds = {shape(inner) for inner in value}
        return ("list", tuple(sorted(map(repr, kinds))))
    return type(value).__name__


def parsed(payload: bytes) -> Any:
    text = payload.decode()
    assert text.endswith("\n\n") or not text.startswith("data:")
    body = text.removeprefix("data: ").removesuffix("\n\n")
    return body if body in ("[DONE]", "") else json.loads(body)


def shapes(chunks: list[bytes]) -> list[Any]:
    return [shape(parsed(chunk)) for chunk in chunks]


def is_compact(payload: bytes) -> bool:
    value = parsed(payload)
    return isinstance(value, str) or json.dumps(value, separators=(",", ":"), ensure_ascii=False) in payload.decode()


def fields(exchange: Any) -> list[tuple[str, str]]:
    return [(k, "…" if k.lower() in ("date", "content-length") else v) for k, v in exchange.headers]


def pairs(name: str) -> Iterator[tuple[RecordedRequest, Call]]:
    _, calls = replayed(name)
    for request in recording(name).requests:
        if request.name in calls and request.name != "client_abort":
            yield request, calls[request.name]


@pytest.mark.parametrize("name", WHOLE)
def test_status_and_header_fields_are_those_of_the_engine(name: str) -> None:
    for request, call in pairs(name):
        ours = call.exchange()
        assert (request.name, ours.status, fields(ours)) == (request.name, request.exchange.status, fields(request.exchange))


@pytest.mark.parametrize("name", WHOLE)
def test_streams_have_the_shape_of_the_engines_field_by_field(name: str) -> None:
    compared = 0
    for request, call in pairs(name):
        theirs, ours = request.exchange, call.exchange()
        if not whole(request):
            continue
        a, b = shapes(recorded(theirs)), shapes(payloads(ours))
        tail = next(i for i, found in enumerate(reversed(a)) if "finish_reason" in repr(found) or "tokens_evaluated" in repr(found)) + 1
        tail = tail if dialect(SIMULATIONS[name]["dialect"]).name != "llamacpp" else tail + 1
        assert b[0] == a[0], request.name
        if draws_a_draft(name):
            assert set(b) <= all_shapes(name), request.name
        else:
            assert b[-tail:] == a[-tail:], request.name
            assert set(b[1:-tail]) == set(a[1:-tail]), request.name
        assert [is_compact(p) for p in payloads(ours)[-tail:]] == [is_compact(p) for p in recorded(theirs)[-tail:]]
        compared += 1
    assert compared >= 12


def draws_a_draft(name: str) -> bool:
    """With drafting, which shapes occur (a step without a draft, merged chunks) depends on what was accepted."""
    return bool(SIMULATIONS[name].get("draft_length"))


def whole(request: RecordedRequest) -> bool:
    return request.exchange.status == 200 and request.name not in ("client_abort", "bad_token")


@cache
def all_shapes(name: str) -> set[Any]:
    return {found for request in recording(name).requests if whole(request) for found in shapes(recorded(request.exchange))}


@pytest.mark.parametrize("name", ["vllm-none", "llamacpp-none"])
def test_refusals_are_the_engines_word_for_word(name: str) -> None:
    refused = 0
    for request, call in pairs(name):
        if request.exchange.status != 200 or request.name == "bad_token":
            assert payloads(call.exchange()) == payloads(request.exchange), request.name
            refused += 1
    assert refused >= 4


def test_a_bad_token_ends_sglangs_stream_before_it_began() -> None:
    (request, call) = next((r, c) for r, c in pairs("sglang-none") if r.name == "bad_token")
    assert (call.exchange().status, call.exchange().reads) == (request.exchange.status, [])
    assert call.transport.ended == "closed"


@pytest.mark.parametrize("name", WHOLE)
def test_the_dialect_reads_the_simulated_answer_as_it_reads_the_recorded_one(name: str) -> None:
    wire = dialect(SIMULATIONS[name]["dialect"])
    length = SIMULATIONS[name].get("draft_length", 0)
    for request, call in pairs(name):
        theirs = wire.read(request.exchange, draft_length=length, n_prompt=None)
        ours = wire.read(call.exchange(), draft_length=length, n_prompt=None)
        assert (ours.outcome, ours.error_kind) == (theirs.outcome, theirs.error_kind), (request.name, ours.error, theirs.error)
        assert ours.n_prompt_server == theirs.n_prompt_server
        assert ours.n_completion_server == theirs.n_completion_server
        if theirs.outcome == "ok":
            assert len(ours.output_ids) == len(theirs.output_ids)
            assert ours.step_state in ("exact", "repaired" if "interval" in name else "exact"), (request.name, ours.notes)


def test_silent_tokens_are_told_by_the_counts_alone() -> None:
    wire = dialect("llamacpp")
    simulation, calls = replayed("llamacpp-silent")
    lost = 0
    truths = sorted(simulation.log.requests, key=lambda truth: truth.ordinal)
    for call, truth in zip(calls.values(), truths, strict=True):
        turn = wire.read(call.exchange(), draft_length=6, n_prompt=None)
        assert turn.outcome == "ok"
        assert turn.n_completion_server == truth.tokens == sum(turn.step_tokens)
        assert turn.ids_complete == (truth.tokens == len(turn.output_ids))
        lost += truth.tokens - len(turn.output_ids)
    assert lost >= 4, "answers that ended before their middle lost nothing"


def test_an_engine_that_dies_behind_vllm_looks_as_recorded() -> None:
    simulation, calls = replayed("vllm-engine_killed")
    streams = [(r, c) for r, c in pairs("vllm-engine_killed") if r.name != "engine_killed_after"]
    assert simulation.deaths == [False]
    for request, call in streams[:1]:  # the others came after its end here
        assert payloads(call.exchange())[-3:] == payloads(request.exchange)[-3:]
    after = recording("vllm-engine_killed").requests[-1]
    assert payloads(simulation.post(after.body).exchange()) == payloads(after.exchange)
    assert simulation.get("/health")[0] == 503
    assert len(calls) == 4


def test_a_killed_server_and_a_stalled_one_look_as_recorded() -> None:
    wire = dialect("vllm")
    for name, kind in (("vllm-server_killed", "disconnected"), ("vllm-server_terminated", "stalled")):
        simulation, calls = replayed(name)
        (request, call) = next(pairs(name))
        call.transport.ended = call.transport.ended or ("closed" if kind == "disconnected" else "")
        ours = wire.read(call.exchange(), draft_length=0, n_prompt=None)
        theirs = wire.read(request.exchange, draft_length=0, n_prompt=None)
        assert (ours.outcome, ours.error_kind) == (theirs.outcome, theirs.error_kind) == ("failed", kind)
        assert len(ours.output_ids) > 100
        assert simulation.deaths == ([True] if kind == "disconnected" else [])
        assert len(calls) >= 3


SAMPLE = re.compile(r"^(\S+?)(?:\{(.*)\})? \S+$")


def series(page: str) -> tuple[set[str], set[tuple[str, str]]]:
    comments = {line for line in page.splitlines() if line.startswith("#")}
    samples = {(m[1], m[2] or "") for line in page.splitlines() if line and not line.startswith("#") and (m := SAMPLE.match(line))}
    return comments, samples


@pytest.mark.parametrize("name", WHOLE)
def test_the_counters_page_has_no_line_that_the_engine_has_not_and_counts_the_same(name: str) -> None:
    simulation, _ = replayed(name)
    theirs, ours = recording(name).metrics[-1][1], simulation.page()
    a, b = series(theirs), series(ours)
    extra = {"sglang:spec_verify_calls_total"}
    assert {c for c in b[0] if c.split()[2] not in extra} <= a[0]
    assert {s for s in b[1] if s[0] not in extra} <= a[1]
    wire = dialect(SIMULATIONS[name]["dialect"])
    counted, recorded = wire.counters(ours), wire.counters(theirs)
    for field in ("drafts", "draft_tokens", "accepted_tokens", "prompt_tokens", "generation_tokens", "preemptions", "running", "waiting"):
        assert (getattr(counted, field) is None) == (getattr(recorded, field) is None), field
    assert len(counted.accepted_per_pos) == len(recorded.accepted_per_pos)
    assert counted.generation_tokens > 0
    answered = [wire.read(c.exchange(), draft_length=None, n_prompt=None) for c in replayed(name)[1].values()]
    if name in ("vllm-draft3", "llamacpp-draft3"):  # recordings without a failed or aborted request
        assert counted.prompt_tokens == recorded.prompt_tokens
        assert counted.generation_tokens == sum(t.n_completion_server or 0 for t in answered) == recorded.generation_tokens
