"""Runs on a place with several hosts: sessions at once, and engines that the place takes away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from runner_samples import Engine, Prepared, World, composed, installed, kinds, run, run_in_loop, states

from specsweep.orchestrator import point_run, session_run
from specsweep.orchestrator.clusters import Limits
from specsweep.orchestrator.errors import ClusterRetryable, ClusterTerminal, EngineRetryable, RequestError, StoreError
from specsweep.orchestrator.points import Plan, Point
from specsweep.orchestrator.progress import Progress, Tally
from specsweep.orchestrator.runner import Runner
from specsweep.orchestrator.store import Store


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return installed(World("", dying_s=0.2, can_be_cut_off=True), monkeypatch)


@pytest.fixture
def plan(store: Store) -> Plan:
    """Three sessions of two points each."""
    made = composed("none,draft_model,ngram", "1,2")
    store.write_plan(made)
    return made


def test_sessions_run_at_once_up_to_the_limit_and_every_point_lands_once(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    world.limits, world.start_s, world.measure_s = Limits(2), 0.1, 0.05
    outcome = run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert outcome.measured == 6
    assert world.most_running == 2
    assert world.running == 0


def test_points_are_measured_at_once_only_as_far_as_their_clients_have_cores(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    world.limits, world.measure_s, world.cores = Limits(3), 0.05, 2  # a point of batch size 2 takes both, one of 1 a half
    run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert world.most_cores <= 2
    assert world.most_running == 3


def test_an_engine_that_its_place_takes_away_costs_no_point(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    first = plan.points[0]

    def taken_once(point: Point, engine: Engine) -> None:
        if point is first and len(world.started) == 1:
            engine.node, engine.how = "node-a", "is gone"
            engine.taken = ClusterRetryable("Evicted on node node-a", evidence="── pod.json", node="node-a")
            raise RequestError("none of 6 measured requests succeeded; the first: disconnected")

    world.trouble = taken_once
    outcome = run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert outcome.failed == 0
    assert world.measured.count(first.point_id) == 2
    assert [launch.avoid for launch in world.launches][:2] == [frozenset(), {"node-a"}]
    assert "session_interrupted" in kinds(store, plan)


def test_an_engine_that_is_always_taken_away_fails_its_session_with_the_reason_and_no_other(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    def always(point: Point, engine: Engine) -> None:
        if point in plan.sessions[0].points:
            engine.how, engine.taken = "is gone", ClusterRetryable("Preempted")
            raise RequestError("none of 6 measured requests succeeded")

    world.trouble = always
    outcome = run(plan, store, world, prepared)
    first, second, *others = states(store, plan)
    assert "Preempted" in first
    assert "Preempted" in second
    assert others == ["measured"] * 4
    assert outcome.failed == 2
    assert len(world.started) == session_run.INTERRUPTIONS + 2


def test_an_engine_that_does_not_answer_from_here_is_started_elsewhere(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def cut_once(point: Point, engine: Engine) -> None:
        if len(world.started) == 1:
            engine.node, engine.base_url = "node-a", "http://127.0.0.1:9"  # discard: nobody answers
            raise RequestError("none of 6 measured requests succeeded; the first: stalled")

    world.trouble = cut_once
    run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert world.launches[1].avoid == {"node-a"}


def test_an_engine_that_is_well_fails_its_point_alone(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_run, "WELL_S", 0.05)
    world.dying_s = 60.0

    def refuse(point: Point, engine: Engine) -> None:
        if point is plan.points[0]:
            raise RequestError("none of 6 measured requests succeeded; the first: HTTP 400")

    world.trouble = refuse
    run(plan, store, world, prepared)
    failed, *others = states(store, plan)
    assert failed.startswith("RequestError: ")
    assert others == ["measured"] * 5
    assert len(world.started) == 3


def test_a_place_that_cannot_start_an_engine_for_good_fails_its_session_alone(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    world.refuse_starts = [ClusterTerminal("waited 60 s for a node (0/3 nodes are available: 3 Insufficient nvidia.com/gpu)")]
    run(plan, store, world, prepared)
    first, second, *others = states(store, plan)
    assert "Insufficient nvidia.com/gpu" in first
    assert "Insufficient nvidia.com/gpu" in second
    assert others == ["measured"] * 4


def test_a_node_where_an_engine_did_not_start_is_avoided(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    world.refuse_starts = [EngineRetryable("no known cause", node="node-a"), ClusterRetryable("node lost", node="node-b")]
    run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert world.launches[0].avoid == {"node-a", "node-b"}


def test_a_disk_that_is_full_ends_all_sessions(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.limits, world.measure_s = Limits(3), 0.05

    def full(*_: object) -> Path:
        raise StoreError("no space left on device")

    monkeypatch.setattr(Store, "commit", full)
    with pytest.raises(StoreError, match="no space left"):
        run(plan, store, world, prepared)
    assert world.running == 0


def test_a_run_that_is_interrupted_ends_all_its_engines(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    world.limits, world.measure_s = Limits(3), 30.0

    async def soon_cancelled() -> None:
        running = asyncio.ensure_future(run_in_loop(plan, store, world, prepared))
        while world.running < 3:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(soon_cancelled())
    assert world.running == 0


def test_a_run_that_goes_on_starts_the_engine_that_the_session_had(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    """So that one which still runs is taken over, and what is measured on it has the environment of what was."""
    longest = max(plan.sessions[0].points, key=lambda point: int(point.axes["batch_size"]))

    def not_the_others(point: Point, engine: Engine) -> None:
        if point is not longest:
            raise RequestError("none of 6 measured requests succeeded")

    world.trouble = not_the_others
    run(plan, store, world, prepared)
    first = world.specs[0]
    world.trouble = lambda point, engine: None
    run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert world.specs[3] == first


def test_a_place_is_told_which_sessions_are_to_come(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def not_the_last(point: Point, engine: Engine) -> None:
        if point in plan.sessions[-1].points:
            raise RequestError("none of 6 measured requests succeeded")

    world.trouble = not_the_last
    run(plan, store, world, prepared)
    assert world.sessions == {session.session_id for session in plan.sessions}
    run(plan, store, world, prepared)
    assert world.sessions == {plan.sessions[-1].session_id}


def test_a_measurement_ends_soon_after_its_engine_did(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its requests hang: nobody answers them, and nobody refuses them."""
    monkeypatch.setattr(point_run, "WATCH_S", 0.01)
    monkeypatch.setattr(point_run, "LAST_WORDS_S", 0.05)

    async def hangs_once(point: Point, requests: Any, engine: Engine, team: Any, **more: Any) -> Any:
        if len(world.started) == 1:
            engine.how, engine.taken = "is gone", ClusterRetryable("its node is lost", node="node-a")
            await asyncio.sleep(3600)
        return await world.measure_point(point, requests, engine, team, **more)

    monkeypatch.setattr(point_run, "measure_point", hangs_once)
    run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 6
    assert len(world.started) == 4


def test_what_the_requests_of_a_dead_engine_say_is_heard(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_run, "WATCH_S", 0.01)
    heard: list[str] = []

    async def fails_a_moment_later(point: Point, requests: Any, engine: Engine, team: Any, **more: Any) -> Any:
        if len(world.started) == 1:
            engine.how = "has ended with exit code 1"
            await asyncio.sleep(0.2)
            heard.append("the last words")
            raise RequestError("none of 6 measured requests succeeded")
        return await world.measure_point(point, requests, engine, team, **more)

    monkeypatch.setattr(point_run, "measure_point", fails_a_moment_later)
    run(plan, store, world, prepared)
    failed, *others = states(store, plan)
    assert failed.startswith("EngineDied")
    assert others == ["measured"] * 5
    assert heard == ["the last words"]


def test_a_run_with_nothing_to_measure_opens_its_place_for_no_session(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    """Which then ends what an earlier run left that was killed after its last point."""
    world.sessions = {"of another run"}
    tally = Tally(sessions=0, points=0, requests=0, est_left_s=0.0)
    asyncio.run(Runner(plan, world, store, None, Progress(tally), prepared, tally).tidy())  # type: ignore[arg-type]
    assert world.sessions == set()
    assert world.started == []
