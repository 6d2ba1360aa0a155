"""The proxy speedup: the formula, what its interval covers, which measurements fit together, and how it is held against the measured speedup."""

from __future__ import annotations

import copy
import csv
import math
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import sweep_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.log_scale import product
from specsweep.analysis.projection import Projection, projections
from specsweep.analysis.projection_table import projection_table, verdict
from specsweep.analysis.proxy import proxy_speedup, rounding_reach
from specsweep.analysis.stats import t_quantile

POSITIVE = st.floats(1e-3, 1e3)


def printed_rows() -> list[dict[str, str]]:
    path = files("specsweep.analysis") / "reproduce" / "paper" / "table10.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_the_papers_table_10_follows_from_its_own_inputs() -> None:
    rows = printed_rows()
    assert len(rows) == 12
    beside = []
    for row in rows:
        t_ar, t_sd, al = (float(row[name]) for name in ("t_ar_ms", "t_sd_ms", "al"))
        printed = float(row["speedup_projected"])
        if round(proxy_speedup(Estimate(t_ar), Estimate(t_sd), Estimate(al)).value, 2) != printed:
            beside.append((row["drafter"], row["target_category"], row["isl_tokens"]))
            low, high = rounding_reach((t_ar, 1), (t_sd, 1), (al, 2))
            assert low < printed < high, "within what the rounding of its inputs allows"
            assert not low <= printed + 0.01 <= high
    assert beside == [("EAGLE3", "high_entropy", "1000")]


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_formula(t_ar: float, t_sd: float, al: float) -> None:
    found = proxy_speedup(Estimate(t_ar), Estimate(t_sd), Estimate(al))
    assert found.value == pytest.approx(t_ar * al / t_sd)
    assert not found.has_interval
    assert found.method == "none: t_ar and AL and t_sd without an interval"


@given(st.lists(st.tuples(POSITIVE, st.floats(1.001, 3.0), st.integers(3, 200)), min_size=2, max_size=4))
def test_an_interval_on_the_log_scale_is_that_of_the_inverse_turned_round(parts: list[tuple[float, float, int]]) -> None:
    estimates = [Estimate(v, v / f, v * f, clusters=n) for v, f, n in parts]
    one, other = (product([(e, sign) for e in estimates]) for sign in (1, -1))
    assert other.value == pytest.approx(1 / one.value)
    assert other.low == pytest.approx(1 / one.high)
    assert other.high == pytest.approx(1 / one.low)
    widest = max(e.high / e.value for e in estimates if e.high)
    assert one.high / one.value >= widest ** (1.9 / 12.8), "no input's uncertainty is lost, whatever the degrees of freedom become"


def test_an_exact_input_adds_no_width_and_of_exact_inputs_the_result_is_exact() -> None:
    exact, wide = Estimate(2.0, 2.0, 2.0, clusters=12), Estimate(5.0, 4.0, 6.25, clusters=12)
    found = product([(exact, 1), (wide, 1)])
    assert (found.low, found.high) == (pytest.approx(8.0), pytest.approx(12.5))
    assert product([(exact, 1), (exact, -1)]) == Estimate(1.0, 1.0, 1.0, method=product([(exact, 1)]).method, clusters=1001)
    with pytest.raises(ValueError, match="only positive numbers"):
        product([(Estimate(0.0), 1)])


def test_together_intervals_are_wider_than_alone() -> None:
    e = Estimate(1.0, 0.9, 1.1 / 0.99, clusters=20)
    widths = [
        math.log(found.high / found.low) for m in (1, 10, 100) if (found := product([(e, 1), (e, -1)], comparisons=m)).high and found.low
    ]
    assert widths == sorted(widths)
    assert widths[2] > 1.4 * widths[0]


@pytest.mark.parametrize(("clusters", "spreads"), [((12, 12, 12), (0.05, 0.05, 0.4)), ((5, 40, 80), (0.3, 0.05, 0.1))])
def test_the_interval_covers_the_truth(clusters: tuple[int, int, int], spreads: tuple[float, float, float]) -> None:
    """4,000 made-up experiments: three means of log-normal samples, each with Student's t interval of its own, and the truth that is known."""
    rng = np.random.default_rng(3)
    truth = (20.0, 30.0, 2.2)
    samples_ = [np.exp(np.log(t) + s * rng.standard_normal((4000, n))) for t, n, s in zip(truth, clusters, spreads, strict=True)]
    hits = 0
    logs = [np.log(x) for x in samples_]
    for i in range(4000):
        parts = []
        for x in (one[i] for one in logs):
            half = float(t_quantile(np.asarray(x.size - 1.0), 0.95)) * x.std(ddof=1) / math.sqrt(x.size)
            parts.append(Estimate(math.exp(x.mean()), math.exp(x.mean() - half), math.exp(x.mean() + half), clusters=x.size))
        found = proxy_speedup(*parts)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth[0] * truth[2] / truth[1] <= found.high
    assert 0.94 < hits / 4000 < 0.965


def only(attempts: list[dict[str, Any]], **axes: Any) -> list[dict[str, Any]]:
    return [a for a in attempts if all(a["point"]["axes"][k] == v for k, v in axes.items())]


def where(found: list[Projection], **axes: Any) -> Projection:
    (one,) = [p for p in found if all(p.cell.axes[k] == v for k, v in axes.items()) and not p.domain]
    return one


def test_every_cell_is_projected_from_its_own_step_times_where_they_are_known() -> None:
    found = projections(samples.quickstart())
    assert len(found) == 12
    assert all(p.own_steps and not p.reason and not p.warnings for p in found)
    best = where(found, workload="low_entropy", draft_length=4, batch_size=1)
    value, clean, measured = best.value(), best.value("clean"), best.measured
    assert value
    assert clean
    assert measured
    assert value.value == pytest.approx(1.31)
    assert clean.value == pytest.approx(1.31)
    assert best.agrees() is True
    assert best.difference() == pytest.approx(value.value - measured.value)


def test_step_times_of_one_workload_go_with_the_acceptance_of_another() -> None:
    attempts = samples.quickstart()
    found = projections(only(attempts, workload="low_entropy"), only(attempts, workload="high_entropy"))
    assert len(found) == 6
    one = where(found, draft_length=4, batch_size=1)
    assert one.steps is not None
    assert one.steps.axes["workload"] == "low_entropy"
    assert one.al is not None
    assert one.al.value == 1.12, "of its own prompts"
    value = one.value()
    assert value is not None
    assert value.value == pytest.approx(1.31 * 1.12 / 2.4), "less acceptance at the same step times"
    assert one.measured is not None, "its own speedup was measured too"


def test_another_length_of_the_prompts_is_said() -> None:
    timed = [
        samples.attempt(samples.axes(d, dl, 4, isl=2000), rate=r, al=al) for d, dl, r, al in (("none", None, 20, 1), ("ngram", 4, 25, 2))
    ]
    texts = [samples.attempt(samples.axes("ngram", 4, 4, isl=1000), rate=30, al=2.2)]
    (found,) = projections(timed, texts)
    assert found.value() is not None
    assert found.measured is None
    assert found.agrees() is None
    assert found.warnings == ("steps were timed at ISL 2000, acceptance measured at 1000",)


def test_step_times_are_taken_from_the_nearest_prompts() -> None:
    def timed(workload: str, isl: int) -> list[dict[str, Any]]:
        arms = (("none", None, 20, 1.0), ("ngram", 4, 25, 2.0))
        return [samples.attempt(samples.axes(d, dl, 4, workload, isl=isl), rate=r, al=al) for d, dl, r, al in arms]

    texts = [samples.attempt(samples.axes("ngram", 4, 4, "fiction", isl=1000), rate=30, al=2.2)]

    def taken(*places: tuple[str, int]) -> list[tuple[str, int]]:
        steps = [a for place in places for a in timed(*place)]
        return [(p.steps.axes["workload"], p.steps.axes["isl"]) for p in projections(steps, texts) if p.steps is not None]

    everywhere = [("fiction", 1000), ("code", 1000), ("fiction", 2000), ("code", 2000)]
    assert taken(*everywhere) == [("fiction", 1000)]
    assert taken(*everywhere[1:]) == [("code", 1000)]
    assert taken(*everywhere[2:]) == [("fiction", 2000)]
    assert taken(("code", 2000), ("code", 8000)) == [("code", 2000), ("code", 8000)]


@pytest.mark.parametrize(
    ("axis", "value", "reason"),
    [
        ("engine", "vllm", "no step times with engine vllm (there: llamacpp)"),
        ("target", "other", "no step times with target other (there: smollm2-135m)"),
        ("drafter", "eagle3", "no step times with drafter eagle3 (there: ngram)"),
        ("draft_length", 5, "no step times with draft_length 5 (there: 4, 8)"),
        ("batch_size", 2, "no step times with batch_size 2 (there: 1, 4, 8)"),
        ("temperature", 1.0, "no step times with temperature 1 (there: 0)"),
        ("drafter.topk", 8, "no step times with drafter.topk 8 (there: –)"),
    ],
)
def test_arms_that_do_not_match_are_refused_by_name(axis: str, value: Any, reason: str) -> None:
    texts = [samples.attempt({**samples.axes("ngram", 4, 4), axis: value}, al=2.0)]
    (found,) = projections(samples.quickstart(), texts)
    assert found.reason == reason
    assert found.value() is None
    assert found.steps is None


def test_the_same_name_with_another_content_is_refused() -> None:
    attempts = samples.quickstart()
    texts = copy.deepcopy(only(attempts, drafter="ngram", draft_length=4, batch_size=4, workload="low_entropy"))
    for a in attempts:
        a["point"]["declared"]["drafter"] = {"method": "ngram", "size": 5}
        a["point"]["declared"]["engine"] = {"name": "llamacpp", "version": "2", "max_batch": 8}
    for a in texts:
        a["point"]["declared"]["drafter"] = {"method": "ngram", "size": 3}
        a["point"]["declared"]["engine"] = {"name": "llamacpp", "version": "2", "max_batch": 64}
    (found,) = projections(attempts, texts)
    assert found.reason == "drafter.size is 5 where steps were timed and 3 where acceptance was measured"


def test_what_is_not_valid_projects_nothing() -> None:
    attempts = samples.quickstart()
    for a in attempts:
        if a["point"]["axes"]["batch_size"] == 8 and a["point"]["axes"]["drafter"] == "none":
            a["measurement"]["validity"]["steps"] = False
        if a["point"]["axes"]["batch_size"] == 4:
            a["measurement"]["validity"]["acceptance"] = False
    found = projections(only(attempts, workload="low_entropy"))
    assert where(found, draft_length=4, batch_size=8).reason.startswith("step times: the baseline's step times are not valid")
    assert where(found, draft_length=4, batch_size=4).reason.startswith("acceptance: ")
    assert where(found, draft_length=4, batch_size=1).reason == ""
    lonely = projections([a for a in attempts if a["point"]["axes"]["drafter"] != "none"])
    assert {p.reason for p in lonely if p.cell.batch_size == 1} == {"step times: the baseline is not measured yet"}


def test_arms_of_unlike_environments_are_refused() -> None:
    attempts = [
        samples.attempt(samples.axes("none", None, 4), rate=20, env=samples.ENV | {"cpu": "another"}),
        samples.attempt(samples.axes("ngram", 4, 4), rate=25, al=2.0),
    ]
    (found,) = projections(attempts)
    assert found.reason.startswith("step times: the arms ran in different environments: cpu")


def test_categories_have_their_own_acceptance_and_their_own_measured_speedup() -> None:
    attempts = only(samples.quickstart(), workload="low_entropy", batch_size=4)
    found = [p for p in projections(attempts, categories=True) if p.cell.axes["draft_length"] == 4]
    assert [p.domain for p in found] == ["", "code", "fiction"]
    whole, code, fiction = (p.value() for p in found)
    assert whole
    assert code
    assert fiction
    assert code.value / whole.value == pytest.approx(1.1)
    assert fiction.value / whole.value == pytest.approx(0.9)
    assert found[1].measured != found[2].measured
    assert found[1].actual is not None
    assert found[1].actual.output_tps is None, "requests of all categories share the blocks of time"


def test_an_average_of_acceptance_goes_with_the_same_average_of_the_rates() -> None:
    attempts = only(samples.quickstart(), workload="low_entropy", batch_size=4)
    for a in attempts:
        a["measurement"]["metrics"]["al_decode_request_mean"] = 3.0 if a["point"]["axes"]["drafter"] != "none" else 1.0
        for row in a["measurement"]["per_conversation"]:
            row["decode_s"] = row["decode_tokens"] / 50 if a["point"]["axes"]["drafter"] != "none" else row["decode_tokens"] / 40
    pooled, request = (where(projections(attempts, average=how), draft_length=4) for how in ("pooled", "request"))
    assert pooled.measured is not None
    assert pooled.measured.value == pytest.approx(1.25)
    assert request.measured is not None
    assert request.measured.value == pytest.approx(1.08, abs=0.05)
    assert request.al is not None
    assert request.al.value == 3.0


def test_a_drafter_that_drafts_in_other_shares_of_the_steps_is_said() -> None:
    attempts = samples.quickstart()
    for a in attempts:
        if a["point"]["axes"]["workload"] == "high_entropy":
            for row in a["measurement"]["per_conversation"]:
                row["verify_steps"] //= 5
    found = projections(only(attempts, workload="low_entropy"), only(attempts, workload="high_entropy"))
    assert all("20% of the steps had a draft here, 100% where steps were timed" in p.warnings[0] for p in found)


def test_repeats_are_projected_over_their_sessions() -> None:
    attempts = [
        samples.attempt(samples.axes(d, dl, 4, repeat=r), rate=rate * (1 + 0.02 * r), al=al, seed=r)
        for r in (1, 2, 3)
        for d, dl, rate, al in (("none", None, 20, 1.0), ("ngram", 4, 25, 2.0))
    ]
    (found,) = projections(attempts)
    value = found.value()
    assert value is not None
    assert value.sessions == 3
    assert value.scope == "between-sessions"
    assert value.value == pytest.approx(1.25, rel=0.01)


def test_the_table_keeps_the_layout_and_says_how_well_it_held() -> None:
    found = projections(samples.quickstart(simulated=True))
    table = projection_table(found)
    assert table.title == "SIMULATED – Proxy speedup t_ar · AL / t_sd"
    assert [c.key for c in table.columns][-9:] == [
        "isl", "batch_size", "draft_length", "al", "t_ar", "t_sd", "actual", "projected", "difference", "agrees", "projected_clean"
    ][-9:]  # fmt: skip
    assert verdict(found).startswith("12 projections beside a measured speedup: intervals agree in 12 (all gaps) and 12 (clean gaps) of 12")
    record = table.rows[0].record
    assert record["t_ar_step_ms_mean"] * record["al"] / record["t_sd_step_ms_mean"] == pytest.approx(record["speedup_projected"])
    assert record["simulated"] is True
    refused = projection_table(projections([a for a in samples.quickstart() if a["point"]["axes"]["drafter"] != "none"]))
    assert all(row.muted and row.cells[-1] for row in refused.rows)
    assert "No projection can be held" in refused.notes[-1]
