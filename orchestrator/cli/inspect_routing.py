"""`specsweep inspect` of a routing capture: layer by layer what the recorder counted, from the file that was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specsweep.analysis.routing import summarise
from specsweep.orchestrator.cli.output import print_table
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.routing_files import read_capture


def inspect_capture(path: Path, *, layers: int | None = None, top_k: int | None = None) -> dict[str, Any]:
    """JSON-able. ``layers``, ``top_k``: of the model, where the files do not say. Raises ConfigError for a file that is no capture."""
    routing = read_capture(path, layers=layers, top_k=top_k)
    try:
        numbers = summarise(routing)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    point = _point(path)
    return {
        "file": str(path),
        "kind": "routing capture" + (" of answers, a request for a pass" if routing.by_slot is not None else ""),
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
            f"{layer['whole_variation']:.2f}",
            f"{layer['whole_evenness']:.3f}",
        ]
        for layer in routing["by_layer"]
    ]
    columns = [
        "layer",
        "unique, mean",
        "least",
        "most",
        "unused",
        "max / mean load",
        "whole: unique",
        "unused",
        "max / mean load",
        "variation",
        "evenness",
    ]
    print_table("Experts per pass, and over the whole capture", columns, rows, right=list(range(len(columns))))


def _point(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path.parent.parent / "point.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
