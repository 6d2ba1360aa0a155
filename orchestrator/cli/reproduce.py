"""`specsweep reproduce`: tables and figures of the paper, ours beside its own, with a verdict on every number and claim.

The points that an experiment needs are those of its sweep's grid, looked up in the store by what they are: whichever sweep measured a point, it
counts. What is missing is said with the command that measures it, and the rest is judged all the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specsweep.analysis.reproduce.claims import Evidence, Experiment, verdict_words
from specsweep.analysis.reproduce.judging import explained
from specsweep.analysis.reproduce.page import Result, markdown, page, summary
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table
from specsweep.orchestrator.cli.selection import names_and_store
from specsweep.orchestrator.errors import EXIT_INCOMPLETE, EXIT_OK, ConfigError, SpecsweepError, TrackingError
from specsweep.orchestrator.reproduction_extras import OPTIONS, Request, collected
from specsweep.orchestrator.run_command import run_command
from specsweep.orchestrator.store import Store

FORMS = ("paper", "mini", "sim")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="ID", help="fig7, table10, …, or all; store=DIR and overrides of its sweep may follow")
    parser.add_argument(
        "--form", choices=FORMS, default="paper", help="whose sweep: the paper's, a small one for this machine, or simulated"
    )
    parser.add_argument(
        "--sweep", metavar="NAME", help="judge what this sweep of the store measured instead of the experiment's own points"
    )
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups")
    parser.add_argument("--out", metavar="DIR", help="where files are written (default: STORE/reproduce/FORM)")
    for option, meaning in OPTIONS.items():
        parser.add_argument(f"--{option}", metavar="VALUE", help=meaning)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.analysis.reproduce.catalogue import chosen

    ids, store = names_and_store([w for w in args.ids if "=" not in w or w.startswith("store=")], must_exist=False)
    overrides = [w for w in args.ids if "=" in w and not w.startswith("store=")]
    try:
        experiments = chosen(ids)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    options = {name: value for name in OPTIONS if (value := getattr(args, name.replace("-", "_"))) is not None}
    results = [examined(e, store, args.form, overrides, args.config_dir, args.sweep, options) for e in experiments]
    folder = Path(args.out) if args.out else store.root / "reproduce" / args.form
    files = write(results, folder)
    logged = [] if args.sweep else _tracked(experiments, store, args, overrides, files)
    if args.json:
        emit_json({"form": args.form, "results": [_document(r) for r in results], "files": [str(f) for f in files], "mlflow": logged})
    else:
        _print(results, files)
    return EXIT_OK if all(r.complete for r in results) else EXIT_INCOMPLETE


def examined(
    experiment: Experiment,
    store: Store,
    form: str,
    overrides: Sequence[str] = (),
    config_dirs: Sequence[str] = (),
    sweep: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Result:
    """One experiment on what the store holds. What keeps it from being judged is in ``failed``: others are judged all the same."""
    attempts: list[Mapping[str, Any]] = []
    needed, command = 0, ""
    try:
        if sweep is not None:
            attempts = list(store.sweep(sweep).records()) if experiment.sweep else []
        elif experiment.sweep:
            words = [f"sweep={experiment.sweep if form == 'paper' else f'{form}/{experiment.sweep}'}", *overrides]
            command = run_command(words, store.root, config_dirs=config_dirs)
            ids = _point_ids(words, config_dirs)
            needed = len(ids)
            found = [a for i in ids if (a := store.latest(i)) is not None]
            attempts = [a.record() for a in found]
        evidence = Evidence(
            attempts, collected(experiment.extras, Request(attempts, store.root, options or {})), any(_simulated(a) for a in attempts)
        )
        outcome = explained(experiment.examine(evidence))
        drawn = {name: draw() for name, draw in outcome.figures.items()}
    except (SpecsweepError, ValueError) as error:
        message = error.message if isinstance(error, SpecsweepError) else str(error)
        nothing = experiment.examine(Evidence())
        return Result(experiment, nothing, needed=needed, command=command, failed=message)
    there = sum(a["measurement"] is not None for a in attempts)
    return Result(experiment, outcome, evidence.simulated, needed, there, command, drawn=drawn)


def _point_ids(words: Sequence[str], config_dirs: Sequence[str]) -> list[str]:
    """Every point of the grid. Raises ``ConfigError`` with the reason if none can run. Contents that are not prepared yet do not matter: then
    none of their points was measured either."""
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.grid import expand
    from specsweep.orchestrator.identity import Contents

    contents = Contents()
    contents.unprepared = {}
    grid = expand(compose(words, config_dirs), contents)
    if not grid.points:
        reasons = list(dict.fromkeys(d.reason for d in grid.dropped))
        raise ConfigError(f"{words[0]}: no point of its grid can run: {reasons[0] if reasons else 'it is empty'}")
    return [p.point_id for p in grid.points]


def _simulated(attempt: Mapping[str, Any]) -> bool:
    return bool((attempt.get("measurement") or {}).get("simulated"))


def _tracked(
    experiments: Sequence[Experiment], store: Store, args: argparse.Namespace, overrides: Sequence[str], files: Sequence[Path]
) -> list[str]:
    """Puts an experiment's files on the run of its sweep where tracking is on and MLflow has that sweep. A server that is away ends nothing."""
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.tracking import tracking_uri
    from specsweep.orchestrator.tracking_reproduction import log_files

    known = set(store.sweeps()) if store.root.is_dir() else set()
    logged: list[str] = []
    for e in experiments:
        word = e.sweep if args.form == "paper" else f"{args.form}/{e.sweep}"
        if not e.sweep or word.replace("/", "-") not in known:
            continue
        base = compose([f"sweep={word}", *overrides], args.config_dir).base
        mine = [f for f in files if f.stem == "reproduce" or f.stem.partition("_")[0] == e.id]
        try:
            if base["tracking"]["enabled"] and log_files(str(base["name"]), mine, str(base["tracking"]["uri"] or tracking_uri(store))):
                logged.append(str(base["name"]))
        except TrackingError as error:
            print(f"specsweep reproduce: {error.message}; the files are not on MLflow's run", file=sys.stderr)
            break
    return logged


def write(results: Sequence[Result], folder: Path) -> list[Path]:
    """Markdown, a CSV a table, PNG and SVG of every figure, and one page, which is written last."""
    from specsweep.analysis.figures import svg, write_png

    folder.mkdir(parents=True, exist_ok=True)
    files = [_replace(folder / "reproduce.md", markdown(results))]
    for r in results:
        files += [_replace(folder / f"{t.name}.csv", t.to_csv()) for t in r.tables()]
        for name, figure in r.drawn.items():
            aside = folder / f".{name}.{os.getpid()}.png"
            write_png(figure, aside)
            files.append(aside.replace(folder / f"{name}.png"))
            files.append(_replace(folder / f"{name}.svg", svg(figure, name, r.title) + "\n"))
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [_replace(folder / "reproduce.html", page(results, written)), *files]


def _replace(path: Path, text: str) -> Path:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    return aside.replace(path)


def _document(r: Result) -> dict[str, Any]:
    claims = [
        {
            "key": c.key,
            "text": c.text,
            "source": c.source,
            "verdict": verdict_words(c.verdict, simulated=r.simulated),
            "evidence": c.evidence,
        }
        for c in r.outcome.claims
    ]
    facts = {"id": r.experiment.id, "title": r.title, "simulated": r.simulated, "points_needed": r.needed, "points_there": r.there}
    facts |= {"missing_command": r.command if r.there < r.needed else None, "failed": r.failed or None, "claims": claims}
    return {**facts, "tables": [t.to_json() for t in r.tables()], "notes": list(r.outcome.notes)}


def _print(results: Sequence[Result], files: Sequence[Path]) -> None:
    table = summary(results)
    wraps = [i for i, c in enumerate(table.columns) if c.wraps]
    print_table(table.title, [c.header for c in table.columns], [r.cells for r in table.rows], right=table.right, wraps=wraps)
    for note in table.notes:
        print(note)
    for r in results:
        for c in r.outcome.claims:
            print(f"• {r.experiment.id}: {c.text}: {verdict_words(c.verdict, simulated=r.simulated)}. {c.evidence}")
    for r in results:
        if r.there < r.needed:
            print(
                f"{r.experiment.id}: {r.needed - r.there} of {r.needed} points are missing; this measures them: {r.command}",
                file=sys.stderr,
            )
        if r.failed:
            print(f"specsweep reproduce: {r.experiment.id}: {r.failed}", file=sys.stderr)
    print(f"\nwrote {files[0]} and {len(files) - 1} files beside it")
