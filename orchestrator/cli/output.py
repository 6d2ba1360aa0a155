"""Printing: tables for people, the same facts with full precision as JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.cli.writing import refuse_folder, writing
from specsweep.orchestrator.durable import make_dirs, replace_file
from specsweep.orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from specsweep.analysis.tabular import Table

PIPE_WIDTH = 200


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON: full precision, units in the keys")


def emit_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, allow_nan=False, default=str)
    sys.stdout.write("\n")


def write_table(path: Path, table: Table) -> None:
    """All rows of a table as a file, by its name: ``.csv`` (full precision), ``.md`` (as shown) or ``.json``. Raises ``ConfigError`` for another."""
    made = {".csv": table.to_csv, ".md": table.to_markdown, ".json": table.to_json}
    write = made.get(path.suffix.lower())
    if write is None:
        raise ConfigError(f"--out {path}: its name must end in one of {', '.join(made)}")
    content = write()
    write_text(path, content if isinstance(content, str) else json.dumps(content, indent=2, default=str) + "\n", "--out")


def write_text(path: Path, content: str, option: str) -> None:
    """A file that was asked for with ``option``, whole or not at all. Raises ``ConfigError`` for a folder, ``OSError`` that names the file."""
    refuse_folder(path, option, f"file{path.suffix}")
    with writing(path):
        make_dirs(path.absolute().parent)
        replace_file(path, content)


def terminal_width() -> int:
    """Characters of a line: of the terminal, of ``COLUMNS`` where that is set, and plenty in a pipe, where nothing folds lines."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size((PIPE_WIDTH, 50)).columns
    return PIPE_WIDTH


LARGE_PLAN = 50_000  # cells: one that takes more than some seconds to lay out
CELLS_PER_S = 5_000  # on one slow core


def say_if_large(cells: int) -> None:
    """Tells, before a large plan is laid out, that it will take its time."""
    if cells > LARGE_PLAN:
        print(f"planning {cells:,} cells, which takes up to {-(-cells // CELLS_PER_S)} s", file=sys.stderr, flush=True)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    wraps: Sequence[int] | None = None,
) -> None:
    """``right``: indices of the columns that hold numbers. ``wraps``: of those whose cells may take several lines; None: all of them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        whole = wraps is not None and i not in wraps
        table.add_column(column, justify="right" if i in right else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*map(Text, row))  # plain: brackets are intervals, not markup
    console = Console(width=terminal_width())
    console.print(Text(title, style="bold"))  # not the table's own, which ends its lines where a narrow table does
    console.print(table)
