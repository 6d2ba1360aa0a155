"""A large step leaves in slices: a request that arrives meanwhile is seen before the last chunk has left, and nothing else changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sim_harness import Call, Simulation

from specsweep.client.sim.service import SLICE

BODY = {"prompt": [20, 21, 22], "max_tokens": 6, "ignore_eos": True, "stream": True, "return_token_ids": True}


class Loop:
    """Callbacks that wait for their turn."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()

    def run(self) -> None:
        while self.waiting:
            self.waiting.popleft()()


def filled(count: int, loop: Loop | None) -> tuple[Simulation, list[Call]]:
    sim = Simulation(max_batch=count + 1, soon=None if loop is None else loop.waiting.append)
    return sim, [sim.post({**BODY, "prompt": [20 + i, 5, 6]}) for i in range(count)]


def finish(sim: Simulation, loop: Loop) -> None:
    loop.run()
    while sim.clock.fire():
        loop.run()


def test_a_request_that_comes_between_two_slices_joins_the_next_step() -> None:
    loop, count = Loop(), 2 * SLICE + 1
    sim, calls = filled(count, loop)
    sim.clock.fire()
    loop.run()  # the first step has the first request alone: it began before the others came
    sim.clock.fire()
    begun = [len(call.transport.writes) for call in calls]
    late = sim.post({**BODY, "prompt": [9, 8, 7]})
    loop.run()
    assert begun.count(max(begun)) < count, "all chunks of the step had left already"
    step = sim.service.engine.step
    sim.clock.fire()
    loop.run()
    assert len(late.transport.writes) > 1, "its first token comes with the very next step"
    assert sim.service.engine.step == step + 1


def test_slices_change_no_answer() -> None:
    loop = Loop()
    whole, calls = filled(3 * SLICE, None)
    whole.run()
    sliced, others = filled(3 * SLICE, loop)
    finish(sliced, loop)
    assert [call.raw for call in others] == [call.raw for call in calls]
    assert [t.finish for t in sliced.log.requests] == ["length"] * 3 * SLICE


def test_a_client_that_leaves_between_two_slices_gets_nothing_more() -> None:
    loop, count = Loop(), 2 * SLICE
    sim, calls = filled(count, loop)
    sim.clock.fire()
    loop.run()
    sim.clock.fire()
    calls[-1].connection.connection_lost(None)
    written = len(calls[-1].transport.writes)
    finish(sim, loop)
    assert len(calls[-1].transport.writes) == written
    assert [t.finish for t in sim.log.requests].count("aborted") == 1
    assert [t.finish for t in sim.log.requests].count("length") == count - 1
