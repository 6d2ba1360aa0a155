"""From the words of `specsweep run` to the Job that runs them in the cluster. Pure.

The Job runs the same words again, in a pod: whatever a sweep may be, only one program has to understand it. What cannot mean the same
there is replaced: where results and models lie (on the volumes that the config names, else in the pod), and how the cluster is reached.

A sweep's results lie in a folder of their own on the volume, since a store has one writer and several sweeps may run at once.

Its pod is started again after a crash; what is measured is kept. Exit codes that another try would not change end the Job
(:data:`FINAL_CODES`): bad input, a cluster or an engine that cannot serve any point, points that failed. The API server away, no client process, a
full disk and an interruption may be over at the next try.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specsweep.k8s import names
from specsweep.k8s.errors import SpecError
from specsweep.k8s.specs import ClaimMount, Program, SweepSpec
from specsweep.orchestrator.clusters.kubernetes import JOB_VARIABLE
from specsweep.orchestrator.errors import EXIT_INCOMPLETE, ClusterTerminal, ConfigError, EngineError
from specsweep.orchestrator.identity import Contents
from specsweep.orchestrator.kube import secrets
from specsweep.orchestrator.kube.config_files import places
from specsweep.orchestrator.kube.local_files import LOOPBACK
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.kube.specs import fingerprint, hub_token, placement
from specsweep.orchestrator.run_command import key_of
from specsweep.orchestrator.typed_paths import PATH_KEYS, as_typed

SWEEP_NAME = "specsweep.io/sweep-name"  # annotations of the Job: the whole name (a label's value may be a shortened one),
OVERRIDES = "specsweep.io/overrides"  # the words as a JSON list,
POINTS = "specsweep.io/points"  # and how many points they made when they were submitted
FINAL_CODES = (ConfigError.exit_code, ClusterTerminal.exit_code, EngineError.exit_code, EXIT_INCOMPLETE)
GRACE_S = 60  # for ending its engines, before it is killed
SCRATCH = "/scratch"  # the pod's own folder, gone with it
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
_VARIABLE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)")
ACCESS_KEYS = ("cluster.kubeconfig", "cluster.context")


def job_name(sweep: str) -> str:
    return names.object_name(f"sweep-{sweep}", fingerprint(sweep))


def store_of(settings: Settings, sweep: str) -> str:
    """The folder of the sweep's results inside its pod."""
    return f"{settings.results.path.rstrip('/')}/{sweep}" if settings.results else f"{SCRATCH}/results"


def sweep_spec(
    sweep: str,
    overrides: Sequence[str],
    settings: Settings,
    *,
    namespace: str,
    files: Mapping[str, str] | None = None,
    points: int = 0,
    tracking_uri: str | None = None,
    weights_writable: bool = True,
) -> SweepSpec:
    """``files``: the user's config groups (:func:`~specsweep.orchestrator.kube.config_files.packed`). Raises ConfigError naming the field."""
    image = settings.own_image
    secrets.refuse_in_words(overrides)
    files = dict(files or {})
    pod = settings.sweep
    name = job_name(sweep)
    try:
        return SweepSpec(
            name=name,
            namespace=namespace,
            labels=names.labels("sweep", sweep=sweep),
            program=Program(
                image=image,
                argv=("specsweep", "run", *words_inside(sweep, overrides, settings, files, weights_writable=weights_writable)),
                cpu=str(pod.get("cpu") or 1),
                memory=str(pod.get("memory") or "4Gi"),
                env={JOB_VARIABLE: name, "PYTHONUNBUFFERED": "1", **({TRACKING_VARIABLE: tracking_uri} if tracking_uri else {})},
                secret_env=hub_token(settings),
                files=files,
                claims=claims(settings, weights_writable=weights_writable),
                run_as_user=pod.get("run_as_user"),
            ),
            placement=placement(pod, settings),
            annotations={SWEEP_NAME: sweep, OVERRIDES: json.dumps(list(overrides)), POINTS: str(points)},
            grace_s=GRACE_S,
            shm=str(pod["shm"]) if pod.get("shm") else None,
            service_account=settings.service_account,
            retries=int(pod["retries"]) if pod.get("retries") is not None else 0,
            final_codes=FINAL_CODES,
        )
    except SpecError as error:
        raise ConfigError(f"sweep {sweep} on Kubernetes: {error.message} (cluster.sweep, cluster.results, cluster.weights)") from error


def words_inside(
    sweep: str, overrides: Sequence[str], settings: Settings, files: Mapping[str, str], *, weights_writable: bool = True
) -> list[str]:
    """The arguments of `specsweep run` in the pod."""
    kept = [word for word in overrides if key_of(word) not in (*PATH_KEYS, *ACCESS_KEYS)]
    cache = settings.weights.path if settings.weights and weights_writable else f"{SCRATCH}/cache"
    # Whoever it was that named the way to the cluster, a sweep file included: inside it is the service account's.
    inside = [f"{key}=null" for key, value in zip(ACCESS_KEYS, (settings.kubeconfig, settings.context), strict=True) if value is not None]
    folders = [word for place in places(files) for word in ("--config-dir", f"{{files}}/{place}")]
    return [*kept, as_typed("store", store_of(settings, sweep)), as_typed("cache", cache), *inside, *folders]


def replaced(overrides: Sequence[str], settings: Settings, sweep: str, files: Mapping[str, str] | None = None) -> list[str]:
    """What is said of words, and of the user's config ``files``, that do not mean the same inside."""
    notes = []
    gone = (*PATH_KEYS, *ACCESS_KEYS)
    for text in (*(word for word in overrides if key_of(word) not in gone), *(files or {}).values()):
        for name in _VARIABLE.findall(text):
            notes.append(
                f"${{oc.env:{name}}} is read in the sweep's pod, which does not have this machine's variables: write its value out"
            )
    for word in overrides:
        if key_of(word) == "store":
            where = f"claim {settings.results.claim}, in {store_of(settings, sweep)}" if settings.results else "the sweep's pod"
            notes.append(f"{word} is a folder of this machine: results go to {where}")
        elif key_of(word) == "cache":
            notes.append(
                f"{word} is a folder of this machine: models go to {settings.weights.path if settings.weights else 'the sweep pod'}"
            )
        elif word.strip() == "rerun=all":
            notes.append("rerun=all: after a crash of its pod the sweep measures everything again, not what is missing")
    if settings.results is None:
        notes.append(
            "cluster.results.claim is not set: results live in the sweep's pod, and what MLflow does not hold is lost with it; "
            "name a PersistentVolumeClaim: cluster.results.claim=NAME"
        )
    return notes


def tracking_uri_inside(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """``MLFLOW_TRACKING_URI`` as far as it means the same in the cluster, and what is to be said of it if it does not.

    Raises ConfigError for one with a password in it.
    """
    uri = environment.get(TRACKING_VARIABLE, "").strip()
    if not uri.startswith(("http://", "https://")):
        return None, None  # a database on this machine
    if secrets.in_url(uri):
        raise ConfigError(
            f"{TRACKING_VARIABLE} has a password or a token in it, which everybody could read in the sweep's Job; leave it out there, and give "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD from a Secret in cluster.sweep.template"
        )
    if urlsplit(uri).hostname in LOOPBACK:
        return None, f"{TRACKING_VARIABLE}={uri} is this machine; name the server as pods see it: tracking.uri=http://SERVICE:5000"
    return uri, None


def claims(settings: Settings, *, weights_writable: bool) -> tuple[ClaimMount, ...]:
    found = [ClaimMount(settings.results.claim, settings.results.path, read_only=False)] if settings.results else []
    if settings.weights:
        found.append(ClaimMount(settings.weights.claim, settings.weights.path, read_only=not weights_writable))
    return tuple(found)


def contents_outside(settings: Settings) -> Contents:
    """Names of contents for a plan that is made outside of the cluster: a model on the weights volume has no hash here.

    Such a plan has the right points, and ids that are not those of the cluster's.
    """

    from specsweep.orchestrator.models import model_identity

    def model(spec: Mapping[str, Any]) -> str:
        if on_volume(spec, settings) and not Path(str(spec["path"])).exists():
            return f"on the weights volume: {json.dumps(dict(spec), sort_keys=True, default=str)}"
        return model_identity(spec)

    return Contents(model)


def on_volume(spec: Mapping[str, Any], settings: Settings) -> bool:
    """Whether this model lies on the weights volume, where only pods see it."""
    path = str(spec.get("path") or "")
    return spec.get("source") == "path" and settings.weights is not None and path.startswith(f"{settings.weights.path.rstrip('/')}/")


def follow_up(command: str, sweep: str, overrides: Sequence[str], config_dirs: Sequence[str] = ()) -> str:
    """The command that looks after a sweep that was submitted with ``overrides``."""
    ways = [word for word in overrides if key_of(word) == "cluster" or key_of(word) in (*ACCESS_KEYS, "cluster.namespace")]
    if not any(key_of(word) == "cluster" for word in ways):
        ways.insert(0, "cluster=kubernetes")
    own = any(key_of(word) == "cluster" and word.partition("=")[2].strip() != "kubernetes" for word in ways)  # an option of the user's
    folders = [word for folder in config_dirs for word in ("--config-dir", str(folder))] if own else []
    return shlex.join(["specsweep", command, sweep, *ways, *folders])


def kubectl_command(sweep: str, namespace: str) -> str:
    return shlex.join(["kubectl", "get", "jobs,pods", "-l", f"{names.SWEEP}={names.label_value(sweep)}", "-n", namespace])
