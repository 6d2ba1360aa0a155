from __future__ import annotations

import csv
import io
import json

import pytest
import sweep_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate, cells, latest
from specsweep.analysis.tables import pareto_table, tables
from specsweep.analysis.tabular import Column, Row, Table, fit, footnoted, text_width, with_interval, without_intervals


def headers(table):
    return [c.header for c in table.columns]


def test_every_number_has_its_interval():
    table = pareto_table(cells(samples.quickstart()))
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if column.key in ("user_tps_mean", "output_tps", "ttft_ms_p50", "step_ms_mean"):
                assert "[" in cell, (column.key, cell)


def test_what_all_rows_share_is_said_once_and_kept_in_the_records():
    table = pareto_table(cells(samples.quickstart()))
    assert "engine" not in headers(table)
    assert table.shared == {"engine": "llamacpp", "target": "smollm2-135m", "ISL": "256", "T": "0"}
    assert {row.record["engine"] for row in table.rows} == {"llamacpp"}
    two = [*samples.quickstart(), samples.attempt({**samples.axes(), "engine": "vllm"})]
    assert "engine" in headers(pareto_table(cells(two)))


def test_extra_axes_get_a_column():
    attempts = [samples.attempt(samples.axes("eagle3", 4, 1) | {"drafter.topk": k}) for k in (1, 2)]
    table = pareto_table(cells(attempts))
    assert "drafter.topk" in headers(table)
    assert sorted(r.record["drafter.topk"] for r in table.rows) == [1, 2]


def test_rows_come_in_the_same_order_whatever_the_order_of_landing():
    attempts = samples.quickstart()
    assert tables(attempts)[0].rows == tables(attempts[::-1])[0].rows
    first = pareto_table(cells(attempts)).rows[:4]
    assert [(r.record["drafter"], r.record["draft_length"], r.record["batch_size"]) for r in first] == [
        ("none", None, 1),
        ("none", None, 4),
        ("none", None, 8),
        ("ngram", 4, 1),
    ]


def test_json_holds_full_precision_and_never_invents_a_number():
    table = pareto_table(cells(samples.quickstart()))
    rows = json.loads(json.dumps(table.to_json(), allow_nan=False))["rows"]
    baseline = next(r for r in rows if r["drafter"] == "none")
    source = next(a for a in samples.quickstart() if a["point"]["point_id"] == baseline["point_ids"][0])["measurement"]["metrics"]
    assert baseline["user_tps_mean"] == source["user_tps_mean"]
    assert baseline["user_tps_mean_ci_low"] == source["user_tps_mean_ci_low"]
    assert baseline["al_verify"] is None  # the baseline has none; 0 would be a lie


def test_an_invalid_point_is_marked_in_every_number_that_its_check_affects():
    attempts = [samples.attempt(samples.axes(), invalid="lag_p99_share")]
    (row,) = pareto_table(cells(attempts)).rows
    shown = dict(zip(headers(pareto_table(cells(attempts))), row.cells, strict=True))
    assert shown["TPS/user"].endswith("†")
    assert not shown["AL (decode)"].endswith("†")
    assert shown["valid"] == "no: lag_p99_share"
    assert row.record["why_invalid"].startswith("lag_p99_share = 0.034")
    assert row.muted


def test_step_times_that_are_not_valid_mark_their_number_and_not_the_point():
    attempt = samples.attempt(samples.axes())
    failed = {"value": 0.3, "limit": 0.01, "ok": False, "message": ""}
    attempt["measurement"]["validity"]["steps"] = False
    attempt["measurement"]["checks"].append({"name": "coalesced", "affects": ["steps"], **failed})
    table = pareto_table(cells([attempt]))
    shown = dict(zip(headers(table), table.rows[0].cells, strict=True))
    assert shown["step ms"].endswith("†")
    assert shown["valid"] == "yes"
    attempt["measurement"]["validity"].update(valid=False, tps=False)
    attempt["measurement"]["checks"].append({"name": "lag", "affects": ["tps"], **failed})
    assert pareto_table(cells([attempt])).rows[0].cells[-1] == "no: lag"


def test_a_failed_point_is_a_row_with_its_reason():
    (row,) = pareto_table(cells([samples.attempt(samples.axes(), failed=True)])).rows
    assert row.cells[-1] == "no: engine failed"
    assert row.record["why_invalid"] == "failed: engine: the engine died"
    assert row.record["output_tps"] is None


def test_simulated_numbers_say_so():
    for table in tables(samples.quickstart(simulated=True)):
        assert table.notes[0].startswith("SIMULATED")
    for table in tables(samples.quickstart()):
        assert "SIMULATED" not in " ".join(table.notes)


def test_speedup_table_states_definition_scope_and_verdict():
    table = tables(samples.quickstart())[1]
    notes = " ".join(table.notes)
    assert "mean over requests" in notes
    assert "within-session" in notes
    words = {r.record["verdict"] for r in table.rows}
    assert {"faster", "slower"} <= words <= {"faster", "slower", "not shown"}
    assert all(r.record["drafter"] != "none" for r in table.rows)


def test_a_measured_attempt_wins_over_a_later_failure_and_the_later_of_two_measured():
    old, new = samples.attempt(samples.axes(), rate=10), samples.attempt(samples.axes(), rate=20)
    failed = samples.attempt(samples.axes(), failed=True)
    new["point"]["finished_utc"] = "2026-12-01T00:00:00Z"
    failed["point"]["finished_utc"] = "2026-12-02T00:00:00Z"
    assert latest([new, failed, old]) == [new]


def sketch(**columns: int) -> Table:
    """One row; each column is as wide as told, the gap of two included."""
    cells = tuple("x" * (width - 2) for width in columns.values())
    return Table("t", "T", tuple(Column(key, key[:1]) for key in columns), (Row(cells, {}),))


@pytest.mark.parametrize(
    ("width", "kept", "left_out"),
    [
        (60, "must wide mid small", ""),
        (59, "must wide mid", "small"),
        (54, "must wide small", "mid"),  # mid has no room any more, the less important small has
        (45, "must wide small", "mid"),
        (44, "must wide", "small mid"),
        (39, "must mid small", "wide"),
        (20, "must small", "mid wide"),
        (5, "must", "small mid wide"),
    ],
)
def test_a_narrow_terminal_shows_every_column_that_has_room_by_importance(width, kept, left_out):
    table = sketch(must=10, wide=30, mid=15, small=5)
    shown, missing = fit(table, width, ("small", "mid", "wide"))
    assert [c.key for c in shown.columns] == kept.split()
    assert missing == [key[:1] for key in left_out.split()]
    assert all(len(r.cells) == len(shown.columns) for r in shown.rows)


def test_a_text_column_counts_with_the_width_to_which_it_may_wrap():
    table = Table("t", "T", (Column("point", "point", wraps=12),), (Row(("a long description of a point",), {}),))
    assert text_width(table) == 14


def test_bare_values_keep_the_mark_of_a_doubtful_one():
    columns = (Column("a", "A", True), Column("b", "B", True))
    table = Table("t", "T", columns, (Row(("1.5 [1.2, 1.8]†", "2 [1, 3]"), {"a": 1.5}), Row(("–", "no [interval"), {})))
    bare = without_intervals(table, ["a"])
    assert [r.cells for r in bare.rows] == [("1.5†", "2 [1, 3]"), ("–", "no [interval")]
    assert bare.rows[0].record == {"a": 1.5}


def test_a_number_that_too_few_values_give_says_why():
    attempts = samples.quickstart()
    for attempt in attempts[:3]:
        for name in [key for key in attempt["measurement"]["metrics"] if key.startswith("ttft_ms_p50")]:
            del attempt["measurement"]["metrics"][name]
        attempt["measurement"]["absent"]["ttft_ms_p50"] = "a 50% quantile needs 20 values, there are 11"
    table = pareto_table(cells(attempts))
    line = "TTFT p50 ms –: not given at 3 points: a 50% quantile needs 20 values, there are 11."
    assert line in table.notes
    assert line in table.brief
    assert not any("AL (verify)" in note for note in table.notes), "a baseline verifies nothing, and nobody wonders"


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("ClusterTerminal", "cluster"),
        ("EngineRetryable", "engine"),
        ("RequestError", "requests"),
        ("ConfigError", "configuration"),
        ("NoClientsError", "client"),
        ("StoreError", "client"),
        ("SomethingNew", "measurement"),
        (None, "measurement"),
    ],
)
def test_no_class_name_reaches_a_table(kind, word):
    attempt = samples.attempt(samples.axes(), failed=True)
    attempt["point"]["error"]["kind"] = kind
    (row,) = pareto_table(cells([attempt])).rows
    assert row.cells[-1] == f"no: {word} failed"
    assert row.record["why_invalid"] == f"failed: {word}: the engine died"


def remarks(table):
    return [r.cells[-1] for r in table.rows]


def test_a_remark_that_all_rows_share_is_neither_lost_nor_put_into_the_title():
    alone = [samples.attempt(samples.axes("ngram", dl), al=2.0) for dl in (4, 8)]
    table = tables(alone)[1]
    assert table.columns[-1].key == "remark"
    assert remarks(table) == ["the baseline is not measured yet"] * 2
    assert "baseline" not in table.caption
    assert "remark" not in [c.key for c in tables(samples.quickstart())[1].columns]  # nobody has one: no empty column


def test_on_a_terminal_each_remark_stands_once_below_the_table():
    table, notes = footnoted(Table("t", "T", (Column("remark", "remark"),), tuple(Row((t,), {}) for t in ("", "a", "b", "a"))), "remark")
    assert remarks(table) == ["", "(1)", "(2)", "(1)"]
    assert notes == ["(1) a", "(2) b"]
    assert footnoted(table, "not there") == (table, [])


def test_a_terminal_gets_two_short_lines_of_notes_at_most():
    for attempts in (samples.quickstart(), samples.quickstart(simulated=True), [samples.attempt(samples.axes(), invalid="lag")]):
        for table in tables(attempts):
            assert 0 < len(table.brief) <= 2
            assert all(len(line) <= 78 for line in table.brief if "SIMULATED" not in line)
    assert all("SIMULATED" in table.brief[0] for table in tables(samples.quickstart(simulated=True)))


def test_csv_and_markdown_hold_the_same_rows():
    table = tables(samples.quickstart())[0]
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [float(r["output_tps"]) for r in rows] == [r.record["output_tps"] for r in table.rows]
    lines = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
    assert len(lines) == len(table.rows) + 2
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1


def test_markdown_escapes_what_would_break_the_table():
    attempt = samples.attempt(samples.axes(workload="a|b"), rate=1)
    other = samples.attempt(samples.axes(workload="c"), rate=1)
    assert "a\\|b" in pareto_table(cells([attempt, other])).to_markdown()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(41.234, 40.12, 42.31), "41.2 [40.1, 42.3]"),
        (Estimate(12345.6, 12000.2, 12700.9), "12346 [12000, 12701]"),
        (Estimate(2.3456, 2.2, 2.5), "2.35 [2.20, 2.50]"),
        (Estimate(0.0123), "0.012"),
        (None, "–"),
    ],
)
def test_compact_form(value, text):
    assert with_interval(value) == text


@given(st.floats(1e-3, 1e6), st.floats(0, 0.5))
def test_rounding_never_puts_the_value_outside_its_interval(value, width):
    text = with_interval(Estimate(value, value * (1 - width), value * (1 + width)))
    shown, _, bounds = text.partition(" [")
    if not bounds:  # of no width: exact by definition
        assert value * (1 - width) == value * (1 + width)
        return
    low, high = map(float, bounds.rstrip("]").split(", "))
    assert low <= float(shown) <= high
