from __future__ import annotations

import copy
import json

import pytest
import sweep_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.compare import compare, difference_table, independent_ratio
from specsweep.orchestrator.cli import main
from specsweep.orchestrator.points import Plan, Point, Session
from specsweep.orchestrator.store import Store


def changed(attempts, factor, *metrics):
    made = copy.deepcopy(attempts)
    for a in made:
        for m in metrics:
            for name in (m, f"{m}_ci_low", f"{m}_ci_high"):
                a["measurement"]["metrics"][name] *= factor
    return made


def test_a_sweep_does_not_differ_from_itself():
    found = compare(samples.quickstart(), samples.quickstart())
    assert found.pairs == 18
    assert found.shown == []
    assert found.regressions == []


def test_repetitions_with_other_noise_raise_no_false_alarm():
    """Twenty repetitions of 126 comparisons each: single 95 % intervals would cry wolf in nearly every one."""
    base = samples.quickstart()
    assert sum(bool(compare(base, samples.quickstart(seed=k)).regressions) for k in range(1, 21)) <= 1


def test_only_what_got_worse_is_a_regression_and_direction_counts():
    base = samples.quickstart()
    slower = compare(base, changed(base, 0.7, "output_tps"))
    assert {d.metric for d in slower.regressions} == {"output_tps"}
    assert all(d.ratio.value == pytest.approx(0.7) for d in slower.regressions)
    faster = compare(base, changed(base, 1.4, "output_tps"))
    assert [d.word for d in faster.shown] == ["better"] * 18
    assert faster.regressions == []
    later = compare(base, changed(base, 1.5, "ttft_ms_p50"))
    assert {d.metric for d in later.regressions} == {"ttft_ms_p50"}


def test_differences_of_simulated_numbers_say_so_in_the_title():
    found = compare(samples.quickstart(simulated=True), samples.quickstart(simulated=True))
    assert difference_table(found, everything=True).title.startswith("SIMULATED – ")
    real = compare(samples.quickstart(), samples.quickstart())
    assert "SIMULATED" not in difference_table(real, everything=True).title


def test_threshold_lets_small_losses_pass():
    base = samples.quickstart()
    worse = changed(base, 0.85, "output_tps")
    assert compare(base, worse).regressions
    assert not compare(base, worse, threshold=0.2).regressions
    assert len(compare(base, worse, threshold=0.2).shown) == len(compare(base, worse).shown)


def test_metrics_can_be_chosen_and_unknown_ones_are_named():
    base = samples.quickstart()
    found = compare(base, changed(base, 0.5, "output_tps", "user_tps_mean"), metrics=["user_tps_mean"])
    assert {d.metric for d in found.differences} == {"user_tps_mean"}
    with pytest.raises(ValueError, match="'speed' cannot be compared; known: al_decode"):
        compare(base, base, metrics=["speed"])


def test_a_changed_default_temperature_is_refused_and_named():
    base = samples.quickstart()
    other = changed(base, 0.6, "al_decode")
    for a in other:
        a["point"]["declared"]["sampling"]["temperature"] = 0.6
    found = compare(base, other)
    assert found.differences == []
    assert len(found.refused) == 18
    assert "temperature is 0.0 in A and 0.6 in B" in found.refused[0][1]


@pytest.mark.parametrize("lost", [None, "absent"])
def test_a_sampling_field_that_is_not_recorded_is_unknown_even_in_both(lost):
    base, other = samples.quickstart(), samples.quickstart()
    for a in [*base, *other]:
        a["point"]["declared"]["sampling"].pop("top_k")
        if lost is None:
            a["point"]["declared"]["sampling"]["top_k"] = None
    found = compare(base, other)
    assert found.differences == []
    assert "top_k is not recorded in A and not recorded in B" in found.refused[0][1]


def test_other_prompts_are_refused():
    base, other = samples.quickstart(), samples.quickstart()
    for a in other:
        a["point"]["declared"]["workload"] = "other content"
    assert "other prompts" in compare(base, other).refused[0][1]


def test_points_with_other_ids_match_by_axes_and_strangers_are_listed():
    base, other = samples.quickstart(), samples.quickstart()
    for a in other:  # another engine version: other ids everywhere
        a["point"]["point_id"] = a["point"]["point_id"][::-1]
    del other[0]
    other.append(samples.attempt(samples.axes("ngram", 16, 1, "low_entropy")))
    found = compare(base, other)
    assert found.pairs == 17
    assert len(found.only_a) == len(found.only_b) == 1
    assert "DL 16" in found.only_b[0]


def test_sweeps_over_two_targets_are_compared_over_the_target():
    base = samples.quickstart()
    other = copy.deepcopy(base)
    for a in other:
        a["point"]["axes"]["target"] = "smollm2-v2"
        a["point"]["point_id"] = a["point"]["point_id"][::-1]
    assert compare(base, other).pairs == 18


def test_invalid_numbers_are_not_compared_and_failures_are_said():
    base = [samples.attempt(samples.axes()), samples.attempt(samples.axes("ngram", 4), al=2.0)]
    other = [samples.attempt(samples.axes(), invalid="lag"), samples.attempt(samples.axes("ngram", 4), failed=True)]
    found = compare(base, other)
    assert {d.metric for d in found.differences} == {"al_decode", "step_ms_mean"}
    assert found.refused[0][1] == "B: failed: engine: the engine died"
    assert len(found.left_out) == 1, "a pipeline must see that rates were not compared"
    assert "B's rates are not valid" in found.left_out[0][1]


def test_environment_differences_are_listed_drafter_included():
    base = samples.quickstart()
    newer = samples.quickstart(env={**samples.ENV, "engine": {"name": "llamacpp", "version": "2026.11.1"}})
    assert compare(base, newer).environment == ["engine.version: 2026.10.11549 against 2026.11.1"]


@given(st.floats(0.1, 10), st.floats(0.001, 0.3), st.floats(0.001, 0.3), st.integers(1, 500))
def test_ratio_interval_grows_with_both_errors_and_with_the_number_of_comparisons(ratio, wa, wb, comparisons):
    a, b = Estimate(1.0, 1 - wa, 1 + wa, clusters=24), Estimate(ratio, ratio * (1 - wb), ratio * (1 + wb), clusters=24)
    single, many = independent_ratio(a, b), independent_ratio(a, b, comparisons)
    assert many.low <= single.low < ratio < single.high <= many.high
    assert single.high / single.low > max((1 + wa) / (1 - wa), (1 + wb) / (1 - wb)) ** 0.99


def test_without_an_interval_nothing_is_shown():
    base = [samples.attempt(samples.axes())]
    other = changed(base, 0.1, "output_tps")
    del other[0]["measurement"]["metrics"]["output_tps_ci_low"]
    found = compare(base, other, metrics=["output_tps"])
    assert found.regressions == []
    assert "[no interval]" in difference_table(found, everything=True).rows[0].cells[4]


# --- the command


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "results")
    base = samples.quickstart()
    worse = changed(base, 0.6, "output_tps")
    for a in worse:
        a["point"]["point_id"] = a["point"]["point_id"][::-1]
    for name, attempts in (("monday", base), ("tuesday", worse)):
        points = tuple(Point(a["point"]["point_id"], a["point"]["axes"], {}, {}, None) for a in attempts)
        made.write_plan(Plan(name, (Session("s", points, 1.0, tuple(1.0 for _ in points)),)))
        for a in attempts:
            made.commit(a["point"], a["measurement"])
    return made


def test_exit_code_says_regression(store, capsys):
    assert main(["compare", "monday", "tuesday", f"store={store.root}"]) == 7
    assert "18 regressions." in capsys.readouterr().out
    assert main(["compare", "tuesday", "monday", f"store={store.root}"]) == 0
    assert main(["compare", "monday", "tuesday", f"store={store.root}", "--threshold", "50%"]) == 0
    assert main(["compare", "monday", "tuesday", f"store={store.root}", "--metric", "al_decode"]) == 0


def test_json_holds_the_same_facts(store, capsys):
    assert main(["compare", f"{store.root}:monday", f"{store.root}:tuesday", "--json"]) == 7
    found = json.loads(capsys.readouterr().out)
    assert (found["points_compared"], found["regressions"]) == (18, 18)
    assert found["rows"][0]["ratio"] == pytest.approx(0.6)
    assert found["rows"][0]["regression"] is True


def test_nothing_to_compare_is_no_success(store, capsys):
    alone = samples.attempt(samples.axes("ngram", 2, 64))
    point = Point(alone["point"]["point_id"], alone["point"]["axes"], {}, {}, None)
    store.write_plan(Plan("alone", (Session("s", (point,), 1.0, (1.0,)),)))
    assert main(["compare", "monday", "alone", f"store={store.root}"]) == 2
    assert "nothing could be compared" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["monday"], "takes two sweeps"),
        (["monday", "friday"], "friday"),
        (["monday", "tuesday", "--metric", "speed"], "speed"),
        (["monday", "/no:x"], "/no"),
    ],
)
def test_bad_input_is_named(arguments, named, store, capsys):
    assert main(["compare", *arguments, f"store={store.root}"]) == 2
    assert named in capsys.readouterr().err


def test_a_sweep_beside_itself_is_called_that(store, capsys):
    assert main(["compare", "monday", "monday", f"store={store.root}"]) == 0
    assert "All of them are the same measurement in A and in B" in capsys.readouterr().out
    main(["compare", "monday", "tuesday", f"store={store.root}"])
    assert "same measurement" not in capsys.readouterr().out


def test_a_bare_folder_is_a_store(store, capsys, monkeypatch):
    monkeypatch.chdir(store.root.parent)
    only = Store("only")
    alone = samples.quickstart()[0]
    point = Point(alone["point"]["point_id"], alone["point"]["axes"], {}, {}, None)
    only.write_plan(Plan("alone", (Session("s", (point,), 1.0, (1.0,)),)))
    only.commit(alone["point"], alone["measurement"])
    assert main(["compare", "only", "only"]) == 0
    assert "points compared" in capsys.readouterr().out


def test_no_valid_rate_is_not_called_no_difference(tmp_path, capsys):
    made = Store(tmp_path)
    for name in ("a", "b"):
        attempts = samples.quickstart()
        for x in attempts:
            x["measurement"]["validity"] |= {"tps": False, "valid": False}
            x["point"]["point_id"] = x["point"]["point_id"] if name == "a" else x["point"]["point_id"][::-1]
            made.commit(x["point"], x["measurement"])
        points = tuple(Point(x["point"]["point_id"], x["point"]["axes"], {}, {}, None) for x in attempts)
        made.write_plan(Plan(name, (Session("s", points, 1.0, tuple(1.0 for _ in points)),)))
    assert main(["compare", "a", "b", f"store={tmp_path}"]) == 2
    told = capsys.readouterr()
    assert "No rate is valid in both sweeps" in told.out
    assert "No difference is shown beyond" not in told.out
    assert "no rate could be compared" in told.err


def test_a_point_that_b_lost_is_told_and_with_require_all_a_regression(tmp_path, capsys):
    made = Store(tmp_path)
    base = samples.quickstart()
    kept = copy.deepcopy(base)[1:]
    kept[0]["measurement"]["validity"] |= {"tps": False, "valid": False}
    for x in kept:
        x["point"]["point_id"] = x["point"]["point_id"][::-1]
    for name, attempts in (("a", base), ("b", kept)):
        points = tuple(Point(x["point"]["point_id"], x["point"]["axes"], {}, {}, None) for x in attempts)
        made.write_plan(Plan(name, (Session("s", points, 1.0, tuple(1.0 for _ in points)),)))
        for x in attempts:
            made.commit(x["point"], x["measurement"])
    assert [why for _, why in compare(base, kept).lost] == ["not in B", "tps: not valid"]
    assert compare(kept, base).lost == ()
    words = ["compare", "a", "b", f"store={tmp_path}"]
    assert main(words) == 0
    assert "Lost in B: valid in A, and there (2):" in capsys.readouterr().out
    assert main([*words, "--require-all"]) == 7
    assert main(["compare", "a", "a", f"store={tmp_path}", "--require-all"]) == 0
    capsys.readouterr()
    assert main([*words, "--json", "--require-all"]) == 7
    assert len(json.loads(capsys.readouterr().out)["lost_in_b"]) == 2
