from __future__ import annotations

import math

import pytest
import sweep_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import cells
from specsweep.analysis.pareto import dominators, frontier, pareto

# Few distinct values, so that ties in one and in both coordinates are common.
coordinate = st.one_of(st.integers(0, 6).map(float), st.floats(-1e6, 1e6))
points = st.lists(st.tuples(coordinate, coordinate), max_size=40)


def dominates(p: tuple[float, float], q: tuple[float, float]) -> bool:
    return p[0] >= q[0] and p[1] >= q[1] and p != q


@given(points)
def test_frontier_is_exactly_what_nothing_dominates(given_points):
    kept = set(frontier(given_points))
    for i, p in enumerate(given_points):
        assert (i in kept) == (not any(dominates(q, p) for q in given_points))


@given(points)
def test_every_dominated_point_names_a_frontier_point_that_dominates_it(given_points):
    kept = set(frontier(given_points))
    for i, by in enumerate(dominators(given_points)):
        if by is None:
            assert i in kept
        else:
            assert by in kept
            assert dominates(given_points[by], given_points[i])


def test_equal_points_are_all_kept():
    assert sorted(frontier([(1.0, 2.0), (1.0, 2.0), (1.0, 1.0)])) == [0, 1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_coordinate_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="point 1"):
        frontier([(0.0, 0.0), (bad, 1.0)])


def by_axes(found, drafter, bs):
    return next(p for p in found if p.cell.axes["drafter"] == drafter and p.cell.batch_size == bs)


def test_invalid_points_neither_win_nor_hide_others():
    good = samples.attempt(samples.axes("none", None, 4), rate=20)
    fast_but_invalid = samples.attempt(samples.axes("ngram", 4, 4), rate=40, invalid="lag_p99_share")
    found = pareto(cells([good, fast_but_invalid]))
    assert by_axes(found, "none", 4).state == "frontier"
    marked = by_axes(found, "ngram", 4)
    assert (marked.state, marked.on_series_frontier) == ("invalid", False)
    assert "lag_p99_share" in marked.reason


def test_dominated_beyond_the_interval_is_told_from_dominated_within_it():
    best = samples.attempt(samples.axes("none", None, 4), rate=20.0, noise=0.001)
    close = samples.attempt(samples.axes("ngram", 4, 4), rate=19.8, noise=0.001)
    far = samples.attempt(samples.axes("ngram", 8, 4), rate=10.0)
    states = {p.cell.axes["draft_length"]: p for p in pareto(cells([best, close, far]))}
    assert [states[dl].state for dl in (None, 4, 8)] == ["frontier", "close", "dominated"]
    assert states[8].dominated_by.axes["drafter"] == "none"


def test_each_workload_has_its_own_frontier_and_each_series_its_own():
    found = pareto(cells(samples.quickstart()))
    for workload in ("low_entropy", "high_entropy"):
        members = [p for p in found if p.cell.axes["workload"] == workload]
        assert any(p.state == "frontier" for p in members)
        for series in {p.series for p in members}:
            assert any(p.on_series_frontier for p in members if p.series == series)


def test_failed_and_unmeasured_points_have_no_place_in_the_figure():
    failed = samples.attempt(samples.axes("ngram", 4, 1), failed=True)
    assert pareto(cells([failed])) == []
