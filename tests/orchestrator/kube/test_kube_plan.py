"""What a plan will take of a cluster is counted as a run would take it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_samples import contents
from store_samples import axes

from specsweep.orchestrator.cli import main
from specsweep.orchestrator.kube.forecast import Usage, forecast
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.points import Point, Session

WORDS = ("sweep=smoke", "cluster=kubernetes", "engine=sim", "cluster.image=reg/specsweep:1")


def session(name: str, gpus: int, seconds: float, product: str = "B200") -> Session:
    config = {"cluster": {"pod": {"gpus": gpus, "gpu_product": product}}, "engine": {}, "target": {}}
    return Session(name, (Point(name, axes(), config, {}, None),), 0.0, (seconds,))


def settings(sessions: int, **limits: int) -> Settings:
    return Settings.of({"cluster": {"max_parallel_sessions": sessions, "gpu_limits": limits}})


def test_one_after_the_other() -> None:
    found = forecast([session("a", 8, 100), session("b", 1, 50)], settings(1), lambda s: s.est_s)
    assert (found.elapsed_s, found.most_sessions) == (150, 1)
    assert found.usage == [Usage("B200", 2, 850, 8)]


def test_side_by_side_under_the_limit_of_a_product() -> None:
    sessions = [session("a", 8, 100), session("b", 8, 100), session("c", 1, 30, "L4")]
    found = forecast(sessions, settings(4, B200=8), lambda s: s.est_s)
    assert (found.elapsed_s, found.most_sessions) == (200, 2)
    assert found.usage == [Usage("B200", 2, 1600, 8), Usage("L4", 1, 30, 1)]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 100), st.sampled_from(["B200", "L4"])), max_size=20),
    at_once=st.integers(1, 5),
    limit=st.integers(8, 16),
)
def test_limits_are_kept_and_no_work_is_lost(lengths: list[tuple[int, int, str]], at_once: int, limit: int) -> None:
    sessions = [session(str(i), gpus, seconds, product) for i, (gpus, seconds, product) in enumerate(lengths)]
    found = forecast(sessions, settings(at_once, B200=limit), lambda s: s.est_s)
    assert found.most_sessions <= at_once
    assert all(usage.most_gpus <= limit for usage in found.usage if usage.product == "B200")
    assert sum(usage.gpu_s for usage in found.usage) == sum(gpus * seconds for gpus, seconds, _ in lengths)
    work = [seconds for _, seconds, _ in lengths]
    assert max(work, default=0) <= found.elapsed_s <= sum(work)


def test_the_reader_sees_gpus(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsweep.orchestrator.grid.Contents", contents)
    words = (*WORDS, "cluster.pod.gpus=8", "cluster.pod.gpu_product=NVIDIA-B200", f"store={tmp_path}", "cluster.max_parallel_sessions=2")
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA-B200: 2 sessions, at most 16 GPUs at once, about " in out
    assert "at most 2 sessions at once (cluster.max_parallel_sessions=2)" in out
    assert out.count("8 × NVIDIA-B200") == 2
    assert main(["plan", *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    (gpus,) = facts["cluster"]["gpus"]
    assert gpus["gpu_hours"] == pytest.approx(8 * facts["estimate_s"] / 3600)
    assert {s["gpus"] for s in facts["sessions"]} == {8}
    assert main(["plan", *WORDS, f"store={tmp_path}"]) == 0
    assert "no GPU is asked for" in capsys.readouterr().out


def test_settings_that_cannot_be_right_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *WORDS, "cluster.gpu_limits={B200: none}"]) == 2
    assert "cluster.gpu_limits.B200='none'" in capsys.readouterr().err
