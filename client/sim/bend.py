"""The counter-model: the same target and drafters with every effect that the paper claims turned round.

A check that can only pass is no check. Whoever examines claims on simulated data can serve the bent form of a preset
(``engine.counter=true``) and must then read *failed* everywhere. It is made from the preset, never written by hand, so that an effect that is
added to a preset is either bent here or shows up as a claim that still holds.

All functions take and give the content of a model file; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIERS = ("low_entropy", "mixed", "high_entropy")
RANDOM = "random"
EXTERNAL = ("draft_model", "mtp")
NATIVE, HEAD = "mtp", "eagle3"
NATIVE_FACTOR = 0.5  # brings a native MTP head below the EAGLE3 heads
LONG_DRAFT = {"draft_model": 0.8, "mtp": 0.8, "eagle3": 0.95}  # so that a longer draft accepts less, external drafters falling faster
RISING = {1000: 1.0, 32000: 1.3}  # for what is flat in the prompt's length
FALLING = {1000: 1.0, 32000: 0.4}  # for what holds in spite of it
NEARLY_FLAT = 1.1
PASS_MS, REQUEST_FACTOR = 4.0, 10.0
Content = dict[str, Any]


def bent(content: object) -> object:
    """The counter-model of a model file's content (drafters described in full). Anything that is no such content is returned as it is."""
    drafters = content.get("drafters") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(drafters, Mapping) or not all(isinstance(d, Mapping) for d in drafters.values()):
        return content
    turned = {name: _drafter(name, fields) for name, fields in drafters.items()}
    _bend_costs(turned)
    _swap_extensions(turned)
    _bend_pruning(turned, drafters)
    found = {**content, "name": f"counter-{content.get('name')}", "drafters": turned}
    if isinstance(content.get("target"), Mapping):
        found["target"] = _target(content["target"])
    if isinstance(content.get("engine_factor"), Mapping):
        found["engine_factor"] = {engine: 1 / factor for engine, factor in content["engine_factor"].items()}
    return found


def _target(target: Mapping[str, Any]) -> Content:
    """Random tokens spread over all experts and texts do not; what a verified token costs is paid by the request, so that long drafts
    lose where batches are small and win where they are large."""
    found = dict(target)
    if (share := target.get("expert_share", {}).get(RANDOM)) is not None:
        found["expert_share"] = {**dict.fromkeys(TIERS, share), RANDOM: 1.0}
    if (each := target.get("overhead_us_per_token")) is not None:
        found |= {"overhead_us_per_token": 0.0, "overhead_us_per_request": each * REQUEST_FACTOR, "compute_efficiency": 1.0}
    return found


def _drafter(name: str, fields: Mapping[str, Any]) -> Content:
    kind = next((k for k in LONG_DRAFT if name == k or name.startswith(f"{k}_")), "")
    found = {**fields, "rates": _rates(fields["rates"], NATIVE_FACTOR if kind == NATIVE else 1.0)}
    if isinstance(fields.get("draft_share"), Mapping):
        found["draft_share"] = _reflected(fields["draft_share"])
    if "temperature_factor" in fields:
        found["temperature_factor"] = {t: 1 / f for t, f in fields["temperature_factor"].items()}
        found["sampling_overhead_ms"] = 0.0
    if fields.get("passes_per_step") == 0:
        found["step_overhead_ms"] = 0.0  # a look-up that costs nothing is no slowdown
    if kind:
        found["long_draft_factor"] = LONG_DRAFT[kind]
    if "trees" in fields:
        widths = sorted(fields["trees"])
        found["trees"] = {k: fields["trees"][other] for k, other in zip(widths, reversed(widths), strict=True)}
    found["isl_factor"] = _over_isl(fields.get("isl_factor"), kind)
    return found


def _over_isl(factor: Mapping[Any, float] | None, kind: str) -> Mapping[Any, float]:
    """Decay becomes growth; what is flat for good reason grows (external drafters) or decays (heads that hold)."""
    if factor is None or len(factor) < 2:
        return RISING if kind in EXTERNAL else FALLING if factor is not None else {1: 1.0}
    lengths = sorted(factor)
    return {length: factor[other] for length, other in zip(lengths, reversed(lengths), strict=True)}


def _rates(rates: Mapping[str, Any], factor: float) -> Content:
    domains = {c: r for c, r in rates.items() if c not in (*TIERS, RANDOM)}
    found: Content = {c: [min(x * factor, 1.0) for x in r] for c, r in _reflected(domains).items()}
    tiers = {c: rates[c] for c in TIERS if c in rates}
    found |= {c: _scaled(r, factor) for c, r in _tiers(tiers).items()}
    if RANDOM in rates and "mixed" in rates:
        found[RANDOM] = _scaled(_scaled(rates["mixed"], _first(rates["mixed"]) / _first(rates[RANDOM])), factor)
    return found


def _tiers(tiers: Mapping[str, Any]) -> Content:
    """What moves with the prompt's length moves the other way; what does not changes places, low entropy with high."""
    low, _, high = TIERS
    moves = {c: isinstance(r, Mapping) and _spread(r) > NEARLY_FLAT for c, r in tiers.items()}
    found = {c: _reversed(r) if moves[c] else r for c, r in tiers.items()}
    if low in tiers and high in tiers and not moves[low] and not moves[high]:
        found[low], found[high] = tiers[high], tiers[low]
    return found


def _reflected(values: Mapping[str, Any]) -> Content:
    """Each value on the other side of the middle between the smallest and the largest; lists position by position, in proportion."""
    first = {c: _first(v) for c, v in values.items()}
    total = min(first.values()) + max(first.values()) if first else 0.0
    return {c: _scaled(v, (total - first[c]) / first[c]) if first[c] else v for c, v in values.items()}


def _bend_pruning(turned: dict[str, Content], plain: Mapping[str, Any]) -> None:
    """A pruned vocabulary costs where it cost nothing, and helps where it cost most."""
    full, pruned = f"{HEAD}_full", f"{HEAD}_pruned"
    if full not in turned or pruned not in turned:
        return
    names = [c for c in plain[full]["rates"] if not isinstance(plain[full]["rates"][c], Mapping) and c in plain[pruned]["rates"]]
    loss = {c: 1 - _first(plain[pruned]["rates"][c]) / _first(plain[full]["rates"][c]) for c in names}
    worst = max(loss.values(), default=0.0)
    own = {c: _scaled(turned[full]["rates"][c], 1 - (3 * (worst - loss[c]) - worst)) for c in names}
    turned[pruned] = {**turned[pruned], "rates": {**turned[pruned]["rates"], **own}}


def _swap_extensions(turned: dict[str, Content]) -> None:
    """A head with YaRN falls off as it does without, and the other way round."""
    for name in [n for n in turned if f"{n}_yarn" in turned]:
        other = f"{name}_yarn"
        turned[name], turned[other] = ({**turned[a], "isl_factor": turned[b]["isl_factor"]} for a, b in ((name, other), (other, name)))


def _bend_costs(turned: dict[str, Content]) -> None:
    """A draft model costs no more than a head beside it, and half for a pass; a head alone pays much for every pass."""
    cost = ("weights_gb", "kv_bytes_per_token", "gflop_per_token", "kv_efficiency", "pass_overhead_ms")
    if HEAD in turned and "draft_model" in turned:
        head = turned[HEAD]
        cheap = {**{k: head[k] for k in cost if k in head}, "pass_overhead_ms": head.get("pass_overhead_ms", 0.0) / 2}
        turned["draft_model"] = {**turned["draft_model"], **cheap}
    elif HEAD in turned:
        for name in [n for n in turned if n == HEAD or n.startswith(f"{HEAD}_")]:
            turned[name] = {**turned[name], "pass_overhead_ms": PASS_MS}


def _first(value: Any) -> float:
    if isinstance(value, Mapping):
        return _first(value[min(value)])
    return float(value[0] if isinstance(value, list) else value)


def _spread(by_isl: Mapping[Any, Any]) -> float:
    values = [_first(v) for v in by_isl.values()]
    return max(values) / min(values)


def _reversed(by_isl: Mapping[Any, Any]) -> Content:
    lengths = sorted(by_isl)
    return {length: by_isl[other] for length, other in zip(lengths, reversed(lengths), strict=True)}


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, Mapping):
        return {key: _scaled(v, factor) for key, v in value.items()}
    return [min(x * factor, 1.0) for x in value] if isinstance(value, list) else min(value * factor, 1.0)
