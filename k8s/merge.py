"""A user's pod template over ours, merged as ``kubectl patch`` does it (strategic merge), so that any field can be set.

Objects merge field by field and ``null`` removes one. Lists are replaced, but for those of which the API says by what key their
items are told apart (:data:`MERGE_KEYS`, from the ``patchMergeKey`` tags of ``k8s.io/api/core/v1``): those merge item by item.
``$patch: delete`` and ``$patch: replace`` in an object or item, and ``$retainKeys``, mean what they mean there. Tolerations have
no such key in the API and are replaced; to add one, name it in the placement.

A few things a template may not change, because the rest relies on them (:func:`with_template`): what our objects are found by,
that a server is never restarted in silence, that GPUs asked for are GPUs given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from specsweep.k8s.errors import SpecError
from specsweep.k8s.redaction import is_secret_name, looks_secret

MAIN = "main"  # our container in every pod

_CONTAINER = {"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
MERGE_KEYS: Mapping[str, str] = {
    "metadata.ownerReferences": "uid",
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.schedulingGates": "name",
    "spec.resourceClaims": "name",
    **{f"spec.{containers}": "name" for containers in _CONTAINERS},
    **{f"spec.{containers}[].{name}": key for containers in _CONTAINERS for name, key in _CONTAINER.items()},
}

_DIRECTIVES = ("$patch", "$retainKeys")


def with_template(ours: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """``template`` merged over the pod template ``ours``. Raises SpecError that names the path of what is wrong or not allowed."""
    for name in template:
        if name not in ("metadata", "spec"):
            raise SpecError(f"pod template: {name!r} is not a field of a pod template; it has metadata and spec")
    merged = merge(ours, template)
    _check(ours, merged)
    return merged


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Strategic merge of two pod templates; neither is changed. Raises SpecError for a patch that has no meaning."""
    return _object(base, patch, "")


def _object(base: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> dict[str, Any]:
    how = patch.get("$patch")
    if how not in (None, "replace", "merge"):
        raise SpecError(
            f"pod template: {path or 'the template'}: $patch={how!r} has no meaning here; choose replace or merge, or set it to null"
        )
    result = {} if how == "replace" else dict(deepcopy(dict(base)))
    if "$retainKeys" in patch:
        result = {name: value for name, value in result.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if not isinstance(name, str):
            raise SpecError(f"pod template: {path or 'the template'} has the key {name!r}; keys are texts: put it into quotes")
        if name in _DIRECTIVES:
            continue
        if name.startswith("$"):
            raise SpecError(f"pod template: {_join(path, name)} is not known; of the directives $patch and $retainKeys can be used")
        here = _join(path, name)
        _same_form(result.get(name), value, here)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            if value.get("$patch") == "delete":
                result.pop(name, None)
                continue
            below = result.get(name)
            result[name] = _object(below if isinstance(below, Mapping) else {}, value, here)
        elif _is_list(value) and _generic(here) in MERGE_KEYS:
            below = result.get(name)
            result[name] = _list(below if isinstance(below, list) else [], value, here)
        else:
            result[name] = _whole(value, here)
    return result


def _same_form(ours: Any, value: Any, path: str) -> None:
    is_object = isinstance(ours, Mapping) or path in ("metadata", "spec", "metadata.labels")
    if value is not None and is_object and not isinstance(value, Mapping):
        raise SpecError(f"pod template: {path}={value!r} must be an object")
    if value is not None and (_is_list(ours) or _generic(path) in MERGE_KEYS) and not _is_list(value):
        raise SpecError(f"pod template: {path}={value!r} must be a list")


def _list(base: Sequence[Any], patch: Sequence[Any], path: str) -> list[Any]:
    key = MERGE_KEYS[_generic(path)]
    replaces = any(isinstance(item, Mapping) and item == {"$patch": "replace"} for item in patch)
    result: list[Any] = [] if replaces else [deepcopy(item) for item in base]
    for i, item in enumerate(patch):
        if not isinstance(item, Mapping):
            raise SpecError(f"pod template: {path}[{i}]={item!r} must be an object with the field {key!r}")
        if item == {"$patch": "replace"}:
            continue
        if key not in item:
            raise SpecError(f"pod template: {path}[{i}] has no {key!r}, by which its items are told apart")
        if any(isinstance(other, Mapping) and other.get(key) == item[key] for other in patch[:i]):
            raise SpecError(f"pod template: {path} has {key}={item[key]!r} twice; say what is meant in one item")
        place = next((p for p, ours in enumerate(result) if isinstance(ours, Mapping) and ours.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [ours for ours in result if not (isinstance(ours, Mapping) and ours.get(key) == item[key])]
        elif place is None:
            result.append(_object({}, item, f"{path}[{item[key]}]"))
        else:
            result[place] = _object(result[place], item, f"{path}[{item[key]}]")
    return result


def _whole(value: Any, path: str) -> Any:
    """What replaces our value: nothing is merged below it, so nothing below it may ask for that."""
    if not _is_list(value):
        return deepcopy(value)
    items = [item for item in value if item != {"$patch": "replace"}]
    if any(isinstance(item, Mapping) and "$patch" in item for item in items):
        raise SpecError(
            f"pod template: {path} is replaced as a whole, its items have no key; leave $patch out and list what shall be there"
        )
    return deepcopy(items)


def _check(ours: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    for name, value in (ours.get("metadata", {}).get("labels") or {}).items():
        found = (merged.get("metadata") or {}).get("labels", {}).get(name)
        if found != value:
            raise SpecError(
                f"pod template: metadata.labels[{name}]={found!r} would hide the pod from us; leave it {value!r}, add other labels"
            )
    spec = merged.get("spec") or {}
    before = ours["spec"]
    if spec.get("restartPolicy") != before.get("restartPolicy"):
        raise SpecError(
            f"pod template: spec.restartPolicy={spec.get('restartPolicy')!r}: it stays {before.get('restartPolicy')!r}, since a restart in "
            f"silence would be measured"
        )
    names = [container.get("name") for container in spec.get("containers") or ()]
    if names.count(MAIN) != 1:
        raise SpecError(f"pod template: spec.containers={names}: the container {MAIN!r} is the program itself and must stay")
    for containers in _CONTAINERS:
        for container in spec.get(containers) or ():
            _check_container(container, f"spec.{containers}[{container.get('name')}]")


def _check_container(container: Mapping[str, Any], path: str) -> None:
    resources = _mapping(container.get("resources"), f"{path}.resources")
    limits, requests = (_mapping(resources.get(name), f"{path}.resources.{name}") for name in ("limits", "requests"))
    for name in sorted({*limits, *requests}):
        # Extended resources cannot be overcommitted: the API refuses a pod whose request is not its limit.
        if "/" in name and name in requests and str(limits.get(name)) != str(requests[name]):
            raise SpecError(
                f"pod template: {path}.resources: limits[{name}]={limits.get(name)!r} and requests[{name}]={requests[name]!r} must be equal"
            )
    for variable in container.get("env") or ():
        name, value = variable.get("name", ""), variable.get("value")
        if not isinstance(name, str):
            raise SpecError(f"pod template: {path}.env has the name {name!r}; a variable's name is text: put it into quotes")
        if value is not None and not isinstance(value, str):
            raise SpecError(
                f"pod template: {path}.env[{name}]: its value is of type {type(value).__name__}; a value is text: put it into quotes"
            )
        if value and (is_secret_name(name) or looks_secret(str(value))):
            raise SpecError(f"pod template: {path}.env[{name}] holds a secret as a plain value; use valueFrom.secretKeyRef")


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise SpecError(f"pod template: {path}={value!r} must be an object")
    return value or {}


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _generic(path: str) -> str:
    """``spec.containers[main].env`` → ``spec.containers[].env``. Items' names are DNS labels and hold no brackets."""
    parts = path.split("[")
    return parts[0] + "".join("[]" + part.split("]", 1)[-1] for part in parts[1:])
