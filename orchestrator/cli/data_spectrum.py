"""`specsweep data spectrum SWEEP`: the prompts of a measured sweep in one order, from the least predictable answer to the most.

Prompts keep their ids, so the order can be used to draw a tier of one's own: the file holds one line a prompt.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from specsweep.analysis.attempts import cells
from specsweep.analysis.similarity import write_figure
from specsweep.analysis.spectrum import Place, spectrum, spectrum_figure
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table
from specsweep.orchestrator.cli.report import report_of
from specsweep.orchestrator.cli.selection import METAVAR, one_sweep
from specsweep.orchestrator.durable import make_dirs, replace_file
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

ENDS = 8  # prompts that are shown of each end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all prompts to this CSV file")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the spectrum as PNG and SVG here")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    name, store = one_sweep(args.words, "data spectrum")
    report = report_of(store.sweep(name))
    found = spectrum(cells(report.attempts))
    if not found:
        raise ConfigError(f"sweep {name}: no point with a drafter has valid acceptance yet, which is what prompts are put in order by")
    title = f"{name}: {len(found)} prompts by acceptance length"
    if args.out is not None:
        make_dirs(args.out.parent)
        replace_file(args.out, _csv(found))
    if args.figures is not None:
        figure = spectrum_figure(found, title, simulated=report.simulated)
        write_figure(figure, args.figures, "spectrum")
    if args.json:
        emit_json({"sweep": name, "simulated": report.simulated, "prompts": [_record(p) for p in found]})
        return EXIT_OK
    shown = found if len(found) <= 2 * ENDS else [*found[:ENDS], None, *found[-ENDS:]]
    rows = [["…"] * 5 if p is None else [f"{p.place:.3f}", p.prompt_id, p.category, _al(p), str(p.steps)] for p in shown]
    print_table(
        f"{'SIMULATED – ' if report.simulated else ''}{title} (0: least predictable, 1: most)",
        ["place", "prompt", "category", "AL", "steps"],
        rows,
        right=(0, 3, 4),
    )
    if args.out is None and len(found) > 2 * ENDS:
        print("\n--out FILE writes them all")
    return EXIT_OK


def _al(place: Place) -> str:
    low, high = min(place.al.values()), max(place.al.values())
    return f"{low:.2f}" if len(place.al) == 1 else f"{low:.2f} to {high:.2f}"


def _record(place: Place) -> dict[str, object]:
    return {
        "prompt_id": place.prompt_id,
        "category": place.category,
        "place": place.place,
        "place_sd": place.spread,
        "steps": place.steps,
        "al_decode_shrunk": dict(place.al),
    }


def _csv(found: list[Place]) -> str:
    series = list(dict.fromkeys(name for p in found for name in p.al))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["prompt_id", "category", "place", "place_sd", "steps", *(f"al_decode_shrunk[{name}]" for name in series)])
    for p in found:
        writer.writerow([p.prompt_id, p.category, p.place, p.spread, p.steps, *(p.al.get(name, "") for name in series)])
    return out.getvalue()
