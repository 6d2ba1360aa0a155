"""The command line: one module a command, imported only when that command runs, so that `--help` costs no Ray and no MLflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from specsweep.orchestrator.errors import EXIT_INTERRUPTED, SpecsweepError

COMMANDS = {
    "plan": "show the points, the sessions and what the grid loses, and why",
    "run": "measure every missing point of a sweep",
    "status": "how far a sweep is",
    "report": "tables, figures and report.html of a sweep",
    "compare": "differences between two sweeps beyond their intervals",
    "sync": "bring MLflow up to date with the store",
    "doctor": "check that this machine, or a cluster, can run a sweep",
    "inspect": "what a recorded stream or a stored trace says, request by request",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="specsweep",
        description="Sweep engine × drafter × draft length × batch size of LLM serving with speculative decoding.",
        epilog="Overrides follow Hydra's grammar: specsweep run sweep=quickstart drafter=none,ngram 'draft_length=range(1,6)'",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", add_help=False)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    if name not in COMMANDS:
        parser().parse_args(arguments or ["--help"])
        return 2  # pragma: no cover - argparse has left already
    module = import_module(f"specsweep.orchestrator.cli.{name}")
    command = argparse.ArgumentParser(prog=f"specsweep {name}", description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + ".")
    module.add_arguments(command)
    options = command.parse_intermixed_args(arguments[1:])
    try:
        return int(module.run(options))
    except SpecsweepError as error:
        print(f"specsweep {name}: {error.message}", file=sys.stderr)
        if error.evidence:
            print(error.evidence, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
