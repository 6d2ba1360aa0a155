"""What the simulator's vLLM wire says beside the tokens: to clients that ask for text, for no ids, and for the usage in every chunk."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sim_harness import Simulation

from specsweep.client.wire import dechunk, sse_events


def events(**fields: Any) -> list[dict[str, Any]]:
    sim = Simulation(drafter="eagle3", draft_length=3)
    call = sim.post({"prompt": "What is the name of it?", "max_tokens": 12, "ignore_eos": True, "stream": True, **fields})
    sim.run()
    exchange = call.exchange()
    found = [data for _, data in sse_events(dechunk(exchange.reads, exchange.headers).pieces)]
    assert found[-1] == b"[DONE]"
    return [json.loads(data) for data in found[:-1]]


def test_a_client_that_wants_no_ids_gets_the_fields_as_null() -> None:
    choices = [event["choices"][0] for event in events()]
    assert len(choices) > 2
    assert all(choice["token_ids"] is None and choice["prompt_token_ids"] is None for choice in choices)
    assert all(choice["text"] for choice in choices)


def test_usage_in_every_chunk_grows_to_that_of_the_end() -> None:
    found = events(stream_options={"include_usage": True, "continuous_usage_stats": True})
    *chunks, last = found
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts[0] == 1
    assert counts == sorted(set(counts))
    assert counts[-1] == last["usage"]["completion_tokens"] == 12
    assert all(set(chunk["usage"]) == {"prompt_tokens", "total_tokens", "completion_tokens"} for chunk in chunks)
    assert last["choices"] == []


def test_continuous_usage_alone_is_no_usage() -> None:
    found = events(stream_options={"continuous_usage_stats": True})
    assert not [event for event in found if "usage" in event]


@pytest.mark.parametrize("usage", [False, True])
def test_the_fingerprint_is_in_the_last_event_and_there_only(usage: bool) -> None:
    *others, last = events(**({"stream_options": {"include_usage": True}} if usage else {}))
    assert last["system_fingerprint"].startswith("vllm-")
    assert not [event for event in others if "system_fingerprint" in event]


def test_ids_and_usage_go_together() -> None:
    found = events(return_token_ids=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    ids = [i for event in found[:-1] for i in event["choices"][0]["token_ids"]]
    assert len(ids) == found[-2]["usage"]["completion_tokens"] == 12
