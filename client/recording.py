"""Raw recordings: every socket read of every exchange, with its time, as JSON lines.

The format is that of the recorded streams under ``tests/recordings``: one object a line, ``meta`` (engine, version, launch
flags), ``metrics`` (a whole page and when), ``request`` (body, status line, header lines, reads as latin-1 text, how it ended).
It is how a stream that misleads is reported: the bytes are complete, so a dialect can be run over them again.

Recordings of this client add fields to ``request`` (``t_end_ns``, ``connect_ns``, ``attempts``, and ``plan``: the request's place in the
load) and to ``meta`` (``draft_length``); readers must not need them. A file is written aside and renamed, so that a
recording is whole or not there.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from specsweep.client.trace import Exchange

_ENDED = {"timeout": "stalled", "TimeoutError": "stalled", "ConnectionResetError": "reset"}  # other recorders' words for ours
_INT64 = 2**63
_PLACES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One exchange. ``body`` is the request's JSON value (None if it was not recorded); ``plan`` whatever the recorder knew of it."""

    name: str
    path: str
    body: Any
    exchange: Exchange
    plan: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Recording:
    meta: dict[str, Any] = field(default_factory=dict)
    metrics: list[tuple[str, str]] = field(default_factory=list)  # (name, page) in the order of the file
    requests: list[RecordedRequest] = field(default_factory=list)
    before: list[int] = field(default_factory=list)  # for each metrics page, how many requests stand before it


def read_recording(path: Path) -> Recording:
    """Reads ``.jsonl`` or ``.jsonl.gz``. Raises ``ValueError`` naming file and line for anything that is not a recording."""
    recording = Recording()
    with _open(path, "rt") as lines:
        for number, line in enumerate(_lines(lines, path), 1):
            try:
                record = json.loads(line)
                kind = record["kind"]
                if kind == "meta":
                    recording.meta.update({k: v for k, v in record.items() if k != "kind"})
                elif kind == "metrics":
                    if not isinstance(record["text"], str):
                        raise ValueError(f"text is {record['text']!r}, not a page")
                    recording.metrics.append((str(record["name"]), record["text"]))
                    recording.before.append(len(recording.requests))
                elif kind == "request":
                    recording.requests.append(_request(record))
                else:
                    raise ValueError(f"unknown kind {kind!r} (known: meta, metrics, request)")
            except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
                what = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"{path}, line {number}: not a recording of streams: {what}") from error
    if not recording.requests and not recording.metrics and not recording.meta:
        raise ValueError(f"{path}: the file holds no records")
    return recording


def _lines(stream: IO[str], path: Path) -> Iterator[str]:
    try:
        yield from (line for line in stream if line.strip())
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:  # zlib.error: a gzip file that was damaged inside
        raise ValueError(f"{path}: cannot be read as JSON lines: {error}") from error


def _request(record: Mapping[str, Any]) -> RecordedRequest:
    ended = str(record["ended"])
    if ended.startswith("connect"):
        ended = f"connect: {ended.removeprefix('connect').lstrip(': ')}"
    headers = [line.partition(":") for line in record.get("headers") or ()]
    status = str(record.get("status") or "").split(None, 2)
    reads = [(_ns("reads", t), text.encode("latin-1")) for t, text in record.get("reads") or ()]
    if back := next((after for (before, _), (after, _) in pairwise(reads) if after < before), None):
        raise ValueError(f"reads run back in time at {back}: the bytes are in the order in which they came, so are their stamps")
    exchange = Exchange(
        t_send_ns=_ns("t_send_ns", record.get("t_send_ns") or 0),
        status=int(status[1]) if len(status) > 1 else 0,
        headers=[(name.strip(), value.strip()) for name, _, value in headers],
        reads=reads,
        ended=_ENDED.get(ended, ended),
        t_end_ns=_ns("t_end_ns", record.get("t_end_ns") or (reads[-1][0] if reads else 0)),
        connect_ns=_ns("connect_ns", record.get("connect_ns") or 0),
        attempts=_ns("attempts", record.get("attempts") or 1),
    )
    return RecordedRequest(str(record["name"]), str(record.get("path") or ""), record.get("body"), exchange, dict(record.get("plan") or {}))


def _ns(name: str, value: object) -> int:
    """A stamp or a count as an integer that a trace can store; recorders of other languages may write it as 12.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} holds {value!r}, not a number")
    if not -_INT64 <= value < _INT64:  # NaN and the infinities too
        raise ValueError(f"{name} holds {value!r}: beyond 64 bits")
    return int(value)


def request_record(request: RecordedRequest) -> dict[str, Any]:
    """One exchange as a line of a recording."""
    exchange = request.exchange
    record: dict[str, Any] = {"kind": "request", "name": request.name, "path": request.path, "body": request.body}
    record["status"] = _status_line(exchange.status)
    record["headers"] = [f"{name}: {value}" for name, value in exchange.headers]
    record["t_send_ns"] = exchange.t_send_ns
    record["reads"] = [[t, data.decode("latin-1")] for t, data in exchange.reads]
    record |= {"ended": exchange.ended, "t_end_ns": exchange.t_end_ns, "connect_ns": exchange.connect_ns, "attempts": exchange.attempts}
    return record | ({"plan": dict(request.plan)} if request.plan else {})


def _status_line(status: int) -> str:
    if not status:
        return ""
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    return f"HTTP/1.1 {status} {phrase}".strip()


class RecordingWriter:
    """Writes a recording; use it as a context manager. The file appears under its name only when all of it is written."""

    def __init__(self, path: Path) -> None:
        if not path.name.endswith(_PLACES):
            raise ValueError(f"recording {path}: the name must end in {' or '.join(_PLACES)}")
        self.path = path
        self._aside = path.with_name(f".{path.name}.part")
        self._opened = _open(path, "wt", self._aside)
        self._file: IO[str] | None = None

    def __enter__(self) -> RecordingWriter:
        self._file = self._opened.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.__exit__(kind, error, trace)
        if kind is None:
            self._aside.replace(self.path)
        else:
            self._aside.unlink(missing_ok=True)

    def meta(self, **facts: Any) -> None:
        """Facts of the whole recording: ``label`` (engine and launch flags), ``dialect``, ``version``, ``draft_length``, …"""
        self._write({"kind": "meta", **facts})

    def metrics(self, name: str, text: str) -> None:
        self._write({"kind": "metrics", "name": name, "text": text})

    def request(self, name: str, path: str, body: bytes, exchange: Exchange, plan: Mapping[str, Any] | None = None) -> None:
        """``body``: the request's body as it was sent."""
        try:
            value = json.loads(body)
        except ValueError:
            value = body.decode("latin-1")
        self._write(request_record(RecordedRequest(name, path, value, exchange, plan or {})))

    def write(self, recording: Recording) -> None:
        """All of a recording, metrics pages in their places."""
        if recording.meta:
            self.meta(**recording.meta)
        pages = list(zip(recording.before, recording.metrics, strict=True))
        for index, request in enumerate(recording.requests):
            while pages and pages[0][0] <= index:
                self.metrics(*pages.pop(0)[1])
            self._write(request_record(request))
        for _, page in pages:
            self.metrics(*page)

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._file is None:
            raise RuntimeError("use RecordingWriter as a context manager")
        self._file.write(json.dumps(record) + "\n")


@contextmanager
def _open(path: Path, mode: str, place: Path | None = None) -> Iterator[IO[str]]:
    """Opens by the name's ending; ``place``: where the bytes really go."""
    where = place or path
    try:
        if path.name.endswith(".gz"):
            with gzip.open(where, mode, encoding="utf-8") as file:
                yield file  # type: ignore[misc]
        else:
            with open(where, mode, encoding="utf-8") as file:
                yield file
    except gzip.BadGzipFile as error:
        raise ValueError(f"{path}: not a gzip file: {error}") from error
