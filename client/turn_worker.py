"""A client's end of the process that makes the requests of later turns.

The event loop writes an answer's bytes to a socket and waits for a request body; the work is the other process's
(:mod:`specsweep.client.turn_process`). It is asked for one turn after the other: what a second slot waits for the first one is
the same work that the process would do anyway.

A process that died, or that does not come to an end, is not started again in the window: importing and loading takes seconds, in which
slots would stand still that a point says are in flight. It is an end of the measuring side and no property of a conversation, so it ends
the load at once (:class:`WorkerLost`); the point is measured again from its beginning, where :meth:`TurnWorker.begin` starts a new one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from specsweep.client.conversation import ChatRecipe, conversations
from specsweep.client.protocol import Answer
from specsweep.client.trace import PlannedRequest
from specsweep.client.turn_process import LENGTHS, Head, pack
from specsweep.client.workload.errors import WorkloadError

BEGIN_LIMIT_S = 180.0  # importing and loading, on a machine that is busy
TURN_LIMIT_S = 60.0
_BUFFER = 1 << 20


class WorkerLost(RuntimeError):
    """The process that prepares later turns ended inside a measurement, or gave no answer in time."""


class TurnWorker:
    """Started by the first :meth:`begin`, used on one event loop, ended by :meth:`close` or with this process."""

    def __init__(self, *, turn_limit_s: float = TURN_LIMIT_S) -> None:
        self._turn_limit_s = turn_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._one_at_a_time = asyncio.Lock()
        self._gone = "it was never started"
        self.cpu_s = 0.0  # that the process has used, as of its last answer

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._process is None else self._process.pid

    async def begin(self, recipe: ChatRecipe, requests: Sequence[PlannedRequest]) -> None:
        """Makes it ready for the conversations of a point. Raises :class:`WorkloadError` for a tokenizer or template that cannot be used
        here, ``RuntimeError`` if the process cannot be had (:class:`WorkerLost` if it ends meanwhile).
        """
        if self._gone or self._process is None or self._process.poll() is not None:
            await self._start()
        head = {"what": "begin", "recipe": dataclasses.asdict(recipe), "texts": conversations(requests)}
        answer, _ = await self._ask(pack(head), BEGIN_LIMIT_S)
        if answer.get("kind") == "workload":
            raise WorkloadError(f"{answer['words']} (on host {socket.gethostname()}, where a client process prepares later turns)")
        if "kind" in answer:
            raise RuntimeError(f"no process can prepare later turns: {answer['words']}")

    async def next_turn(self, first: PlannedRequest, turn: int, n_prompt: int, answer: Answer) -> tuple[int, bytes] | str:
        """The prompt's tokens and the body of ``turn`` (1, 2, …) of the conversation that ``first`` began, after the ``answer`` to the turn
        before, whose prompt had ``n_prompt`` tokens; or why it is not to be sent, as an exchange's ``ended`` has it.

        Raises :class:`WorkerLost` if the process is gone, and nothing for anything that an answer can be.
        """
        if not answer.reads:
            return f"not_sent: turn {turn - 1} of this conversation got no answer ({answer.ended})"
        head = {
            "what": "turn",
            "conversation": first.index,
            "prompt_id": first.prompt_id,
            "turn": turn,
            "n_prompt": n_prompt,
            "t_send_ns": answer.t_send_ns,
            "t_end_ns": answer.t_end_ns,
            "ended": answer.ended,
        }
        said, body = await self._ask(pack(head, b"".join(data for _, data in answer.reads)), self._turn_limit_s)
        if kind := said.get("kind"):
            return f"{'not_sent' if kind == 'workload' else kind}: {said['words']}"
        return said["n_prompt"], body

    def close(self) -> None:
        """Ends the process. Safe to call again."""
        self._gone = self._gone or "it was closed"
        if self._writer is not None:
            self._writer.transport.abort()
            self._reader = self._writer = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _start(self) -> None:
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-m", "specsweep.client.turn_process"]
            self._process = subprocess.Popen(words, stdin=theirs.fileno(), start_new_session=True)  # no Ctrl-C: it ends with us
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_BUFFER)
        self._gone, self.cpu_s = "", 0.0

    async def _ask(self, frame: bytes, limit_s: float) -> tuple[Head, bytes]:
        """Raises :class:`WorkerLost`."""
        async with self._one_at_a_time:
            if self._gone or self._reader is None or self._writer is None:
                raise WorkerLost(f"the process that prepares later turns is gone: {self._gone}")
            pid = self.pid
            try:
                async with asyncio.timeout(limit_s):
                    self._writer.write(frame)
                    await self._writer.drain()
                    words, blob = LENGTHS.unpack(await self._reader.readexactly(LENGTHS.size))
                    head: Head = json.loads(await self._reader.readexactly(words))
                    body = await self._reader.readexactly(blob)
            except TimeoutError:
                self._gone = f"it gave no answer within {limit_s:g} s, and was ended"
            except (OSError, asyncio.IncompleteReadError):
                self._gone = await asyncio.to_thread(self._how_it_ended)
            else:
                self.cpu_s = float(head["cpu_s"])
                return head, body
            if self._process is not None:
                self._process.kill()
            raise WorkerLost(f"the process that prepares later turns (pid {pid}) failed: {self._gone}")

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
