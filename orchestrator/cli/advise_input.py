"""AL, t_ar and t_sd of measurements made elsewhere, as a CSV file in the layout of the SPEED-Bench paper's Table 10."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from specsweep.analysis.advise import Arm, projected_arm
from specsweep.analysis.attempts import Estimate
from specsweep.orchestrator.errors import ConfigError

NUMBERS = ("al", "t_ar_ms", "t_sd_ms")
WHOLE = ("batch_size", "draft_length")
SERVICE = {"target": "target_model", "workload": "target_category", "isl": "isl_tokens"}  # ours, and the paper's names of them


def read_arms(path: Path) -> list[Arm]:
    """An arm for each row, and one without a drafter for its t_ar.

    Columns: ``drafter``, ``draft_length``, ``batch_size``, ``al``, ``t_ar_ms``, ``t_sd_ms``; as far as they are there ``engine``, ``target`` (or
    ``target_model``), ``workload`` (``target_category``), ``isl`` (``isl_tokens``), ``gpus``, and of each number ``…_ci_low`` and ``…_ci_high``. Raises
    ``ConfigError`` naming file, line and column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            header = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if missing := [n for n in ("drafter", *WHOLE, *NUMBERS) if n not in header]:
        raise ConfigError(f"{path}: column {missing[0]!r} is missing; needed: drafter, {', '.join((*WHOLE, *NUMBERS))}")
    if not rows:
        raise ConfigError(f"{path}: holds no row")
    arms: dict[tuple[str, str, str, int], Arm] = {}
    for line, row in enumerate(rows, 2):
        service = {ours: _typed(value) for ours, theirs in SERVICE.items() if (value := row.get(ours) or row.get(theirs))}
        engine, batch_size, length = row.get("engine") or "–", *(_whole(path, line, row, n) for n in WHOLE)
        gpus = _whole(path, line, row, "gpus") if row.get("gpus") else 0
        al, t_ar, t_sd = (_estimate(path, line, row, n) for n in NUMBERS)
        for name, al_of, step_ms in ((f"{row['drafter']} DL {length}", al, t_sd), ("none", None, t_ar)):
            arm = projected_arm(service, engine, name, batch_size, al_of, step_ms, gpus=gpus)
            arms.setdefault((repr(service), engine, name, batch_size), arm)
    return list(arms.values())


def _typed(text: str) -> object:
    return int(text) if text.isdecimal() else text


def _estimate(path: Path, line: int, row: Mapping[str, str], name: str) -> Estimate:
    low, high = (_number(path, line, row, f"{name}_ci_{end}") if row.get(f"{name}_ci_{end}") else None for end in ("low", "high"))
    value = _number(path, line, row, name)
    if low is not None and high is not None and not low <= value <= high:
        raise ConfigError(f"{path}, line {line}: {name} {value:g} is not within its interval {low:g} to {high:g}")
    return Estimate(value, low, high)


def _number(path: Path, line: int, row: Mapping[str, str], name: str) -> float:
    try:
        value = float(row[name] or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{path}, line {line}: {name} is {row.get(name)!r}; a number above 0 is needed")
    return value


def _whole(path: Path, line: int, row: Mapping[str, str], name: str) -> int:
    value = _number(path, line, row, name)
    if not value.is_integer():
        raise ConfigError(f"{path}, line {line}: {name} is {row[name]!r}; a whole number is needed")
    return int(value)
