"""Prompts in other benchmarks' files: MT-Bench and SpecBench questions, and the inputs of ik_llama.cpp's ``llama-spec-bench``.

All become rows of the one schema, so that everything after this module knows one kind of prompts. The rules of each format are those of
the program that it belongs to, because a comparison with that program's numbers needs the same prompts: MT-Bench's topic by the number
of its row and its two turns, the first 80 or 480 rows, ``llama-spec-bench``'s ids, names and categories, and its refusal of a field it
does not know (a misspelt ``max_token`` would otherwise be a budget that nobody gets).

A generation budget belongs to a run and not to a prompt, so a :class:`Row` has none; a :class:`Task` is a row with the budget that its
line asked for.
"""

from __future__ import annotations

import gzip
import json
import reprlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.rows import Row

MTBENCH_ROWS, SPECBENCH_ROWS = 80, 480
MTBENCH_TOPICS = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
_TOPIC_ROWS = 10
_SPECBENCH_SOURCES = {
    **dict.fromkeys(MTBENCH_TOPICS, "MT-Bench"),
    "translation": "WMT14",
    "summarization": "CNN/Daily Mail",
    "qa": "Natural Questions",
    "math_reasoning": "GSM8K",
    "rag": "Natural Questions",
}
_MTBENCH_FIRST_ID = 81

BUILTIN_TASKS = {"code": "code", "extract": "extraction", "story": "long-form-summary"}
"""The built-in tasks and their categories, as ``llama-spec-bench`` calls them. The texts are our own."""

_TASKS = Path(__file__).parent / "tasks"
_TASK_FIELDS = ("prompt", "id", "name", "category", "max_tokens")
_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt of ``llama-spec-bench``. ``max_tokens``: the budget of its own line; None: that of the run."""

    row: Row
    max_tokens: int | None
    name: str


def read_mtbench(path: str | Path, n: int | None = MTBENCH_ROWS) -> tuple[Row, ...]:
    """The first ``n`` questions of an MT-Bench file (None: all), each with exactly two turns under ``turns`` or ``prompt``.

    Without a ``category`` the topic follows from the number of the row, ten rows a topic; without a ``question_id`` ids count from 81.
    Raises :class:`WorkloadError` naming file and line.
    """
    return _questions(Path(path).expanduser(), n, _mtbench_row)


def read_specbench(path: str | Path, n: int | None = SPECBENCH_ROWS) -> tuple[Row, ...]:
    """The first ``n`` questions of a SpecBench file (None: all): ``question_id``, ``category`` and one or more ``turns``.

    Raises :class:`WorkloadError` naming file and line.
    """
    return _questions(Path(path).expanduser(), n, _specbench_row)


def read_any(path: str | Path) -> tuple[Row, ...]:
    """All rows of a file of JSON lines in one of the three formats.

    Lines with a ``prompt`` that is a string are tasks, questions that only have MT-Bench's topics (or none) are MT-Bench's, others SpecBench's.
    """
    found = [fields for _, fields in _objects(Path(path).expanduser())]
    if all(isinstance(fields.get("prompt"), str) for fields in found):
        return tuple(task.row for task in read_tasks(jsonl=path))
    mtbench = all(fields.get("category") in (None, *MTBENCH_TOPICS) for fields in found)
    return read_mtbench(path, None) if mtbench else read_specbench(path, None)


def read_tasks(
    *,
    jsonl: str | Path | None = None,
    text_file: str | Path | None = None,
    prompt: str | None = None,
    builtin: Sequence[str] | None = None,
) -> tuple[Task, ...]:
    """The tasks of exactly one kind of input.

    ``jsonl``: a file with one task a line. ``text_file``: a file that is one prompt as a whole. ``prompt``: the prompt itself. ``builtin``:
    names of built-in tasks, none for all of them. Raises :class:`WorkloadError` if not exactly one kind is given, or for bad content.
    """
    kinds = {"a JSON-lines file": jsonl, "a text file": text_file, "an inline prompt": prompt, "built-in tasks": builtin}
    given = [kind for kind, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise WorkloadError(f"prompts are {' and '.join(given) or 'not given'}; give exactly one of {', '.join(kinds)}")
    if jsonl is not None:
        return _jsonl_tasks(Path(jsonl).expanduser())
    if text_file is not None:
        path = Path(text_file).expanduser()
        return (_custom(path.name, _text(path).removesuffix("\n"), str(path)),)
    if prompt is not None:
        return (_custom("prompt", prompt, "the inline prompt"),)
    return _builtin(builtin or ())


def _questions(path: Path, n: int | None, make: Callable[[str, int, dict[str, Any]], Row]) -> tuple[Row, ...]:
    if n is not None and n < 1:
        raise WorkloadError(f"{path}: {n} questions asked for; take at least 1")
    rows: list[Row] = []
    lines: dict[str, int] = {}
    for number, fields in _objects(path):
        if n is not None and len(rows) == n:
            break
        where = f"{path}:{number}"
        row = make(where, len(rows), fields)
        _unique(lines, where, "question_id", row.question_id, number)
        rows.append(row)
    return tuple(rows)


def _mtbench_row(where: str, n: int, fields: dict[str, Any]) -> Row:
    turns = _turns(where, fields, "turns" if "turns" in fields else "prompt")
    if len(turns) != 2:
        raise WorkloadError(f"{where}: {len(turns)} turn{'' if len(turns) == 1 else 's'}; an MT-Bench question has exactly two")
    if "category" not in fields and n // _TOPIC_ROWS >= len(MTBENCH_TOPICS):
        raise WorkloadError(f"{where}: category is missing, and MT-Bench's topics by row number end after {MTBENCH_ROWS} rows")
    category = _word(where, fields, "category") if "category" in fields else MTBENCH_TOPICS[n // _TOPIC_ROWS]
    question_id = _question_id(where, fields) if "question_id" in fields else str(_MTBENCH_FIRST_ID + n)
    return _row(question_id, category, turns, "MT-Bench")


def _specbench_row(where: str, _: int, fields: dict[str, Any]) -> Row:
    category = _word(where, fields, "category")
    source = "/".join(filter(None, ("SpecBench", _SPECBENCH_SOURCES.get(category))))
    return _row(_question_id(where, fields), category, _turns(where, fields, "turns"), source)


def _row(question_id: str, category: str, turns: tuple[str, ...], source: str) -> Row:
    return Row(question_id, category, "", turns, source, question_id, "", multiturn=len(turns) > 1)


def _jsonl_tasks(path: Path) -> tuple[Task, ...]:
    tasks: list[Task] = []
    lines: dict[str, int] = {}
    for number, fields in _objects(path):
        where = f"{path}:{number}"
        if unknown := sorted(fields.keys() - set(_TASK_FIELDS)):
            raise WorkloadError(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(_TASK_FIELDS)}")
        if "prompt" not in fields:
            raise WorkloadError(f"{where}: prompt is missing")
        task_id = _word(where, fields, "id") if "id" in fields else str(number)
        _unique(lines, where, "id", task_id, number)
        name = _word(where, fields, "name") if "name" in fields else task_id
        category = _word(where, fields, "category") if "category" in fields else "dataset"
        row = _row(task_id, category, (_word(where, fields, "prompt"),), path.name)
        tasks.append(Task(row, _max_tokens(where, fields), name))
    return tuple(tasks)


def _max_tokens(where: str, fields: dict[str, Any]) -> int | None:
    if "max_tokens" not in fields:
        return None
    value = fields["max_tokens"]
    if type(value) is not int or not 1 <= value <= _MOST_TOKENS:  # a bool is an int to isinstance
        raise WorkloadError(f"{where}: max_tokens={reprlib.repr(value)} must be a whole number from 1 to {_MOST_TOKENS}")
    return value


def _custom(name: str, text: str, where: str) -> Task:
    if not text.strip():
        raise WorkloadError(f"{where}: the prompt has no text")
    return Task(_row(f"custom-{name}", "custom", (text,), name), None, name)


def _builtin(names: Sequence[str]) -> tuple[Task, ...]:
    wanted = {name.strip().lower() for name in names} or set(BUILTIN_TASKS)
    if unknown := sorted(wanted - BUILTIN_TASKS.keys()):
        raise WorkloadError(f"{unknown[0]!r} is not a built-in task; there are: {', '.join(BUILTIN_TASKS)}")
    return tuple(
        Task(_row(f"builtin-{name}", category, (_text(_TASKS / f"{name}.txt").removesuffix("\n"),), "builtin"), None, name)
        for name, category in BUILTIN_TASKS.items()
        if name in wanted
    )


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number, from 1, and the object of each line."""
    lines = _text(path).removesuffix("\n").split("\n")  # not splitlines, which also ends a line at characters that JSON allows in strings
    if lines == [""]:
        raise WorkloadError(f"{path}: the file has no lines")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise WorkloadError(f"{path}:{number}: the line is empty; take it out")
        try:
            found = json.loads(line, object_pairs_hook=_once, parse_constant=_not_json)
            json.dumps(found, ensure_ascii=False).encode()  # an escaped half of a surrogate pair is no text
        except (ValueError, RecursionError) as error:
            raise WorkloadError(f"{path}:{number}: malformed JSON: {error}") from error
        if not isinstance(found, dict):
            raise WorkloadError(f"{path}:{number}: a line must be a JSON object, got {type(found).__name__}")
        yield number, found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} occurs more than once")
    return found


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: not UTF-8 text: {error}") from error
    except (OSError, EOFError, zlib.error) as error:  # gzip's own faults have no strerror
        raise WorkloadError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _turns(where: str, fields: dict[str, Any], name: str) -> tuple[str, ...]:
    found = fields.get(name)
    if not isinstance(found, list) or not found:
        raise WorkloadError(f"{where}: {name} must be a list of the user's turns, got {reprlib.repr(found)}")
    for n, turn in enumerate(found):
        if not isinstance(turn, str) or not turn.strip():
            raise WorkloadError(f"{where}: {name}[{n}] must be a non-empty string, got {reprlib.repr(turn)}")
    return tuple(found)


def _question_id(where: str, fields: dict[str, Any]) -> str:
    found = fields.get("question_id")
    return str(found) if type(found) is int else _word(where, fields, "question_id")


def _word(where: str, fields: dict[str, Any], name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str) or not found.strip():
        raise WorkloadError(f"{where}: {name} must be a non-empty string, got {reprlib.repr(found)}")
    return found


def _unique(lines: dict[str, int], where: str, field: str, value: str, number: int) -> None:
    if value in lines:
        raise WorkloadError(f"{where}: {field} {value!r} was used on line {lines[value]}; ids must be unique")
    lines[value] = number
