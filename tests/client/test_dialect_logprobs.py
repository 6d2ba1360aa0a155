"""Log-probabilities of tokens on the four wires: asked for only on request, and whole or left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dialect_samples import answer
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.trace import Sampling, Turn

WIRES = ("vllm", "trtllm", "sglang", "llamacpp")
ASKED = {"vllm": {"logprobs": 0}, "trtllm": {"logprobs": 1}, "sglang": {"return_logprob": True}, "llamacpp": {"n_probs": 1}}
LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=3)
KEYS = st.sampled_from(["token_logprobs", "logprob", "a"])
JUNK = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2), max_leaves=5)
Chunks = list[tuple[list[int], list[Any]]]


def completions(chunks: Chunks) -> list[Any]:
    """Events of vLLM and TensorRT-LLM: ids and log-probabilities of each chunk."""
    events: list[Any] = []
    total = 0
    for i, (ids, values) in enumerate(chunks):
        total += len(ids)
        said = {"token_logprobs": values, "tokens": ["x"] * len(ids), "top_logprobs": [{}] * len(ids), "text_offset": [0] * len(ids)}
        choice = {"index": 0, "text": "x", "token_ids": ids, "logprobs": said, "finish_reason": "length" if i == len(chunks) - 1 else None}
        choice["avg_decoded_tokens_per_iter"] = total / (i + 1)
        events.append({"choices": [choice], "usage": None})
    return [*events, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": total}}, "[DONE]"]


def generate(chunks: Chunks, *, cumulative: bool) -> list[Any]:
    """Events of SGLang, whose ids and log-probabilities are all so far or those of the event."""
    events: list[Any] = []
    seen: list[int] = []
    said: list[Any] = []
    for i, (ids, values) in enumerate(chunks):
        new = [[v, t, None] for v, t in zip(values, ids, strict=False)]
        seen, said = seen + ids, said + new
        meta = {"prompt_tokens": 3, "completion_tokens": len(seen), "output_token_logprobs": said if cumulative else new}
        meta["finish_reason"] = {"type": "length"} if i == len(chunks) - 1 else None
        events.append({"output_ids": seen if cumulative else ids, "meta_info": meta})
    return [*events, "[DONE]"]


def native(chunks: Chunks) -> list[Any]:
    """Events of llama-server: a token each, none with more."""
    events: list[Any] = []
    tokens = [(t, v) for ids, values in chunks for t, v in zip(ids, values, strict=False)]
    for t, v in tokens:
        event = {"content": "x", "tokens": [t], "stop": False, "tokens_evaluated": 3}
        events.append({**event, "completion_probabilities": [{"id": t, "token": "x", "bytes": [120], "logprob": v, "top_logprobs": []}]})
    return [*events, {"tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": len(tokens), "tokens_evaluated": 3}]


def read(wire: str, chunks: Chunks, *, cumulative: bool = True) -> Turn:
    events = native(chunks) if wire == "llamacpp" else generate(chunks, cumulative=cumulative) if wire == "sglang" else completions(chunks)
    return dialect(wire).read(answer(*events), draft_length=3, n_prompt=3)


@pytest.mark.parametrize("wire", WIRES)
def test_they_are_asked_for_only_where_they_are_wanted(wire: str) -> None:
    plain, asked = (
        json.loads(dialect(wire).request([5, 6], Sampling(max_tokens=9, logprobs=wanted), model="m")) for wanted in (False, True)
    )
    assert ASKED[wire].items() <= asked.items()
    assert not ASKED[wire].items() <= plain.items()
    assert {k: v for k, v in asked.items() if k in plain and plain[k] == v} | {"return_logprob": False} == plain | {"return_logprob": False}


@pytest.mark.parametrize("wire", WIRES)
@given(data=st.lists(st.lists(st.floats(-50, 0), min_size=1, max_size=4), min_size=1, max_size=8), cumulative=st.booleans())
def test_every_token_gets_its_own_however_they_are_cut_into_chunks(wire: str, data: list[list[float]], cumulative: bool) -> None:
    data = [[data[0][0]], *data]  # the first token comes alone
    turn = read(wire, [([100 + i] * len(values), values) for i, values in enumerate(data)], cumulative=cumulative)
    assert turn.outcome == "ok", turn.error
    assert turn.token_surprisal == [-v for values in data for v in values]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("bad", [None, "x", True, 0.5, float("nan"), float("-inf"), -9999.0, -3.4e38])
def test_one_that_is_no_log_probability_takes_them_all_away_and_not_the_answer(wire: str, bad: Any) -> None:
    turn = read(wire, [([7], [-0.5]), ([8], [bad])])
    assert turn.outcome == "ok"
    assert turn.output_ids == [7, 8]
    assert turn.token_surprisal == []
    assert [note for note in turn.notes if "log-probabilit" in note]


def test_a_softmax_that_passes_one_by_rounding_is_certainty() -> None:
    assert read("vllm", [([7], [1e-6])]).token_surprisal == [0.0]


def test_fewer_than_tokens_are_not_spread_over_them() -> None:
    turn = read("vllm", [([7], [-0.5]), ([8, 9], [-0.25])])
    assert turn.token_surprisal == []
    assert "2 log-probabilities came for 3 tokens" in turn.notes[-1]


@pytest.mark.parametrize("wire", WIRES)
@given(junk=JUNK)
def test_nothing_that_a_server_sends_in_their_place_raises(wire: str, junk: Any) -> None:
    if wire == "sglang":
        events = generate([([7], [-0.5])], cumulative=True)
        events[0]["meta_info"]["output_token_logprobs"] = junk
    elif wire == "llamacpp":
        events = native([([7], [-0.5])])
        events[0]["completion_probabilities"] = junk
    else:
        events = completions([([7], [-0.5])])
        events[0]["choices"][0]["logprobs"] = junk
    turn = dialect(wire).read(answer(*events), draft_length=0, n_prompt=3)
    assert turn.outcome in ("ok", "failed")
    assert all(v >= 0 for v in turn.token_surprisal)
