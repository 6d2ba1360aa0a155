"""Plans for tests: content hashes that need no model file and no corpus, and folders with a user's own groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.plan import make_plan
from specsweep.orchestrator.points import Plan, Point


def contents() -> Contents:
    def model(spec: Mapping[str, Any]) -> str:
        return f"model {spec.get('sha256') or spec.get('repo') or spec.get('file') or spec['path']}+{spec.get('convert')}"

    def workload(recipe: Mapping[str, Any], isl: int) -> str:
        return f"workload {sorted((k, v) for k, v in recipe.items() if v not in (None, {}))} {isl}"

    return Contents(model, workload)


def plan_of(*overrides: str, dirs: tuple[Path, ...] = (), **options: Any) -> Plan:
    return make_plan(overrides, dirs, contents=contents(), **options)


def ids(plan: Plan) -> set[str]:
    return {p.point_id for p in plan.points}


def axis(plan: Plan, name: str) -> list[Any]:
    return [p.axes[name] for p in plan.points]


def only(plan: Plan) -> Point:
    (point,) = plan.points
    return point


def write_groups(folder: Path, files: Mapping[str, str]) -> Path:
    """``files``: ``target/mine`` → YAML text."""
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
