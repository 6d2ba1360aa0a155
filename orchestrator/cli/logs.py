"""`specsweep logs SWEEP cluster=kubernetes`: what the sweep's pod says, or one of its engines."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from specsweep.orchestrator.errors import EXIT_OK, ConfigError

if TYPE_CHECKING:
    from specsweep.k8s.api import Api

MOST_LINES = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="SWEEP cluster=kubernetes", help="the sweep, and what says which cluster")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="ID", help="of the engine that serves this session (its first digits will do)")
    which.add_argument("--engine", metavar="NAME", help="of the engine whose pod is called so (the beginning will do)")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until it ends")
    parser.add_argument("--tail", type=int, metavar="N", help="the last N lines; default: as many as the cluster gives")


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator.kube.access import in_cluster
    from specsweep.orchestrator.kube.words import is_about_a_cluster, one_sweep

    if not is_about_a_cluster(args.words):
        raise ConfigError("a sweep on this machine says where it runs what it says, and its engines' logs are in store/sweeps/NAME/logs; "
                          "for one in a cluster add cluster=kubernetes")  # fmt: skip
    if args.tail is not None and args.tail < 0:
        raise ConfigError(f"--tail {args.tail}: a number of lines is needed")
    sweep, settings = one_sweep(args.words, args.config_dir, "logs")
    return in_cluster(settings, lambda api: _show(api, sweep, args))


async def _show(api: Api, sweep: str, args: argparse.Namespace) -> int:
    from specsweep.k8s.evidence import last_lines
    from specsweep.orchestrator.kube.logs import follow, pod_of

    pod = await pod_of(api, sweep, session=args.session, engine=args.engine)
    if args.follow:
        await follow(api, pod, lambda line: print(line, flush=True), lines=args.tail)
        return EXIT_OK
    lines = (await last_lines(api, pod, lines=args.tail or MOST_LINES)).splitlines()
    for line in lines if args.tail is None else lines[len(lines) - min(args.tail, len(lines)) :]:
        print(line)
    return EXIT_OK
