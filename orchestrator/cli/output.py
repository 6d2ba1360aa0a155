"""Printing: tables for people, the same facts with full precision as JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON: full precision, units in the keys")


def emit_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, allow_nan=False, default=str)
    sys.stdout.write("\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """``right``: indices of the columns that hold numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=200)
    console.print(table)
