"""`specsweep doctor`: can this machine, or the cluster, run what the config asks for? Each finding says what to do."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsweep.orchestrator.cli.output import add_json, emit_json
from specsweep.orchestrator.errors import EXIT_OK, ClusterTerminal, ConfigError, SpecsweepError

if TYPE_CHECKING:
    from specsweep.orchestrator.config import SweepConfig

FREE_GIB = 3.0  # models, traces and MLflow's artifacts of a small sweep
MEMORY_GIB = 3.0  # Ray, MLflow and the quickstart's engine
LOAD_LIMIT = 0.5  # load average per core that other work puts on this machine before it disturbs a measurement
PACKAGES = ("ray", "mlflow", "hydra-core", "transformers", "pyarrow", "xllamacpp")


class Finding(NamedTuple):
    name: str
    ok: bool
    fact: str
    advice: str = ""
    fatal: bool = True
    exit_code: int = ConfigError.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        help="the same overrides as for `run`, to check that config (cluster=kubernetes …, cluster=attach endpoint=…, store=DIR)",
    )
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="a folder with your own config groups")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from specsweep.orchestrator.config import compose

    sweep = compose(args.overrides, args.config_dir)
    found = list(findings(sweep.base))
    if sweep.base["cluster"]["kind"] == "kubernetes":
        found += _cluster(sweep, args.overrides)
    if args.json:
        emit_json([finding._asdict() for finding in found])
    else:
        for finding in found:
            mark = "ok  " if finding.ok else ("FAIL" if finding.fatal else "note")
            print(
                f"{mark}  {finding.name:<20} {finding.fact}" + (f"\n      → {finding.advice}" if finding.advice and not finding.ok else "")
            )
    return next((finding.exit_code for finding in found if not finding.ok and finding.fatal), EXIT_OK)


def findings(base: Mapping[str, Any]) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", sys.version_info >= (3, 11), python, "use Python 3.11 or newer")
    for package in PACKAGES:
        try:
            yield Finding(package, True, version(package))
        except PackageNotFoundError:
            yield Finding(package, False, "not installed", "run `make setup`")
    yield from _machine(base) if _engines_are_here(base) else ()
    if base["cluster"]["kind"] == "local":
        yield _engine(base["engine"])
    if not _model_is_in_the_cluster(base):
        yield _attempt("model", lambda: _model(base))
    if base["cluster"]["kind"] == "attach":
        yield _attempt("endpoint", lambda: asyncio.run(_endpoint(base)))._replace(exit_code=ClusterTerminal.exit_code)
    yield _tracking(base)


def _engines_are_here(base: Mapping[str, Any]) -> bool:
    """This machine's memory, disks and GPUs say nothing of a cluster, unless it is part of it."""
    return base["cluster"]["kind"] != "kubernetes" or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _machine(base: Mapping[str, Any]) -> Iterator[Finding]:
    import psutil

    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().available / 2**30
    yield Finding("memory", memory >= MEMORY_GIB, f"{memory:.1f} GiB available", f"free at least {MEMORY_GIB:.0f} GiB", fatal=False)
    load = os.getloadavg()[0]
    busy = load / cores
    yield Finding(
        "load",
        busy <= LOAD_LIMIT,
        f"{load:.1f} on {cores} cores",
        "other work competes with a local engine; wait until it has ended",
        fatal=False,
    )
    yield _folder("store", Path(base["store"]).expanduser())
    yield _folder("cache", Path(base["cache"]).expanduser())
    yield _gpus()


def _model_is_in_the_cluster(base: Mapping[str, Any]) -> bool:
    from specsweep.orchestrator.kube.settings import Settings
    from specsweep.orchestrator.kube.submission import on_volume

    spec = base["target"].get("model")
    return bool(spec) and base["cluster"]["kind"] == "kubernetes" and on_volume(spec, Settings.of(base)) and not Path(spec["path"]).exists()


def _cluster(sweep: SweepConfig, overrides: Sequence[str]) -> Iterator[Finding]:
    from specsweep.orchestrator.kube.examination import examine, severity
    from specsweep.orchestrator.kube.settings import Settings
    from specsweep.orchestrator.kube.submission import contents_outside
    from specsweep.orchestrator.plan import plan_sweep

    settings = Settings.of(sweep.base)
    configs: list[Mapping[str, Any]] = [sweep.base]
    try:
        configs = [session.config for session in plan_sweep(sweep, contents=contents_outside(settings)).sessions]
    except ConfigError as error:
        yield Finding(
            "plan",
            False,
            error.message.removeprefix(f"sweep {sweep.name}: ").splitlines()[0],
            "`specsweep plan` with the same words says more",
        )
    for fact in asyncio.run(examine(settings, sweep.name, configs, overrides)):
        found = severity(fact)
        yield Finding(fact.what, found == "ok", fact.text, fatal=found == "failure", exit_code=ClusterTerminal.exit_code)


def _attempt(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except SpecsweepError as error:
        return Finding(name, False, error.message.splitlines()[0], error.message)


def _folder(name: str, path: Path) -> Finding:
    there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return Finding(name, False, f"{path}: {there} cannot be written", f"give another folder with {name}=DIR")
    free = shutil.disk_usage(there).free / 2**30
    return Finding(name, free >= FREE_GIB, f"{path}: {free:.0f} GiB free", f"make room, or give another folder with {name}=DIR")


def _gpus() -> Finding:
    from specsweep.orchestrator.environment import gpus

    found = gpus()
    return Finding("gpu", True, ", ".join(gpu["name"] for gpu in found) or "none (engines run on the CPU)")


def _engine(engine: Mapping[str, Any]) -> Finding:
    from specsweep.orchestrator.engines import launcher

    side = launcher(str(engine["name"]))
    reason = side.missing(engine)
    fact, _, advice = (reason or "").partition("; ")
    where = getattr(side, "installed", None)
    which = f": {where(engine)}" if where is not None and reason is None else ""
    return Finding("engine", reason is None, fact or f"{engine['name']} can be started here{which}", advice)


def _model(base: Mapping[str, Any]) -> str:
    from specsweep.orchestrator.models import model_identity

    spec = base["target"].get("model")
    if not spec:
        raise ConfigError(f"target {base['target'].get('name')!r} has no model; set target.model.source and target.model.path")
    return f"{base['target']['name']}: {model_identity(spec)}"


async def _endpoint(base: Mapping[str, Any]) -> str:
    from specsweep.client.scrape import is_healthy
    from specsweep.orchestrator.clusters.attach import AttachCluster

    place = AttachCluster.from_config(base)
    if not await is_healthy(place.base_url + "/health", headers=dict(place.headers), any_answer=True):
        raise ClusterTerminal(f"nothing answers at endpoint={place.base_url}")
    return f"{place.base_url} answers"


def _tracking(base: Mapping[str, Any]) -> Finding:
    if not base["tracking"]["enabled"]:
        return Finding("tracking", True, "off (tracking.enabled=false)")
    uri = base["tracking"].get("uri") or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return Finding("tracking", True, "sqlite inside the store")
    if not str(uri).startswith("http"):
        return Finding("tracking", True, str(uri))
    with suppress(OSError, ValueError):
        import urllib.request

        with urllib.request.urlopen(f"{str(uri).rstrip('/')}/health", timeout=5) as answer:
            return Finding("tracking", answer.status == 200, f"{uri} answers")
    return Finding(
        "tracking",
        False,
        f"{uri} does not answer" + ("" if _engines_are_here(base) else " here (pods may reach it all the same)"),
        "the sweep will run all the same; afterwards "
        + ("`specsweep sync` catches up" if base["cluster"]["kind"] != "kubernetes" else "`specsweep resume SWEEP` catches up"),
        fatal=False,
    )
