"""The rows of a data set as the `specsweep data` commands take it: a file, or one of the names that ``workload.corpus`` knows.

A name is looked for first, as a run does; ``./mini/qualitative`` is a folder in any case.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from specsweep.client.workload.documents import DATA
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.rows import Row, read_rows

MINI, SPEED = "mini/", "speed/"
_LINES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
PATHS = (
    "a Parquet file of rows, a folder of them, JSON lines of any kind that workload.corpus takes, or a data set by its name: mini/CONFIG (committed) "
    "or speed/CONFIG (prepared), with CONFIG qualitative, throughput_1k, …"
)


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, default=Path(DATA), metavar="DIR", help="where speed/… was prepared (default: %(default)s, as workload.data)"
    )


def is_name(word: str) -> bool:
    return word.startswith((MINI, SPEED))


def rows_of(word: str, data: Path) -> tuple[Row, ...]:
    """Raises :class:`WorkloadError` that says what there is."""
    if word.startswith(MINI):
        return _mini(word)
    if word.startswith(SPEED):
        return _prepared(word, data.expanduser())
    path = Path(word).expanduser()
    return _lines(path) if path.name.endswith(_LINES) else read_rows(path)


def _lines(path: Path) -> tuple[Row, ...]:
    """Of any file that a run would take its prompts from. What a prompt is called in its file is its ``src_id`` too."""
    from specsweep.client.workload.documents import corpus, documents

    if not path.is_file():
        raise WorkloadError(f"{path}: cannot be read: no such file")
    found = documents(corpus(str(path)))
    if not found:
        raise WorkloadError(f"{path}: the file has no lines")
    return tuple(
        Row(d.doc_id, d.category, d.sub_category, (d.text, *d.turns), d.source, d.doc_id, d.difficulty, multiturn=bool(d.turns))
        for d in found
    )


def _mini(word: str) -> tuple[Row, ...]:
    from specsweep.client.workload import mini

    make = mini.configs().get(word.removeprefix(MINI))
    if make is None:
        raise WorkloadError(f"{word}: no such data set; there are {', '.join(MINI + name for name in mini.configs())}")
    return make()


def _prepared(word: str, data: Path) -> tuple[Row, ...]:
    config = word.removeprefix(SPEED)
    file = data / config / "test.parquet"
    if not file.is_file():
        there = ", ".join(sorted(SPEED + found.parent.name for found in data.glob("*/test.parquet"))) or "none"
        raise WorkloadError(
            f"{word}: {file} is not there (prepared below {data}: {there}); make it with `specsweep data prepare {config}`, or give --data DIR"
        )
    return read_rows(file)
