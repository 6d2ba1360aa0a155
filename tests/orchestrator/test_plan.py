"""Sessions, their order and what they are thought to cost."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from plan_samples import ids, only, plan_of, write_groups

from specsweep.orchestrator import cost
from specsweep.orchestrator.plan import nothing_left
from specsweep.orchestrator.points import Dropped, Plan, Session
from specsweep.orchestrator.rules import NONE_HAS_NO_DRAFT


def arms(plan: Plan) -> list[str]:
    return [f"{s.config['drafter']['name']}{s.config['draft_length'] or ''} r{s.config['repeat']}" for s in plan.sessions]


def block(session: Session) -> tuple[str, int]:
    return session.config["target"]["name"], session.config["engine"]["max_batch"]


def test_a_session_serves_every_batch_size_isl_workload_and_temperature() -> None:
    plan = plan_of("sweep=quickstart", "isl=128,256", "temperature=0,0.5")
    assert arms(plan) == ["none r1", "ngram4 r1", "ngram8 r1"]
    assert [len(s.points) for s in plan.sessions] == [3 * 2 * 2 * 2] * 3
    for session in plan.sessions:
        configs = [p.config for p in session.points]
        assert len({repr([c[k] for k in ("engine", "target", "drafter", "draft_length")]) for c in configs}) == 1


@pytest.mark.parametrize("override", ["+engine.args.x=1,2", "target.tensor_parallel=null,1", "drafter.match_size=2,3", "batch_size=8,9"])
def test_what_an_engine_is_started_with_makes_another_session(override: str) -> None:
    assert len(plan_of("drafter=ngram", override).sessions) == 2


@pytest.mark.parametrize("override", ["workload.padding=a,b", "workload.osl=8,16", "seed=1,2", "measure.requests_per_slot=4,5"])
def test_what_only_requests_see_does_not(override: str) -> None:
    assert len(plan_of("drafter=ngram", override).sessions) == 1


def test_a_stateful_drafter_gets_one_session_a_point(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"drafter/learns": "method: ngram\nstateful: true\nmatch_size: 3\n"})
    plan = plan_of("drafter=none,learns", "batch_size=1,2,3", dirs=(mine,))
    assert [len(s.points) for s in plan.sessions] == [3, 1, 1, 1]
    assert len({s.session_id for s in plan.sessions}) == 4


def test_repetitions_go_there_and_back() -> None:
    plan = plan_of("sweep=quickstart", "repeats=3")
    assert arms(plan) == [
        *("none r1", "ngram4 r1", "ngram8 r1"),
        *("ngram8 r2", "ngram4 r2", "none r2"),
        *("none r3", "ngram4 r3", "ngram8 r3"),
    ]
    first, back = plan.sessions[0], plan.sessions[5]
    assert [p.axes["batch_size"] for p in first.points] == [p.axes["batch_size"] for p in reversed(back.points)]


def test_arms_that_are_compared_stay_together_and_the_cheap_block_comes_first() -> None:
    plan = plan_of("target=smollm2-135m,tiny", "drafter=ngram,none", "draft_length=2,4", "batch_size=16,1")
    blocks = [
        key for key, _ in itertools.groupby(plan.sessions, key=lambda s: (s.config["target"]["name"], s.config["engine"]["max_batch"]))
    ]
    assert len(blocks) == len(set(blocks)) == 4
    assert blocks[0] == ("tiny", 8)
    costs = [
        sum(s.est_s for s in g)
        for _, g in itertools.groupby(plan.sessions, key=lambda s: (s.config["target"]["name"], s.config["engine"]["max_batch"]))
    ]
    assert costs == sorted(costs)
    assert [s.points[0].is_baseline for s in plan.sessions] == [True, False, False] * 4
    for session in plan.sessions:
        if not session.points[0].is_baseline:
            place = next(i for i, s in enumerate(plan.sessions) if session.points[0].baseline_id in {p.point_id for p in s.points})
            assert abs(plan.sessions.index(session) - place) <= 2


def test_a_plan_is_the_same_every_time_and_on_growing_keeps_its_sessions() -> None:
    once, again = plan_of("sweep=quickstart"), plan_of("sweep=quickstart")
    assert once == again
    grown = plan_of("sweep=quickstart", "batch_size=16,1,4,8", "drafter=none,ngram,draft_model", "draft_length=2,4,8")
    assert ids(once) <= ids(grown)
    assert {s.session_id for s in once.sessions} <= {s.session_id for s in grown.sessions}


def test_cost_grows_with_work() -> None:
    def seconds(*overrides: str) -> float:
        return plan_of("drafter=ngram", *overrides).est_s

    base = seconds()
    for more in (
        "workload.osl=256",
        "workload.prompts=48",
        "isl=2000",
        "batch_size=32",
        "target.cost.step_ms=50",
        "engine.cost.start_s=60",
    ):
        assert seconds(more) > base, more
    assert seconds("target=tiny") < base
    assert plan_of("engine=vllm", "cluster=attach", "endpoint=http://h:1").sessions[0].est_start_s == 0


def test_cost_counts_turns_and_the_history_that_they_carry(tmp_path: Path) -> None:
    def config(name: str, *turns: str) -> Mapping[str, Any]:
        file = tmp_path / f"{name}.jsonl"
        rows = [{"prompt_id": f"{name}{i}", "category": "c", "text": f"{i} word " + "word " * 400, "turns": turns} for i in range(5)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = (f"workload.corpus={file}", "workload.prompts=3", "workload.ramp_prompts=2", "isl=0", "batch_size=2", "drafter=none")
        return only(plan_of("target=tiny", "workload=mixed", *words)).config

    one, three = config("one"), config("three", "and then?", "why?")
    assert cost.request_count(one) == 2 + 8
    assert cost.request_count(three) == 3 * (2 + 8)
    seconds = [cost.point_seconds(c) - cost.POINT_OVERHEAD_S for c in (one, three)]
    assert seconds[1] > 3 * seconds[0] > 0, "a turn for each, and each prefills what came before it"


def test_history_replaces_the_estimate_of_a_point_and_scales_the_others() -> None:
    plain = plan_of("sweep=quickstart")
    measured = plain.points[0]
    history = {measured.point_id: 3 * cost.point_seconds(measured.config)}
    corrected = plan_of("sweep=quickstart", history=history)
    before = {p.point_id: e for s in plain.sessions for p, e in zip(s.points, s.est_points_s, strict=True)}
    after = {p.point_id: e for s in corrected.sessions for p, e in zip(s.points, s.est_points_s, strict=True)}
    assert after == pytest.approx({i: 3 * e for i, e in before.items()})
    assert [s.session_id for s in corrected.sessions] == [s.session_id for s in plain.sessions]


def test_a_target_without_cost_figures_has_an_estimate(tmp_path: Path) -> None:
    mine = write_groups(tmp_path, {"target/new": "model: {source: hub, repo: x/y, file: z.gguf}\n", "drafter/new": "method: ngram\n"})
    assert plan_of("target=new", "drafter=new", dirs=(mine,)).est_s > 0


def test_a_large_grid_makes_every_point_once_and_no_more_sessions_than_engine_starts() -> None:
    plan = plan_of("sweep=quickstart", "batch_size=range(1,101)", "draft_length=range(1,6)", "isl=range(100,2100,100)")
    assert len(ids(plan)) == len(plan.points) == 2 * 20 * 100 * 6
    slots = {s.config["engine"]["max_batch"] for s in plan.sessions}
    assert slots == {8, 32, 128}
    assert len(plan.sessions) == len(slots) * 6
    assert all(p.baseline_id is not None for p in plan.points if not p.is_baseline)


def test_an_empty_grid_names_the_mistake_that_all_cells_share() -> None:
    remark = Dropped({}, NONE_HAS_NO_DRAFT, "drafter none has no draft length")
    cells = [Dropped({}, "a", f"{own}cluster.image is not set; name it") for own in ("", "engine x has no y; ")]
    assert nothing_left([remark, *cells]) == "cluster.image is not set; name it"
    assert nothing_left([remark, Dropped({}, "a", "one"), Dropped({}, "b", "two")]) == "no point is left. one / two"
