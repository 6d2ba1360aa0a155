"""The best draft length by batch size and ISL: who wins, who is tied, who stands apart and why; and the settings made of it."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import map_samples
import numpy as np
import pytest
import sweep_samples as samples
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Cell, Estimate
from specsweep.analysis.draft_length_figure import map_figure
from specsweep.analysis.draft_length_map import Choice, draft_length_maps, pair_crossovers
from specsweep.analysis.draft_length_tables import crossover_table, map_table, summary
from specsweep.analysis.operator_config import as_json, as_yaml, schedule, vllm_config
from specsweep.orchestrator.cli import main

KEY = "num_speculative_tokens_per_batch_size"


def the_map(attempts: list[dict[str, Any]], goal: Any = "output_tps") -> Any:
    (found,) = draft_length_maps(attempts, goal)
    return found


@pytest.mark.parametrize("goal", ["output_tps", "user_tps"])
def test_the_best_draft_length_shrinks_as_the_batch_fills(goal: Any) -> None:
    m = the_map(map_samples.sweep(), goal)
    assert [c.draft_length for c in m.choices] == [
        max((0, 1, 3, 5), key=lambda n: map_samples.rate(bs, n)) for bs in map_samples.BATCH_SIZES
    ] == [5, 5, 3, 0]  # fmt: skip
    assert all(c.draft_length in c.ties for c in m.choices)
    assert [c.tied for c in m.choices] == [False] * 4 or goal == "output_tps", "blocks of time say less than paired prompts"
    assert m.choices[0].over_none is not None
    assert m.choices[0].over_none.value == pytest.approx(map_samples.rate(1, 5) / map_samples.rate(1, 0), rel=0.05)
    assert m.choices[3].over_none is None


def test_what_noise_cannot_tell_apart_is_a_tie() -> None:
    m = the_map(map_samples.sweep(noise=0.6), "user_tps")
    assert set(m.choices[2].ties) >= {1, 3}
    assert m.choices[2].tied


def test_the_truly_best_is_in_the_tie() -> None:
    """100 made-up cells of four draft lengths that differ by less than one run can show: the best of them is left out hardly ever."""
    rates = {None: 100.0, 1: 100.5, 3: 101.0, 5: 101.5}
    kept = 0
    for seed in range(100):
        attempts = [
            samples.attempt(
                samples.axes("none" if n is None else "ngram", n, 4),
                rate=rate,
                al=1.5 if n else 1.0,
                noise=0.03,
                seed=seed,
                conversations=12,
            )
            for n, rate in rates.items()
        ]
        (choice,) = the_map(attempts, "user_tps").choices
        kept += 5 in choice.ties
    assert kept >= 0.95 * 100


def test_an_invalid_candidate_stands_apart_with_its_reason() -> None:
    attempts = map_samples.sweep(batch_sizes=(4,))
    broken = [
        samples.attempt(a["point"]["axes"], rate=500, al=3, conversations=32, invalid="lag_p99_share")
        if a["point"]["axes"]["draft_length"] == 3
        else a
        for a in attempts
    ]
    (choice,) = the_map(broken).choices
    assert choice.draft_length == 5, "not the invalid one, however fast"
    assert 3 not in choice.ties
    ((left_out, why),) = choice.left_out
    assert left_out == 3
    assert "lag_p99_share" in why
    nothing = [copy.deepcopy(a) for a in attempts]
    for a in nothing:
        a["measurement"]["validity"]["tps"] = False
    m = the_map(nothing)
    assert m.choices == ()
    assert [(bs, isl) for bs, isl, _ in m.missing] == [(4, 1000)]
    assert "1 have none" in summary([m])[0]


def test_an_arm_of_another_environment_is_not_compared() -> None:
    attempts = map_samples.sweep(batch_sizes=(4,))
    for a in attempts:
        if a["point"]["axes"]["draft_length"] == 1:
            a["point"]["env"]["cpu"] = "another"
    (choice,) = the_map(attempts).choices
    assert choice.left_out == ((1, "the arms ran in different environments: cpu: another against Example CPU"),)


def test_two_arms_without_an_accepted_draft_never_beat_each_other() -> None:
    attempts = [samples.attempt(samples.axes("none", None, 4), rate=90), samples.attempt(samples.axes("ngram", 4, 4), rate=100, al=1.0)]
    (choice,) = the_map(attempts).choices
    assert choice.draft_length == 4
    assert choice.ties == (0, 4)
    (pair,) = pair_crossovers(attempts)
    assert (
        pair.statement == "ngram DL 4 and none cannot be compared; not compared at BS 4: no draft was accepted, so both did the same work"
    )


def test_each_drafter_and_workload_has_its_map_and_each_isl_its_row() -> None:
    attempts = map_samples.sweep(isls=(1000, 8000), workloads=("low_entropy", "high_entropy"))
    attempts += [a for a in map_samples.sweep(drafter="mtp", isls=(1000,)) if a["point"]["axes"]["drafter"] == "mtp"]
    maps = draft_length_maps(attempts)
    assert [(m.axes["drafter"], m.axes["workload"], m.isls) for m in maps] == [
        ("eagle3", "high_entropy", [1000, 8000]),
        ("eagle3", "low_entropy", [1000, 8000]),
        ("mtp", "low_entropy", [1000]),
    ]
    assert 0 in maps[2].choices[3].ties, "none belongs to every drafter of its server"
    figure = map_figure(maps)
    assert len([ax for ax in figure.axes if ax.axison]) == 3


def test_pairs_cross_where_the_truth_does() -> None:
    pairs = {(p.a, p.b): p for p in pair_crossovers(map_samples.sweep(), "user_tps")}
    assert len(pairs) == 6
    (crossing,) = pairs["eagle3 DL 5", "none"].crossings
    assert (crossing.below, crossing.above) == (16, 64)
    sizes = np.linspace(16, 64, 500)
    truth = sizes[int(np.argmin([abs(map_samples.rate(x, 5) / map_samples.rate(x, 0) - 1) for x in sizes]))]
    assert crossing.low * 0.85 < truth < crossing.high * 1.15, "up to the curvature between two measured batch sizes"
    assert pairs["eagle3 DL 5", "none"].against_none
    table = crossover_table(list(pairs.values()))
    assert len(table.rows) == 6
    assert table.rows[0].record["ratios"]["1"][0] > 1


def test_simulated_numbers_say_so_in_table_and_figure() -> None:
    m = the_map(map_samples.sweep(simulated=True))
    assert map_table([m]).title.startswith("SIMULATED – ")
    assert map_table([m]).rows[0].record["simulated"] is True
    assert "SIMULATED" in map_figure([m])._suptitle.get_text()
    assert "SIMULATED" not in map_table([the_map(map_samples.sweep())]).title


# --- settings for a server


def choice(batch_size: int, best: int, ties: tuple[int, ...], ratios: dict[int, float] | None = None) -> Choice:
    cell = Cell({"drafter": "eagle3" if best else "none", "draft_length": best or None, "batch_size": batch_size}, ())
    return Choice(batch_size, 1000, cell, Estimate(100.0), ties, {n: Estimate(r) for n, r in (ratios or {}).items()}, None)


def test_ties_save_changes_and_the_best_of_what_is_shared_is_taken() -> None:
    found = schedule([
        choice(1, 5, (3, 5), {3: 0.99}),
        choice(4, 3, (1, 3, 5), {1: 0.97, 5: 0.98}),
        choice(16, 3, (1, 3), {1: 0.99}),
        choice(64, 0, (0,), {3: 0.9}),
    ])  # fmt: skip
    assert [(s.first, s.last, s.tokens, s.allowed, s.measured_at) for s in found] == [
        (1, 32, 3, (3,), (1, 4, 16)),
        (33, 64, 0, (0,), (64,)),
    ]
    assert found[0].ends_between == (16, 64)


def test_a_change_is_put_where_the_two_are_interpolated_to_be_equal() -> None:
    (before, _) = schedule([choice(10, 3, (3,), {1: 0.5}), choice(1000, 1, (1,), {3: 0.5})])
    assert before.last == 100
    (before, _) = schedule([choice(10, 3, (3,), {1: 0.9999}), choice(1000, 1, (1,), {3: 0.1})])
    assert before.last == 10, "never below what was measured"


TIES = st.lists(st.sets(st.sampled_from([0, 1, 3, 5, 7]), min_size=1), min_size=1, max_size=9)


@given(TIES)
def test_a_schedule_covers_every_batch_size_once_within_its_ties(ties: list[set[int]]) -> None:
    choices = [choice(2**i, min(t), tuple(sorted(t))) for i, t in enumerate(ties)]
    found = schedule(choices)
    assert found[0].first == 1
    assert found[-1].last == 2 ** (len(ties) - 1)
    assert all(a.last + 1 == b.first for a, b in pairwise(found))
    for c in choices:
        (stretch,) = [s for s in found if s.first <= c.batch_size <= s.last]
        assert stretch.tokens in c.ties
    least, shared = 1, set(ties[0])
    for t in ties[1:]:
        shared = shared & t or ((least := least + 1) and set(t))
    assert len(found) == least


def document(**more: Any) -> dict[str, Any]:
    attempts = map_samples.sweep(**more)
    for a in attempts:
        if a["point"]["axes"]["drafter"] != "none":
            a["point"]["config"] = {"drafter": {"method": "eagle3", "model": {"source": "hub", "repo": "org/head", "revision": "main"}}}
            a["point"]["env"]["drafter"]["speculative-config"] = {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "draft_sample_method": "greedy",
            }
    return vllm_config(the_map(attempts), 1000, sweep="s", version="1", simulated_ok=True)


def test_the_settings_are_what_was_measured_with_a_schedule() -> None:
    made = document()
    config = made["speculative_config"]
    assert config == {
        "method": "eagle3",
        "draft_sample_method": "greedy",
        "model": "org/head",
        "revision": "main",
        "num_speculative_tokens": 5,
        KEY: config[KEY],
    }
    assert [k for _, _, k in config[KEY]] == [5, 3, 0]
    assert config[KEY][0][0] == 1
    assert config[KEY][-1][1] == 64
    assert "SIMULATED" not in made
    assert made["provenance"]["sweep"] == "s"
    assert len(made["provenance"]["point_ids"]) == 4
    assert json.loads(as_json(made)) == made
    loaded = yaml.safe_load(as_yaml(made))
    assert loaded == {"speculative-config": config}, "as vLLM's --config takes it: nothing else in it"


def test_one_draft_length_for_all_needs_no_schedule() -> None:
    made = document(batch_sizes=(1, 4))
    assert KEY not in made["speculative_config"]
    assert made["speculative_config"]["num_speculative_tokens"] == 5
    assert any("no schedule is needed" in note for note in made["provenance"]["notes"])


def test_what_must_not_set_up_a_server_is_refused() -> None:
    simulated = the_map(map_samples.sweep(simulated=True, engine="sim"))
    with pytest.raises(ValueError, match="was simulated"):
        vllm_config(simulated, 1000, sweep="s", version="1")
    marked = vllm_config(simulated, 1000, sweep="s", version="1", simulated_ok=True)
    assert "SIMULATED" in marked
    assert as_yaml(marked).startswith("# SIMULATED: these draft lengths come from a simulator")
    with pytest.raises(ValueError, match="measured on llamacpp"):
        vllm_config(the_map(map_samples.sweep(engine="llamacpp")), 1000, sweep="s", version="1")
    with pytest.raises(ValueError, match="no choice at ISL 2000; there are: 1000"):
        vllm_config(the_map(map_samples.sweep()), 2000, sweep="s", version="1")
    with pytest.raises(ValueError, match="serve without a drafter"):
        vllm_config(the_map(map_samples.sweep(batch_sizes=(64,))), 1000, sweep="s", version="1")


def test_a_batch_size_with_one_candidate_decides_nothing() -> None:
    attempts = map_samples.sweep(batch_sizes=(1, 4))
    alone = [a for a in attempts if a["point"]["axes"]["batch_size"] == 1 or a["point"]["axes"]["draft_length"] == 1]
    m = the_map(alone)
    assert m.choices[1].alone
    made = vllm_config(m, 1000, sweep="s", version="1")
    assert made["speculative_config"]["num_speculative_tokens"] == 5
    assert made["provenance"]["batch_sizes_measured"] == [1]
    assert "batch size 4 left out: one candidate only was valid there" in made["provenance"]["notes"]
    with pytest.raises(ValueError, match="every batch size has one valid candidate only"):
        vllm_config(the_map([a for a in attempts if a["point"]["axes"]["draft_length"] == 1]), 1000, sweep="s", version="1")


# --- the command


def test_the_command_prints_writes_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = map_samples.stored(tmp_path / "results", demo=map_samples.sweep(isls=(1000, 2000)))
    words = ["map", "demo", f"store={store.root}", "--goal", "user_tps"]
    assert main([*words, "--only", "isl=1000", "--export", str(tmp_path / "v.yaml"), "--out", str(tmp_path / "map.csv")]) == 0
    told = capsys.readouterr().out
    assert "Best draft length by batch size (user TPS)" in told
    assert "overtakes between BS 16 and 64" in told
    assert (store.root / "sweeps" / "demo" / "draft_length_map.png").is_file()
    assert yaml.safe_load((tmp_path / "v.yaml").read_text())["speculative-config"]["num_speculative_tokens"] == 5
    assert len((tmp_path / "map.csv").read_text().splitlines()) == 5
    assert main([*words, "--only", "isl=1000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [r["best_draft_length"] for r in told["tables"]["draft_length_map"]["rows"]] == [5, 5, 3, 0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--export", "v.yaml"], "a server has one schedule and there are 2 to choose from"),
        (["--export", "v.txt"], "its name must end in one of .json, .yaml, .yml"),
        (["--only", "isl=1e3", "--export", "v.json"], "was measured on llamacpp"),
        (["--only", "isl=5"], "no point has isl '5'; there are: 1000, 2000"),
        (["--only", "colour=red"], "no point has an axis 'colour'"),
        (["--only", "drafter=none"], "no point with a drafter was measured"),
    ],
)
def test_the_command_refuses_by_name(more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attempts = map_samples.sweep(engine="llamacpp", isls=(1000, 2000), batch_sizes=(1,))
    store = map_samples.stored(tmp_path / "results", demo=attempts)
    words = [str(tmp_path / w) if w.startswith("v.") else w for w in more]
    assert main(["map", "demo", f"store={store.root}", *words]) == 2
    assert said in capsys.readouterr().err
