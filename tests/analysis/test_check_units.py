from __future__ import annotations

import inspect
import re

import pytest

from specsweep.analysis import checks, clock_checks, residency
from specsweep.analysis.check_units import CHECK_UNITS, by_cause, check_line, with_unit


@pytest.mark.parametrize(
    ("name", "value", "limit", "line"),
    [
        ("client_lag_request", 0.04, 0.01, "client_lag_request = 4 % of the median request time (limit 1 %)"),
        ("in_flight", 3, 4, "in_flight = 3 requests (limit 4 requests)"),
        ("tpot_agrees", -0.0234, 0.01, "tpot_agrees = -2.34 % of the time per token (limit 1 %)"),
        ("steady_window", 0.0, 0.0, "steady_window = 0 s (limit 0 s)"),
        ("client_lag_request", None, 0.01, "client_lag_request = – (limit 1 %)"),
        ("share_cut", 0.5, None, "share_cut = 50 % of the answers"),
        ("of_another_version", 0.5, 0.1, "of_another_version = 0.5 (limit 0.1)"),
    ],
)
def test_a_check_is_printed_with_its_unit(name, value, limit, line):
    assert check_line({"name": name, "value": value, "limit": limit}) == line


def test_what_is_no_number_is_printed_as_it_is():
    assert with_unit("requests", "many") == "many"
    assert with_unit("requests", True) == "True"


def test_every_check_that_can_be_made_has_a_unit():
    source = "".join(map(inspect.getsource, (checks, clock_checks, residency)))
    plain = set(re.findall(r'(?:Check|_lag)\(\s*"(\w+)"', source))
    counters = {f"counter_{n}" for n in re.findall(r'\("(\w+)", "[\w ]+", \(', source)}
    made = plain | counters
    assert {"client_lag_step_p99", "counter_drafts", "preemptions", "queued_in_engine", "share_cut"} <= made
    assert made <= CHECK_UNITS.keys()


def test_what_explains_the_other_failures_is_named_first():
    names = ["in_flight", "client_lag_step_p99", "client_lag_request", "requests", "client_core", "other_work"]
    ordered = [c["name"] for c in by_cause({"name": n} for n in names)]
    assert ordered == ["other_work", "client_core", "client_lag_request", "client_lag_step_p99", "in_flight", "requests"]
