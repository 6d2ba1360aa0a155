"""What the points of one grid are to each other: the same point twice, on the same server, the baseline of another.

Sub-configs are compared by their canonical JSON. Points of one variant share the very same dictionaries, so the text is taken
once per dictionary and not once per point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specsweep.orchestrator import identity, rules
from specsweep.orchestrator.points import Dropped, Point

NO_DRAFTER: Mapping[str, Any] = {"method": "none"}
_NOT_STARTED_WITH = ("cost", "description", "step_clock", "startup_timeout_s")


class Texts:
    """Canonical JSON of dictionaries that stay alive meanwhile, by identity of the object."""

    def __init__(self, *, leave_out: Sequence[str] = ()) -> None:
        self._leave_out = leave_out
        self._texts: dict[int, str] = {}

    def of(self, value: Mapping[str, Any]) -> str:
        key = id(value)
        if key not in self._texts:
            self._texts[key] = identity.canonical_json({k: v for k, v in value.items() if k not in self._leave_out})
        return self._texts[key]


def server_keys(points: Iterable[Point]) -> list[tuple[Any, ...]]:
    """Per point, what a server is started with: engine, target, drafter, draft length, place, and the hardware it is said to be on."""
    texts = Texts(leave_out=_NOT_STARTED_WITH)
    return [
        (
            texts.of(p.config["engine"]),
            texts.of(p.config["target"]),
            texts.of(p.config["drafter"]),
            p.config["draft_length"],
            texts.of(p.config["cluster"]),
            p.config["hardware"],
        )
        for p in points
    ]


def without_twins(points: Iterable[Point]) -> tuple[list[Point], list[Dropped]]:
    """Of points with one id, the first."""
    kept: dict[str, Point] = {}
    dropped: list[Dropped] = []
    for point in points:
        first = kept.setdefault(point.point_id, point)
        if first is not point:
            differ = ", ".join(f"{k}={v}" for k, v in point.axes.items() if first.axes.get(k) != v)
            other = ", ".join(f"{k}={v}" for k, v in first.axes.items() if point.axes.get(k) != v)
            reason = f"{differ} is the same point as {other}: what differs is no part of what a point is (a name, a place, a time limit)"
            dropped.append(Dropped(point.axes, rules.SAME_POINT, reason))
    return list(kept.values()), dropped


def union(parts: Sequence[Sequence[Point]], keys: Sequence[str]) -> list[Point]:
    """The points of several grids, each once, under one set of axes.

    A key that is swept in any part is an axis of all points, and so is one of ``keys`` where points would else look the same: two releases
    of an engine, each in a part of its own, must not read as two measurements of one cell. Its value is that of the point's config.
    """
    points: dict[str, Point] = {}
    for point in (p for part in parts for p in part):
        points.setdefault(point.point_id, point)
    names = list(dict.fromkeys(name for part in parts for point in part[:1] for name in point.axes))
    looks: dict[tuple[str, ...], list[Point]] = {}
    axes = {i: {name: point.axes[name] if name in point.axes else _at(point, name) for name in names} for i, point in points.items()}
    for i, point in points.items():
        looks.setdefault(tuple(map(repr, axes[i].values())), []).append(point)
    alike = [members for members in looks.values() if len(members) > 1]
    for key in keys:
        if key not in names and any(len({repr(_at(p, key)) for p in members}) > 1 for members in alike):
            for i, point in points.items():
                axes[i][key] = _at(point, key)
    return [Point(p.point_id, axes[i], p.config, p.declared, p.baseline_id) for i, p in points.items()]


def _at(point: Point, key: str) -> Any:
    """The value of an extra axis that this point's own grid does not sweep."""
    value: Any = point.config
    if key.startswith("drafter.") and _is_baseline(point):
        return None
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def on_one_server(points: Sequence[Point]) -> tuple[list[Point], list[Dropped]]:
    """The points that one running server can serve: those that agree with the first one of the sweep."""
    keys = server_keys(points)
    kept = [p for p, key in zip(points, keys, strict=True) if key == keys[0]]
    others = [p for p, key in zip(points, keys, strict=True) if key != keys[0]]
    if not others:
        return kept, []
    taken = ", ".join(f"{k}={kept[0].axes[k]}" for k in ("engine", "target", "drafter", "draft_length") if kept[0].axes[k] is not None)
    reason = f"cluster=attach measures one running server, taken as {taken}; attach to a server of each of the others in a run of its own"
    return kept, [Dropped(p.axes, rules.ONE_SERVER, reason) for p in others]


def with_baselines(points: Sequence[Point]) -> list[Point]:
    """Each point with the id of the ``none`` arm that agrees with it in everything but the drafter, if the grid has one.

    Arms on attached servers are measured in runs of their own, one server each, so there the id is always given: the store may
    hold that arm already, or will.
    """
    texts = Texts()

    def apart_from_drafter(point: Point) -> tuple[Any, ...]:
        d = point.declared
        return (
            texts.of(d["engine"]),
            texts.of(d["target"]),
            texts.of(d["sampling"]),
            *(d[k] for k in ("workload", "batch_size", "isl", "hardware", "repeat", "requests_per_slot")),
        )

    keys = [apart_from_drafter(p) for p in points]
    baselines = {key: p.point_id for p, key in zip(points, keys, strict=True) if _is_baseline(p) and not p.is_capture}
    result = []
    for point, key in zip(points, keys, strict=True):
        alone = _is_baseline(point) or point.is_capture
        baseline = None if alone else baselines.get(key)
        if baseline is None and not alone and point.config["cluster"]["kind"] == "attach":
            baseline = identity.point_id({**point.declared, "drafter": NO_DRAFTER, "draft_length": None})
        result.append(point if baseline is None else Point(point.point_id, point.axes, point.config, point.declared, baseline))
    return result


def lonely(points: Sequence[Point]) -> tuple[str, ...]:
    """Warnings about arms that have nothing to be compared with."""
    arms = [p for p in points if not _is_baseline(p) and not p.is_capture]
    alone = [p for p in arms if p.baseline_id is None]
    if not alone:
        return ()
    if len(alone) == len(points):
        return ("no drafter none in this sweep: there will be no speedups; add it to the drafter axis",)
    if len(alone) == len(arms):
        return ("no point has its baseline in this sweep: there will be no speedups",)
    return (f"{len(alone)} of {len(arms)} points with a drafter have no baseline in this sweep: no speedup for those",)


def _is_baseline(point: Point) -> bool:
    return bool(point.declared["drafter"] == NO_DRAFTER)
