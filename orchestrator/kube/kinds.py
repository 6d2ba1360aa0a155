"""What the fields of ``cluster=kubernetes`` may hold: one table each for the cluster, the sweep's pod and an engine's pod.

A config file may hold anything, and the API server sees an engine's pod only when the sweep runs: a misspelt key would be passed over in
silence, and a value of a wrong form would fail in the cluster, an hour later, in words about an object that the user never wrote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specsweep.k8s.errors import SpecError
from specsweep.k8s.names import is_dns_label, is_label_value
from specsweep.k8s.quantities import quantity
from specsweep.k8s.redaction import redacted
from specsweep.orchestrator.errors import ConfigError

Kind = Callable[[Any], str | None]  # what is needed instead, or None if the value is right
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
MOST_SECONDS = 2**31 - 1  # an int32 of the API
MOST_USER = 2**31 - 1


def _name(value: Any) -> str | None:
    if isinstance(value, str) and len(value) <= 253 and _SUBDOMAIN.fullmatch(value):
        return None
    return "the name of an object is needed: a-z, 0-9, '-' and '.', as kubectl shows it (a name of digits only in quotes)"


def _label_name(value: Any) -> str | None:
    return _name(value) or (None if is_label_value(value) else "a name of at most 63 characters is needed, as it becomes a label")


def _namespace(value: Any) -> str | None:
    fits = isinstance(value, str) and (is_dns_label(value) or is_dns_label(f"n{value}"))
    return None if fits else "the name of a namespace is needed: a-z, 0-9 and '-'; look at: kubectl get namespaces"


def _secret_key(value: Any) -> str | None:
    return (
        None
        if isinstance(value, str) and _SECRET_KEY.fullmatch(value)
        else "a key of a Secret is needed: letters, digits, '-', '_' and '.'"
    )


def _label(value: Any) -> str | None:
    fits = isinstance(value, str) and is_label_value(value)
    return None if fits else "a label's value is needed, as text; look at: kubectl get nodes --show-labels"


def _qualified(value: Any) -> str | None:
    """``nvidia.com/gpu``."""
    domain, slash, name = value.rpartition("/") if isinstance(value, str) else ("", "", "")
    fits = bool(slash and name) and _name(domain) is None and is_label_value(name)
    return None if fits else "a domain and a name are needed, as in nvidia.com/gpu"


def _label_key(value: Any) -> str | None:
    plain = isinstance(value, str) and bool(value) and is_label_value(value)
    return None if plain or _qualified(value) is None else "the name of a node label is needed, as in nvidia.com/gpu.product"


def _amount(value: Any) -> str | None:
    try:
        above = not isinstance(value, bool) and quantity(str(value), field="") > 0
    except SpecError:
        above = False
    return None if above else "a quantity above 0 is needed, as Kubernetes writes it: 16, 500m, 64Gi"


def _count(value: Any) -> str | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if fits else "a whole number of at least 0 is needed"


def _user(value: Any) -> str | None:
    return _count(value) or (None if value <= MOST_USER else f"a user's number is at most {MOST_USER}")


def _above_0(value: Any) -> str | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return None if fits else "a number above 0 is needed"


def _seconds(value: Any) -> str | None:
    return _above_0(value) or (None if value <= MOST_SECONDS else f"at most {MOST_SECONDS} seconds (68 years) can be told to Kubernetes")


def _whole_seconds(value: Any) -> str | None:
    return _seconds(value) or (None if value >= 1 else "at least 1 second is needed")


def image(value: Any) -> str | None:
    fits = isinstance(value, str) and not re.search(r"\s", value) and re.fullmatch(r"[^@]+(@sha256:[0-9a-f]{64})?", value)
    return None if fits else "an image is needed: REGISTRY/NAME:TAG or …@sha256:DIGEST; a registry's password goes into image_pull_secrets"


def _pull_policy(value: Any) -> str | None:
    return None if value in ("Always", "IfNotPresent", "Never") else "one of Always, IfNotPresent, Never is needed"


def _address(value: Any) -> str | None:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    fits = found is not None and 1 <= int(found["port"]) <= 65535
    return None if fits else "the address of a Ray cluster's head is needed, host:port, as in specsweep-ray-head-svc:6379"


def _list_of(kind: Kind, example: str) -> Kind:
    def check(value: Any) -> str | None:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return f"a list is needed, as in {example}"
        return next((f"{item!r} in it: {reason}" for item in value if (reason := kind(item)) is not None), None)

    return check


def _toleration(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "a toleration is a mapping of key, operator, value, effect"
    unknown = [name for name in value if name not in _TOLERATION]
    return f"{unknown[0]!r} is no field of a toleration; it has {', '.join(_TOLERATION)}" if unknown else None


def _capability(value: Any) -> str | None:
    return None if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z0-9_]*", value) else "a capability is written as in IPC_LOCK"


def _mapping_of(kind: Kind) -> Kind:
    def check(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return "a mapping is needed"
        for name, item in value.items():
            if not isinstance(name, str):
                return f"its key {name!r} is no text; put it into quotes"
            if item is not None and (reason := kind(item)) is not None:
                return f"{name} in it: {reason}"
        return None

    return check


def _single(value: Any) -> str | None:
    return None if isinstance(value, str | int | float) else "one value is needed, as text"


def _json(value: Any) -> str | None:
    """What JSON can say, with keys that are text."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                return f"its key {name!r} is no text; put it into quotes"
            if (reason := _json(item)) is not None:
                return reason
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return next((reason for item in value if (reason := _json(item)) is not None), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} in it is not a finite number"
    return (
        None
        if value is None or isinstance(value, str | int | float)
        else f"{value!r} in it is a {type(value).__name__}; put it into quotes"
    )


def _template(value: Any) -> str | None:
    return _json(value) if isinstance(value, Mapping) else "a pod template is needed: a mapping with metadata and spec"


def _anything(value: Any) -> str | None:
    return None  # checked elsewhere


_PLACE: Mapping[str, Kind] = {
    "node_selector": _mapping_of(_single),
    "tolerations": _list_of(_toleration, "[{key: nvidia.com/gpu, operator: Exists}]"),
    "priority_class": _name,
    "template": _template,
}
POD: Mapping[str, Kind] = {
    **_PLACE,
    "gpus": _count,
    "gpu_product": _label,
    "gpu_product_label": _label_key,
    "gpu_resource": _qualified,
    "cpu": _amount,
    "memory": _amount,
    "shm": _amount,
    "runtime_class": _name,
    "extra_resources": _mapping_of(_amount),
    "capabilities": _list_of(_capability, "[IPC_LOCK]"),
    "run_as_user": _user,
    "pull_policy": _pull_policy,
    "env": _mapping_of(_single),
}
CLUSTER: Mapping[str, Mapping[str, Kind]] = {  # by the mapping that holds the fields; "" is the cluster itself
    "": {
        "name": _anything,
        "kind": _anything,
        "kubeconfig": _anything,
        "context": _anything,
        "namespace": _namespace,
        "image": image,
        "image_pull_secrets": _list_of(_name, "cluster.image_pull_secrets=[one,two]"),
        "service_account": _name,
        "max_parallel_sessions": _anything,
        "gpu_limits": _anything,
        "gpu_memory_gb": _above_0,
        "queue": _label_name,
        "queue_priority": _label_name,
        **dict.fromkeys(("results", "weights", "hub_token", "pod", "sweep", "clients", "deadlines"), _anything),
    },
    "results": {"claim": _name, "path": _anything},
    "weights": {"claim": _name, "path": _anything},
    "hub_token": {"secret": _name, "key": _secret_key},
    "sweep": {**_PLACE, "cpu": _amount, "memory": _amount, "shm": _amount, "retries": _count, "run_as_user": _user},
    "clients": {"ray_address": _address},
    "deadlines": {
        **{f"{name}_s": _seconds for name in ("queue", "unfit", "quota", "pull", "mount", "create", "session", "silence", "removal")},
        "startup_s": _whole_seconds,
    },
}

_MAY_BE_EMPTY = frozenset(
    {_anything, image, _name, _label_name, _namespace, _secret_key, _label, _label_key, _qualified, _amount, _pull_policy, _address}
)


def check(values: Mapping[str, Any], kinds: Mapping[str, Kind], at: str, *, advice: str = "") -> None:
    """Raises ConfigError for the first key of ``values`` that ``kinds`` do not have, or whose value is of another kind.

    Not set (null, or an empty text where a text belongs) is right everywhere: what must be there, whoever reads it knows. ``at``: where the values stand.
    """
    for name, value in values.items():
        kind = kinds.get(name)
        if kind is None:
            raise ConfigError(f"{at}.{name} is not known; {at} has {', '.join(sorted(kinds))}{advice}")
        if value is None or (value == "" and kind in _MAY_BE_EMPTY):
            continue
        if (reason := kind(value)) is not None:
            raise ConfigError(f"{at}.{name}={_shown(value)}: {reason}")


def _shown(value: Any) -> str:
    """Without what may be a secret: what stands in a mapping, or before an ``@``."""
    return "{…}" if isinstance(value, Mapping) else redacted(repr(value if "@" not in str(value) else f"…@{str(value).rpartition('@')[2]}"))
