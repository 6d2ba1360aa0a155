"""Each experiment on arms made so that its claims hold, on arms bent the other way, and on intervals that decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from arm_samples import evidence, point, verdicts

from specsweep.analysis.data_stats import describe
from specsweep.analysis.reproduce.benchmarks_and_heads import benchmarks, pruned_vocabulary
from specsweep.analysis.reproduce.claims import Evidence, Outcome
from specsweep.analysis.reproduce.collected import DataSet, DataSets
from specsweep.analysis.reproduce.draft_lengths import by_draft_length, by_tree_width
from specsweep.analysis.reproduce.input_lengths import by_entropy, by_training_length, public_heads
from specsweep.analysis.reproduce.proxy_table import projected_and_measured
from specsweep.analysis.reproduce.speed_curves import draft_length_by_batch_size, engines, random_against_real
from specsweep.analysis.reproduce.table1 import acceptance_and_speedup

Made = list[dict[str, Any]]


def fig7(rates: dict[int, tuple[float, float]], **more: Any) -> Made:
    where: dict[str, Any] = {"target": "gpt-oss-120b", "engine": "vllm", "workload": "speed_mixed", "isl": 2000, **more}
    return [point("eagle3", dl, bs, rate=r, **where) for bs, both in rates.items() for dl, r in zip((3, 1), both, strict=True)]


def fig6(sd: float, plain: float, **more: Any) -> Made:
    where: dict[str, Any] = {"target": "gpt-oss-120b", "isl": 8000, **more}
    made = []
    for bs in (1, 8, 64):
        for drafter, gap in (("none", plain), ("eagle3", sd)):
            rate = 100 / bs**0.5
            made.append(point(drafter, 3, bs, rate=rate, workload="speed_mixed", **where))
            made.append(point(drafter, 3, bs, rate=rate * gap, workload="random", **where))
    return made


def fig15(trt: float, vllm: float, **more: Any) -> Made:
    where: dict[str, Any] = {"target": "gpt-oss-120b", "workload": "speed_mixed", "isl": 2000, **more}
    return [point("eagle3", 2, bs, rate=r / bs**0.5, engine=e, **where) for e, r in (("trtllm", trt), ("vllm", vllm)) for bs in (2, 32)]


def fig3(eagle: tuple[float, ...], vanilla: tuple[float, ...], mtp: tuple[float, ...], **more: Any) -> Made:
    made = []
    for drafter, target, values in (
        ("eagle3", "llama-3.3-70b", eagle),
        ("draft_model", "llama-3.3-70b", vanilla),
        ("mtp", "qwen3-next-80b", mtp),
    ):
        made += [point(drafter, dl, al=al, target=target, **more) for dl, al in zip((3, 5, 7), values, strict=True)]
    return made


def table9(scale: float, **more: Any) -> Made:
    where: dict[str, Any] = {"target": "qwen3-235b", "engine": "sglang", **more}
    grown = [(k, dl, 2.5 + scale * (0.2 * k + 0.1 * dl)) for k in (2, 4, 8) for dl in (3, 5, 7)]
    return [point("eagle3", dl, al=al, **{"drafter.topk": k}, **where) for k, dl, al in grown]


def fig4(losses: dict[str, float], **more: Any) -> Made:
    full = dict.fromkeys(losses, 2.5)
    return [point("eagle3_full", al=full, **more), point("eagle3_pruned", al={d: 2.5 * (1 - loss) for d, loss in losses.items()}, **more)]


def fig14(spec: float, speed: dict[str, float], **more: Any) -> Made:
    made = []
    for drafter, sign in (("draft_model", 1.0), ("eagle3", 0.0)):
        spec_al = (
            {"coding": 3.0, "reasoning": 2.6, "translation": 2.6}
            if sign
            else {"coding": 3.0 - spec, "reasoning": 2.6 - spec, "translation": 2.4}
        )
        made.append(point(drafter, 7, al=spec_al, workload="spec_bench", **more))
        made.append(point(drafter, 7, al={d: 3.0 if sign else 3.0 - gap for d, gap in speed.items()}, **more))
    return made


def fig8(beyond: float, yarn: float, **more: Any) -> Made:
    made = []
    for length in (1, 2):
        for isl in (1000, 2000, 4000, 8000):
            inside = isl <= 1000 * length
            for name, far in ((f"train{length}k", beyond), (f"train{length}k_yarn", yarn)):
                made.append(point(f"eagle3_{name}", al=2.4 if inside else far, isl=isl, workload="speed_mixed", **more))
    return made


def fig13(vanilla: tuple[float, float, float], eagle: dict[int, tuple[float, float, float]], **more: Any) -> Made:
    made = []
    for isl, values in eagle.items():
        for tier, v, e in zip(("low_entropy", "mixed", "high_entropy"), vanilla, values, strict=True):
            made.append(point("draft_model", al=v, isl=isl, workload=f"speed_{tier}", **more))
            made.append(point("eagle3", al=e, isl=isl, workload=f"speed_{tier}", target="gpt-oss-120b", **more))
    return made


def fig16(lmsys: tuple[float, ...], nvidia: tuple[float, ...], own: tuple[float, ...], **more: Any) -> Made:
    made = []
    for isl, *values in zip((1000, 8000, 32000), lmsys, nvidia, own, strict=True):
        for name, al in zip(("eagle3_lmsys", "eagle3", "eagle3_reference"), values, strict=True):
            made.append(point(name, al=al, isl=isl, target="gpt-oss-120b", workload="speed_mixed", **more))
    return made


EASY = {"coding": 3.0, "math": 2.8, "roleplay": 2.0, "writing": 2.2, "multilingual": 2.6}
HARD = {"coding": 2.0, "math": 2.0, "roleplay": 3.0, "writing": 3.1, "multilingual": 2.6}


def table1(
    levels: dict[str, float], *, multilingual: float, head: float, model: float, ngram: float, hot: tuple[float, float], **more: Any
) -> Made:
    """``head``, ``model``, ``ngram``: speedups. ``hot``: AL and speedup of everything but the model at temperature 1, as factors."""
    made = []
    for t in (0.0, 1.0):
        made.append(point("none", rate=100, al=dict.fromkeys(levels, 1.0), temperature=t, **more))
        for drafter, gain in (("eagle3", head), ("draft_model", model), ("ngram", ngram)):
            factor = hot if drafter != "draft_model" else (hot[0] ** 3, hot[1] ** 3)
            al = dict(levels)
            if drafter == "eagle3":
                al |= {"multilingual": multilingual, "coding": levels["coding"] + 2.6 - multilingual}
            if drafter == "ngram":
                al = {d: 1 + 0.3 * (v - 1) for d, v in levels.items()} | {"multilingual": 1.3 + 0.5 * (2.6 - multilingual)}
            speed = gain * (factor[1] if t else 1)
            made.append(point(drafter, rate=100 * speed, al={d: v * (factor[0] if t else 1) for d, v in al.items()}, temperature=t, **more))
    return made


CROSSES = {2: (120.0, 100.0), 32: (52.0, 48.0), 64: (30.0, 30.2), 256: (8.0, 10.0)}
BENT_7 = {2: (100.0, 120.0), 32: (48.0, 52.0), 64: (30.2, 30.0), 256: (10.0, 8.0)}
LOSSES = {"math": 0.02, "coding": 0.03, "writing": 0.0, "multilingual": 0.11, "rag": 0.1, "summarization": 0.1}
BENT_LOSSES = {"math": 0.12, "coding": 0.13, "writing": 0.1, "multilingual": 0.01, "rag": 0.0, "summarization": 0.0}
GAPS = {"coding": 0.2, "reasoning": 0.25, "math": 0.2, "multilingual": 0.9}
BENT_GAPS = {"coding": -0.2, "reasoning": -0.25, "math": -0.2, "multilingual": -0.9}
FALLS = {1000: (3.0, 2.6, 2.2), 8000: (2.1, 2.3, 2.0), 32000: (1.5, 1.9, 1.4)}
STAYS = {1000: (2.2, 2.6, 3.0), 8000: (2.5, 2.3, 2.0), 32000: (2.9, 1.9, 1.4)}

CASES: dict[str, tuple[Callable[[Evidence], Outcome], Callable[..., Made], Callable[..., Made]]] = {
    "fig7": (draft_length_by_batch_size, lambda **m: fig7(CROSSES, **m), lambda **m: fig7(BENT_7, **m)),
    "fig6": (random_against_real, lambda **m: fig6(1.23, 1.06, **m), lambda **m: fig6(0.8, 0.9, **m)),
    "fig15": (engines, lambda **m: fig15(120, 100, **m), lambda **m: fig15(100, 120, **m)),
    "fig3": (
        by_draft_length,
        lambda **m: fig3((2.2, 2.4, 2.45), (2.4, 2.9, 3.2), (2.8, 3.3, 3.6), **m),
        lambda **m: fig3((2.5, 2.4, 2.3), (2.4, 2.3, 2.0), (1.9, 1.8, 1.5), **m),
    ),
    "table9": (by_tree_width, lambda **m: table9(1.0, **m), lambda **m: table9(-0.8, **m)),
    "fig4": (pruned_vocabulary, lambda **m: fig4(LOSSES, **m), lambda **m: fig4(BENT_LOSSES, **m)),
    "fig8": (by_training_length, lambda **m: fig8(1.3, 2.2, **m), lambda **m: fig8(2.8, 1.1, **m)),
    "fig13": (by_entropy, lambda **m: fig13((3.0, 2.7, 2.4), FALLS, **m), lambda **m: fig13((2.4, 2.7, 3.0), STAYS, **m)),
    "fig16": (
        public_heads,
        lambda **m: fig16((2.4, 2.3, 1.4), (2.4, 1.8, 1.3), (2.4, 2.4, 2.3), **m),
        lambda **m: fig16((2.4, 1.5, 2.3), (2.0, 2.4, 2.4), (2.4, 1.6, 1.2), **m),
    ),
}  # fmt: skip
ALWAYS = {"not-below-one", "flat-in-isl", "falling-returns"}  # not bent by these arms
BY_SIGN = {"crossing-near-64", "gap-smaller-without", "yarn-restores", "specbench-equal"}  # asked only where others hold


@pytest.mark.parametrize("name", CASES)
def test_claims_hold_on_arms_made_so(name: str) -> None:
    examine, good, _ = CASES[name]
    assert set(verdicts(examine(evidence(good()))).values()) == {"holds"}


@pytest.mark.parametrize("name", CASES)
def test_claims_fail_on_bent_arms(name: str) -> None:
    examine, _, bent = CASES[name]
    found = verdicts(examine(evidence(bent())))
    assert {k: v for k, v in found.items() if k not in ALWAYS | BY_SIGN and v != "failed"} == {}


@pytest.mark.parametrize("name", CASES)
def test_wide_intervals_decide_nothing(name: str) -> None:
    examine, good, _ = CASES[name]
    found = verdicts(examine(evidence(good(wide=True))))
    assert {k: v for k, v in found.items() if k not in ALWAYS and v != "not decidable"} == {}


@pytest.mark.parametrize("examine", [c[0] for c in CASES.values()] + [acceptance_and_speedup, projected_and_measured])
def test_nothing_measured_decides_nothing_and_says_what_is_missing(examine: Callable[[Evidence], Outcome]) -> None:
    outcome = examine(Evidence())
    assert {c.verdict for c in outcome.claims} == {"not decidable"}
    assert all(c.evidence for c in outcome.claims)


@pytest.mark.parametrize("figure", ["fig5", "fig14"])
def test_benchmarks(figure: str) -> None:
    assert set(verdicts(benchmarks(evidence(fig14(0.0, GAPS)), figure=figure)).values()) == {"holds"}
    bent = verdicts(benchmarks(evidence(fig14(0.8, BENT_GAPS)), figure=figure))
    assert bent["specbench-equal"] == bent["speedbench-vanilla-ahead"] == bent["most-in-multilingual"] == "failed"


def test_table1() -> None:
    good = verdicts(acceptance_and_speedup(evidence(table1(EASY, multilingual=1.9, head=1.9, model=1.6, ngram=0.88, hot=(0.93, 0.9)))))
    assert {k: v for k, v in good.items() if v != "holds"} == {}
    bent = verdicts(acceptance_and_speedup(evidence(table1(HARD, multilingual=3.2, head=1.2, model=1.6, ngram=1.3, hot=(1.08, 1.1)))))
    assert {k: v for k, v in bent.items() if v != "failed"} == {}


def test_points_that_the_client_could_not_certify_stay_out() -> None:
    made = fig7(CROSSES, invalid="lag_p99_share")
    outcome = draft_length_by_batch_size(evidence(made))
    assert verdicts(outcome)["curves-cross"] == "not decidable"
    assert "not valid" in outcome.notes[0]


def test_the_printed_projections_follow_from_the_printed_inputs() -> None:
    numbers = [n for n in projected_and_measured(Evidence()).numbers if n.name.startswith("printed inputs")]
    assert len(numbers) == 12
    assert {n.verdict for n in numbers} == {"holds"}
    exact = [n for n in numbers if n.ours is not None and abs(round(n.ours.value, 2) - n.paper) < 1e-9]
    assert len(exact) == 11


def test_numbers_are_held_against_the_print_only_where_the_settings_are_the_papers() -> None:
    al = {"coding": 2.72, "roleplay": 2.0}
    ours = [n for n in acceptance_and_speedup(evidence([point("draft_model", al=al)])).numbers if n.ours is not None]
    assert [n.verdict for n in ours if "coding" in n.name] == ["holds"]
    for other in ({"bs": 16}, {"dl": 5}, {"engine": "vllm"}, {"target": "smollm2-135m"}):
        made = evidence([point("draft_model", **{"al": al, **other})])  # type: ignore[arg-type]
        assert not [n for n in acceptance_and_speedup(made).numbers if n.ours is not None]


@dataclass(frozen=True)
class Prompt:
    category: str
    turns: tuple[str, ...] = ("one",)
    sub_category: str = ""
    source: str = ""
    src_id: str = ""
    difficulty: str = ""


def test_likeness_and_al_of_both_benchmarks_stand_in_one_row() -> None:
    rows = [Prompt("translation"), Prompt("translation")]
    spec = DataSet("specbench", True, describe("SpecBench", rows, [1, 1], similarity={"translation": 0.4}, embedder="e"))
    own = DataSet("benchmark", False, describe("offline split", [Prompt("multilingual")] * 2, [1, 1], similarity={"multilingual": 0.1}))
    made = evidence(fig14(0.0, GAPS), extras={"data_sets": DataSets((spec, own))})
    table = next(t for t in benchmarks(made, figure="fig14").tables if t.name == "fig14_benchmarks")
    row = next(r for r in table.rows if r.cells[0] == "multilingual")
    assert (row.record["similarity_specbench"], row.record["similarity_benchmark"]) == (0.4, 0.1)
    assert [c.header for c in table.columns if "similarity" in c.header] == ["similarity, SpecBench", "similarity, offline split"]
    measured = [v for k, v in row.record.items() if k.startswith("al_") and k.endswith("_benchmark")]
    assert measured
    assert all(v > 1 for v in measured)
