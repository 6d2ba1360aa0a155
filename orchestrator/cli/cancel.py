"""`specsweep cancel SWEEP cluster=kubernetes`: ends a sweep and everything that it started, and returns when its GPUs are free."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.errors import EXIT_OK, ClusterError, ConfigError

WITHIN_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="SWEEP cluster=kubernetes", help="the sweep, and what says which cluster")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups")
    add_json(parser)
    parser.add_argument("--timeout", type=float, default=WITHIN_S, metavar="S", help="how long to wait until all is gone (default 300)")


def run(args: argparse.Namespace) -> int:
    """Exit code 3 if something is left."""
    from specsweep.orchestrator.kube.access import in_cluster
    from specsweep.orchestrator.kube.removal import remove
    from specsweep.orchestrator.kube.words import is_about_a_cluster, one_sweep

    if not is_about_a_cluster(args.words):
        raise ConfigError("a sweep on this machine is ended where it runs, with Ctrl-C; for one in a cluster add cluster=kubernetes")
    if not args.timeout > 0:  # not a number is none either
        raise ConfigError(f"--timeout {args.timeout:g}: a time above 0 is needed")
    sweep, settings = one_sweep(args.words, args.config_dir, "cancel")
    found = in_cluster(settings, lambda api: remove(api, sweep, within_s=args.timeout, say=_say))
    if args.json:
        emit_json({"sweep": sweep, **dataclasses.asdict(found)})
        return ClusterError.exit_code if found.left else EXIT_OK
    if found.left:
        pods = [name for name in found.left if name.startswith("pod/")]
        advice = f"a pod on a node that does not answer is removed by force: kubectl delete --force {' '.join(pods)}; " if pods else ""
        _say(f"still there after {args.timeout:g} s: {', '.join(found.left)}; {advice}`specsweep cancel` again goes on waiting")
        return ClusterError.exit_code
    if not found.removed:
        others = f"; sweeps there: {', '.join(found.others)}" if found.others else ""
        print(f"{sweep}: nothing of it is in namespace {found.namespace}{others}")
        return EXIT_OK
    print(f"{sweep}: ended, {found.removed} objects are gone")
    print("What was measured stays in its store; `specsweep submit` with the same words goes on from there.")
    return EXIT_OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
