"""Log-probabilities of real engines: the same target gives the same numbers, by vLLM with and without drafts and by llama.cpp."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from whole_sweeps import finished, specsweep

from specsweep.client.trace import read_trace
from specsweep.orchestrator.attempt import Attempt
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(600)]

CAPTURE = (
    "target=tiny", "capture=logprobs", "workload=low_entropy,high_entropy", "workload.prompts=4", "workload.ramp_prompts=4", "workload.osl=24",
    "isl=128", "batch_size=2", "tracking.enabled=false",
)  # fmt: skip
Answers = dict[str, tuple[list[int], list[float]]]  # by prompt: ids and surprisal


def captures(name: str, store: Path, cache: Path, *more: str) -> list[Attempt]:
    done = specsweep("run", f"name={name}", f"store={store}", f"cache={cache}", *CAPTURE, *more, limit_s=500)
    assert finished(done), done.stderr
    return list(Store(store).sweep(name).latest.values())


def answers(attempts: list[Attempt]) -> Answers:
    rows = [r for a in attempts for r in read_trace(a.path / "trace.parquet").requests]
    return {r.prompt_id: (r.read.output_ids, r.read.token_surprisal) for r in rows}


def far_apart(one: Answers, other: Answers) -> list[tuple[str, float]]:
    """Prompts, and by how many nats their tokens differ at most, as long as both answers run along together (two maxima can be close)."""
    assert one.keys() == other.keys()
    found = []
    for prompt_id, (ids, nats) in one.items():
        ids_, nats_ = other[prompt_id]
        together = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, ids_, strict=False)))
        assert together > 0
        found.append((prompt_id, float(np.abs(np.subtract(nats[:together], nats_[:together])).max())))
    return found


def test_a_capture_of_llamacpp_is_whole_and_untimed(tmp_path: Path, cache: Path) -> None:
    found = captures("lp", tmp_path, cache, "engine=llamacpp")
    assert len(found) == 2
    for attempt in found:
        trace = read_trace(attempt.path / "trace.parquet")
        assert "untimed" in trace.meta
        assert all(len(r.read.token_surprisal) == len(r.read.output_ids) > 0 for r in trace.requests)
        assert attempt.measurement["untimed"] is True
        assert attempt.measurement["logprobs"]["mean"] > 0
    report = json.loads(specsweep("report", "lp", f"store={tmp_path}", "--json").stdout)
    assert report["tables"]["pareto"]["rows"] == []
    ordered = json.loads(specsweep("data", "spectrum", "lp", f"store={tmp_path}", "--json").stdout)
    assert ordered["by"] == "surprisal"
    assert len(ordered["prompts"]) == 8
    assert {tier["workload"] for tier in ordered["tiers"]} == {"low_entropy", "high_entropy"}


@pytest.mark.own_env
def test_drafts_and_engines_change_nothing_of_what_the_target_thinks(tmp_path: Path, cache: Path) -> None:
    vllm = captures("lpv", tmp_path, cache, "engine=vllm", "engine.dtype=float32", "drafter=none,tiny", "draft_length=3")
    plain, drafted = (answers([a for a in vllm if a.point["axes"]["drafter"] == arm]) for arm in ("none", "tiny"))
    assert len(plain) == 8
    drafts = [r for a in vllm for r in read_trace(a.path / "trace.parquet").requests if (r.read.srv_accepted or 0) > 0]
    assert drafts, "accepted drafts are what is in question"
    assert [row for row in far_apart(plain, drafted) if row[1] > 1e-3] == []
    llamacpp = answers(captures("lpl", tmp_path, cache, "engine=llamacpp"))
    assert [row for row in far_apart(plain, llamacpp) if row[1] > 0.05] == [], "llama.cpp keeps weights in 16 bits"
