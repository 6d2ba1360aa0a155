"""`specsweep inspect` of a routing capture: layer by layer what the recorder counted, from the file that was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specsweep.analysis.routing import from_npz, summarise
from specsweep.orchestrator.cli.output import print_table
from specsweep.orchestrator.errors import ConfigError

NAME = "routing.npz"


def capture_file(path: Path) -> Path | None:
    """The capture that ``path`` names: a ``.npz`` file, or the folder of an attempt that holds one; None if it is something else."""
    if path.is_dir() and (path / "evidence" / NAME).is_file():
        return path / "evidence" / NAME
    return path if path.suffix == ".npz" and path.is_file() else None


def inspect_capture(path: Path) -> dict[str, Any]:
    """JSON-able. Raises ConfigError for a file that is no capture."""
    try:
        numbers = summarise(from_npz(path.read_bytes()))
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path}: {error}") from error
    point = _point(path)
    return {
        "file": str(path),
        "kind": "routing capture",
        "simulated": bool(point.get("simulated")),
        "axes": point.get("axes"),
        "routing": numbers,
    }


def print_capture(found: dict[str, Any]) -> None:
    routing = found["routing"]
    print(found["file"])
    words = [found["kind"] + (", simulated" if found["simulated"] else "")]
    words += [f"{name} {value}" for name, value in (found["axes"] or {}).items() if value is not None]
    print("  " + " · ".join(words))
    tokens = "not known" if routing["tokens"] is None else f"{routing['tokens']:,}"
    print(
        f"  {routing['passes']} passes · {tokens} tokens · {routing['layers']} layers with experts, {routing['dense_layers']} without · "
        f"{routing['experts']} experts in {routing['places']} places · top {routing['top_k'] or 'k not known'}\n"
    )
    rows = [
        [
            str(layer["layer"]),
            f"{layer['unique_mean']:.1f}",
            f"{layer['unique_min']}",
            f"{layer['unique_max']}",
            f"{100 * layer['unused_share_mean']:.1f} %",
            f"{layer['imbalance_mean']:.2f}",
            f"{layer['whole_unique']}",
            f"{100 * layer['whole_unused_share']:.1f} %",
            f"{layer['whole_imbalance']:.2f}",
        ]
        for layer in routing["by_layer"]
    ]
    columns = ["layer", "unique, mean", "least", "most", "unused", "max / mean load", "whole: unique", "unused", "max / mean load"]
    print_table("Experts per pass, and over the whole capture", columns, rows, right=list(range(len(columns))))


def _point(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path.parent.parent / "point.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
