"""Points at the same time, as far as their client processes have cores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from specsweep.client.gate import Gate


class Visit:
    """A task that holds ``weight`` until it is told to go."""

    def __init__(self, gate: Gate, weight: int) -> None:
        self.inside = False
        self.go = asyncio.Event()
        self.task = asyncio.create_task(self._visit(gate, weight))

    async def _visit(self, gate: Gate, weight: int) -> None:
        async with gate.admitted(weight):
            self.inside = True
            await self.go.wait()
        self.inside = False

    async def leave(self) -> None:
        self.go.set()
        await self.task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 30))


async def visits(gate: Gate, *weights: int) -> list[Visit]:
    found = [Visit(gate, weight) for weight in weights]
    await settle()
    return found


def test_as_many_as_have_cores_and_first_come_first_served() -> None:
    async def body() -> None:
        gate = Gate(4)
        a, b, large, small = await visits(gate, 1, 2, 3, 1)
        assert [v.inside for v in (a, b, large, small)] == [True, True, False, False]  # small would fit, and does not pass
        assert (gate.taken, gate.waiting) == (3, 2)
        await b.leave()
        await settle()
        assert [v.inside for v in (a, large, small)] == [True, True, False]
        await a.leave()
        await settle()
        assert (large.inside, small.inside) == (True, True)
        await asyncio.gather(large.leave(), small.leave())
        assert (gate.taken, gate.waiting) == (0, 0)

    run(body())


def test_a_point_that_wants_more_than_there_are_is_alone() -> None:
    async def body() -> None:
        gate = Gate(2)
        first, huge, last = await visits(gate, 1, 8, 1)
        assert [v.inside for v in (first, huge, last)] == [True, False, False]
        await first.leave()
        await settle()
        assert [v.inside for v in (huge, last)] == [True, False]
        await huge.leave()
        await settle()
        assert last.inside
        await last.leave()

    run(body())


def test_one_that_gives_up_holds_nobody_up_and_keeps_nothing() -> None:
    async def body() -> None:
        gate = Gate(2)
        first, large, small = await visits(gate, 1, 2, 1)
        large.task.cancel()
        await settle()
        assert small.inside
        waiting = (await visits(gate, 2))[0]
        first.go.set()
        small.go.set()
        while gate.waiting:
            await asyncio.sleep(0)
        waiting.task.cancel()  # let in, but it has not run yet
        await settle()
        assert not waiting.inside
        assert gate.taken == 0

    run(body())


def test_a_failure_inside_gives_back_what_was_taken() -> None:
    async def body() -> None:
        gate = Gate(2)
        with pytest.raises(KeyError):
            async with gate.admitted(2):
                raise KeyError("x")
        assert gate.taken == 0

    run(body())


@pytest.mark.parametrize("seed", range(5))
def test_never_more_than_there_are_and_everybody_comes_in(seed: int) -> None:
    rng = random.Random(seed)
    inside: list[int] = []
    order: list[int] = []

    async def point(gate: Gate, number: int, weight: int) -> None:
        async with gate.admitted(weight):
            order.append(number)
            inside.append(min(weight, gate.capacity))
            assert sum(inside) <= gate.capacity
            try:
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                inside.remove(min(weight, gate.capacity))

    async def body() -> None:
        gate = Gate(5)
        doomed = {n for n in range(60) if rng.random() < 0.2}
        tasks = [asyncio.create_task(point(gate, n, rng.randrange(1, 9))) for n in range(60)]
        for n in sorted(doomed):
            await asyncio.sleep(0)
            tasks[n].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [r for r in results if isinstance(r, Exception)]
        assert order == sorted(order)
        assert (gate.taken, gate.waiting) == (0, 0)

    run(body())


@pytest.mark.parametrize(("capacity", "weight", "words"), [(0, 1, "capacity=0"), (1, 0, "weight=0")])
def test_nonsense_is_named(capacity: int, weight: int, words: str) -> None:
    async def body() -> None:
        with pytest.raises(ValueError, match=words):
            async with Gate(capacity).admitted(weight):
                pass

    run(body())
