"""`specsweep data prepare`: fills in the published SPEED-Bench data set, so that runs read files and need no network.

A source that is gated or away costs its rows and not the rest: exit code 5, what is missing, why, and the same command to go on with.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from specsweep.client.workload.errors import WorkloadError
from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.cli.writing import writing
from specsweep.orchestrator.errors import EXIT_INCOMPLETE, EXIT_OK, ConfigError

if TYPE_CHECKING:
    from specsweep.client.workload.prepare import Prepared
    from specsweep.client.workload.prepare.registry import Quirks

MINI = "mini"
DEFAULT_OUT, DEFAULT_MINI = "data/speed", "data/mini"
METAVAR = "CONFIG|all|mini out=DIR from=DIR only=SOURCE,… quirks=official|plain revision=COMMIT"
HELP = (
    "configs of nvidia/SPEED-Bench (default: all); out=DIR: where they go (default data/speed); from=DIR: raw data that was downloaded "
    "elsewhere, the network is not asked; only=SOURCE,…: fill in only these (a part of the name is enough); quirks=plain: exactly the "
    "target's tokens instead of the official rows; revision=COMMIT of the data set. mini, or mini/CONFIG: the committed data set in the same "
    "form (default out=data/mini)"
)


@dataclass(frozen=True, slots=True)
class Asked:
    configs: tuple[str, ...]
    out: Path
    source: Path | None
    only: frozenset[str]
    quirks: Quirks
    revision: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar=METAVAR, help=HELP)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if any(word.partition("/")[0] == MINI for word in args.words):
        return _write_mini(args.words, as_json=args.json)
    from specsweep.client.workload.prepare import FolderFiles, HubFiles, SourceAway, prepare

    try:
        asked = parse(args.words)
        files = FolderFiles(asked.source) if asked.source else HubFiles()
        with writing(asked.out):
            done = [
                prepare(config, asked.out, files, quirks=asked.quirks, revision=asked.revision, only=asked.only, progress=_Lines(config))
                for config in asked.configs
            ]
    except SourceAway as error:
        raise ConfigError(f"the published data set: {error}") from error
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    if args.json:
        emit_json([{**asdict(one), "complete": one.is_complete} for one in done])
    else:
        for one in done:
            print("\n".join(described(one, args.words)))
    return EXIT_OK if all(one.is_complete for one in done) else EXIT_INCOMPLETE


def _write_mini(words: Sequence[str], *, as_json: bool) -> int:
    """The committed data set in the form of the published one. Needs no network, and nothing to go on with."""
    from specsweep.client.workload import mini
    from specsweep.client.workload.rows import write_rows

    names = [word.partition("/")[2] for word in words if "=" not in word and word.partition("/")[0] == MINI]
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    if len(names) + len(settings) < len(words) or settings.keys() - {"out"}:
        raise ConfigError(
            f"{' '.join(words)}: the committed data set stands alone: specsweep data prepare {MINI} [out=DIR], or {MINI}/CONFIG"
        )
    known = mini.configs()
    if wrong := [word for word in words if word.startswith(f"{MINI}/") and word.removeprefix(f"{MINI}/") not in known]:
        raise ConfigError(
            f"{wrong[0]}: no such config; there are {', '.join(f'{MINI}/{name}' for name in known)}; {MINI} alone is all that are ready"
        )
    chosen = [name for name in known if name in names or ("" in names and name in mini.ready())]
    out = Path(settings.get("out") or DEFAULT_MINI).expanduser()
    written = []
    for name in chosen:
        rows = known[name]()
        file = out / name / "test.parquet"
        write_rows(file, rows)
        written.append({"config": name, "rows": len(rows), "file": str(file)})
        if not as_json:
            print(f"{MINI}/{name}: {len(rows)} rows: {file}")
    if as_json:
        emit_json(written)
    return EXIT_OK


def parse(words: Sequence[str]) -> Asked:
    """Raises ``ConfigError`` and :class:`WorkloadError` for words that are no config, no setting, or no value of one."""
    from specsweep.client.workload.prepare import CONFIGS, named_sources
    from specsweep.client.workload.prepare.registry import Quirks

    names = [word for word in words if "=" not in word]
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    known = ("out", "from", "only", "quirks", "revision")
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(f"{key}={value}: not a setting of this command; it takes {', '.join(f'{name}=' for name in known)}")
        if not value:
            raise ConfigError(f"{key}=: give a value, or leave it out")
    if wrong := [name for name in names if name not in (*CONFIGS, "all")]:
        raise ConfigError(f"{wrong[0]}: no such config; there are {', '.join(CONFIGS)}, and all")
    quirks = settings.get("quirks", "official")
    if quirks not in get_args(Quirks):
        raise ConfigError(f"quirks={quirks}: it is {' or '.join(get_args(Quirks))}")
    source = Path(settings["from"]).expanduser() if "from" in settings else None
    if source and not source.is_dir():
        raise ConfigError(f"from={source}: no such folder")
    return Asked(
        configs=CONFIGS if not names or "all" in names else tuple(dict.fromkeys(names)),
        out=Path(settings.get("out", DEFAULT_OUT)).expanduser(),
        source=source,
        only=named_sources(settings["only"].split(",")) if "only" in settings else frozenset(),
        quirks=cast("Quirks", quirks),
        revision=settings.get("revision", "main"),
    )


def described(one: Prepared, words: Sequence[str]) -> list[str]:
    """What a person has to know about one config: where it is, or what it lacks and how to go on."""
    if one.is_complete:
        return [f"{one.config}: {one.rows} rows, complete: {one.file}"]
    lacking = sum(missing.rows for missing in one.missing)
    return [
        f"{one.config}: {lacking} of {one.rows} rows are missing: {one.file}",
        *(f"  {missing.source}, {missing.rows} rows: {missing.why}" for missing in one.missing),
        f"  to go on: specsweep data prepare {shlex.join(words)}".rstrip() + " (finished rows are kept)",
    ]


class _Lines:
    """Progress on stderr: a line when a source begins, each time a tenth of it is done, and when it is whole."""

    def __init__(self, config: str) -> None:
        self._config = config
        self._last: tuple[str, int] | None = None

    def __call__(self, source: str, done: int, total: int) -> None:
        step = (source, done * 10 // total)
        if step != self._last:
            self._last = step
            print(f"{self._config}: {source} {done}/{total}", file=sys.stderr, flush=True)
