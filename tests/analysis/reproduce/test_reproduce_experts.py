"""Figures 11 and 12 from captures with known routing."""

from __future__ import annotations

import numpy as np
import pytest

from specsweep.analysis.reproduce.claims import Evidence
from specsweep.analysis.reproduce.expert_figures import Capture, Captures, busiest_share, by_layer, layer_shown, one_layer, shares
from specsweep.analysis.routing import Routing, evenness, from_npz, summarise, to_npz, variation

EXPERTS, LAYERS, TOP_K = 20, 6, 2


def capture(*, random: bool, within: int = EXPERTS, passes: int = 8, tokens: int = 400, skew: float = 0.0, seed: int = 0) -> Capture:
    """Tokens choose from the first ``within`` experts; with ``skew`` the lower ones more often."""
    rng = np.random.default_rng(seed)
    weights = np.exp(-skew * np.arange(within))
    counts = np.zeros((passes, LAYERS, EXPERTS), np.int32)
    for p in range(passes):
        for layer in range(1, LAYERS):  # the first layer is dense
            keys = rng.gumbel(size=(tokens, within)) + np.log(weights)
            chosen = np.argsort(-keys, axis=1)[:, :TOP_K]
            counts[p, layer, :within] = np.bincount(chosen.ravel(), minlength=within)
    return Capture("noise" if random else "texts", random, Routing(counts, np.arange(passes, dtype=np.int64), None, TOP_K))


def verdicts(*captures: Capture) -> dict[str, str]:
    evidence = Evidence(extras={"captures": Captures(captures)})
    return {c.key: c.verdict for of in (one_layer, by_layer) for c in of(evidence).claims}


def test_real_prompts_use_experts_evenly_and_noise_does_not() -> None:
    assert set(verdicts(capture(random=False), capture(random=True, within=15, skew=0.3)).values()) == {"holds"}


def test_the_other_way_round_everything_fails() -> None:
    assert set(verdicts(capture(random=False, within=15, skew=0.3), capture(random=True)).values()) == {"failed"}


def test_what_does_not_decide() -> None:
    assert set(verdicts().values()) == {"not decidable"}
    assert verdicts(capture(random=False))["random-unused"] == "not decidable"
    alike = verdicts(capture(random=False), capture(random=True, seed=1))
    assert alike["real-more-even"] == alike["favoured-experts"] == alike["random-fewer-experts"] == "not decidable"
    few = verdicts(capture(random=False, passes=2), capture(random=True, within=15, skew=0.3, passes=2))
    assert few["real-more-even"] == few["favoured-experts"] == "not decidable", "two passes have no spread"
    assert verdicts(capture(random=False), capture(random=True, passes=3, tokens=2))["random-unused"] == "not decidable", "too few tokens"


def test_evenness_variation_and_the_busiest() -> None:
    loads = np.array([[4, 4, 4, 4], [16, 0, 0, 0]])
    assert evenness(loads).tolist() == pytest.approx([1.0, 0.0])
    assert variation(loads).tolist() == pytest.approx([0.0, np.sqrt(3)])
    assert np.isnan(evenness(np.zeros((1, 4)))).all()
    assert busiest_share(np.array([1] * 19 + [21])) == pytest.approx(22 / 40), "the tenth of 20 experts is two of them"


def test_the_layer_shown_stands_where_the_papers_does_and_has_experts() -> None:
    assert layer_shown(capture(random=True).routing) == 3
    paper = Routing(np.ones((1, 36, 4), np.int32), np.zeros(1, np.int64))
    assert layer_shown(paper) == 17


def test_a_series_for_each_selected_expert_where_it_is_told() -> None:
    counts = np.array([[[3, 1, 0], [2, 2, 0]]], np.int32)
    by_slot = np.array([[[2, 0, 0], [1, 1, 0]], [[1, 1, 0], [1, 1, 0]]])
    told = Capture("x", False, Routing(counts, np.zeros(1, np.int64), None, 2, by_slot))
    assert {k: v.tolist() for k, v in shares(told, 0).items()} == {"selected expert 1": [1, 0, 0], "selected expert 2": [0.5, 0.5, 0]}
    whole = Capture("x", False, Routing(counts, np.zeros(1, np.int64)))
    assert {k: v.tolist() for k, v in shares(whole, 0).items()} == {"any of the selected": [0.75, 0.25, 0.0]}
    after = from_npz(to_npz(told.routing))
    np.testing.assert_array_equal(after.by_slot, by_slot)
    assert summarise(after)["by_layer"][0]["whole_evenness"] == pytest.approx(float(evenness(counts[0, 0])))


def test_figures_are_drawn_of_one_and_of_two_captures() -> None:
    for captures in ((capture(random=False, passes=3),), (capture(random=False, passes=3), capture(random=True, passes=3))):
        evidence = Evidence(extras={"captures": Captures(captures)})
        drawn = {**one_layer(evidence).figures, **by_layer(evidence).figures}
        assert sorted(drawn) == ["fig11_experts", "fig12_layers"]
        panels = drawn["fig11_experts"]().axes
        assert [ax.get_title(loc="left") for ax in panels] == [f"{c.name}, layer 3" for c in captures]
