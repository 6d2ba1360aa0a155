"""What to run for a service goal: who meets it, who may miss it, who is out; ties, costs, and what to measure next."""

from __future__ import annotations

import csv
import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import map_samples
import pytest
import sweep_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.advise import Advice, Arm, Bound, Goal, advise, cost_per_million, measured_arms, projected_arms
from specsweep.analysis.advise_table import advice_table
from specsweep.analysis.attempts import Estimate
from specsweep.analysis.next_measurement import next_measurements
from specsweep.analysis.projection import projections
from specsweep.orchestrator.cli import main
from specsweep.orchestrator.cli.advise_input import read_arms
from specsweep.orchestrator.errors import ConfigError

SERVICE = {"target": "t", "workload": "w", "isl": 1000}


def arm(
    name: str, batch_size: int, user: float, *, half: float = 0.01, output: float | None = None, gpus: int = 0, engine: str = "vllm"
) -> Arm:
    """Rates with relative half widths; output TPS is all users together unless given."""

    def near(value: float) -> Estimate:
        return Estimate(value, value / (1 + half), value * (1 + half))

    return Arm(
        SERVICE, engine, name, batch_size, {"user_tps_mean": near(user), "output_tps_steady": near(output or user * batch_size)}, gpus=gpus
    )


def one(arms: list[Arm], *bounds: Bound, **more: Any) -> Advice:
    (found,) = advise(arms, Goal(bounds, **more))
    return found


AT_LEAST_30 = Bound("user_tps_mean", 30, at_least=True)


def names(advice: Advice) -> list[tuple[str, int, str]]:
    return [(r.arm.name, r.arm.batch_size, r.standing) for r in (*advice.ranked, *advice.out)]


def test_what_certainly_misses_is_out_and_the_undecided_is_marked() -> None:
    arms = [arm("none", 4, 40), arm("eagle3 DL 3", 4, 60), arm("eagle3 DL 3", 16, 31, half=0.1), arm("none", 16, 20)]
    found = one(arms, AT_LEAST_30)
    assert names(found) == [("eagle3 DL 3", 16, "may miss"), ("eagle3 DL 3", 4, "meets"), ("none", 4, "meets"), ("none", 16, "misses")]
    assert found.first is not None
    assert found.first.arm.name == "eagle3 DL 3"
    assert found.first.standing == "meets"
    assert found.out[0].reason == "user_tps_mean at least 30 tokens/s: 20 [19.8, 20.2]"
    assert found.out[0].metrics == ("user_tps_mean",)


def test_without_a_bound_the_order_alone_decides() -> None:
    arms = [arm("none", 4, 40), arm("mtp DL 1", 16, 20), arm("eagle3 DL 3", 4, 60)]
    assert [n for n, _, _ in names(one(arms))] == ["mtp DL 1", "eagle3 DL 3", "none"]
    assert [n for n, _, _ in names(one(arms, order="user_tps"))] == ["eagle3 DL 3", "none", "mtp DL 1"]


def test_a_number_without_an_interval_decides_nothing() -> None:
    bare = Arm(SERVICE, "vllm", "x", 4, {"user_tps_mean": Estimate(10.0), "output_tps_steady": Estimate(40.0)})
    assert names(one([bare], AT_LEAST_30)) == [("x", 4, "may miss")]
    unknown = Bound("ttft_ms_p95", 500, at_least=False)
    found = one([arm("x", 4, 40)], unknown)
    assert found.ranked[0].reason == "ttft_ms_p95 is not known"


def test_an_interval_that_reaches_below_zero_decides_nothing() -> None:
    wide = Estimate(60.0, -10.0, 130.0, sessions=2, clusters=2)
    found = one(
        [Arm(SERVICE, "vllm", "x", 4, {"user_tps_mean": wide, "output_tps_steady": wide}), arm("y", 4, 50)], AT_LEAST_30, order="user_tps"
    )
    assert names(found) == [("x", 4, "may miss"), ("y", 4, "meets")]
    assert found.ranked[0].tied
    assert "measure more prompts" in next_measurements(found)[0]


def test_equal_arms_are_tied_and_far_ones_are_not() -> None:
    found = one([arm("a", 4, 50.2), arm("b", 4, 50), arm("c", 4, 30)])
    assert [(r.arm.name, r.tied) for r in found.ranked] == [("a", False), ("b", True), ("c", False)]
    assert found.ranked[2].to_first is not None
    assert found.ranked[2].to_first.value == pytest.approx(30 / 50.2)


@given(st.lists(st.tuples(st.floats(5, 200), st.floats(0.001, 0.5)), min_size=1, max_size=12), st.floats(5, 200))
def test_every_arm_is_in_one_place_and_bounds_hold_where_they_are_said_to(values: list[tuple[float, float]], limit: float) -> None:
    arms = [arm(f"a{i}", 4, v, half=h) for i, (v, h) in enumerate(values)]
    found = one(arms, Bound("user_tps_mean", limit, at_least=True))
    assert len(found.ranked) + len(found.out) == len(arms)
    assert all(r.arm.values["user_tps_mean"].value >= limit for r in found.ranked if r.standing == "meets")
    assert all(r.arm.values["user_tps_mean"].value < limit for r in found.out)
    order = [r.value.value for r in found.ranked if r.value]
    assert order == sorted(order, reverse=True)
    if found.first is not None and found.first.standing == "may miss":
        assert all(r.standing == "may miss" for r in found.ranked)
    next_measurements(found)


def test_cost_is_price_times_gpus_over_output_tps() -> None:
    arms = [arm("small", 16, 20, gpus=1), arm("large", 16, 60, gpus=4)]
    goal = Goal((), "cost", 2.0)
    cost = cost_per_million(arms[0], goal)
    assert cost is not None
    assert cost.value == pytest.approx(2.0 / 3600 / 320 * 1e6)
    assert cost.low == pytest.approx(2.0 / 3600 / (320 * 1.01) * 1e6)
    (found,) = advise(arms, goal)
    assert [r.arm.name for r in found.ranked] == ["small", "large"], "three times the output of four times the GPUs"
    assert found.ranked[1].to_first is not None
    assert found.ranked[1].to_first.value == pytest.approx(0.75), "above 1 would be better"
    unpriced = one([arm("x", 4, 40)], order="cost", gpu_price=2.0)
    assert unpriced.ranked == ()
    assert unpriced.unpriced == 1
    assert "give --gpus" in next_measurements(unpriced)[-1]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bound("speed", 3, True), "metric 'speed' cannot be bounded"),
        (lambda: Bound("user_tps_mean", 0, True), "must be above 0"),
        (lambda: Goal((), "cost"), "needs the price of a GPU hour"),
        (lambda: Goal((), "cost", -1.0), "must be above 0"),
        (lambda: Goal((), gpus=0), "at least 1"),
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_the_next_measurement_is_the_one_that_would_change_the_answer() -> None:
    arms = [arm("eagle3 DL 3", 4, 60), arm("eagle3 DL 3", 16, 31, half=0.1), arm("eagle3 DL 3", 64, 12)]
    lines = next_measurements(one(arms, AT_LEAST_30))
    assert lines[0].startswith(
        "vllm, eagle3 DL 3, BS 16 is first if it meets the goal (user_tps_mean at least 30 tokens/s: 31 [28.18, 34.1])"
    )
    assert "times as many prompts would decide" in lines[0]
    assert lines[1].endswith(
        "meets the goal at BS 4 and may miss it at BS 16: between them lies the largest batch that meets it; measure BS 8"
    )
    clear = next_measurements(one([arm("x", 4, 60), arm("x", 8, 50)], AT_LEAST_30))
    assert clear == ["vllm, x was not measured above BS 8, its best: larger batches may give more"]
    nobody = next_measurements(one([arm("x", 4, 10), arm("y", 4, 20)], AT_LEAST_30))
    assert nobody[0].startswith("no arm meets the goal; the nearest is vllm, y, BS 4")
    on_the_limit = next_measurements(one([arm("x", 4, 30.0001, half=0.1)], AT_LEAST_30))
    assert "too near to the limit" in on_the_limit[0]


def test_measured_points_are_ranked_by_service_and_invalid_ones_are_not() -> None:
    attempts = map_samples.sweep(workloads=("low_entropy", "high_entropy"))
    attempts.append(samples.attempt({**attempts[1]["point"]["axes"], "draft_length": 7}, rate=900, al=4, invalid="lag_p99_share"))
    found = advise(measured_arms(attempts), Goal((AT_LEAST_30,)))
    assert [a.label for a in found] == ["llama · high_entropy · ISL 1000 · T 0", "llama · low_entropy · ISL 1000 · T 0"]
    low = found[1]
    assert low.first is not None
    assert low.first.arm.batch_size == 16, "the fullest batch that still gives every user 30"
    assert len(low.invalid) == 1
    assert "1 arms have no valid rates" in next_measurements(low)[-1]
    table = advice_table(low)
    assert len(table.rows) == 16
    assert table.rows[-1].record["goal"] == "misses"


def test_simulated_arms_say_so() -> None:
    (found,) = advise(measured_arms(map_samples.sweep(simulated=True)), Goal())
    table = advice_table(found)
    assert table.title.startswith("SIMULATED")
    assert all(r.record["simulated"] for r in table.rows)


def test_arms_are_projected_from_two_measurements() -> None:
    timed, texts = (map_samples.sweep(workloads=(w,), batch_sizes=(4,)) for w in ("low_entropy", "high_entropy"))
    arms = {a.name: a for a in projected_arms(projections(timed, texts))}
    assert set(arms) == {"none", "eagle3 DL 1", "eagle3 DL 3", "eagle3 DL 5"}
    three = arms["eagle3 DL 3"]
    assert three.projected
    assert three.service["workload"] == "high_entropy"
    assert three.values["user_tps_mean"].value == pytest.approx(map_samples.rate(4, 3))
    assert three.values["output_tps_steady"].value == pytest.approx(4 * map_samples.rate(4, 3))
    assert arms["none"].values["user_tps_mean"].value == pytest.approx(map_samples.rate(4, 0))


# --- numbers from elsewhere


def test_the_papers_table_10_is_an_input() -> None:
    with as_file(files("specsweep.analysis") / "reproduce" / "paper" / "table10.csv") as path:
        arms = read_arms(path)
    found = advise(arms, Goal(order="user_tps"))
    assert len(found) == 6
    at_8k = next(a for a in found if a.service == {"target": "Llama 3.3 70B", "workload": "high_entropy", "isl": 8000})
    assert [r.arm.name for r in at_8k.ranked] == ["Vanilla DL 3", "none", "EAGLE3 DL 3"], "EAGLE3 is slower than no drafter there"


def write(path: Path, **changes: str) -> Path:
    row = {
        "engine": "vllm",
        "drafter": "mtp",
        "draft_length": "1",
        "batch_size": "8",
        "al": "1.8",
        "t_ar_ms": "20",
        "t_sd_ms": "24",
        **changes,
    }
    row = {k: v for k, v in row.items() if v != "DROP"}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    return path


def test_intervals_of_a_file_are_used(tmp_path: Path) -> None:
    arms = read_arms(write(tmp_path / "x.csv", al_ci_low="1.7", al_ci_high="1.9", t_sd_ms_ci_low="23", t_sd_ms_ci_high="25", gpus="8"))
    mtp = next(a for a in arms if a.name == "mtp DL 1")
    assert mtp.gpus == 8
    user = mtp.values["user_tps_mean"]
    assert user.low is not None
    assert user.high is not None
    assert user.low < 75 < user.high


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"al": "DROP"}, "column 'al' is missing"),
        ({"al": "fast"}, "line 2: al is 'fast'; a number above 0 is needed"),
        ({"t_sd_ms": "0"}, "line 2: t_sd_ms is '0'"),
        ({"t_ar_ms": "nan"}, "line 2: t_ar_ms is 'nan'"),
        ({"batch_size": "2.5"}, "line 2: batch_size is '2.5'; a whole number"),
        ({"al_ci_low": "1.9", "al_ci_high": "2.0"}, "al 1.8 is not within its interval 1.9 to 2"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_line_and_column(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        read_arms(write(tmp_path / "x.csv", **changes))


# --- the command


def test_the_command_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = map_samples.stored(tmp_path / "results", demo=map_samples.sweep())
    words = ["advise", "demo", f"store={store.root}", "--user-tps", "60"]
    assert main([*words, "--out", str(tmp_path / "advice.csv")]) == 0
    told = capsys.readouterr().out
    assert "llama · low_entropy · ISL 1000 · T 0: most output TPS; user_tps_mean at least 60 tokens/s" in told
    assert "▸" in told
    assert len((tmp_path / "advice.csv").read_text().splitlines()) == 17
    assert main([*words, "--gpu-price", "3", "--gpus", "2", "--json"]) == 0
    (service,) = json.loads(capsys.readouterr().out)["services"]
    assert service["first"]["goal"] == "meets"
    assert service["rows"][0]["cost_per_million_tokens"] > 0
    assert service["next_measurements"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--gpu-price", "3"], "give --gpus N"),
        (["--gpu-price", "0", "--gpus", "1"], "must be above 0"),
        (["--ttft", "fast"], "--ttft fast: write NAME=NUMBER"),
        (["--at-most", "nonsense=3"], "'nonsense' cannot be bounded"),
        (["--order", "cost"], "needs the price"),
        (["other"], "sweep 'other' is not in store"),
    ],
)
def test_the_command_refuses_by_name(more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = map_samples.stored(tmp_path / "results", demo=map_samples.sweep(batch_sizes=(1,), lengths=(None, 1)))
    assert main(["advise", "demo", f"store={store.root}", *more]) == 2
    assert said in capsys.readouterr().err


def test_two_sweeps_are_step_times_and_acceptance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed, texts = (map_samples.sweep(workloads=(w,), batch_sizes=(4,)) for w in ("low_entropy", "high_entropy"))
    store = map_samples.stored(tmp_path / "results", timed=timed, texts=texts)
    assert main(["advise", "timed", "texts", f"store={store.root}", "--order", "user_tps"]) == 0
    told = capsys.readouterr().out
    assert "high_entropy" in told
    assert "projected" in told
    assert main(["proxy", "timed", "texts", f"store={store.root}"]) == 0
    assert "3 projections beside a measured speedup" in capsys.readouterr().out
