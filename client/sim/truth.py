"""The truth log: when each chunk really left, and which steps of the engine were in it. JSON lines, one a finished request.

A client's error is the difference to this file. Times are CLOCK_MONOTONIC nanoseconds, the clock of traces on the same host, taken
right before the write. ``late_ns`` is the server's own lag behind the step's planned end; where it is large, the truth is still the
truth, but the simulated step times are not those of the model.

Requests are found again by their prompt: ``key`` is that of :func:`prompt_key`, and the n-th request of a prompt is the n-th that
was sent.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

KEY_TOKENS = 64


def prompt_key(ids: Sequence[int]) -> str:
    """Names a prompt by its first 64 token ids, as 16 hexadecimal digits."""
    first = ids[:KEY_TOKENS]
    return blake2b(struct.pack(f"<{len(first)}I", *first), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class TrueStep:
    step: int  # the engine's number
    tokens: int  # after any cut
    drafted: int
    accepted: int  # before any cut


@dataclass(frozen=True, slots=True)
class TrueChunk:
    """One write. ``steps``: how many of the request's steps were in it."""

    t_ns: int
    tokens: int
    steps: int
    late_ns: int


@dataclass(slots=True)
class TrueRequest:
    ordinal: int  # of arrival, from 0
    request_id: str  # as the answer says it
    key: str
    category: str
    n_prompt: int
    t_arrived_ns: int
    finish: str = ""  # length, stop, or what ended it: stall, cut, error, aborted
    chunks: list[TrueChunk] = field(default_factory=list)
    steps: list[TrueStep] = field(default_factory=list)  # the prefill's first

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)


class TruthLog:
    """Writes to ``path``, or nowhere. Requests are kept until there is time to write them: a line of a long answer takes a millisecond."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self._file: IO[str] | None = None
        self._pending: deque[TrueRequest] = deque()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", buffering=1 << 20)
            self._line({"kind": "meta", **about})
            self.flush()

    def add(self, request: TrueRequest) -> None:
        if self._file is not None:
            self._pending.append(request)

    def drain(self, until_ns: int, clock_ns: Callable[[], int]) -> None:
        """Writes what there is time for."""
        while self._pending and clock_ns() < until_ns:
            self._write(self._pending.popleft())

    def flush(self) -> None:
        """Writes everything."""
        while self._pending:
            self._write(self._pending.popleft())
        if self._file is not None:
            self._file.flush()

    def _write(self, request: TrueRequest) -> None:
        record = {f.name: getattr(request, f.name) for f in fields(request)}
        record["chunks"] = [[c.t_ns, c.tokens, c.steps, c.late_ns] for c in request.chunks]
        record["steps"] = [[s.step, s.tokens, s.drafted, s.accepted] for s in request.steps]
        self._line({"kind": "request", **record})

    def _line(self, record: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")


def read_truth(path: Path) -> list[TrueRequest]:
    """The requests in the order in which they ended. Raises ``ValueError`` naming the line for anything that is no truth log.

    A last line that was not finished (the server was killed) is left out.
    """
    text = path.read_text("utf-8")
    return list(_requests(text[: text.rfind("\n") + 1].splitlines(), path))


def _requests(lines: Iterable[str], path: Path) -> Iterator[TrueRequest]:
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            kind = record.pop("kind")
            if kind == "request":
                record["chunks"] = [TrueChunk(*chunk) for chunk in record["chunks"]]
                record["steps"] = [TrueStep(*step) for step in record["steps"]]
                yield TrueRequest(**record)
            elif kind != "meta":
                raise ValueError(f"unknown kind {kind!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: not a line of a truth log: {error}") from error
