"""What one attempt looks like as an MLflow run: parameters, tags and metrics, as plain values. Pure; imports no MLflow.

* **Nothing that is not a number is sent as one.** MLflow stores NaN as 0 and infinity as 1.8e308, and both then win filters
  and charts. A metric that a point does not have is not logged; the tag ``absent`` says why.
* **Acceptance of the baseline is not a number either.** An arm without a drafter has an acceptance length of 1 by definition,
  and would be the best hit of every search for low acceptance. Its acceptance metrics are left out.
* **Text stays text.** Version ``0.10`` and revision ``12e4567`` are written as they were declared.
* A run is written once and never corrected: whatever would change it (another environment, another measurement) is another
  attempt and so another run. ``attempt_sha`` is the identity of all of its content.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from specsweep.analysis.axis_words import capture_words, format_axis
from specsweep.orchestrator.attempt import Attempt

ROLE, SHA, COMPLETE, SUPERSEDED, PARENT = "role", "attempt_sha", "complete", "superseded", "mlflow.parentRunId"
PLAN_SHA = "plan_sha"
REPORT_SHA = "report_sha"
MOST_VALUES = 24  # of a label, as metrics of a run: a page of charts a value helps nobody
TEXT_LIMIT = 4000  # characters of a tag or parameter; the whole text is in the artifact point.json

_ACCEPTANCE = re.compile(r"(al|ar|accept|draft)_")  # metrics that say nothing of an arm that drafts nothing
_NOT_IN_NAMES = re.compile(r"[^\w.\- :/]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    value: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class RunContent:
    """Everything that a child run holds, apart from its artifacts."""

    name: str
    start_ms: int
    end_ms: int
    status: str  # MLflow's words: FINISHED | FAILED
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: tuple[Metric, ...]


def run_content(attempt: Attempt) -> RunContent:
    point, measurement = attempt.point, attempt.measurement
    measured = measurement is not None
    return RunContent(
        name=run_name(point["axes"]) + (" simulated" if measurement and measurement.get("simulated") else ""),
        start_ms=epoch_ms(point.get("started_utc")),
        end_ms=epoch_ms(point.get("finished_utc")),
        status="FINISHED" if measured else "FAILED",
        params=_params(point),
        tags=_tags(attempt),
        metrics=tuple(_distinct(_metrics(measurement, baseline=_is_baseline(point)))) if measurement is not None else (),
    )


def run_name(axes: Mapping[str, Any]) -> str:
    """``ngram DL4 BS8 ISL256 low_entropy``; axes that are seldom swept only if they are not at their usual value."""
    parts = [str(axes.get("drafter", "?"))]
    parts += [
        f"{short}{format_axis(axes[name], name)}"
        for name, short in (("draft_length", "DL"), ("batch_size", "BS"), ("isl", "ISL"))
        if axes.get(name) is not None
    ]
    if axes.get("workload") is not None:
        parts.append(str(axes["workload"]))
    if axes.get("temperature"):
        parts.append(f"T{axes['temperature']}")
    parts += [f"{name.removeprefix('drafter.')}={value}" for name, value in axes.items() if "." in name]
    if words := capture_words(axes):
        parts.append(words)
    if axes.get("repeat") not in (None, 1):
        parts.append(f"#{axes['repeat']}")
    return " ".join(parts)


def epoch_ms(utc: str | None) -> int:
    return 0 if not utc else round(datetime.fromisoformat(utc).timestamp() * 1000)


def _is_baseline(point: Mapping[str, Any]) -> bool:
    return str(point["axes"].get("drafter")) == "none"


def _params(point: Mapping[str, Any]) -> dict[str, str]:
    """The axes under their own names, then every leaf of the config under its dotted name."""
    params = {_name(k): as_text(v) for k, v in point["axes"].items() if v is not None}
    for name, value in leaves(point.get("config", {})):
        if value is not None:
            params.setdefault(_name(name), as_text(value))
    return params


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything in nested mappings that is not a mapping itself."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            yield from leaves(inner, f"{name}.")
        else:
            yield name, inner


def as_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"


def _name(raw: str) -> str:
    return _NOT_IN_NAMES.sub("_", raw)[:250]


def _tags(attempt: Attempt) -> dict[str, str]:
    point, measurement = attempt.point, attempt.measurement
    env = point.get("env") or {}
    found = dict(leaves(env))
    tags: dict[str, Any] = {
        ROLE: "attempt",
        SHA: attempt.sha256,
        "point_id": attempt.point_id,
        "env_id": attempt.env_id,
        "attempt": attempt.number,
        "baseline_id": point.get("baseline_id"),
        "session_id": point.get("session_id"),
        "git_commit": point.get("git_commit"),
        "host": point.get("host"),
        "engine_version": _first(found, "engine.version", "engine_version", "engine.build"),
        "resolved_flags": env.get("flags") or env.get("resolved_flags"),
        "drafter_flags": env.get("drafter") or None,
        "specsweep_version": point.get("specsweep_version"),
        "model_sha256": _first(found, "model_sha256", "flags.target_sha256", "target.sha256"),
        "env": env or None,
        "validity": validity(attempt),
    }
    if measurement is None:
        tags["error"] = error_line(point)
    else:
        tags["simulated"] = bool(measurement.get("simulated"))
        if measurement.get("untimed"):
            tags["untimed"] = True
        broken = [f"{c['name']}: {c.get('message') or ''}".rstrip(": ") for c in measurement.get("checks", []) if not c.get("ok", True)]
        tags["labels_left_out"] = _untold_labels(measurement)
        tags["failed_checks"] = "; ".join(broken) or None
        for aspect in ("tps", "steps", "acceptance"):
            tags[f"valid.{aspect}"] = measurement.get("validity", {}).get(aspect)
        tags["absent"] = _absent(measurement, baseline=_is_baseline(point)) or None
    return {name: as_text(value) for name, value in tags.items() if value is not None}


def validity(attempt: Attempt) -> str:
    if attempt.measurement is None:
        return "damaged" if attempt.measured else "failed"
    return "valid" if attempt.valid else "invalid"


def error_line(point: Mapping[str, Any]) -> str:
    """``EngineTerminal: engine ended with code 1``: kind and first line of what ended an attempt."""
    error = point.get("error") or {}
    first = str(error.get("message", "")).strip().partition("\n")[0]
    return f"{error.get('kind', 'unknown')}: {first}".removesuffix(": ")


def _first(found: Mapping[str, Any], *names: str) -> Any:
    return next((found[n] for n in names if found.get(n) is not None), None)


def _absent(measurement: Mapping[str, Any], *, baseline: bool) -> dict[str, str]:
    reasons = {str(k): str(v) for k, v in measurement.get("absent", {}).items()}
    for name, value in measurement.get("metrics", {}).items():
        if not _finite(value):
            reasons.setdefault(name, f"not a finite number: {value}")
        elif baseline and _ACCEPTANCE.match(name) and not name.endswith(("_ci_low", "_ci_high")):
            reasons.setdefault(name, "drafter none: nothing is drafted")
    return reasons


def _metrics(measurement: Mapping[str, Any], *, baseline: bool) -> Iterator[Metric]:
    """Flat metrics at step 0 (categories: ``name.category``; other labels: ``name.label.value``, without intervals), ``ar_cond`` at its
    position, ``accept_hist`` at the tokens of a step.
    """

    def wanted(name: str) -> bool:
        return not (baseline and _ACCEPTANCE.match(name))

    for name, value in measurement.get("metrics", {}).items():
        if _finite(value) and wanted(name):
            yield Metric(_name(name), float(value))
    for category, values in measurement.get("by_category", {}).items():
        for name, value in values.items():
            if _finite(value) and wanted(name):
                yield Metric(_name(f"{name}.{category}"), float(value))
    for label, parts in _told_labels(measurement):
        for part, values in parts.items():
            for name, value in values.items():
                if _finite(value) and wanted(name) and not name.endswith(("_ci_low", "_ci_high")):
                    yield Metric(_name(f"{name}.{label}.{part or 'none'}"), float(value))
    if baseline:
        return
    for row in measurement.get("ar_cond", []):
        for key, name in (("value", "ar_cond"), ("ci_low", "ar_cond_ci_low"), ("ci_high", "ar_cond_ci_high")):
            if _finite(row.get(key)):
                yield Metric(name, float(row[key]), int(row["position"]))
    for tokens, count in measurement.get("accept_hist", {}).items():
        if _finite(count):
            yield Metric("accept_hist", float(count), int(tokens))


def _told_labels(measurement: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The labels that have few enough values for a chart each; all of them are in the artifact measurement.json."""
    return [(label, parts) for label, parts in measurement.get("by_label", {}).items() if len(parts) <= MOST_VALUES]


def _untold_labels(measurement: Mapping[str, Any]) -> str | None:
    many = {label: len(parts) for label, parts in measurement.get("by_label", {}).items() if len(parts) > MOST_VALUES}
    return "; ".join(f"{label}: {count} values, more than {MOST_VALUES}; see measurement.json" for label, count in many.items()) or None


def _distinct(metrics: Iterator[Metric]) -> Iterator[Metric]:
    """Names of categories and labels are the data set's own, and two may read alike once MLflow's alphabet is all that is left of them."""
    seen: Counter[tuple[str, int]] = Counter()
    for metric in metrics:
        key = metric.name, metric.step
        seen[key] += 1
        yield metric if seen[key] == 1 else replace(metric, name=f"{metric.name[:240]}-{seen[key]}")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
