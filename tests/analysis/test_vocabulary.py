"""Coverage of answers by vocabularies, on counts that can be checked in the head, and Table 14's claims from it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce.claims import Evidence
from specsweep.analysis.reproduce.vocabulary_table import Arm, Head, Vocabularies, covered
from specsweep.analysis.vocabulary import (
    Answer,
    Coverage,
    correlation,
    counted,
    coverage,
    coverage_table,
    kept_by_head,
    link,
    seen,
    sizes_for,
    top,
)


def test_the_most_frequent_tokens_and_of_equal_ones_the_first() -> None:
    counts = counted([3, 3, 3, 1, 1, 4, 4, 0], 6)
    assert np.flatnonzero(top(counts, 2)).tolist() == [1, 3]
    assert np.flatnonzero(top(counts, 3)).tolist() == [1, 3, 4]
    assert np.flatnonzero(seen(counts)).tolist() == [0, 1, 3, 4]


def test_counts_of_another_tokenizer_are_refused() -> None:
    with pytest.raises(ValueError, match="token ids 1 to 6 in a vocabulary of 6"):
        counted([1, 6], 6)
    with pytest.raises(ValueError, match="from 1 to 6"):
        top(np.zeros(6), 7)


def test_coverage_overall_and_by_category() -> None:
    mask = np.array([True, True, False, False])
    said = [Answer("a", "math", [0, 0, 1, 2]), Answer("b", "math", [1, 1]), Answer("c", "qa", [3, 9])]
    found = coverage("2", mask, said)
    assert found.size == 2
    assert found.overall.value == pytest.approx(5 / 8)
    assert {c: e.value for c, e in found.by_category.items()} == {"math": pytest.approx(5 / 6), "qa": 0.0}
    assert found.overall.clusters == 3
    assert coverage_table([found], "texts").rows[0].cells[:3] == ("2", "2", coverage_table([found], "texts").rows[0].cells[2])
    assert [c.key for c in coverage_table([found], "texts").columns][2:] == ["overall", "qa", "math"], "the least covered category first"


@given(st.lists(st.lists(st.integers(0, 30), min_size=1), min_size=3, max_size=8), st.integers(1, 30))
def test_more_tokens_cover_no_less(said: list[list[int]], k: int) -> None:
    counts = np.arange(31)[::-1]
    answers = [Answer(str(n), "x", ids) for n, ids in enumerate(said)]
    assert coverage("k", top(counts, k), answers).overall.value <= coverage("more", top(counts, k + 1), answers).overall.value
    assert coverage("all", top(counts, 31), answers).overall.value == 1.0


def test_the_map_of_a_head() -> None:
    offsets = [0, 1, 3]  # its tokens 0, 1, 2 are the target's 0, 2, 5
    assert np.flatnonzero(kept_by_head(6, d2t=offsets)).tolist() == [0, 2, 5]
    assert np.flatnonzero(kept_by_head(6, t2d=[1, 0, 1])).tolist() == [0, 2]
    for wrong in ([0, 1, 9], [0, -1], [0.5], []):
        with pytest.raises(ValueError, match="d2t"):
            kept_by_head(6, d2t=wrong)
    with pytest.raises(ValueError, match="neither"):
        kept_by_head(6)


def test_sizes_are_the_papers_where_they_prune() -> None:
    assert sizes_for(201_088) == {"16k": 16_000, "32k": 32_000, "64k": 64_000}
    assert list(sizes_for(4096).values()) == [326, 652, 1304]


def test_a_correlation_has_an_interval_from_four_pairs_on() -> None:
    assert correlation([1, 2], [1, 2]) is None
    assert correlation([1, 1, 1, 1], [1, 2, 3, 4]) is None
    three = correlation([1, 2, 3], [1, 2, 4])
    assert three is not None
    assert not three.has_interval
    found = correlation([1, 2, 3, 4, 5, 6], [1.1, 1.9, 3.2, 3.9, 5.1, 5.8])
    assert found is not None
    assert found.low is not None
    assert 0.9 < found.low < found.value < 1


def test_the_link_takes_categories_that_all_have() -> None:
    found = link("p", "f", {"a": 0.9, "b": 0.5, "c": 1.0}, {"a": 1.8, "b": 1.0}, {"a": 2.0, "b": 2.0, "c": 2.0})
    assert found.missing == pytest.approx({"a": 0.1, "b": 0.5})
    assert found.loss == pytest.approx({"a": 0.1, "b": 0.5})


# --- Table 14 ------------------------------------------------------------------------------------------------------------------

CATEGORIES = [f"c{n}" for n in range(8)]


def share(value: float, reach: float = 0.01) -> Estimate:
    return Estimate(value, value - reach, min(value + reach, 1.0), clusters=80)


def arm(multilingual: float, losses: Mapping[str, float] | None = None, *, target: str = "gpt-oss-120b") -> Arm:
    kept = {c: share(0.9 - 0.05 * n) for n, c in enumerate(CATEGORIES)}
    al = dict.fromkeys(CATEGORIES, 3.0)
    heads = {
        "full": Head(None, al),
        "pruned": Head(Coverage("pruned", 5, share(0.8), kept), {c: 3.0 * (1 - v) for c, v in (losses or {}).items()}),
    }
    one = Coverage("32k", 32_000, share(0.947), {"multilingual": share(multilingual)})
    return Arm(target, "low", "texts", (one,), heads if losses else {})


def verdicts(*arms: Arm, simulated: bool = False) -> dict[str, str]:
    outcome = covered(Evidence(extras={"vocabularies": Vocabularies(arms)}, simulated=simulated))
    return {c.key: c.verdict for c in outcome.claims}


def test_table_14_holds_fails_and_is_not_decidable() -> None:
    falling = {c: 0.05 + 0.02 * n + 0.004 * (n % 2) for n, c in enumerate(CATEGORIES)}
    assert set(verdicts(arm(0.78, falling)).values()) == {"holds"}
    rising = {c: 0.3 - 0.02 * n + 0.004 * (n % 2) for n, c in enumerate(CATEGORIES)}
    assert set(verdicts(arm(0.97, rising)).values()) == {"failed"}
    assert set(verdicts().values()) == {"not decidable"}
    assert verdicts(arm(0.78, dict.fromkeys(CATEGORIES, 0.1)))["loss-follows-coverage"] == "not decidable"
    assert set(verdicts(arm(0.78, falling), simulated=True).values()) == {"not decidable"}, "simulated answers are no text"


def test_shares_are_held_against_the_print_for_the_papers_target_only() -> None:
    def decided(one: Arm) -> dict[str, str]:
        found = covered(Evidence(extras={"vocabularies": Vocabularies((one,))}))
        return {n.name: n.verdict for n in found.numbers if n.ours is not None}

    assert decided(arm(0.6)) == {
        "covered, 32k, overall, low effort (%)": "holds",
        "covered, 32k, multilingual, low effort (%)": "failed",
    }
    assert decided(arm(0.769, target="tiny")) == {}
