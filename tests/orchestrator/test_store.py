"""The store keeps what was measured: whole, once, readable, whoever is killed and whatever is broken beside it."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from store_samples import axes, hex_id, measurement, plan, record, trace

from specsweep.client.trace import read_trace
from specsweep.orchestrator.errors import ClientError, ConfigError, StoreError
from specsweep.orchestrator.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def test_an_attempt_comes_back_as_it_was_committed(store: Store) -> None:
    values = axes()
    path = store.commit(record(values), measurement(), trace(), {"engine.log": "last words\n", "raw/0.bin": b"\x00\xff"})
    [attempt] = Store(store.root).attempts(hex_id(sorted(values.items(), key=str)))
    assert attempt.path == path
    assert {k: attempt.point[k] for k in record(values)} == record(values)
    assert attempt.measurement == measurement()
    assert read_trace(path / "trace.parquet").requests == trace().requests
    assert attempt.trace().requests == trace().requests
    assert (path / "evidence/engine.log").read_text() == "last words\n"
    assert (path / "evidence/raw/0.bin").read_bytes() == b"\x00\xff"
    assert path.parent.name == attempt.point_id[:16]
    assert path.name == attempt.env_id[:16]


def test_done_and_needs_by_what_is_there(store: Store) -> None:
    values = axes()
    point_id = record(values)["point_id"]
    assert store.needs(point_id)
    assert not store.done(point_id)
    store.commit(record(values, status="failed", minute=1), None, None, {"engine.log": "boom"})
    assert store.needs(point_id)
    assert not store.done(point_id)
    store.commit(record(values, minute=2), measurement(valid=False), trace())
    assert store.done(point_id)
    assert [store.needs(point_id, rerun) for rerun in ("failed", "invalid", "all")] == [False, True, True]
    store.commit(record(values, minute=3), measurement(), trace())
    assert [store.needs(point_id, rerun) for rerun in ("failed", "invalid", "all")] == [False, False, True]
    with pytest.raises(ConfigError, match=r"rerun=maybe.*failed, invalid, all"):
        store.needs(point_id, "maybe")


def test_a_repeated_measurement_stands_for_the_pair_and_the_old_one_is_kept(store: Store) -> None:
    values = axes()
    first = store.commit(record(values, minute=1), measurement(tps=100), trace())
    second = store.commit(record(values, minute=2), measurement(tps=110), trace())
    other_env = store.commit(record(values, env="other GPU", minute=3), measurement(tps=300), trace())
    assert second.name == first.name + ".2"
    assert store.latest(record(values)["point_id"]).path == other_env
    assert [a.measurement["metrics"]["output_tps"] for a in store.attempts(record(values)["point_id"])] == [100, 110, 300]


def test_a_later_failure_does_not_hide_a_measurement(store: Store) -> None:
    values = axes()
    good = store.commit(record(values, minute=1), measurement(), trace())
    store.commit(record(values, status="failed", minute=2), None)
    assert store.latest(record(values)["point_id"]).path == good
    assert store.done(record(values)["point_id"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": {"gpu": {"clock_mhz": math.nan}}}, r"env\.gpu\.clock_mhz is nan"),
        ({"axes": {"isl": Path("/x")}}, r"axes\.isl"),
        ({"point_id": "0123456789abcdef"}, "point_id.*64 hex digits"),
        ({"status": "ok"}, "status is 'ok'"),
        ({"status": "failed"}, "if, and only if"),
    ],
)
def test_a_record_that_cannot_be_kept_is_refused_by_name_and_leaves_nothing(store: Store, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        store.commit({**record(axes()), **change}, measurement(), trace())
    assert store.attempts() == []
    assert not list(store.root.glob("staging/*"))


def test_nan_in_a_measurement_is_refused(store: Store) -> None:
    bad = measurement()
    bad["by_category"] = {"coding": {"al_decode": math.inf}}
    with pytest.raises(ValueError, match=r"measurement\.json: by_category\.coding\.al_decode is inf"):
        store.commit(record(axes()), bad, trace())


def test_evidence_cannot_leave_its_folder(store: Store) -> None:
    with pytest.raises(ValueError, match=r"\.\./\.\./plan\.json"):
        store.commit(record(axes()), measurement(), None, {"../../plan.json": "x"})


def test_a_full_disk_is_an_error_of_ours_and_leaves_nothing(store: Store) -> None:
    """RLIMIT_FSIZE makes the kernel refuse the write half-way, as a full disk does."""
    store.commit(record(axes()), measurement(), trace())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StoreError, match=rf"store={store.root}: point .* was measured, but .*make room") as refused:
            store.commit(record(axes(batch_size=4)), measurement(), trace(), {"engine.log": "x" * 50_000})
        assert record(axes(batch_size=4))["point_id"][:16] in refused.value.message
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [a.point["axes"]["batch_size"] for a in store.attempts()] == [8]
    assert not list(store.root.glob("staging/*"))
    store.commit(record(axes(batch_size=4)), measurement(), trace())


def test_a_plan_that_a_full_disk_refuses_names_its_path_and_an_event_ends_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_plan(plan("demo", [axes()]))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"sweeps/demo/plan\.json could not be written: No space left.*make room"):
        store.write_plan(plan("demo", [axes(batch_size=4)]))
    monkeypatch.setattr(os, "write", full)
    store.event("demo", "run_started")
    monkeypatch.undo()
    assert [facts["axes"]["batch_size"] for facts in store.sweep("demo").points.values()] == [8], "the old plan still stands"


@pytest.mark.parametrize(
    ("file", "damage", "reported_when"),
    [
        ("point.json", lambda p: p.write_text(p.read_text()[:100]), "listed"),
        ("point.json", lambda p: p.write_text(p.read_text().replace('"schema_version": 1', '"schema_version": 99')), "listed"),
        ("measurement.json", lambda p: p.write_text(p.read_text()[:100]), "listed"),
        ("measurement.json", Path.unlink, "listed"),
        ("trace.parquet", lambda p: p.write_bytes(b""), "listed"),
        ("measurement.json", lambda p: p.write_text(p.read_text().replace("120.0", "920.0")), "read"),
    ],
)
def test_a_damaged_file_is_reported_by_path_and_the_rest_is_read(store: Store, file: str, damage, reported_when: str) -> None:
    broken = store.commit(record(axes()), measurement(), trace())
    whole = store.commit(record(axes(batch_size=4)), measurement(), trace())
    damage(broken / file)
    reader = Store(store.root)
    found = {a.path: a.measurement for a in reader.attempts()}
    assert found[whole] == measurement()
    assert found.get(broken) is None
    assert len(reader.damaged) == 1
    assert str(broken) in reader.damaged[0]
    if reported_when == "listed":
        assert reader.needs(record(axes())["point_id"]), "a damaged attempt does not count as measured"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"axes": {}}, r"axes\.engine, .*axes\.repeat missing"),
        ({"axes": axes(batch_size="8")}, r"axes\.batch_size is '8'"),
        ({"axes": None}, "axes is no mapping"),
        ({"config": []}, "config is no mapping"),
        ({"status": ["measured"]}, r"status is \['measured'\]"),
        ({"files": {"measurement.json": {"sha256": "0"}}}, r"files\.measurement\.json has no bytes"),
        ({"files": {}}, r"files\.measurement\.json missing"),
        ({"finished_utc": "yesterday"}, "finished_utc is 'yesterday'"),
        ({"env": 7}, "env is no mapping"),
        ({"point_id": int("1" * 64)}, "point_id is 1+; 64 hex digits"),
        ({"schema_version": "1"}, "has schema '1'"),
        *[({name: ...}, f"{name} missing") for name in ("point_id", "env_id", "status", "axes", "config")],
        ({"files": ...}, "files is no mapping"),
        ({"schema_version": ...}, "has schema None"),
    ],
    ids=str,
)
def test_a_point_json_without_what_its_readers_need_is_skipped_with_the_reason(store: Store, change: dict, reason: str) -> None:
    store.write_plan(plan("demo", [axes(), axes(batch_size=4)]))
    broken = store.commit(record(axes()), measurement(), trace())
    store.commit(record(axes(batch_size=4)), measurement(), trace())
    facts = {**json.loads((broken / "point.json").read_text()), **change}
    (broken / "point.json").write_text(json.dumps({k: v for k, v in facts.items() if v is not ...}))
    view = Store(store.root).sweep("demo")
    assert [a.point["axes"]["batch_size"] for a in view.latest.values()] == [4]
    assert [re.search(rf"{broken}: .*{reason}", line) is not None for line in view.damaged] == [True]


def test_a_damaged_attempt_is_measured_again_beside_it(store: Store) -> None:
    broken = store.commit(record(axes()), measurement(tps=1), trace())
    (broken / "point.json").write_text("{")
    again = store.commit(record(axes()), measurement(tps=2), trace())
    assert again.name == broken.name + ".2"
    assert store.latest(record(axes())["point_id"]).measurement["metrics"]["output_tps"] == 2


def test_ids_that_share_their_shown_digits_are_refused(store: Store) -> None:
    one = record(axes())
    store.commit(one, measurement(), trace())
    twin = {**one, "point_id": one["point_id"][:16] + "0" * 48}
    with pytest.raises(ClientError, match="share 16 digits"):
        store.commit(twin, measurement(), trace())
    assert store.attempts(twin["point_id"]) == []
    assert len(store.attempts(one["point_id"])) == 1


# -- sweeps


def test_a_narrower_plan_keeps_earlier_points_and_a_changed_model_replaces_them(store: Store) -> None:
    wide = [axes(batch_size=b) for b in (1, 2, 4)]
    store.write_plan(plan("demo", wide), ["batch_size=1,2,4"])
    for values in wide:
        store.commit(record(values), measurement(), trace())
    store.write_plan(plan("demo", wide[:1]), ["batch_size=1"])
    view = store.sweep("demo")
    assert [p["axes"]["batch_size"] for p in view.points.values()] == [1, 2, 4]
    assert [view.points[i]["axes"]["batch_size"] for i in view.current] == [1]
    assert view.plan["overrides"] == ["batch_size=1"]
    assert len(view.records()) == 3
    assert view.plan["dropped"] == [{"axes": {"drafter": "mtp"}, "rule": "drafter", "reason": "target has no MTP head"}]

    store.write_plan(plan("demo", wide[:1], salt="another checkpoint"))
    view = store.sweep("demo")
    assert [p["axes"]["batch_size"] for p in view.points.values()] == [1, 2, 4]
    assert sorted(r["point"]["axes"]["batch_size"] for r in view.records()) == [2, 4], "the old BS 1 is of another checkpoint"
    assert len(view.attempts) == 4, "and is still in the store"
    store.write_plan(plan("demo", wide[:1]))
    assert len(store.sweep("demo").records()) == 3, "back to the first checkpoint, back to its points"


def test_an_unknown_sweep_names_those_there_are(store: Store) -> None:
    store.write_plan(plan("demo", [axes()]))
    with pytest.raises(ConfigError, match=r"'dmeo' is not in store=.*demo"):
        store.sweep("dmeo")
    for name in ("../demo", "", "a/b", ".hidden"):
        with pytest.raises(ConfigError, match="not the name of a sweep"):
            store.sweep(name)


def _broken_plans() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        whole = json.loads(Store(folder).write_plan(plan("demo", [axes()])).read_text())
    point_id = whole["current"][0]
    session = whole["sessions"][0]
    changes: dict[str, dict[str, Any]] = {
        "another schema": {"schema_version": 99},
        "no points": {"points": None},
        "a point without axes": {"points": {point_id: {"axes": {}, "est_s": 1.0}}},
        "a point without estimate": {"points": {point_id: {"axes": axes()}}},
        "an unknown current": {"current": ["a"]},
        "a current that is replaced": {"points": {point_id: {"axes": axes(), "est_s": 1.0, "replaced_by": "a"}}},
        "no sessions": {"sessions": None},
        "a session of nothing": {"sessions": [{**session, "points": [], "est_points_s": []}]},
        "a session of unknown points": {"sessions": [{**session, "points": ["a"]}]},
        "too few estimates": {"sessions": [{**session, "est_points_s": []}]},
        "no time": {"created_utc": None},
        "warnings of another kind": {"warnings": "none"},
    }
    texts = {name: json.dumps({**whole, **change}) for name, change in changes.items()}
    return {**texts, "truncated": json.dumps(whole)[:100], "not JSON": "plan", "not a mapping": "[]", "empty": "", "deep": "[" * 100_000}


@pytest.mark.parametrize("content", [pytest.param(text, id=name) for name, text in _broken_plans().items()])
def test_a_plan_that_cannot_be_read_is_named_and_written_anew(store: Store, content: str) -> None:
    path = store.write_plan(plan("demo", [axes()]))
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"{path} cannot be read \(.+\); .*specsweep run"):
        store.sweep("demo")
    store.write_plan(plan("demo", [axes()]))
    assert len(store.sweep("demo").points) == 1
    assert path.with_name("plan.damaged.json").read_text() == content
    assert [event["kept_as"] for event in store.sweep("demo").events] == ["plan.damaged.json"], "status tells it"


def test_a_torn_event_line_costs_only_itself(store: Store) -> None:
    store.write_plan(plan("demo", [axes()]))
    store.event("demo", "run_started", pid=1)
    path = store.sweep_dir("demo") / "events.jsonl"
    with path.open("a") as file:
        file.write('{"t_utc": "long ago", "kind": "point_started"}\n{"kind": 7, "t_utc": "2026-11-30T10:00:00Z"}\n')
        file.write('{"t_utc": "2026-11-30T10:00:00Z", "kind": "point_fini')
    assert [e["kind"] for e in store.sweep("demo").events] == ["run_started"]
    store.event("demo", "run_started", pid=2, where=Path("/x"))
    events = store.sweep("demo").events
    assert [(e["kind"], e["pid"]) for e in events] == [("run_started", 1), ("run_started", 2)]
    assert events[1]["where"] == "/x"


def test_events_of_two_writers_never_mix(store: Store) -> None:
    code = f"""
        import sys
        from specsweep.orchestrator.store import Store
        store = Store({str(store.root)!r})
        for i in range(300):
            store.event("demo", "tick", who=sys.argv[1], i=i, text="y" * 3000)
    """
    children = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), who]) for who in "ab"]
    assert [child.wait(30) for child in children] == [0, 0]
    lines = (store.sweep_dir("demo") / "events.jsonl").read_text().splitlines()
    assert len(lines) == 600
    assert {(e["who"], e["i"]) for e in map(json.loads, lines)} == {(w, i) for w in "ab" for i in range(300)}


def test_an_index_needs_no_measurement_and_what_was_read_once_is_not_read_again(store: Store) -> None:
    values = [axes(batch_size=b) for b in range(1, 6)]
    store.write_plan(plan("big", values))
    paths = [store.commit(record(v), measurement(), trace()) for v in values]

    def valid(reader: Store) -> int:
        view = reader.sweep("big")
        return sum(view.latest[i].valid for i in view.current)

    for path in paths:
        _overwrite(path / "measurement.json")
    reader = Store(store.root)
    assert (valid(reader), reader.damaged) == (5, []), "validity is known from point.json alone"
    for path in paths:
        _overwrite(path / "point.json")
    assert (valid(reader), reader.damaged) == (5, []), "a second look reads no attempt again"
    assert Store(store.root).attempts() == [], "which a new reader does"


def _overwrite(path: Path) -> None:
    path.write_bytes(b"?" * path.stat().st_size)
