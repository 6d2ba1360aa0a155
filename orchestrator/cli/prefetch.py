"""`specsweep prefetch`: fetches all models of a sweep onto the cluster's weights volume, before GPUs are held for it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.errors import EXIT_INTERRUPTED, EXIT_OK

if TYPE_CHECKING:
    from specsweep.k8s.api import Api
    from specsweep.k8s.specs import Owner
    from specsweep.orchestrator.kube.prefetch import Wanted
    from specsweep.orchestrator.kube.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="*", help="the same as for `submit`: sweep=NAME cluster=kubernetes and overrides")
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups; searched before ours"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.kube.access import in_cluster, kubernetes_settings
    from specsweep.orchestrator.kube.prefetch import counted, models_of, prefetch_spec
    from specsweep.orchestrator.kube.secrets import refuse_in_config, refuse_in_words
    from specsweep.orchestrator.kube.specs import NAMESPACE
    from specsweep.orchestrator.kube.submission import contents_outside
    from specsweep.orchestrator.plan import plan_sweep

    refuse_in_words(args.overrides)
    sweep = compose(args.overrides, args.config_dir)
    settings = kubernetes_settings(sweep.base, "prefetch")
    plan = plan_sweep(sweep, contents=contents_outside(settings))
    for session in plan.sessions:
        refuse_in_config(session.config)
    wanted = models_of(session.config for session in plan.sessions)
    job = ""
    if wanted:
        prefetch_spec(plan.name, wanted, settings, namespace=NAMESPACE)  # what is wrong with it is told before the cluster is asked
        try:
            job = in_cluster(settings, lambda api: _finish(api, plan.name, wanted, settings))
        except KeyboardInterrupt:
            _say("the download goes on in the cluster; the same command shows it again")
            return EXIT_INTERRUPTED
    claim = settings.weights.claim if settings.weights else ""
    if args.json:
        emit_json({"sweep": plan.name, "job": job or None, "volume": claim or None, "models": [model.name for model in wanted]})
    elif not wanted:
        print(f"{plan.name} loads no model")
    else:
        print(f"{plan.name}: {counted(len(wanted))} {'is' if len(wanted) == 1 else 'are'} on volume {claim}")
    return EXIT_OK


async def _finish(api: Api, sweep: str, wanted: list[Wanted], settings: Settings) -> str:
    """The name of the Job, once it is done."""
    from specsweep.k8s.errors import StartError
    from specsweep.k8s.fleet import Fleet
    from specsweep.k8s.jobs import finish
    from specsweep.orchestrator.kube.prefetch import as_error, counted, prefetch_spec
    from specsweep.orchestrator.kube.specs import budgets
    from specsweep.orchestrator.kube.volumes import look_at

    await look_at(api, settings)
    spec = prefetch_spec(sweep, wanted, settings, namespace=api.namespace)
    _say(f"Job {spec.name} in namespace {api.namespace}: {counted(len(wanted))}")
    async with Fleet(api, spec.labels) as fleet:
        try:
            await finish(fleet, spec, await _sweeps_job(api, sweep), budgets=budgets(settings.deadlines), progress=_say)
        except StartError as error:
            raise as_error(error) from error
    return spec.name


async def _sweeps_job(api: Api, sweep: str) -> Owner | None:
    """That of a sweep that goes on, which its download is to go with; one that is over will be replaced, and must not take it along."""
    from specsweep.k8s.errors import NotFound
    from specsweep.k8s.fleet import is_over
    from specsweep.k8s.resources import JOBS
    from specsweep.k8s.specs import Owner
    from specsweep.orchestrator.kube.submission import job_name

    try:
        job = await api.get(JOBS, job_name(sweep))
    except NotFound:
        return None
    return None if is_over(job) or job["metadata"].get("deletionTimestamp") else Owner.of(job)


def _say(text: str) -> None:
    if text:  # a log that is still empty
        print(text, file=sys.stderr, flush=True)
