"""The napping selector: naps in a dense stream only, and never lets callbacks wait."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Iterator

import pytest
from stream_stubs import planned, stub

from specsweep.client.event_loop import NAP_S, NappingSelector, new_loop
from specsweep.client.load import LoadSpec, run_load


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(2)]
    yield made
    for a, b in made:
        a.close()
        b.close()


def test_naps_while_reads_are_dense_and_gathered_in_groups(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    clock = Clock()
    with NappingSelector(clock=clock, sleep=clock.sleep) as selector:
        for a, _ in pairs:
            selector.register(a, selectors.EVENT_READ)
        for _, b in pairs:
            b.send(b"x")  # both stay readable
        selector.select(1.0)
        assert clock.naps == []  # the first wake-up after a pause
        clock.now += NAP_S / 3
        selector.select(1.0)
        assert clock.naps == []
        clock.now += NAP_S / 3
        assert len(selector.select(1.0)) == 2  # two wake-ups stood close together
        assert clock.naps == [NAP_S]
        selector.select(1.0)  # the nap gathered two reads, so the next one is worth it
        assert len(clock.naps) == 2
        pairs[0][0].recv(1)
        selector.select(1.0)
        assert len(clock.naps) == 3
        selector.select(1.0)  # the last nap gathered one read only
        assert len(clock.naps) == 3


def test_sparse_reads_and_waiting_callbacks_are_never_delayed(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    clock = Clock()
    with NappingSelector(clock=clock, sleep=clock.sleep) as selector:
        selector.register(pairs[0][0], selectors.EVENT_READ)
        pairs[0][1].send(b"x")
        for _ in range(50):
            selector.select(1.0)
            clock.now += NAP_S * 1.1
        assert clock.naps == []
        for _ in range(50):
            selector.select(0)
            clock.now += NAP_S / 10
        assert clock.naps == []


def test_the_loop_is_ours_whatever_the_policy_and_carries_the_load() -> None:
    async def main() -> None:
        async with stub() as server:
            sent, _ = await run_load(LoadSpec(server.base_url, "/", (), 8, planned(80), 5.0))
            assert [s.exchange.ended for s in sent] == ["complete"] * 80

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert isinstance(runner.get_loop(), asyncio.SelectorEventLoop)
        runner.run(main())
