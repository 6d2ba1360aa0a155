"""The head of a Ray cluster: its end is seen at once, its silence after a while, and its good health never."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from specsweep.client.head_watch import wait_until_lost

PATIENCE_S = 30.0


class Head:
    """Accepts connections and greets on them, as a gRPC server does."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.accepted: list[socket.socket] = []
        self.came = threading.Condition()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.sendall(b"\x00\x00\x00\x04")
            with self.came:
                self.accepted.append(connection)
                self.came.notify_all()

    def wait_for(self, connections: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.accepted) >= connections, PATIENCE_S)

    def listen_no_more(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join(PATIENCE_S)

    def die(self) -> None:
        self.listen_no_more()
        for connection in self.accepted:
            connection.close()


@pytest.fixture
def head() -> Iterator[Head]:
    head = Head()
    yield head
    if head.listener.fileno() >= 0:
        head.die()


class Watch:
    def __init__(self, address: str, *, given_up_s: float = 3600.0, look_s: float = 0.02) -> None:
        self.ended = threading.Event()
        self.found: bool | None = None
        self.thread = threading.Thread(target=self._watch, args=(address, given_up_s, look_s))
        self.thread.start()

    def _watch(self, address: str, given_up_s: float, look_s: float) -> None:
        self.found = wait_until_lost(address, self.ended, given_up_s=given_up_s, look_s=look_s)

    def result(self) -> bool | None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.found


@contextmanager
def watching(address: str, **options: float) -> Iterator[Watch]:
    watch = Watch(address, **options)
    try:
        yield watch
    finally:
        watch.ended.set()
        watch.result()


def test_a_head_that_ends_is_lost_at_once_even_if_another_takes_its_place(head: Head) -> None:
    with watching(head.address, look_s=PATIENCE_S) as watch:
        head.wait_for(1)
        head.accepted[0].close()  # the address goes on listening
        assert watch.result() is True


def test_a_head_that_answers_is_never_lost_however_often_it_is_asked(head: Head) -> None:
    with watching(head.address, given_up_s=0.0) as watch:
        head.wait_for(8)
        assert watch.thread.is_alive()
    assert watch.found is False


def test_a_head_that_only_takes_no_connections_is_given_up_after_a_while(head: Head) -> None:
    with watching(head.address) as patient, watching(head.address, given_up_s=0.1) as watch:
        head.wait_for(2)
        head.listen_no_more()
        assert watch.result() is True
        assert patient.thread.is_alive()


def test_one_that_never_was_there_is_given_up_too() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with watching(f"127.0.0.1:{nobody.getsockname()[1]}", given_up_s=0.05) as watch:
            assert watch.result() is True


def test_the_end_of_the_watch_is_no_loss(head: Head) -> None:
    with watching(head.address) as watch:
        head.wait_for(1)
        begun = time.monotonic()
        watch.ended.set()
        assert watch.result() is False
        assert time.monotonic() - begun < PATIENCE_S
