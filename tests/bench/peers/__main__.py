"""Compares our client with its peers on the simulated server: prints tables, writes ``bench/results/peers.json`` and ``docs/peers.md``.

python -m bench.peers [--bs 8,512] [--clients ours,aiperf] [--keep FOLDER]

The page is written by a run of the whole ladder with all clients only, or from the last results by ``--page``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.peers import page
from bench.peers.run import CLIENTS, Row, module, python_of, run, write_rows
from bench.peers.work import DEFAULT_BS, LADDER, Rung

_HERE = Path(__file__).resolve().parent
RESULTS = _HERE.parent / "results" / "peers.json"
PAGE = _HERE.parents[2] / "docs" / "peers.md"
ENVIRONMENTS = Path(os.environ.get("SPECSWEEP_ENGINES") or Path.home() / ".cache" / "specsweep" / "engines")
NAMES = {client: str(module(client).NAME) for client in CLIENTS}


def version_of(client: str) -> str:
    kind = module(client)
    python = python_of(client, ENVIRONMENTS) if kind.ENVIRONMENT else Path(sys.executable)
    code = f"import importlib.metadata as m; print(m.version({kind.DISTRIBUTION!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def facts(clients: list[str]) -> dict[str, Any]:
    model = next((line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return {
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "cpu": model or platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {client: version_of(client) for client in clients},
    }


def tables(rows: list[Row], console: Console) -> None:
    shown = {client: NAMES[client] for client in dict.fromkeys(row.client for row in rows)}
    parts = (
        ("Largest chunk rate with true times", ("client", "chunks/s", "BS at which it was not so"), page.rate_table(rows, shown)),
        ("Cost and error, nothing drafted", page.LOAD_COLUMNS, page.load_table(rows, NAMES)),
        ("With draft length 3", page.DRAFT_COLUMNS, page.draft_table(rows, NAMES)),
    )
    for title, columns, cells in parts:
        table = Table(*columns, title=title, title_justify="left")
        for row in cells:
            table.add_row(*row)
        console.print(table)
    for line in page.problems(rows, NAMES):
        console.print(f"does not count: {line}")
    for line in page.where_peers_are_better(rows, NAMES):
        console.print(f"a peer is better: {line}")


def measure(rungs: list[Rung], clients: list[str], folder: Path, console: Console) -> list[Row]:
    """By turns, so that all clients see the same machine; a row that is void is measured once more."""
    about, rows = facts(clients), []
    for rung in rungs:
        for client in clients:
            row = run(client, rung, folder / f"{rung.name}-{client}", ENVIRONMENTS)
            if row.problem.startswith("void"):
                row = run(client, rung, folder / f"{rung.name}-{client}-again", ENVIRONMENTS)
            rows.append(row)
            rate = "" if row.server is None else f"{row.server.chunks_per_s:,.0f} chunks/s, "
            console.print(f"{rung.name} {NAMES[client]}: {rate}{row.wall_s:.0f} s {row.problem}")
            write_rows(rows, RESULTS, about)
    return rows


def _names(text: str, known: tuple[str, ...]) -> list[str]:
    found = text.split(",")
    if unknown := set(found) - set(known):
        raise argparse.ArgumentTypeError(f"{min(unknown)!r} is not one of {', '.join(known)}")
    return found


def main() -> None:
    sizes = tuple(dict.fromkeys(str(rung.batch_size) for rung in LADDER))
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Our client beside its peers.")
    parser.add_argument("--bs", type=lambda t: _names(t, sizes), help=f"batch sizes, of {','.join(sizes)} (default: {DEFAULT_BS})")
    parser.add_argument("--clients", type=lambda t: _names(t, CLIENTS), default=list(CLIENTS), help=f"default: {','.join(CLIENTS)}")
    parser.add_argument("--keep", type=Path, help="folder for all that the clients and servers wrote (default: thrown away)")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the last results")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that clients and servers end with this process
    console = Console(width=None if sys.stdout.isatty() else 160)
    if args.page:
        saved = json.loads(RESULTS.read_text("utf-8"))
        rows = [Row.from_json(entry) for entry in saved["rows"]]
        PAGE.write_text(page.page(rows, saved["facts"], NAMES), "utf-8")
        tables(rows, console)
        return
    sizes_wanted = [int(size) for size in args.bs] if args.bs else list(DEFAULT_BS)
    rungs = [rung for rung in LADDER if rung.batch_size in sizes_wanted]
    try:
        for client in args.clients:
            python_of(client, ENVIRONMENTS)
    except FileNotFoundError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="specsweep-peers-") as scratch:
        rows = measure(rungs, args.clients, args.keep or Path(scratch), console)
    tables(rows, console)
    console.print(f"→ {RESULTS}")
    if not args.bs and args.clients == list(CLIENTS):
        saved = json.loads(RESULTS.read_text("utf-8"))
        PAGE.write_text(page.page(rows, saved["facts"], NAMES), "utf-8")
        console.print(f"→ {PAGE}")


if __name__ == "__main__":
    main()
