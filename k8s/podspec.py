"""The pod template that all our Jobs share: one container that may do as little as it needs.

* requests equal limits, so that a pod is Guaranteed: nobody takes its CPU or memory while it measures or is measured;
* no service account token, no added capability, no privilege, the runtime's seccomp profile; no host network, IPC or PID;
* service links off: Kubernetes would put ``VLLM_PORT=tcp://…`` into the environment for a service of that name;
* ``USER`` and ``HOME`` always set, the latter to a scratch folder: with an arbitrary user id there is neither, and programs that
  ask for the user's name or cache below the home folder end with a traceback;
* the last lines of the log become the termination message, which outlives the container's log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from specsweep.k8s.merge import MAIN
from specsweep.k8s.specs import PrefetchSpec, Program, ServerSpec, SweepSpec, file_key

FILES_DIR = "/etc/specsweep"
SCRATCH_DIR = "/scratch"
USER = "specsweep"
FILES_HASH = "specsweep.io/files"


def pod_template(
    spec: ServerSpec | SweepSpec | PrefetchSpec,
    *,
    placeholders: Mapping[str, str],
    resources: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    container: Mapping[str, Any] | None = None,
    env: Sequence[Mapping[str, Any]] = (),
    pod: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """``resources``, ``node_selector``, ``tolerations`` and ``env`` are added to the spec's; ``container`` and ``pod`` are further fields."""
    program, place = spec.program, spec.placement
    amounts = {"cpu": program.cpu, "memory": program.memory, **program.extra_resources, **(resources or {})}
    volumes, mounts = _volumes(spec)
    chosen = {**place.node_selector, **(node_selector or {})}
    tolerated = [*tolerations, *place.tolerations]
    main = {
        "name": MAIN,
        "image": program.image,
        **({"imagePullPolicy": program.pull_policy} if program.pull_policy else {}),
        "command": [_text(program.argv[0], placeholders)],
        "args": [_text(part, placeholders) for part in program.argv[1:]],
        "env": [*_env(program, placeholders), *env],
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": ["ALL"], **({"add": list(program.capabilities)} if program.capabilities else {})},
            "seccompProfile": {"type": "RuntimeDefault"},
            **({"runAsUser": program.run_as_user, "runAsNonRoot": program.run_as_user != 0} if program.run_as_user is not None else {}),
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **(container or {}),
    }
    return {
        "metadata": {"labels": dict(spec.labels), "annotations": {**spec.annotations, **_files_hash(program)}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": spec.grace_s,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [main],
            "volumes": volumes,
            **({"nodeSelector": chosen} if chosen else {}),
            **({"tolerations": [dict(item) for item in tolerated]} if tolerated else {}),
            **({"securityContext": _group(program.run_as_user)} if program.run_as_user else {}),
            **({"affinity": _away_from(place.avoid_nodes)} if place.avoid_nodes else {}),
            **({"runtimeClassName": place.runtime_class} if place.runtime_class else {}),
            **({"priorityClassName": place.priority_class} if place.priority_class else {}),
            **({"imagePullSecrets": [{"name": name} for name in place.image_pull_secrets]} if place.image_pull_secrets else {}),
            **(pod or {}),
        },
    }


def _group(user: int) -> dict[str, Any]:
    """Volumes of block devices belong to root; a program that is not root may write them through its group."""
    return {"fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}


def _away_from(nodes: Sequence[str]) -> dict[str, Any]:
    """A preference and no condition: a node that failed once is better than none."""
    terms = [{"weight": 100, "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [n]}]}} for n in nodes]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def _files_hash(program: Program) -> dict[str, str]:
    """With other files it is another Job, though they stand in another object."""
    if not program.files:
        return {}
    return {FILES_HASH: hashlib.sha256(json.dumps(sorted(program.files.items())).encode()).hexdigest()[:16]}


def _env(program: Program, placeholders: Mapping[str, str]) -> list[dict[str, Any]]:
    plain = {"USER": USER, "HOME": SCRATCH_DIR, **program.env}
    refs = {
        name: {"name": ref.name, "key": ref.key, **({"optional": True} if ref.optional else {})} for name, ref in program.secret_env.items()
    }
    return [
        *({"name": name, "value": _text(value, placeholders)} for name, value in plain.items()),
        *({"name": name, "valueFrom": {"secretKeyRef": ref}} for name, ref in refs.items()),
    ]


def _text(text: str, placeholders: Mapping[str, str]) -> str:
    """Filled in, and with ``$`` doubled: the kubelet would take ``$(NAME)`` for a variable and ``$$`` for ``$``."""
    for name, value in placeholders.items():
        text = text.replace(name, value)
    return text.replace("$", "$$")


def _volumes(spec: ServerSpec | SweepSpec | PrefetchSpec) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "scratch", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "scratch", "mountPath": SCRATCH_DIR}]
    if spec.shm is not None:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": spec.shm}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if spec.program.files:
        paths = [{"key": file_key(name), "path": name} for name in sorted(spec.program.files)]
        folders = any("/" in name for name in spec.program.files)
        volumes.append({"name": "files", "configMap": {"name": spec.name, **({"items": paths} if folders else {})}})
        mounts.append({"name": "files", "mountPath": FILES_DIR, "readOnly": True})
    # One volume a claim, read-only only if all its mounts are: a claim that is attached read-only cannot be written by another mount.
    claims = {mount.claim: i for i, mount in reversed(list(enumerate(spec.program.claims)))}
    for claim, i in sorted(claims.items(), key=lambda item: item[1]):
        read_only = all(mount.read_only for mount in spec.program.claims if mount.claim == claim)
        volumes.append({"name": f"claim-{i}", "persistentVolumeClaim": {"claimName": claim, **({"readOnly": True} if read_only else {})}})
    for mount in spec.program.claims:
        sub_path = {"subPath": mount.sub_path} if mount.sub_path else {}
        mounts.append({"name": f"claim-{claims[mount.claim]}", "mountPath": mount.mount_path, "readOnly": mount.read_only, **sub_path})
    return volumes, mounts
