"""`specsweep resume SWEEP`: goes on with a sweep as it was asked for, without the words being typed again.

On this machine they stand in the sweep's plan; in a cluster, on its Job. A sweep that still runs needs no resuming and is left alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from specsweep.orchestrator.cli.output import add_json
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.run_command import key_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="SWEEP store=DIR", help="the sweep, and where its results live, or cluster=kubernetes")
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="the folders with your own config groups that it was started with"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator.kube.words import is_about_a_cluster

    if is_about_a_cluster(args.words):
        return _in_cluster(args.words, args.config_dir, as_json=args.json)
    return _here(args.words, args.config_dir, as_json=args.json)


def _here(words: Sequence[str], config_dirs: Sequence[str], *, as_json: bool) -> int:
    from specsweep.orchestrator.cli import run as run_here
    from specsweep.orchestrator.cli.selection import names_and_store, only_sweep
    from specsweep.orchestrator.typed_paths import as_typed

    names, store = names_and_store(words)
    if len(names) > 1:
        raise ConfigError(f"resume takes one sweep, not {', '.join(names)}")
    name = names[0] if names else only_sweep(store)
    if (writer := store.writer()) is not None:
        raise ConfigError(
            f"store={store.root}: pid {writer.get('pid')} on {writer.get('host')} is writing to it: something runs there already"
        )
    plan = store.sweep_plan(name)
    if merged := plan.get("merged_from"):
        raise ConfigError(f"sweep {name} is merged from {', '.join(s['sweep'] for s in merged)}: resume those, then merge again")
    overrides = [word for word in map(str, plan.get("overrides") or ()) if key_of(word) != "store"]
    if not overrides:
        raise ConfigError(f"sweep {name} does not say how it was asked for; use `specsweep run` with its words")
    again = argparse.Namespace(overrides=[*overrides, as_typed("store", store.root)], config_dir=list(config_dirs), json=as_json)
    return run_here.run(again)


def _in_cluster(words: Sequence[str], config_dirs: Sequence[str], *, as_json: bool) -> int:
    from specsweep.orchestrator.cli.submit import submit
    from specsweep.orchestrator.kube.access import in_cluster
    from specsweep.orchestrator.kube.config_files import unpacked
    from specsweep.orchestrator.kube.resumption import asked_for, with_access
    from specsweep.orchestrator.kube.words import one_sweep

    sweep, settings = one_sweep(words, config_dirs, "resume")
    asked = in_cluster(settings, lambda api: asked_for(api, sweep))
    if not asked.over:
        print(f"{sweep} runs as Job {asked.job}, which Kubernetes starts again by itself if its pod dies; nothing to resume")
        return EXIT_OK
    given = [word for word in words if key_of(word).startswith("cluster.")]
    with tempfile.TemporaryDirectory() as folder:
        folders = unpacked(asked.files, Path(folder))
        again = with_access(asked.overrides, given)
        return submit(again, folders, as_json=as_json, tracking_uri=asked.tracking_uri, shown_dirs=config_dirs)
