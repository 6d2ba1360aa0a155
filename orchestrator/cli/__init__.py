"""The command line: one module a command, imported only when that command runs, so that `--help` costs no Ray and no MLflow."""

from __future__ import annotations

import argparse
import errno
import io
import sys
from collections.abc import Sequence
from importlib import import_module

from specsweep.orchestrator.cli.writing import is_bad_input, told
from specsweep.orchestrator.errors import EXIT_INTERRUPTED, ClientError, ConfigError, SpecsweepError

COMMANDS = {
    "plan": "show the points, the sessions and what the grid loses, and why",
    "run": "measure every missing point of a sweep",
    "submit": "start a sweep as a Job of a Kubernetes cluster",
    "status": "how far a sweep is, here or in a cluster",
    "logs": "what a sweep in a cluster, or one of its engines, says",
    "cancel": "end a sweep in a cluster and remove all that it started",
    "resume": "go on with a sweep that was stopped, here or in a cluster",
    "prefetch": "fetch a sweep's models onto the weights volume of a cluster",
    "report": "tables, figures and report.html of a sweep",
    "reproduce": "tables and figures of the paper, ours beside its own",
    "compare": "differences between two sweeps beyond their intervals",
    "merge": "one sweep of several, without measuring or copying anything again",
    "map": "the best draft length by batch size, crossovers, and settings for a server",
    "advise": "what to run for a service goal, ranked, and what to measure next",
    "envelope": "the Pareto front at an input length between those that were measured",
    "proxy": "speedups from step times of one measurement and acceptance of another",
    "sync": "bring MLflow up to date with the store",
    "doctor": "check that this machine, or a cluster, can run a sweep",
    "inspect": "what a recorded stream or a stored trace says, request by request",
    "data": "data sets of prompts: prepare, select, stats, stability, spectrum",
}
FAMILIES = {
    "data": {
        "prepare": "fill in SPEED-Bench from its sources, or write the committed data set in its form",
        "select": "of many candidates the prompts of each category that are least like each other",
        "stats": "what is in a data set, or in two side by side",
        "stability": "how much figures depend on which prompts of a measured pool a benchmark takes",
        "spectrum": "the prompts of a measured sweep in one order, by how predictable their answers were",
    }
}


EPILOG = """\
specsweep COMMAND --help explains a command. Overrides follow Hydra's grammar:
  specsweep plan sweep=quickstart drafter=none,ngram 'draft_length=range(1,6)'
  specsweep run sweep=smoke

exit codes:
  0  done                                    5  done, but some points failed
  2  bad input, or nothing to compare           or are not valid
  3  the place of the engines is wrong       6  the measuring side failed
  4  every point failed: engine, requests    7  compare found a regression
                                            75  the cluster was away: run it again
                                           130  interrupted; what was measured is kept"""


def _version() -> str:
    from importlib.metadata import version

    return version("specsweep")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="specsweep",
        description="Sweep engine × drafter × draft length × batch size of LLM serving with speculative decoding.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", add_help=False)
    return top


def _family(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"specsweep {name}", description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + ".")
    members = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for member, summary in FAMILIES[name].items():
        members.add_parser(member, help=summary, add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no "·" or "–" must not end a sweep
            stream.reconfigure(errors="replace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    if name not in COMMANDS:
        parser().parse_args(arguments or ["--help"])
        return 2  # pragma: no cover - argparse has left already
    summary, words = COMMANDS[name], arguments[1:]
    if members := FAMILIES.get(name):
        if not words or words[0] not in members:
            _family(name).parse_args(words or ["--help"])
            return 2  # pragma: no cover - argparse has left already
        name, summary, words = f"{name} {words[0]}", members[words[0]], words[1:]
    module = import_module(f"specsweep.orchestrator.cli.{name.replace(' ', '_')}")
    command = argparse.ArgumentParser(prog=f"specsweep {name}", description=summary[0].upper() + summary[1:] + ".")
    module.add_arguments(command)
    options = command.parse_intermixed_args(words)
    try:
        code = int(module.run(options))
        sys.stdout.flush()  # what cannot be printed is an error of this command, too
        return code
    except SpecsweepError as error:
        print(f"specsweep {name}: {error.message}", file=sys.stderr)
        if error.evidence:
            print(error.evidence, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        print(f"specsweep {name}: {told(error)}", file=sys.stderr)
        return ConfigError.exit_code if is_bad_input(error) else ClientError.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
