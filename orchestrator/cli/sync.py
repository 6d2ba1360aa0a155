"""`specsweep sync`: makes MLflow agree with the store, after it was away, after a crash, or for a server that is new.

With ``--from-mlflow`` the other way: results that MLflow holds and the store does not are brought back, as they were committed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from specsweep.orchestrator.cli.output import add_json, emit_json, print_table
from specsweep.orchestrator.cli.selection import METAVAR, names_and_store, sweeps_or_all
from specsweep.orchestrator.errors import EXIT_INCOMPLETE, EXIT_OK, ConfigError, TrackingError
from specsweep.orchestrator.fields import missing_database_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar=METAVAR, help="sweep names (all of the store if none) and where results live")
    parser.add_argument("--uri", help="the MLflow server or database; default: MLFLOW_TRACKING_URI, else sqlite inside the store")
    parser.add_argument(
        "--from-mlflow", action="store_true", help="bring back results of SWEEP that MLflow holds and the store does not, after a lost disk"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    return _restore(args) if args.from_mlflow else _sync(args)


def _restore(args: argparse.Namespace) -> int:
    """Exit code 5 if something was left out, or MLflow is away."""
    from specsweep.orchestrator.tracking import tracking_uri
    from specsweep.orchestrator.tracking_restore import restore

    names, store = names_and_store(args.words, must_exist=False)
    if len(names) != 1:
        raise ConfigError(
            f"--from-mlflow brings back one sweep, not {', '.join(names) or 'none'}: specsweep sync SWEEP store=DIR --from-mlflow"
        )
    uri = args.uri or tracking_uri(store)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise ConfigError(f"there is no MLflow database at {uri}; name the server with --uri or MLFLOW_TRACKING_URI")
    try:
        found = restore(store, names[0], uri, say=lambda words: print(words, file=sys.stderr, flush=True))
    except TrackingError as error:
        print(f"specsweep sync: {error.message}", file=sys.stderr)
        return EXIT_INCOMPLETE
    if args.json:
        emit_json({"store": str(store.root), **dataclasses.asdict(found)})
    else:
        there = f"{found.known} were here already" if found.known else "none was here"
        print(f"{found.sweep}: {found.restored} results brought back from MLflow at {found.uri}, {there}")
    for line in found.broken:
        print(f"specsweep sync: left out: {line}", file=sys.stderr)
    return EXIT_INCOMPLETE if found.broken or not found.restored + found.known else EXIT_OK


def _sync(args: argparse.Namespace) -> int:
    """Exit code 5 if MLflow is away, would not take something, or a plan cannot be read: the same command finishes the rest."""
    from specsweep.orchestrator.tracking import sync, tracking_uri, ui_command

    names, unreadable, store = sweeps_or_all(args.words)
    uri = args.uri or tracking_uri(store)
    if (missing := missing_database_folder(uri)) is not None:
        source = f"--uri {uri}" if args.uri else f"MLFLOW_TRACKING_URI={uri}"
        raise ConfigError(f"{source}: the folder {missing} does not exist; make it, or name another database")
    results, away = [], ""
    for name in names:
        try:
            results.append(sync(store, name, uri))
        except TrackingError as error:
            away = error.message
            break
    refused = [line for result in results for line in result.refused]
    damaged = sorted({line for result in results for line in result.damaged})
    if args.json:
        emit_json(
            {"store": str(store.root), "sweeps": [dataclasses.asdict(r) for r in results], "error": away or None, "unreadable": unreadable}
        )
    elif results:
        counts = ("created", "unchanged", "repaired", "superseded")
        rows = [(r.sweep, *(str(getattr(r, c)) for c in counts), r.link) for r in results]
        print_table(f"MLflow at {results[0].uri}", ("sweep", *counts, "page"), rows, right=(1, 2, 3, 4))
        if (command := ui_command(uri)) is not None:
            print(f"\nto look at it: {command}")
    problems = [*(f"refused: {r}" for r in refused), *(f"cannot be read: {d}" for d in damaged), *unreadable.values()]
    for line in [*problems, *([away] if away else [])]:
        print(f"specsweep sync: {line}", file=sys.stderr)
    return EXIT_INCOMPLETE if away or refused or unreadable else EXIT_OK
