"""One Ray for several threads: no start, restart or stop while anybody uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from specsweep.client.shared_ray import SharedRay

PATIENCE_S = 30.0


class FakeRay:
    """Notes what is done to it, and by how many users it is used meanwhile."""

    def __init__(self) -> None:
        self.alive = False
        self.done: list[str] = []
        self.fails = 0
        self.shared = SharedRay(self, self.start)

    def start(self) -> None:
        if self.fails:
            self.fails -= 1
            self.done.append("failed")
            raise RuntimeError("no space for its sockets")
        self.done.append("start")
        self.alive = True

    def stop(self) -> None:
        self.done.append("stop")
        self.alive = False


class User:
    """A thread that uses Ray until it is told to leave."""

    def __init__(self, ray: FakeRay) -> None:
        self.epoch: int | None = None
        self.error: BaseException | None = None
        self._ray = ray
        self._inside, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._use)
        self._thread.start()

    def _use(self) -> None:
        try:
            with self._ray.shared.use() as epoch:
                self.epoch = epoch
                self._inside.set()
                assert self._leave.wait(PATIENCE_S)
                self._ray.done.append("left")
        except BaseException as error:
            self.error = error
            self._inside.set()

    def comes_in(self) -> int | None:
        assert self._inside.wait(PATIENCE_S)
        return self.epoch

    @property
    def waits(self) -> bool:
        return not self._inside.wait(0.05)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(PATIENCE_S)


@contextmanager
def thread(body: Callable[[], None]) -> Iterator[threading.Thread]:
    running = threading.Thread(target=body)
    running.start()
    try:
        yield running
    finally:
        running.join(PATIENCE_S)
        assert not running.is_alive()


def test_started_once_for_all() -> None:
    ray = FakeRay()
    users = [User(ray) for _ in range(5)]
    assert {user.comes_in() for user in users} == {1}
    for user in users:
        user.leave()
    assert ray.done[0] == "start"
    assert ray.done.count("start") == 1


def test_a_ray_that_died_is_started_again_once_the_others_have_left() -> None:
    ray = FakeRay()
    old = User(ray)
    old.comes_in()
    ray.alive = False
    new = [User(ray), User(ray)]
    assert all(user.waits for user in new)
    old.leave()
    assert {user.comes_in() for user in new} == {2}  # another epoch: handles of before are worthless
    assert ray.done == ["start", "left", "start"]
    for user in new:
        user.leave()


def test_a_start_that_fails_is_told_and_the_next_one_tries_again() -> None:
    ray = FakeRay()
    ray.fails = 1
    with pytest.raises(RuntimeError, match="no space"), ray.shared.use():
        pass
    with ray.shared.use():
        assert ray.done == ["failed", "start"]


def test_close_waits_for_the_users_and_lets_nobody_in_afterwards() -> None:
    ray = FakeRay()
    user = User(ray)
    user.comes_in()
    with thread(ray.shared.close) as closing:
        closing.join(0.05)
        assert closing.is_alive()
        assert ray.done == ["start"]
        user.leave()
    assert ray.done == ["start", "left", "stop"]
    with pytest.raises(RuntimeError, match="closed"), ray.shared.use():
        pass
    with ray.shared.use_if_alive() as epoch:
        assert epoch is None
    ray.shared.close()


def test_who_waits_for_a_dead_ray_is_not_left_waiting_by_close() -> None:
    ray = FakeRay()
    user = User(ray)
    user.comes_in()
    ray.alive = False
    late = User(ray)
    assert late.waits
    with thread(ray.shared.close):
        late.comes_in()
        assert "closed" in str(late.error)
        user.leave()


def test_a_dead_ray_is_stopped_once_its_users_have_left_and_a_living_one_is_not() -> None:
    ray = FakeRay()
    user = User(ray)
    user.comes_in()
    ray.alive = False
    with thread(ray.shared.stop_if_dead) as stopping:
        stopping.join(0.05)
        assert ray.done == ["start"]
        user.leave()
    assert ray.done == ["start", "left", "stop"]
    with ray.shared.use() as epoch:
        assert epoch == 2
    ray.shared.stop_if_dead()
    assert ray.done[-1] == "start"


def test_a_look_starts_nothing() -> None:
    ray = FakeRay()
    with ray.shared.use_if_alive() as epoch:
        assert epoch is None
    with ray.shared.use() as there, ray.shared.use_if_alive() as epoch:
        assert epoch == there == 1
    ray.alive = False
    with ray.shared.use_if_alive() as epoch:
        assert epoch is None
    assert ray.done == ["start"]
