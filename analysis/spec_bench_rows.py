"""The records behind the ``llama-spec-bench`` formats: one a request (a turn), pooled ones a point, each with what a reader must know.

That program runs one configuration, one sequence at a time, inside the engine's process. A sweep has many points, some with many
requests in flight, seen from outside. So every record names its point and axes, times are those of the client, and what only the
engine's process could know (the seconds that a drafter took) is None with its reason.

A *run* of a task is what its ``--repeat`` makes: here the repeats of a point (``repeats=3``, each on an engine of its own) and the passes
of one point over its prompts, numbered from 1 in the order repeat, pass. A drafter that learns makes runs unlike each other; such records
say what it had seen before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specsweep.analysis.attempts import AXIS_LABELS, Attempt, axes_of, is_measured
from specsweep.analysis.axis_words import format_axis
from specsweep.analysis.columns import output_tokens
from specsweep.analysis.spec_bench import Stage, stage_of, total
from specsweep.client.trace import RequestTrace

NO_STAGE_TIMES = "the seconds that drafting took are known to the engine's process only"
Stop = Literal["eog", "limit", "fail", "unknown"]
_STOPS: Mapping[str, Stop] = {"stop": "eog", "length": "limit"}


@dataclass(frozen=True, slots=True)
class Said:
    """Texts of one request. None: not known, then ``reason`` says why."""

    prompt: str | None
    response: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One attempt of the store with its trace. ``requests``: all of them, ramp-up included; empty if there is no trace."""

    record: Attempt
    requests: Sequence[RequestTrace] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # prompt_id → name of the task, where it has one beside its id
    texts: Mapping[int, Said] = field(default_factory=dict)  # by the request's index
    missing: str = ""  # why there are no requests

    @property
    def axes(self) -> dict[str, Any]:
        return axes_of(self.record)

    @property
    def config(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.record["point"].get("config") or {}
        return found

    @property
    def group(self) -> str:
        """The configuration in words, the same for all repeats."""
        return " · ".join(_words(name, value) for name, value in self.axes.items() if name != "repeat" and value is not None)

    @property
    def method(self) -> str:
        return str((self.config.get("drafter") or {}).get("method") or self.axes.get("drafter"))

    @property
    def is_baseline(self) -> bool:
        return self.method == "none"

    @property
    def learns(self) -> bool:
        return bool((self.config.get("drafter") or {}).get("stateful"))

    @property
    def chat_template(self) -> dict[str, Any]:
        """Who made a conversation out of the bare text, and with what."""
        workload = self.config.get("workload") or {}
        if not workload.get("chat", True):
            return {"mode": "none", "words": "no chat template: the bare text was sent"}
        if str((self.config.get("engine") or {}).get("dialect")) == "openai_chat":
            return {"mode": "server", "words": "the server applied a chat template of its own to the text"}
        return {
            "mode": "target",
            "words": "the target's own chat template, applied by the client",
            "system": workload.get("system"),
            "template_args": dict(workload.get("template_args") or {}),
        }


@dataclass(frozen=True, slots=True)
class Tried:
    """One request of the measured phase, in this format's numbers. Seconds; None where the stream did not say."""

    point: Point
    request: RequestTrace
    run: int  # 1, 2, …: of this task, over the repeats and passes of its configuration
    stages: tuple[Stage, ...]
    prompt_s: float | None  # to the first token: waiting, prefill and the first sampling
    decode_s: float | None  # from the first token to the last; None as well if one read brought them all
    total_s: float | None
    generated: int
    decoded: int  # tokens after those that came first, which decode_s brought
    learned: str  # of a drafter that learns: what this answer's drafts may come from

    @property
    def ok(self) -> bool:
        return self.request.read.outcome == "ok"

    @property
    def task(self) -> str:
        name = self.point.names.get(self.request.prompt_id, self.request.prompt_id)
        return f"{name} turn {self.request.turn + 1}" if self.request.turn else name

    @property
    def stop(self) -> Stop:
        return _STOPS.get(self.request.read.finish_reason, "unknown") if self.ok else "fail"

    @property
    def decode_tps(self) -> float | None:
        return self.decoded / self.decode_s if self.decode_s and self.ok else None

    @property
    def overall_tps(self) -> float | None:
        return self.generated / self.total_s if self.total_s and self.ok else None


@dataclass(frozen=True, slots=True)
class Pooled:
    """All requests of one point together. Sums are over the successful ones; rates are tokens / seconds summed over requests."""

    point: Point
    tried: Sequence[Tried]

    @property
    def good(self) -> list[Tried]:
        return [t for t in self.tried if t.ok]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return () if self.point.is_baseline else (total(self.point.method, [s for t in self.good for s in t.stages]),)

    def seconds(self, name: Literal["prompt_s", "decode_s", "total_s"]) -> float | None:
        found = [getattr(t, name) for t in self.good]
        return None if not found or None in found else float(sum(found))

    @property
    def generated(self) -> int:
        return sum(t.generated for t in self.good)

    @property
    def decode_tps(self) -> float | None:
        """Over the requests whose decoding was seen."""
        seen = [(t.decoded, t.decode_s) for t in self.good if t.decode_s is not None]
        seconds = sum(s for _, s in seen)
        return sum(n for n, _ in seen) / seconds if seconds else None

    @property
    def overall_tps(self) -> float | None:
        seconds = self.seconds("total_s")
        return self.generated / seconds if seconds else None


def pooled(points: Sequence[Point]) -> list[Pooled]:
    """Each point with its measured requests, in the given order; repeats of one configuration stand together, in their own order."""
    order = {group: i for i, group in enumerate(dict.fromkeys(p.group for p in points))}
    found: list[Pooled] = []
    runs: Counter[tuple[str, str, int]] = Counter()
    for point in sorted(points, key=lambda p: (order[p.group], int(p.axes.get("repeat") or 1))):
        main = sorted((r for r in point.requests if r.phase == "main"), key=lambda r: (r.pass_index, r.index))
        sent = sorted(r.t_send_ns for r in point.requests)
        tried = []
        for request in main:
            key = point.group, request.prompt_id, request.turn
            runs[key] += 1
            tried.append(_tried(point, request, runs[key], sum(t < request.t_send_ns for t in sent) if point.learns else 0))
        found.append(Pooled(point, tried))
    return found


def repeated(found: Sequence[Pooled]) -> bool:
    return any(t.run > 1 for p in found for t in p.tried)


def measured(point: Point) -> bool:
    return is_measured(point.record)


def _tried(point: Point, request: RequestTrace, run: int, before: int) -> Tried:
    read = request.read
    ok, stamps, generated = read.outcome == "ok", read.chunk_t_ns, output_tokens(request)
    first = max(read.chunk_tokens[0], 0) if read.chunk_tokens else 0
    decoded = max(generated - first, 0)
    at_once = decoded > 0 and len(stamps) > 0 and stamps[-1] == stamps[0]  # one read brought the whole answer: nobody saw it decode
    return Tried(
        point,
        request,
        run,
        (stage_of(read, point.method),) if ok and not point.is_baseline else (),
        (stamps[0] - request.t_send_ns) / 1e9 if stamps else None,
        (stamps[-1] - stamps[0]) / 1e9 if stamps and not at_once else None,
        (stamps[-1] - request.t_send_ns) / 1e9 if stamps else None,
        generated,
        decoded,
        _learned(point, before) if point.learns else "",
    )


def _learned(point: Point, before: int) -> str:
    if (point.config.get("cluster") or {}).get("kind") == "attach":
        return (
            "carries what the drafter learned from every answer that this server gave before, those of earlier repeats and points included "
            f"({before} of this point)"
        )
    return (
        f"carries what the drafter learned from the {before} requests before it on this engine, ramp-up included, and from the warm-up; the "
        "engine was started fresh for this point, so earlier repeats left nothing behind"
    )


def _words(name: str, value: Any) -> str:
    label = {"engine": "", "target": "", "drafter": "", "workload": ""}.get(name, AXIS_LABELS.get(name, name))
    return f"{label} {format_axis(value, name)}".strip()
