"""What a sweep that was handed over was asked for with: read from its Job and its ConfigMap, to ask for it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specsweep.k8s import names
from specsweep.k8s.merge import MAIN
from specsweep.k8s.specs import file_name
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.submission import OVERRIDES, SWEEP_NAME, TRACKING_VARIABLE, job_name
from specsweep.orchestrator.run_command import key_of

if TYPE_CHECKING:
    from specsweep.k8s.api import Api


@dataclass(frozen=True, slots=True)
class Asked:
    """``over``: whether its Job has ended; one that has not goes on by itself."""

    job: str
    over: bool
    overrides: tuple[str, ...]
    files: Mapping[str, str]  # the user's config groups, as they were packed
    tracking_uri: str | None


async def asked_for(api: Api, sweep: str) -> Asked:
    """Raises ConfigError if the namespace has no Job of that sweep, or one that does not say how it was asked for."""
    from specsweep.k8s.errors import NotFound
    from specsweep.k8s.fleet import is_over
    from specsweep.k8s.resources import CONFIG_MAPS, JOBS

    name = job_name(sweep)
    try:
        job = await api.get(JOBS, name)
    except NotFound:
        raise ConfigError(
            f"sweep {sweep} has no Job in namespace {api.namespace}, and it is the Job that knows its words; after `cancel`, "
            "`specsweep submit` with the words it was started with goes on with what is measured"
        ) from None
    metadata = job["metadata"]
    files: dict[str, str] = {}
    try:
        words = json.loads((metadata.get("annotations") or {})[OVERRIDES])
        if not names.carries(metadata.get("labels") or {}, names.labels("sweep", sweep=sweep)):
            raise ValueError("its labels are not ours")
    except (KeyError, ValueError) as error:
        raise ConfigError(f"Job {name} does not say how sweep {sweep} was asked for ({error}); use `specsweep submit`") from error
    try:
        found = await api.get(CONFIG_MAPS, name)
        files = {file_name(key): text for key, text in (found.get("data") or {}).items()}
    except NotFound:
        if any(volume.get("name") == "files" for volume in job["spec"]["template"]["spec"].get("volumes") or ()):
            raise ConfigError(f"ConfigMap {name} with the config groups of sweep {sweep} is gone; use `specsweep submit`") from None
    return Asked(name, is_over(job), tuple(map(str, words)), files, _tracking_uri(job))


async def sweeps_there(api: Api) -> list[str]:
    """Names of the sweeps that have a Job in the namespace."""
    from specsweep.k8s.resources import JOBS

    jobs, _ = await api.find(JOBS, selector=names.selector({names.MANAGED_BY: names.APP, names.COMPONENT: "sweep"}))
    return sorted(str((job["metadata"].get("annotations") or {}).get(SWEEP_NAME) or names.label_of(job, names.SWEEP)) for job in jobs)


async def not_there(api: Api, sweep: str) -> str:
    """What is said of a sweep that the namespace does not have. Whether there is such a namespace may be hidden from us."""
    from specsweep.k8s.errors import ApiError, NotFound
    from specsweep.k8s.resources import NAMESPACES

    try:
        await api.get(NAMESPACES, api.namespace)
    except NotFound:
        return f"there is no namespace {api.namespace} in this cluster: cluster.namespace=NAME says which"
    except ApiError:
        pass
    return f"sweep {sweep!r} is not in namespace {api.namespace}; sweeps there: {', '.join(await sweeps_there(api)) or 'none'}"


def with_access(overrides: Sequence[str], given: Sequence[str]) -> list[str]:
    """The words that a sweep was asked for with, with what is now ``given`` about the cluster instead of what was."""
    keys = {key_of(word) for word in given}
    return [*(word for word in overrides if key_of(word) not in keys), *given]


def _tracking_uri(job: Mapping[str, Any]) -> str | None:
    containers = job["spec"]["template"]["spec"].get("containers") or ()
    env = next((container.get("env") or () for container in containers if container.get("name") == MAIN), ())
    return next((str(variable.get("value")) for variable in env if variable.get("name") == TRACKING_VARIABLE), None)
