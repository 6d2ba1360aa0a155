"""Several sweeps as one: a union of plans, attempts with their identity, conflicts by name, nothing measured or copied twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import axes, hex_id, measurement, plan, record, trace

from specsweep.orchestrator.cli import main
from specsweep.orchestrator.points import Plan, Point, Session
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.sweep_merge import Source, conflicts, merged_document
from specsweep.orchestrator.sweep_record import plan_document, read_plan

NONE, FOUR, EIGHT = axes("none"), axes(draft_length=4), axes(draft_length=8)


def put(store: Store, name: str, values: list[dict[str, Any]], *, salt: str = "", tps: float = 100.0, **more: Any) -> None:
    store.write_plan(plan(name, values, salt=salt), ["sweep=demo", f"name={name}"])
    for v in values:
        facts = record(v, **more) | ({"point_id": hex_id(sorted(v.items(), key=str), salt)} if salt else {})
        store.commit(facts, measurement(drafter=str(v["drafter"]), tps=tps), trace())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "results")
    put(made, "a", [NONE, FOUR])
    put(made, "b", [NONE, EIGHT])
    return made


def merge(store: Store, *words: str) -> int:
    return main(["merge", *words, f"store={store.root}"])


def files(root: Path) -> set[tuple[str, int]]:
    return {(str(p.relative_to(root)), p.stat().st_ino) for p in (root / "points").rglob("*") if p.is_file()}


def test_sweeps_of_one_store_become_one_plan_and_no_file_more(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, "b", [NONE, EIGHT], minute=5, tps=120.0)
    before = files(store.root)
    assert merge(store, "a", "b", "--name", "c", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["points"], told["measured"], told["shared"], told["attempts_brought"]) == (3, 3, 1, 0)
    assert files(store.root) == before
    view = Store(store.root).sweep("c")
    assert [f["axes"]["draft_length"] for f in view.points.values()] == [None, 4, 8]
    (baseline,) = [a for a in view.latest.values() if a.point["axes"]["drafter"] == "none"]
    assert baseline.measurement is not None
    assert baseline.measurement["metrics"]["output_tps"] == 120.0, "the newest measured attempt stands"
    assert len(view.attempts[baseline.point_id]) == 3
    assert view.complete


def test_a_report_and_a_status_of_the_merged_sweep(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert merge(store, "a", "b", "--name", "c") == 0
    assert main(["report", "c", f"store={store.root}"]) == 0
    told = capsys.readouterr().out
    assert "3 of 3 points measured" in told
    page = (store.root / "sweeps" / "c" / "report.html").read_text()
    assert f"specsweep run sweep=demo name=a store={store.root}" in page.replace("<wbr>", "").replace("&amp;", "&")
    assert main(["status", "c", f"store={store.root}"]) == 0
    assert main(["resume", "c", f"store={store.root}"]) == 2
    assert "merged from a, b: resume those, then merge again" in capsys.readouterr().err


def test_merging_again_brings_it_up_to_date(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert merge(store, "a", "b", "--name", "c") == 0
    created = store.sweep("c").plan["created_utc"]
    put(store, "a", [NONE, FOUR, axes(draft_length=6)])
    assert merge(store, "a", "b", "--name", "c") == 0
    view = Store(store.root).sweep("c")
    assert len(view.points) == 4
    assert view.plan["created_utc"] == created
    assert main(["compare", "c", "a", f"store={store.root}", "--json"]) in (0, 2)
    capsys.readouterr()


def test_attempts_of_another_store_are_brought_once_and_keep_their_identity(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Store(tmp_path / "other")
    put(other, "x", [NONE, axes(draft_length=2)], env="elsewhere")
    words = ["a", f"{other.root}:x", "--name", "c", "--json"]
    assert merge(store, *words) == 0
    assert json.loads(capsys.readouterr().out)["attempts_brought"] == 2
    view = Store(store.root).sweep("c")
    assert {a.sha256 for v in view.attempts.values() for a in v} >= {a.sha256 for a in other.attempts()}
    assert all(a.trace() is not None for a in view.latest.values())
    assert merge(store, *words) == 0
    assert json.loads(capsys.readouterr().out)["attempts_brought"] == 0
    assert sorted(p.name for p in (store.root).iterdir()) == ["lock", "points", "sweeps"], "nothing half brought is left"


def test_a_changed_file_of_another_store_is_found_out(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Store(tmp_path / "other")
    put(other, "x", [axes(draft_length=2)])
    (changed,) = (other.root / "points").rglob("measurement.json")
    changed.write_text(changed.read_text().replace("100", "999"))
    assert merge(store, "a", f"{other.root}:x", "--name", "c") == 2
    assert "its content is not what was committed" in capsys.readouterr().err
    assert "c" not in store.sweeps()


def test_the_same_axes_with_another_identity_are_refused_and_the_difference_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, "newer", [NONE, FOUR], salt="v2", declared={"engine": "llamacpp", "engine_version": "0.11"})
    assert merge(store, "a", "newer", "--name", "c") == 2
    told = capsys.readouterr().err
    assert "2 points have the same axes in two sweeps and are not the same point" in told
    assert "engine_version 0.10 in a, 0.11 in newer" in told
    assert "--prefer a, or --prefer newer" in told
    assert merge(store, "a", "newer", "--name", "c", "--prefer", "newer") == 0
    view = store.sweep("c")
    assert {a.point["declared"]["engine_version"] for a in view.latest.values()} == {"0.11"}
    assert len(view.plan["points"]) == 4, "the replaced ones stay in the plan, out of the views"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "--name", "c"], "merge takes two sweeps or more, not 1"),
        (["a", "b", "--name", "a"], "that is one of the sweeps to merge"),
        (["a", "b", "--name", "taken"], "that was measured, not merged"),
        (["a", "nowhere", "--name", "c"], "sweep 'nowhere' is not in store"),
        (["a", "b", "--name", "../c"], "name"),
        (["a", "b", "--name", "c", "--prefer", "z"], "no sweep called 'z' is merged; there are: a, b"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_name(words: list[str], said: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, "taken", [FOUR])
    assert merge(store, *words) == 2
    assert said in capsys.readouterr().err


LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6, unique=True)


@given(st.lists(st.tuples(LENGTHS, st.sampled_from(["", "v2"])), min_size=2, max_size=4))
def test_any_union_is_a_plan_that_can_be_read(parts: list[tuple[list[int], str]]) -> None:
    sources = []
    for i, (lengths, salt) in enumerate(parts):
        points = tuple(Point(hex_id(n, salt), axes(draft_length=n), {}, {}, None) for n in lengths)
        made = Plan(f"s{i}", (Session(f"session-{i}", points, 1.0, (1.0,) * len(points)),))
        sources.append(Source(made.name, made.name, "/store", plan_document(made, previous=None, overrides=[], now="2099-01-01T00:00:00Z")))
    document = merged_document("c", sources, now="2099-01-02T00:00:00Z", prefer="s0")
    read_plan(json.dumps(document).encode())
    standing = [f for f in document["points"].values() if not f.get("replaced_by")]
    assert sorted(f["axes"]["draft_length"] for f in standing) == sorted({n for lengths, _ in parts for n in lengths})
    assert sorted(i for s in document["sessions"] for i in s["points"]) == sorted(document["current"])
    first = dict.fromkeys(hex_id(n, parts[0][1]) for n in parts[0][0])
    assert all(not document["points"][i].get("replaced_by") for i in first), "the preferred ones stand"
    if conflicts(sources):
        with pytest.raises(ValueError, match="another identity"):
            merged_document("c", sources, now="2099-01-02T00:00:00Z")
