"""Makes the presets: solves acceptance rates from printed acceptance lengths, and fits costs to printed step times and speedups.

Run as ``python -m specsweep.client.sim.fit`` after a change of ``fit_data.yaml``; it writes ``presets/*.yaml``. Acceptance is solved exactly
(one number printed, one rate), costs by robust least squares of relative errors over the few parameters that the data names as free. What could
not be matched stays in the preset as its error, observation by observation, and what was never fitted (measured speedups of
Table 10) is compared all the same: there a preset can be wrong, and is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import brentq, least_squares  # type: ignore[import-untyped]

from specsweep.client.sim.acceptance import DEFAULT, acceptance_length
from specsweep.client.sim.model import PRESET_FOLDER, SimModel, load_model

DATA = Path(__file__).with_name("fit_data.yaml")
TABLE_10 = {"batch_size": 16, "draft_length": 3}
TIERS_LIKE = {"low_entropy": "coding", "high_entropy": "writing"}  # where no AL by tier is printed
AT_TEMPERATURE_1 = "speedup_t1"
OUTLIER = 0.02  # relative error from which an observation loses its pull: printed numbers that contradict each other are not averaged
HEADER = "# Written by `python -m specsweep.client.sim.fit` from fit_data.yaml. What follows from it holds by construction.\n"

Preset = dict[str, Any]
Observation = tuple[str, str, float, float]  # kind, what, wanted (mostly: printed), by the preset


def fit_presets(data: Mapping[str, Any]) -> dict[str, Preset]:
    """Every preset by name, in the form of the model files."""
    return {name: _fit(name, spec, data) for name, spec in data["targets"].items()}


def _fit(name: str, spec: Mapping[str, Any], data: Mapping[str, Any]) -> Preset:
    preset: Preset = {"name": name, "about": spec["about"], "hardware": dict(spec["hardware"]), "target": dict(spec["target"])}
    preset["drafters"] = {
        d: acceptance_fields(arm, data, data["long_draft"].get(d, 1.0)) | arm["cost"] for d, arm in spec["drafters"].items()
    }
    for drafter, arm in spec["drafters"].items():
        _specbench(preset["drafters"], drafter, arm, data["long_draft"].get(drafter, 1.0))
    free = dict(spec.get("free", {}))
    for drafter, arm in spec["drafters"].items():
        free |= {f"drafters.{drafter}.{field}": bounds for field, bounds in arm.get("free", {}).items()}
    if "engine_factor" in spec:
        preset["engine_factor"] = dict(spec["engine_factor"])
    _search(preset, free, spec, data, lambda kind: kind != AT_TEMPERATURE_1)
    sampling = {
        f"drafters.{drafter}.sampling_overhead_ms": [0.0, 100.0] for drafter, arm in spec["drafters"].items() if 1 in arm["speedup"]
    }
    if sampling:  # on its own: these figures say nothing about a greedy step
        set_parameters(preset, dict.fromkeys(sampling, 1.0))
        _search(preset, sampling, spec, data, lambda kind: kind == AT_TEMPERATURE_1)
        free |= sampling
    for drafter, arm in spec["drafters"].items():
        if "random" in arm:
            preset["drafters"][drafter]["rates"]["random"] = [random_rate(preset, drafter, arm["random"])]
    preset["drafters"] |= {name: _head(preset["drafters"]["eagle3"], head, data) for name, head in spec.get("heads", {}).items()}
    preset["fit"] = _report(preset, sorted(free), spec, data)
    return preset


# --- acceptance ----------------------------------------------------------------------------------------------------------------


def rate_for(al: float, draft_length: int) -> float:
    """The rate that, the same at every position, gives this acceptance length: 1 + r + r² + … = AL."""
    found = brentq(lambda rate: acceptance_length((rate,), draft_length) - al, 0.0, 1.0)
    return round(float(found), 5)


def positions(rate: float, beyond: float) -> list[float]:
    """Rates by position: the same for as many as are printed, then times ``beyond``."""
    return [rate] if beyond == 1.0 else [rate, rate, rate, round(rate * beyond, 5)]


def acceptance_fields(arm: Mapping[str, Any], data: Mapping[str, Any], beyond: float = 1.0) -> dict[str, Any]:
    """The model file's fields of acceptance from what is printed of a drafter."""
    draft_length = data["qualitative"]["draft_length"]
    lengths = {DEFAULT: sum(arm["al"].values()) / len(arm["al"]), **arm["al"]}
    fields: dict[str, Any]
    if arm["cost"].get("passes_per_step") == 0:  # it drafts where it finds something, and that is what differs by domain
        rate = data["ngram_rate"]
        per_draft = acceptance_length((rate,), draft_length) - 1
        fields = {"rates": {DEFAULT: [rate]}, "draft_share": {c: round((al - 1) / per_draft, 5) for c, al in lengths.items()}}
        share = fields["draft_share"] = {**fields["draft_share"], **{tier: fields["draft_share"][c] for tier, c in TIERS_LIKE.items()}}
        share["mixed"] = round((share["low_entropy"] + share["high_entropy"]) / 2, 5)
    else:
        fields = {"rates": {c: positions(rate_for(al, draft_length), beyond) for c, al in lengths.items()}}
        fields["rates"] |= _tiers(arm, fields["rates"], draft_length, beyond)
    if "isl_factor" in arm:
        fields["isl_factor"] = dict(arm["isl_factor"])
    if "trees" in arm:
        fields["trees"] = {k: tree_factors(fields["rates"], arm["al"], printed) for k, printed in arm["trees"].items()}
    if 1 in arm["mean_al"]:
        fields["temperature_factor"] = {0: 1.0, 1: _temperature_factor(arm, fields, draft_length)}
    return fields


def _tiers(arm: Mapping[str, Any], rates: Mapping[str, list[float]], draft_length: int, beyond: float) -> dict[str, Any]:
    if "tiers" not in arm:
        found: dict[str, Any] = {tier: list(rates[category]) for tier, category in TIERS_LIKE.items()}
        found["mixed"] = positions(round((found["low_entropy"][0] + found["high_entropy"][0]) / 2, 5), beyond)
        for tier, factors in arm.get("tier_isl", {}).items():
            found[tier] = {isl: [round(rate * factor, 5) for rate in found[tier]] for isl, factor in factors.items()}
        return found
    tiers = {tier: {isl: positions(rate_for(al, draft_length), beyond) for isl, al in v.items()} for tier, v in arm["tiers"].items()}
    low, high = tiers["low_entropy"], tiers["high_entropy"]
    return {**tiers, "mixed": {isl: positions(round((low[isl][0] + high[isl][0]) / 2, 5), beyond) for isl in low}}


def tree_factors(rates: Mapping[str, list[float]], domains: Iterable[str], printed: Mapping[int, float]) -> list[float]:
    """What a tree multiplies the chain's rates by, position by position: one factor for the positions between two printed draft lengths,
    solved so that the mean AL over the domains is the printed one."""
    factors: list[float] = []
    names = list(domains)
    for draft_length, al in sorted(printed.items()):
        new = draft_length - len(factors)

        def too_long(factor: float, known: tuple[float, ...], new: int, length: int, al: float) -> float:
            return sum(_tree_al(rates[c], [*known, *[factor] * new], length) for c in names) / len(names) - al

        factors += [round(float(brentq(too_long, 0.1, 10.0, args=(tuple(factors), new, draft_length, al))), 5)] * new
    return factors


def _tree_al(chain: list[float], factors: list[float], draft_length: int) -> float:
    padded = chain + chain[-1:] * (len(factors) - len(chain))
    return acceptance_length(tuple(min(a * b, 1.0) for a, b in zip(padded, factors, strict=False)), draft_length)


def _specbench(drafters: Preset, drafter: str, arm: Mapping[str, Any], beyond: float) -> None:
    """On SpecBench another AL than on SPEED-Bench, given by another drafter's."""
    length = arm.get("specbench_draft_length", 0)
    for category, (other, of, times) in arm.get("specbench", {}).items():
        wanted = times * acceptance_length(tuple(drafters[other]["rates"][of]), length)
        rate = brentq(lambda r, wanted=wanted: acceptance_length(tuple(positions(r, beyond)), length) - wanted, 0.0, 1.0)
        drafters[drafter]["rates"][f"specbench/{category}"] = positions(round(float(rate), 5), beyond)


def random_rate(preset: Preset, drafter: str, at: Mapping[str, Any]) -> float:
    """The rate on random tokens that gives the printed mean gain in output TPS over real prompts, their own routing included."""
    content = {key: value for key, value in preset.items() if key != "fit"}
    model, isl, length = load_model(content, drafter), at["isl"], at["draft_length"]
    real = model.acceptance_length(at["like"], isl, length)
    steps = [[model.decode_step_s(b, isl, length, c) for c in (at["like"], "random")] for b in at["batch_sizes"]]
    faster = sum(with_texts / with_random for with_texts, with_random in steps) / len(steps)
    scale = model.rates(at["like"], isl)[0] / model.rates(at["like"], 1)[0]  # what the prompt's length does to any rate
    return round(rate_for(real * at["gain"] / faster, length) / scale, 3)


def _head(base: Mapping[str, Any], head: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Another head of the cost of ``base``: how it falls off over the prompt's length, or what it loses by domain."""
    found: dict[str, Any] = {"like": "eagle3", "isl_factor": dict(head["isl_factor"])}
    rates, beyond, length = base["rates"], data["long_draft"]["eagle3"], data["qualitative"]["draft_length"]
    low = rates["low_entropy"]
    found["rates"] = {"low_entropy": list(low[min(low)] if isinstance(low, Mapping) else low)}
    for domain, loss in head.get("al_loss", {}).items():
        found["rates"][domain] = positions(rate_for((1 - loss) * acceptance_length(tuple(rates[domain]), length), length), beyond)
    return found


def _temperature_factor(arm: Mapping[str, Any], fields: Mapping[str, Any], draft_length: int) -> float:
    """The factor on all rates that gives the mean AL printed at temperature 1."""
    shares = fields.get("draft_share", {})

    def mean_al(factor: float) -> float:
        total = 0.0
        for category in arm["al"]:
            rate = fields["rates"].get(category, fields["rates"][DEFAULT])[0]
            total += acceptance_length((rate * factor,), draft_length, shares.get(category, 1.0))
        return total / len(arm["al"])

    return round(float(brentq(lambda factor: mean_al(factor) - arm["mean_al"][1], 0.1, 1.05)), 5)


# --- costs ---------------------------------------------------------------------------------------------------------------------


def _search(
    preset: Preset, free: Mapping[str, list[float]], spec: Mapping[str, Any], data: Mapping[str, Any], wanted: Callable[[str], bool]
) -> None:
    """Sets the free parameters of ``preset`` to the robust least squares of log(preset / printed) over the observations of the ``wanted``
    kinds, rounded to four digits."""
    names = sorted(free)
    low, high = np.array([free[name] for name in names]).T

    def residuals(values: np.ndarray) -> list[float]:
        set_parameters(preset, dict(zip(names, values, strict=True)))
        return [math.log(mine / printed) for kind, _, printed, mine in _fitted(preset, spec, data) if wanted(kind)]

    start = np.clip([parameter(preset, name) for name in names], low + 1e-6, high - 1e-6)
    scale = np.maximum(start, 0.1)
    found = least_squares(residuals, start, bounds=(low, high), x_scale=scale, loss="cauchy", f_scale=OUTLIER)
    set_parameters(preset, {name: round(float(f"{value:.4g}"), 6) for name, value in zip(names, found.x, strict=True)})


def parameter(preset: Mapping[str, Any], name: str) -> float:
    """The value under a dotted name, e.g. ``target.overhead_ms``."""
    node: Any = preset
    for key in name.split("."):
        node = node[key]
    return float(node)


def set_parameters(preset: dict[str, Any], values: Mapping[str, float]) -> None:
    for name, value in values.items():
        *path, last = name.split(".")
        node: Any = preset
        for key in path:
            node = node[key]
        node[last] = float(value)


def _arms(preset: Preset, spec: Mapping[str, Any]) -> tuple[SimModel, dict[str, SimModel]]:
    content = {key: value for key, value in preset.items() if key != "fit"}
    return load_model(content), {drafter: load_model(content, drafter) for drafter in spec["drafters"]}


def _fitted(preset: Preset, spec: Mapping[str, Any], data: Mapping[str, Any]) -> list[Observation]:
    base, arms = _arms(preset, spec)
    found = list(_step_times("none", base, spec.get("step_ms", {}), 0))
    for drafter, model in arms.items():
        arm = spec["drafters"][drafter]
        found += _step_times(drafter, model, arm.get("step_ms", {}), TABLE_10["draft_length"])
        found.append(("speedup", f"{drafter}, temperature 0", arm["speedup"][0], _speedup(base, model, arm, data, 0)))
        if 1 in arm["speedup"]:
            found.append((AT_TEMPERATURE_1, f"{drafter}, temperature 1", arm["speedup"][1], _speedup(base, model, arm, data, 1)))
        if "best_draft_length" in arm:
            found += _best_draft_length(drafter, model, arm["best_draft_length"])
    return found


def _not_fitted(preset: Preset, spec: Mapping[str, Any], data: Mapping[str, Any]) -> list[Observation]:
    base, arms = _arms(preset, spec)
    found = []
    for drafter, model in arms.items():
        arm = spec["drafters"][drafter]
        for tier, printed in arm.get("proxy", {}).items():
            for isl, value in printed.items():
                al = model.acceptance_length(tier, isl, TABLE_10["draft_length"])
                steps = [m.decode_step_s(TABLE_10["batch_size"], isl, dl) for m, dl in ((base, 0), (model, TABLE_10["draft_length"]))]
                found.append(("table_10_speedup", f"{drafter}, {tier}, ISL {isl}", value, al * steps[0] / steps[1]))
    return found


def _step_times(drafter: str, model: SimModel, printed: Mapping[int, float], draft_length: int) -> Iterable[Observation]:
    for isl, value in printed.items():
        yield "step_ms", f"{drafter}, ISL {isl}", value, 1e3 * model.decode_step_s(TABLE_10["batch_size"], isl, draft_length)


def _speedup(base: SimModel, model: SimModel, arm: Mapping[str, Any], data: Mapping[str, Any], temperature: float) -> float:
    """AL × step time without / step time with the drafter."""
    at = data["qualitative"]
    al = _mean_al(model, arm, data, temperature)
    batch, context = at["batch_size"], at["context"]
    return al * base.decode_step_s(batch, context) / model.decode_step_s(batch, context, at["draft_length"], DEFAULT, temperature)


def _mean_al(model: SimModel, arm: Mapping[str, Any], data: Mapping[str, Any], temperature: float) -> float:
    at = data["qualitative"]
    return sum(model.acceptance_length(c, 1, at["draft_length"], temperature) for c in arm["al"]) / len(arm["al"])


def _best_draft_length(drafter: str, model: SimModel, at: Mapping[str, Any]) -> Iterable[Observation]:
    """User TPS of the longer over that of the shorter draft: equal where the curves cross, clearly above 1 at the smallest batch."""
    longer, shorter = at["longer"], at["shorter"]
    for kind, batch in (("crossing", at["equal_at"]), ("order", at["longer_wins_at"])):
        pace = [
            model.acceptance_length(at["category"], at["isl"], dl) / model.decode_step_s(batch, at["isl"], dl, at["category"])
            for dl in (longer, shorter)
        ]
        ratio, wanted = pace[0] / pace[1], 1.0 if kind == "crossing" else at["margin"]
        what = f"{drafter}, DL {longer} over DL {shorter} at BS {batch}" + (", at least" if kind == "order" else "")
        yield kind, what, wanted, ratio if kind == "crossing" else min(ratio, wanted)


# --- what is said of the fit ---------------------------------------------------------------------------------------------------


def _report(preset: Preset, free: list[str], spec: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    fitted, checked = _fitted(preset, spec, data), _not_fitted(preset, spec, data)
    checked = [*_al_means(preset, spec, data), *checked]
    assumed = [*data["assumed"], *spec["assumed"]]
    if not all("tiers" in arm for drafter, arm in spec["drafters"].items() if drafter != "ngram"):
        assumed.append(data["assumed_tiers"])
    if "step_ms" not in spec:
        assumed.append(data["assumed_scale"])
    return {
        "source": data["source"],
        "free": free,
        "observations": len(fitted),
        "note": _what_the_error_says(len(fitted), len(free)),
        "rms_error": _rms(fitted),
        "rms_error_not_fitted": _rms(checked),
        "fitted": [_line(o) for o in fitted],
        "not_fitted": [_line(o) for o in checked],
        "assumed": assumed,
    }


def _al_means(preset: Preset, spec: Mapping[str, Any], data: Mapping[str, Any]) -> Iterable[Observation]:
    """At temperature 0, where the rates come from the domains; at temperature 1 the mean itself was solved for."""
    for drafter, model in _arms(preset, spec)[1].items():
        arm = spec["drafters"][drafter]
        yield "mean_al", f"{drafter}, temperature 0", arm["mean_al"][0], _mean_al(model, arm, data, 0)


def _what_the_error_says(observations: int, parameters: int) -> str:
    solved = "Acceptance is solved, not fitted: one rate for each printed AL."
    if parameters >= observations:
        return (
            f"{solved} As many parameters as observations: rms_error is near 0 by construction, only rms_error_not_fitted says something."
        )
    return f"{solved} {observations} observations, {parameters} parameters; robust, so that figures that contradict the others keep their error."


def _rms(observations: Iterable[Observation]) -> dict[str, float]:
    """Root mean square of the relative error by kind, as a share."""
    by_kind: dict[str, list[float]] = {}
    for kind, _, printed, mine in observations:
        by_kind.setdefault(kind, []).append(mine / printed - 1)
    return {kind: round(math.sqrt(sum(e * e for e in errors) / len(errors)), 4) for kind, errors in by_kind.items()}


def _line(observation: Observation) -> str:
    kind, what, printed, mine = observation
    return f"{kind}, {what}: wanted {printed:g}, preset {mine:.4g}, {100 * (mine / printed - 1):+.1f} %"


def to_text(preset: Preset) -> str:
    """The file of a preset."""
    return HEADER + yaml.safe_dump(copy.deepcopy(preset), sort_keys=False, width=140, allow_unicode=True)


def main() -> None:
    for name, preset in fit_presets(yaml.safe_load(DATA.read_text("utf-8"))).items():
        (PRESET_FOLDER / f"{name}.yaml").write_text(to_text(preset), "utf-8")
        print(name, preset["fit"]["rms_error"], "not fitted:", preset["fit"]["rms_error_not_fitted"])


if __name__ == "__main__":
    main()
