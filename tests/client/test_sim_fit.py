"""The committed presets are what the fit makes, and their stated errors are true."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from specsweep.client.sim import fit
from specsweep.client.sim.model import PRESET_FOLDER, load_model

DATA: dict[str, Any] = yaml.safe_load(fit.DATA.read_text("utf-8"))


@pytest.fixture(scope="module")
def refitted() -> dict[str, Any]:
    return fit.fit_presets(DATA)


@pytest.mark.parametrize("name", DATA["targets"])
def test_a_committed_preset_is_what_the_fit_makes(name: str, refitted: dict[str, Any]) -> None:
    committed = yaml.safe_load((PRESET_FOLDER / f"{name}.yaml").read_text("utf-8"))
    made = yaml.safe_load(fit.to_text(refitted[name]))
    free = made["fit"]["free"]
    for parameter in free:  # the last digit may depend on the machine's linear algebra
        assert fit.parameter(made, parameter) == pytest.approx(fit.parameter(committed, parameter), rel=0.01)
    for found in (made, committed):
        fit.set_parameters(found, dict.fromkeys(free, 0.0))
        del found["fit"]
    assert made == committed


@pytest.mark.parametrize(("drafter", "kind"), [("none", None), ("draft_model", "draft_model"), ("eagle3", "eagle3")])
def test_step_times_of_table_10(drafter: str, kind: str | None) -> None:
    spec = DATA["targets"]["llama-3.3-70b"]
    printed = spec["drafters"][kind]["step_ms"] if kind else spec["step_ms"]
    model = load_model("llama-3.3-70b", drafter)
    for isl, milliseconds in printed.items():
        assert 1e3 * model.decode_step_s(16, isl, 3 if kind else 0) == pytest.approx(milliseconds, rel=0.02)


@pytest.mark.parametrize(("target", "drafter"), [(t, d) for t, spec in DATA["targets"].items() for d in spec["drafters"]])
def test_acceptance_lengths_of_table_1(target: str, drafter: str) -> None:
    arm, model = DATA["targets"][target]["drafters"][drafter], load_model(target, drafter)
    for category, printed in arm["al"].items():
        assert model.acceptance_length(category, 200, 3) == pytest.approx(printed, abs=0.001)
    for temperature, mean in arm["mean_al"].items():
        found = [model.acceptance_length(c, 200, 3, temperature) for c in arm["al"]]
        assert sum(found) / len(found) == pytest.approx(mean, abs=0.006)
    for tier, by_isl in arm.get("tiers", {}).items():
        for isl, printed in by_isl.items():
            assert model.acceptance_length(tier, isl, 3) == pytest.approx(printed, abs=0.001)


@pytest.mark.parametrize("target", DATA["targets"])
def test_speedups_are_off_by_no_more_than_the_preset_says(target: str) -> None:
    """Recomputed here from the model alone: AL × step time without / step time with, at BS 32."""
    base, stated = load_model(target), load_model(target).fit["rms_error"]["speedup"]
    errors = []
    for drafter, arm in DATA["targets"][target]["drafters"].items():
        model = load_model(target, drafter)
        al = sum(model.acceptance_length(c, 200, 3) for c in arm["al"]) / len(arm["al"])
        errors.append(al * base.decode_step_s(32, 550) / model.decode_step_s(32, 550, 3, "default") / arm["speedup"][0] - 1)
    assert (sum(e * e for e in errors) / len(errors)) ** 0.5 == pytest.approx(stated, abs=0.001)


def test_a_fit_that_cannot_match_says_so() -> None:
    """Two printed speedups of one and the same arm cannot both hold."""
    data = {**DATA, "targets": {"deepseek-r1": {**DATA["targets"]["deepseek-r1"]}}}
    spec = yaml.safe_load(yaml.safe_dump(data["targets"]["deepseek-r1"]))
    spec["drafters"]["mtp"]["speedup"][0] = 3.5  # above its AL: no cost of drafting is negative
    data["targets"]["deepseek-r1"] = spec
    assert fit.fit_presets(data)["deepseek-r1"]["fit"]["rms_error"]["speedup"] > 0.3


def test_a_fit_without_freedom_says_that_its_error_means_nothing() -> None:
    for name in DATA["targets"]:
        stated = load_model(name).fit
        assert ("by construction" in stated["note"]) == (len(stated["free"]) >= stated["observations"])


@pytest.mark.parametrize("al", [1.0, 1.17, 2.25, 3.34, 4.0])
def test_a_rate_gives_back_its_acceptance_length(al: float) -> None:
    rate = fit.rate_for(al, 3)
    assert 1 + rate + rate**2 + rate**3 == pytest.approx(al, abs=1e-4)
