"""Runs the benchmarks: prints a table each and writes everything to ``bench/results/<name>.json``.

python -m bench [NAME …] [--runs N] [--seconds S] [--profile]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness import Options, Result

_HERE = Path(__file__).parent


def show(result: Result, console: Console) -> None:
    table = Table(title=result.title, title_justify="left")
    for column in result.columns:
        table.add_column(column, justify="left" if column in ("client", "work") else "right", overflow="fold")
    for row in result.rows:
        table.add_row(*row)
    console.print(table)
    for note in result.notes:
        console.print(note)


def write(name: str, result: Result, options: Options) -> Path:
    path = _HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    facts = {
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "runs": options.runs,
        "seconds": options.seconds,
    }
    path.write_text(json.dumps({"facts": facts, "title": result.title, "notes": result.notes, "data": result.data}, indent=1) + "\n")
    return path


def main() -> None:
    known = sorted(p.stem.removeprefix("bench_") for p in _HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of specsweep itself.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(known)} (default: all)")
    parser.add_argument("--runs", type=int, default=Options().runs, help="repetitions; medians are shown (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=Options().seconds, help="length of one repetition (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="print where the time that is left goes")
    args = parser.parse_args()
    if unknown := set(args.names) - set(known):
        parser.error(f"unknown benchmark {min(unknown)!r}; known: {', '.join(known)}")
    options = Options(args.runs, args.seconds, args.profile)
    console = Console()
    for name in args.names or known:
        result = import_module(f"bench.bench_{name}").run(options)
        show(result, console)
        console.print(f"→ {write(name, result, options)}\n")


if __name__ == "__main__":
    main()
