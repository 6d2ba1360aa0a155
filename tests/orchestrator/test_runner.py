"""The rules of failure of a run: what each thing that goes wrong costs, and what it does not.

A plan, a store and an HTTP engine are real; the place where engines run and the measurement are stand-ins that fail when told to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from plan_samples import plan_of
from runner_samples import Engine, Prepared, World, composed, installed, kinds, run, states

from specsweep.client.actors import ClientsUnavailable
from specsweep.orchestrator import point_run
from specsweep.orchestrator.errors import EngineRetryable, NoClientsError, RequestError, StoreError
from specsweep.orchestrator.measuring import Measured
from specsweep.orchestrator.points import Plan, Point
from specsweep.orchestrator.progress import Progress
from specsweep.orchestrator.store import Store


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return installed(World(""), monkeypatch)


@pytest.fixture
def plan(store: Store) -> Plan:
    """Two sessions (none, draft_model) of two batch sizes each."""
    made = composed("none,draft_model", "1,2")
    assert [len(session.points) for session in made.sessions] == [2, 2]
    store.write_plan(made)
    return made


def test_every_point_lands_once_with_what_was_found_and_nothing_is_left_running(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed, outcome.invalid, outcome.worst) == (4, 0, 0, None)
    assert states(store, plan) == ["measured"] * 4
    assert (len(world.started), world.running) == (2, 0)
    assert world.warmed == 1 + 2 + 1 + 2, "each batch size of each engine was warmed up with that many requests"
    attempt = store.latest(plan.points[0].point_id)
    assert attempt is not None
    assert attempt.point["env"]["engine"]["build"] == "b1"
    assert attempt.point["machine"]["background_cpu_share"] == 0.01
    session = ["session_started", "point_started", "point_started", "session_finished"]
    assert kinds(store, plan) == session * 2


def test_what_is_measured_is_not_measured_again(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    run(plan, store, world, prepared)
    again = run(plan, store, world, prepared)
    assert again.measured == 0
    assert len(world.started) == 2


def test_only_the_batch_sizes_that_are_missing_are_warmed_up(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    small = [point for point in plan.points if point.axes["batch_size"] == 1]

    def no_small_ones(point: Point, engine: Engine) -> None:
        if point in small:
            raise RequestError("none of 6 measured requests succeeded")

    world.trouble = no_small_ones
    run(plan, store, world, prepared)
    world.trouble, world.warmed = lambda point, engine: None, 0
    run(plan, store, world, prepared)
    assert states(store, plan) == ["measured"] * 4
    assert world.warmed == 1 + 1


def test_an_engine_that_dies_costs_the_point_in_flight_and_is_started_again(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    first = plan.points[0]

    def die_once(point: Point, engine: Engine) -> None:
        if point is first:
            engine.how = "was killed by SIGKILL"
            raise RequestError("none of 6 measured requests succeeded; the first: disconnected")

    world.trouble = die_once
    outcome = run(plan, store, world, prepared)
    failed, *others = states(store, plan)
    assert failed.startswith("EngineDied: ")
    assert "was killed by SIGKILL while" in failed
    assert others == ["measured"] * 3
    assert (outcome.measured, outcome.failed) == (3, 1)
    assert (len(world.started), world.running) == (3, 0)
    attempt = store.latest(first.point_id)
    assert attempt is not None
    assert "GGML_ASSERT failed" in (attempt.path / "evidence" / "engine.log").read_text()


def test_an_engine_that_dies_although_every_request_succeeded_is_found_out(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    def die(point: Point, engine: Engine) -> None:
        if point is plan.points[0]:
            engine.how = "ended with code 1"

    world.trouble = die
    run(plan, store, world, prepared)
    assert [state == "measured" for state in states(store, plan)] == [False, True, True, True]


def test_an_engine_that_dies_twice_without_a_point_between_ends_its_session_and_no_other(
    world: World, prepared: Prepared, store: Store
) -> None:
    plan = composed("none,draft_model", "1,2,4,8")
    store.write_plan(plan)

    def die(point: Point, engine: Engine) -> None:
        if point in plan.sessions[0].points:
            engine.how = "ended with code 1"

    world.trouble = die
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (4, 4)
    assert len(world.measured) == 2 + 4, "the last two of the first session were not even begun"
    assert len(world.started) == 2 + 1
    assert {state.split(":")[0] for state in states(store, plan)[:4]} == {"EngineDied"}
    assert outcome.worst is not None
    assert outcome.worst.exit_code == 4


def test_deaths_with_points_between_do_not_add_up(world: World, prepared: Prepared, store: Store) -> None:
    plan = composed("none", "1,2,4,8")
    store.write_plan(plan)

    def die_at_every_second_point(point: Point, engine: Engine) -> None:
        if len(world.measured) % 2:
            engine.how = "ended with code 1"

    world.trouble = die_at_every_second_point
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (2, 2)


def test_a_start_that_can_heal_is_tried_once_more(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    world.refuse_starts = [EngineRetryable("port 8080 is taken")]
    assert run(plan, store, world, prepared).measured == 4


def test_a_start_that_does_not_heal_fails_its_session_alone(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    world.refuse_starts = [EngineRetryable("port 8080 is taken"), EngineRetryable("port 8080 is taken")]
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (2, 2)
    assert states(store, plan)[:2] == ["EngineRetryable: port 8080 is taken"] * 2


def test_a_lost_client_costs_one_repetition(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def lose_once(point: Point, engine: Engine) -> None:
        if world.measured == [plan.points[0].point_id]:
            raise RuntimeError("client actor 0 (pid 7 on here) was lost: SIGKILL")

    world.trouble = lose_once
    assert run(plan, store, world, prepared).measured == 4
    assert len(world.measured) == 5
    assert kinds(store, plan).count("actor_lost") == 1


def test_clients_that_are_lost_twice_cost_the_point_and_not_the_engine(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def lose(point: Point, engine: Engine) -> None:
        if point is plan.points[0]:
            raise RuntimeError("client actor 0 (pid 7 on here) was lost: SIGKILL")

    world.trouble = lose
    run(plan, store, world, prepared)
    failed, *others = states(store, plan)
    assert failed.startswith("ClientError: a client process was lost while")
    assert others == ["measured"] * 3
    assert len(world.started) == 2


def test_a_bug_of_ours_costs_its_point_and_is_told_in_full(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def stumble(point: Point, engine: Engine) -> None:
        if point is plan.points[1]:
            raise KeyError("oops")

    world.trouble = stumble
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (3, 1)
    attempt = store.latest(plan.points[1].point_id)
    assert attempt is not None
    assert attempt.point["error"] == {"kind": "ClientError", "message": "internal error: KeyError: 'oops'"}
    assert "in stumble" in (attempt.path / "evidence" / "engine.log").read_text()


def test_prompts_that_cannot_be_had_fail_alone(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    prepared.bad = lambda point: point is plan.points[0]
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (3, 1)
    assert states(store, plan)[0] == "ConfigError: workload.prompts=9, but the corpus has 8"


def test_an_error_of_ours_in_making_prompts_costs_that_point_alone(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def stumble(point: Point) -> bool:
        return bool({}["oops"]) if point is plan.points[0] else False

    prepared.bad = stumble
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (3, 1)
    assert states(store, plan)[0] == "ClientError: internal error: KeyError: 'oops'"


def test_a_session_without_prompts_starts_no_engine(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    prepared.bad = lambda point: True
    assert run(plan, store, world, prepared).failed == 4
    assert world.started == []


@pytest.mark.parametrize("refused", [0, 1], ids=["with points left in its session", "as the last of its session"])
def test_a_store_that_takes_no_more_ends_the_run_with_its_own_words(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    commit = Store.commit

    def full_at_one(self: Store, record: Mapping[str, Any], *content: Any) -> Path:
        if record["point_id"] == plan.points[refused].point_id:
            raise StoreError("point 0123 was measured, but that could not be written: No space left on device")
        return commit(self, record, *content)

    monkeypatch.setattr(Store, "commit", full_at_one)
    with pytest.raises(StoreError, match="point 0123 was measured"):
        run(plan, store, world, prepared)
    assert world.measured == [point.point_id for point in plan.points[: refused + 1]], "nothing is measured that cannot be kept"
    assert (len(world.started), world.running) == (1, 0)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), {1, 2}], ids=["NaN", "infinity", "no JSON at all"])
def test_a_measurement_that_cannot_be_kept_fails_its_point_and_no_other(
    world: World, prepared: Prepared, store: Store, plan: Plan, number: object
) -> None:
    def spoil(point: Point, measured: Measured) -> Measured:
        if point in plan.points[1:3]:  # the last of one session and the first of the next
            measured.measurement["metrics"]["user_tps_mean"] = number
        return measured

    world.spoil = spoil
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed, outcome.unrecorded) == (2, 2, 0)
    first, *failed, last = states(store, plan)
    assert (first, last) == ("measured", "measured")
    for state in failed:
        assert state.startswith("ClientError: it was measured, but the result cannot be kept: internal error")
        assert "metrics.user_tps_mean" in state
    assert len(world.started) == 2
    attempt = store.latest(plan.points[1].point_id)
    assert attempt is not None
    assert "Traceback" in (attempt.path / "evidence" / "engine.log").read_text()


def test_facts_of_an_engine_that_cannot_be_kept_are_left_out_of_the_failure(
    world: World, prepared: Prepared, store: Store, plan: Plan
) -> None:
    world.host["clock_ghz"] = float("nan")
    outcome = run(plan, store, world, prepared)
    assert (outcome.failed, outcome.unrecorded) == (4, 0)
    assert all("cannot be kept" in state for state in states(store, plan))


def test_a_point_that_the_store_takes_in_no_form_is_counted(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Store.commit

    def refuse_one(self: Store, record: Mapping[str, Any], *content: Any) -> Path:
        if record["point_id"] == plan.points[1].point_id:
            raise ValueError("two ids share 16 digits")
        return commit(self, record, *content)

    monkeypatch.setattr(Store, "commit", refuse_one)
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed, outcome.unrecorded) == (3, 1, 1)
    assert store.latest(plan.points[1].point_id) is None
    assert "not_recorded" in kinds(store, plan)


def test_a_point_that_landed_stays_landed_if_it_cannot_be_shown(
    world: World, prepared: Prepared, store: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(self: Progress, point: Point, measurement: Mapping[str, Any]) -> None:
        raise KeyError("al_decode")

    monkeypatch.setattr(Progress, "landed", stumble)
    outcome = run(plan, store, world, prepared)
    assert (outcome.measured, outcome.failed) == (4, 0)
    assert [len(store.attempts(point.point_id)) for point in plan.points] == [1] * 4


class Ray:
    """Starts, unless it is told not to for a number of times."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.asked = refusals, 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise ClientsUnavailable("Ray did not start: OSError: no space for its sockets")


def test_clients_that_never_come_up_end_the_run_and_fail_no_point(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    world.start_clients = ray = Ray(2)
    world.start_s = 30.0
    with pytest.raises(NoClientsError, match=r"nothing can be measured: Ray did not start: OSError.*stay missing") as ended:
        run(plan, store, world, prepared)
    assert ended.value.exit_code == 6
    assert ray.asked == 2
    assert [store.latest(point.point_id) for point in plan.points] == [None] * 4
    assert (world.measured, world.running) == ([], 0)


def test_clients_that_come_up_the_second_time_measure_everything(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    world.start_clients = Ray(1)
    assert run(plan, store, world, prepared).measured == 4


def test_clients_that_are_gone_for_good_in_the_middle_end_the_run(world: World, prepared: Prepared, store: Store, plan: Plan) -> None:
    def gone(point: Point, engine: Engine) -> None:
        if point is plan.points[1]:
            raise ClientsUnavailable("Ray did not start: it is dead")

    world.trouble = gone
    with pytest.raises(NoClientsError, match="it is dead"):
        run(plan, store, world, prepared)
    assert [store.latest(point.point_id) is not None for point in plan.points] == [True, False, False, False]
    assert len(world.measured) == 1 + 2, "tried twice, and at no other point"
    assert world.running == 0


def test_a_machine_that_never_gets_quiet_is_waited_for_once_a_session_and_that_is_said(
    world: World, prepared: Prepared, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of("sweep=smoke", "drafter=none", "batch_size=1,2,4", "measure.quiet_seconds=20")
    store.write_plan(plan)
    world.busy = 0.9
    run(plan, store, world, prepared)
    assert world.waits == [20, point_run.VAIN_WAIT_S, point_run.VAIN_WAIT_S]
    told = capsys.readouterr().err
    assert told.count("waiting for a quiet machine (other processes use 90 %), at most 20 s") == 1
    assert told.count("did not get quiet in 20 s") == 1
    assert kinds(store, plan).count("waiting_for_quiet") == 3


def test_every_point_waits_its_time_on_a_machine_that_gets_quiet(
    world: World, prepared: Prepared, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of("sweep=smoke", "drafter=none", "batch_size=1,2", "measure.quiet_seconds=20")
    store.write_plan(plan)
    run(plan, store, world, prepared)
    assert world.waits == [20, 20]
    assert "quiet" not in capsys.readouterr().err
