"""A container's variables, as its pod asks for them: values, expansions, and what stands in other objects.

The rules are Kubernetes' own: variables in order, ``$(NAME)`` for those before, ``$$`` for a dollar sign, an unknown name left as it is.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cluster.rest import Json, RestError

Fetch = Callable[[str, str], Awaitable[Json]]  # "secrets" or "configmaps", name → object; raises RestError
_REFERENCE = re.compile(r"\$(\$|\((?P<name>[-._a-zA-Z0-9]+)\))")


class ConfigError(Exception):
    """Something that the pod refers to is not there; the kubelet's words."""


def expanded(text: str, env: Mapping[str, str]) -> str:
    """As in ``command``, ``args`` and the values of variables."""
    return _REFERENCE.sub(lambda match: "$" if match[1] == "$" else env.get(match["name"], match[0]), text)


async def variables(container: Json, pod: Json, fetch: Fetch, given: Mapping[str, str]) -> dict[str, str]:
    """``given``: those that the image and the node set. ``pod``: with its status, for its addresses. Raises ConfigError."""
    env = dict(given)
    for source in container.get("envFrom") or ():
        for kind, key in (("secrets", "secretRef"), ("configmaps", "configMapRef")):
            if reference := source.get(key):
                data = await content(kind, reference["name"], bool(reference.get("optional")), pod, fetch) or {}
                env |= {source.get("prefix", "") + name: value.decode() for name, value in data.items()}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        value = expanded(variable.get("value") or "", env) if source is None else await _referred(source, container, pod, fetch)
        if value is not None:
            env[variable["name"]] = value
    return env


async def content(kind: str, name: str, optional: bool, pod: Json, fetch: Fetch) -> dict[str, bytes] | None:
    """The data of a Secret or ConfigMap; None if it is not there and need not be. Raises ConfigError."""
    try:
        obj = await fetch(kind, name)
    except RestError as error:
        if error.status == 404 and optional:
            return None
        word = "secret" if kind == "secrets" else "configmap"
        raise ConfigError(f'{word} "{name}" not found' if error.status == 404 else str(error)) from error
    if kind == "secrets":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}
    return {key: value.encode() for key, value in (obj.get("data") or {}).items()} | binary


def field_of(pod: Json, path: str) -> str:
    """The downward API's ``fieldPath``."""
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    found: Any = pod
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    return "".join(f'{key}="{value}"\n' for key, value in found.items()) if isinstance(found, Mapping) else str(found)


def bytes_of(quantity: str) -> int:
    """``64Gi`` and the like."""
    match = re.fullmatch(r"([0-9.]+)(m|[kMGTP]i?|)", quantity)
    if match is None:
        raise ValueError(f"quantity {quantity!r} is not understood")
    power = " kMGTP".index(match[2][0]) if match[2] not in ("", "m") else 0
    return int(float(match[1]) * (1024 if match[2].endswith("i") else 1000) ** power / (1000 if match[2] == "m" else 1))


async def _referred(source: Json, container: Json, pod: Json, fetch: Fetch) -> str | None:
    for kind, key in (("secrets", "secretKeyRef"), ("configmaps", "configMapKeyRef")):
        if reference := source.get(key):
            optional = bool(reference.get("optional"))
            data = await content(kind, reference["name"], optional, pod, fetch)
            if data is not None and reference["key"] in data:
                return data[reference["key"]].decode()
            if optional:
                return None
            word = "Secret" if kind == "secrets" else "ConfigMap"
            raise ConfigError(f"couldn't find key {reference['key']} in {word} {pod['metadata']['namespace']}/{reference['name']}")
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return _resource(container, source["resourceFieldRef"])
    raise ConfigError(f"valueFrom {source} is not known here")


def _resource(container: Json, reference: Json) -> str:
    kind, name = reference["resource"].split(".", 1)
    amount = ((container.get("resources") or {}).get(kind) or {}).get(name, "0")
    divisor = reference.get("divisor") or "1"
    if divisor == "0":
        divisor = "1"
    if name == "cpu":  # rounded up, as a number of whole units
        return str(max(1, -(-_millis(amount) // _millis(divisor))))
    return str(-(-bytes_of(amount) // bytes_of(divisor)))


def _millis(amount: str) -> int:
    return int(amount[:-1]) if amount.endswith("m") else int(float(amount) * 1000)
