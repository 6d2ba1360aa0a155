"""`specsweep submit`: the same words as `run`, for a sweep that runs in the cluster as a Job, while this machine may go home.

What is wrong with the words is told here, before anything is sent: the sweep is planned, and every engine's pod is described. What only
the cluster knows (whether a volume is there, whether it would take the objects) is asked of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsweep.orchestrator.cli.output import add_json, emit_json, say_if_large
from specsweep.orchestrator.errors import EXIT_OK, ConfigError
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.points import Plan

if TYPE_CHECKING:
    from specsweep.k8s.api import Api
    from specsweep.k8s.specs import SweepSpec

SHOWN_LOSSES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="the same as for `run`: sweep=NAME cluster=kubernetes and overrides")
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups; they travel with the sweep"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="let the API server check the objects without keeping them, and print them as YAML"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    return submit(args.overrides, args.config_dir, dry_run=args.dry_run, as_json=args.json)


def submit(
    overrides: Sequence[str],
    config_dirs: Sequence[str],
    *,
    dry_run: bool = False,
    as_json: bool = False,
    tracking_uri: str | None = None,
    shown_dirs: Sequence[str] | None = None,
) -> int:
    """``tracking_uri``: of MLflow as pods see it; None: the environment's, if pods can see that. ``shown_dirs``: the config folders in the
    commands that are told afterwards, where ``config_dirs`` last no longer than this call."""
    from specsweep.orchestrator.kube.access import in_cluster

    order = prepare(overrides, config_dirs, tracking_uri)
    for note in order.notes:
        _say(f"note: {note}")
    if dry_run:
        return in_cluster(order.settings, lambda api: _dry_run(api, order))
    name, namespace, ran = in_cluster(order.settings, lambda api: _submit(api, order))
    if as_json:
        emit_json({"sweep": order.plan.name, "job": name, "namespace": namespace, "ran_already": ran, **_counts(order.plan)})
    else:
        _tell(order, name, namespace, ran=ran, config_dirs=order.config_dirs if shown_dirs is None else shown_dirs)
    return EXIT_OK


@dataclass(frozen=True, slots=True)
class Order:
    """A sweep that can be handed over."""

    plan: Plan
    settings: Settings
    overrides: tuple[str, ...]
    config_dirs: tuple[str, ...]
    files: Mapping[str, str]
    tracking_uri: str | None
    notes: tuple[str, ...]


def prepare(overrides: Sequence[str], config_dirs: Sequence[str], tracking_uri: str | None = None) -> Order:
    """Raises ConfigError for everything that can be known to be wrong without asking the cluster."""
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.grid import cells
    from specsweep.orchestrator.kube import submission
    from specsweep.orchestrator.kube.access import kubernetes_settings
    from specsweep.orchestrator.kube.config_files import packed, unpacked
    from specsweep.orchestrator.kube.local_files import check_tracking, only_here
    from specsweep.orchestrator.kube.secrets import refuse_in_config, refuse_in_words
    from specsweep.orchestrator.kube.specs import NAMESPACE
    from specsweep.orchestrator.plan import plan_sweep

    refuse_in_words(overrides)  # before anything is said of them
    sweep = compose(overrides, config_dirs)
    settings = kubernetes_settings(sweep.base, "submit")
    refuse_in_config(sweep.base)
    files = packed(config_dirs)
    if files:  # what composes from what travels, composes there
        with tempfile.TemporaryDirectory() as folder:
            compose(overrides, unpacked(files, Path(folder)))
    say_if_large(cells(sweep))
    plan = plan_sweep(sweep, contents=submission.contents_outside(settings))
    found, said = submission.tracking_uri_inside(os.environ) if tracking_uri is None else (tracking_uri, None)
    if uri := sweep.base["tracking"].get("uri"):  # the sweep's own words say where MLflow is
        found, said = None, check_tracking(str(uri), settings)
    order = Order(
        plan,
        settings,
        tuple(overrides),
        tuple(config_dirs),
        files,
        found,
        (
            *plan.warnings,
            *submission.replaced(overrides, settings, plan.name, files),
            *only_here((session.config for session in plan.sessions), settings),
            *([said] if said else []),
        ),
    )
    _spec(order, NAMESPACE, weights_writable=True)
    _describe_engines(plan, settings)
    return order


def _describe_engines(plan: Plan, settings: Settings) -> None:
    """Raises ConfigError for an engine of which no object can be made."""
    from specsweep.k8s.errors import KubernetesError
    from specsweep.k8s.manifests import server_objects
    from specsweep.orchestrator.engines import EngineSpec
    from specsweep.orchestrator.kube.specs import NAMESPACE, server_spec

    for session in plan.sessions:
        engine = str(session.config["engine"]["name"])
        env = {str(name): str(value) for name, value in (session.config["engine"].get("env") or {}).items()}
        spec = server_spec(
            EngineSpec(engine, (engine,), engine, env=env),
            session.config,
            settings,
            sweep=plan.name,
            session_id=session.session_id,
            namespace=NAMESPACE,
        )
        try:
            server_objects(spec, None)
        except KubernetesError as error:
            raise ConfigError(
                f"engine {engine} on Kubernetes: {error.message} (cluster.pod.template, engine.pod.template, target.pod.template)"
            ) from error


def _spec(order: Order, namespace: str, *, weights_writable: bool) -> SweepSpec:
    from specsweep.orchestrator.kube.submission import sweep_spec

    return sweep_spec(
        order.plan.name,
        order.overrides,
        order.settings,
        namespace=namespace,
        files=order.files,
        points=len(order.plan.points),
        tracking_uri=order.tracking_uri,
        weights_writable=weights_writable,
    )


async def _submit(api: Api, order: Order) -> tuple[str, str, bool]:
    from specsweep.k8s.jobs import adopt_downloads
    from specsweep.k8s.jobs import submit as hand_over
    from specsweep.k8s.names import labels
    from specsweep.k8s.specs import Owner
    from specsweep.orchestrator.kube.volumes import look_at

    volumes = await look_at(api, order.settings)
    for note in volumes.notes:
        _say(f"note: {note}")
    job, ran = await hand_over(api, _spec(order, api.namespace, weights_writable=volumes.weights_writable))
    await adopt_downloads(api, Owner.of(job), labels("prefetch", sweep=order.plan.name))
    return str(job["metadata"]["name"]), api.namespace, ran


async def _dry_run(api: Api, order: Order) -> int:
    """Prints the objects as the API server would have them. One that is there already is checked as far as that allows, and said."""
    import yaml

    from specsweep.k8s.errors import Conflict
    from specsweep.k8s.manifests import sweep_objects
    from specsweep.orchestrator.kube.volumes import look_at

    volumes = await look_at(api, order.settings)
    for note in volumes.notes:
        _say(f"note: {note}")
    shown = []
    for obj in sweep_objects(_spec(order, api.namespace, weights_writable=volumes.weights_writable)):
        try:
            shown.append(_plain(await api.create(obj, dry_run=True)))
        except Conflict:
            _say(f"note: {obj['kind']} {obj['metadata']['name']} is there already; shown as it would be sent")
            shown.append(obj)
    print(yaml.safe_dump_all(shown, sort_keys=False, width=160), end="")
    _say("checked by the API server; nothing was kept")
    return EXIT_OK


def _plain(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says who set which field."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _counts(plan: Plan) -> dict[str, int]:
    from specsweep.orchestrator.cli.plan import summarise

    return {"points": len(plan.points), "sessions": len(plan.sessions), "cells_left_out": sum(n for n, *_ in summarise(plan))}


def _tell(order: Order, job: str, namespace: str, *, ran: bool, config_dirs: Sequence[str]) -> None:
    from specsweep.orchestrator.cli.plan import summarise
    from specsweep.orchestrator.kube.submission import follow_up, kubectl_command

    plan = order.plan
    losses = [(n, rule, where, reason) for n, rule, where, reason in summarise(plan) if n]
    for n, rule, where, reason in losses[:SHOWN_LOSSES]:
        _say(f"left out: {n} cell{'' if n == 1 else 's'} ({rule}{', ' + where if where else ''}): {reason}")
    if len(losses) > SHOWN_LOSSES:
        _say(f"left out: … and {len(losses) - SHOWN_LOSSES} more groups; `specsweep plan` with the same words lists them")
    how = "runs already, with the same words, as" if ran else "was handed over as"
    print(f"{plan.name} ({len(plan.points)} points in {len(plan.sessions)} sessions) {how} Job {job} in namespace {namespace}")
    for command, why in (("status", "how far it is (--watch)"), ("logs", "what it says (--follow)"), ("cancel", "ends it; results stay")):
        print(f"  {follow_up(command, plan.name, order.overrides, config_dirs)}    # {why}")
    print(f"  {kubectl_command(plan.name, namespace)}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
