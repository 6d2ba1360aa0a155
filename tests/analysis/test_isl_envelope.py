"""The Pareto front between measured input lengths: straight on the log scale, marked, checked, and never beyond what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import map_samples
import pytest
import sweep_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.isl_envelope import envelopes, leave_one_out
from specsweep.analysis.isl_envelope_views import belief, envelope_figure, envelope_table
from specsweep.orchestrator.cli import main


def at(isls: dict[int, float], batch_sizes: tuple[int, ...] = (1, 4), **more: Any) -> list[dict[str, Any]]:
    """Points of one arm whose users get ``isls[isl]`` / BS tokens/s."""
    return [
        samples.attempt(samples.axes("none", None, bs, isl=isl), rate=rate / bs**0.5, noise=0.0, **more)
        for isl, rate in isls.items()
        for bs in batch_sizes
    ]


def test_between_two_lengths_the_rate_is_their_geometric_mix() -> None:
    (envelope,) = envelopes(at({1000: 100.0, 4000: 50.0}), 2000)
    assert envelope.interpolated
    assert [(p.batch_size, p.between) for p in envelope.front] == [(4, (1000, 4000)), (1, (1000, 4000))]
    fastest = envelope.front[-1]
    assert fastest.x.value == pytest.approx(math.sqrt(100 * 50), rel=0.001)
    assert fastest.x.method.startswith("interpolated")
    assert fastest.x.low is not None
    assert fastest.x.low < fastest.x.value < (fastest.x.high or 0)


def test_a_measured_length_is_given_as_it_was_measured() -> None:
    attempts = at({1000: 100.0, 4000: 50.0})
    (envelope,) = envelopes(attempts, 4000)
    assert not envelope.interpolated
    assert envelope.front[-1].x.value == pytest.approx(attempts[2]["measurement"]["metrics"]["user_tps_mean"])


def test_nothing_is_given_beyond_what_an_arm_was_measured_at() -> None:
    attempts = at({1000: 100.0, 4000: 50.0}) + at({4000: 40.0, 8000: 30.0}, (16,))
    (envelope,) = envelopes(attempts, 2000)
    assert {p.batch_size for p in envelope.points} == {1, 4}
    assert envelope.left_out == (("none, BS 16", "measured at ISL 4000, 8000 only"),)
    with pytest.raises(ValueError, match="ISL 500 lies within what no arm was measured at; valid points are at 1000, 4000, 8000"):
        envelopes(attempts, 500)
    with pytest.raises(ValueError, match="not above 0"):
        envelopes(attempts, 0)


def test_points_that_are_not_valid_or_have_natural_lengths_are_no_ends_of_a_line() -> None:
    attempts = at({1000: 100.0, 4000: 50.0}, (1,)) + at({2000: 900.0}, (1,), invalid="lag_p99_share") + at({0: 900.0}, (1,))
    (envelope,) = envelopes(attempts, 2000)
    assert envelope.points[0].between == (1000, 4000)


@given(st.floats(1.0, 1e4), st.floats(1.0, 1e4), st.floats(1001, 7999))
def test_an_interpolated_rate_lies_between_its_ends(a: float, b: float, isl: float) -> None:
    (envelope,) = envelopes(at({1000: a, 8000: b}, (1,)), isl)
    (point,) = envelope.points
    ends = sorted([a, b])
    assert ends[0] * 0.98 <= point.x.value <= ends[1] * 1.02
    assert point.state == "frontier"


def test_inner_lengths_check_the_straight_line() -> None:
    power = {isl: 1e4 / isl**0.5 for isl in (1000, 2000, 4000, 8000)}
    straight = leave_one_out(at(power, (1,)))
    assert [c.isl for c in straight] == [2000, 2000, 4000, 4000]
    assert max(abs(c.error) for c in straight) < 0.03
    assert all(c.agrees for c in straight)
    bent = leave_one_out(at({1000: 100.0, 2000: 95.0, 8000: 20.0}, (1,)))
    assert bent[0].error == pytest.approx(100 ** (2 / 3) * 20 ** (1 / 3) / 95 - 1, abs=0.02)
    assert not bent[0].agrees
    assert "at most 3" in belief(bent)
    assert belief([]).startswith("The straight line is not checked")


def test_simulated_fronts_say_so_and_every_row_says_where_it_comes_from() -> None:
    attempts = map_samples.sweep(isls=(1000, 4000), simulated=True)
    (envelope,) = envelopes(attempts, 2000)
    table = envelope_table(envelope, [])
    assert table.title == "SIMULATED – Pareto front at ISL 2000, interpolated: llama · low_entropy · T 0"
    assert {r.cells[-1] for r in table.rows} == {"ISL 1000 and 4000"}
    assert all(r.record["interpolated"] and r.record["simulated"] for r in table.rows)
    assert "SIMULATED" in envelope_figure(attempts)._suptitle.get_text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = map_samples.stored(tmp_path / "results", demo=map_samples.sweep(isls=(1000, 4000), batch_sizes=(1, 16), lengths=(None, 3)))
    assert main(["envelope", "demo", f"store={store.root}", "--isl", "2000"]) == 0
    assert "Pareto front at ISL 2000, interpolated" in capsys.readouterr().out
    assert (store.root / "sweeps" / "demo" / "isl_envelope.png").is_file()
    assert main(["envelope", "demo", f"store={store.root}", "--isl", "9000"]) == 2
    assert "--isl 9000: ISL 9000 lies within what no arm was measured at" in capsys.readouterr().err
    assert main(["envelope", "demo", f"store={store.root}", "--isl", "1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["rows"][0]["interpolated"] is False
