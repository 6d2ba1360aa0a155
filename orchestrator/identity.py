"""What names a point, and what names an environment: hashes of canonical JSON.

``point_id`` covers what the user declared and nothing else, so that the same wish has the same name on every machine and in
every year: a store can be resumed, copied and merged. Three rules make it last.

* **Content, not places.** A model enters as the hash of its content, a workload as the hash of its texts and recipe. Where
  files lie, how they are fetched, ports, hosts, endpoints and time limits are no part of it.
* **Unset is undeclared.** In the config groups, keys that are null or empty are left out. A later version may therefore give a
  group a new key, null by default, and every old point keeps its name.
* **Numbers are their value.** ``0``, ``0.0`` and ``-0.0`` are one number, in YAML and on the command line; ``1`` and ``true`` are not.

``env_id`` covers what was found when the point was measured. The context size of an engine is in neither: it follows from the
longest prompt of the *session*, so adding a longer ISL to a sweep would otherwise rename points that were measured before.
It changes how much cache an engine reserves, not what it computes; it is recorded with the attempt.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from specsweep.orchestrator.errors import ConfigError

SCHEMA_VERSION = 1

# Keys of the groups that say where, how long and at what estimated cost, and facts about a model that its content implies.
UNDECLARED: Mapping[str, frozenset[str]] = {
    "engine": frozenset({"port", "python", "command", "binary", "startup_timeout_s", "step_clock", "pod", "cost", "description"}),
    "target": frozenset(
        {
            "name",
            "model",
            "draft_model",
            "eagle3",
            "architecture",
            "mtp_predict",
            "memory",
            "experts",
            "vocab_size",
            "max_model_len",
            "pod",
            "cost",
            "description",
        }
    ),
    "drafter": frozenset({"name", "model", "vocab_size", "cost", "description"}),
    "workload": frozenset({"name", "cost", "description"}),
}


def canonical_json(obj: Any) -> str:
    """JSON with sorted keys and no spaces, equal for equal values. Raises ``ValueError`` for NaN and infinity, ``TypeError`` for
    what JSON has no word for (paths, sets, keys that are not text)."""
    return json.dumps(_plain(obj), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(obj: Any) -> Any:
    if obj is None or isinstance(obj, bool | str):
        return obj
    if isinstance(obj, int):
        return int(obj)
    if isinstance(obj, float):
        if not math.isfinite(obj):
            raise ValueError(f"{obj} has no place in an identity")
        return int(obj) if obj == int(obj) else float(obj)
    if isinstance(obj, Mapping):
        for key in obj:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not text")
        return {str(key): _plain(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [_plain(value) for value in obj]
    raise TypeError(f"{type(obj).__name__} {obj!r} has no canonical form")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def point_id(declared: Mapping[str, Any]) -> str:
    """64 hex digits over the canonical form of what :func:`declared` gives."""
    return digest(canonical_json(declared))


def env_id(found: Mapping[str, Any]) -> str:
    """64 hex digits over what was found: engine version and resolved flags, driver, GPU, host class."""
    return digest(canonical_json(found))


def sampling(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every field of :class:`~specsweep.client.trace.Sampling`, from a point's config. All of them are sent with every request."""
    workload = config["workload"]
    return {
        "max_tokens": int(workload["osl"]),
        "temperature": float(config["temperature"]),
        "top_p": float(workload["top_p"]),
        "top_k": int(workload["top_k"]),
        "seed": int(config["seed"]),
        "ignore_eos": bool(workload["ignore_eos"]),
    }


class Contents:
    """Content hashes of models and workloads, each taken once: hashing a model file costs seconds.

    ``unprepared``: None refuses workloads whose data set is not on this machine yet, as a run must. A plan may give a dictionary instead: it
    collects what is missing, and those points have ids of their recipe alone, not the ones that they will be measured under.
    """

    unprepared: dict[str, None] | None = None

    def __init__(
        self, model: Callable[[Mapping[str, Any]], str] | None = None, workload: Callable[[Mapping[str, Any], int], str] | None = None
    ) -> None:
        self._model_hash = model
        self._workload_hash = workload
        self._models: dict[str, str] = {}
        self._workloads: dict[tuple[str, int], str] = {}

    def model(self, spec: Mapping[str, Any]) -> str:
        key = canonical_json(spec)
        if key not in self._models:
            self._models[key] = (self._model_hash or _model_identity)(spec)
        return self._models[key]

    def workload(self, recipe: Mapping[str, Any], isl: int) -> str:
        """Raises ConfigError for a recipe that makes no prompts."""
        key = canonical_json(recipe), isl
        if key not in self._workloads:
            self._workloads[key] = self._found(recipe, isl)
        return self._workloads[key]

    def _found(self, recipe: Mapping[str, Any], isl: int) -> str:
        from specsweep.client.workload import NotPreparedError

        try:
            return (self._workload_hash or _workload_hash)(recipe, isl)
        except NotPreparedError as error:
            if self.unprepared is None:
                raise ConfigError(str(error)) from error
            self.unprepared[str(error)] = None
            return f"not prepared: {canonical_json(recipe)} at {isl}"


def _model_identity(spec: Mapping[str, Any]) -> str:
    from specsweep.orchestrator.models import model_identity

    return model_identity(spec)


def _workload_hash(recipe: Mapping[str, Any], isl: int) -> str:
    from specsweep.client.workload import NotPreparedError, WorkloadError, check_prompts, workload_hash

    try:
        check_prompts(recipe, isl)  # a point that can have no prompts has no name either
        return workload_hash(recipe, isl)
    except NotPreparedError:
        raise
    except WorkloadError as error:
        raise ConfigError(str(error)) from error


def declared(config: Mapping[str, Any], contents: Contents) -> dict[str, Any]:
    """What names the point of this complete config. JSON-able; keys are stable."""
    return {
        "schema_version": SCHEMA_VERSION,
        "engine": declared_group("engine", config["engine"]),
        "target": declared_model("target", config["target"], contents),
        "drafter": declared_model("drafter", config["drafter"], contents),
        "workload": contents.workload(recipe(config["workload"]), config["isl"]),
        "sampling": sampling(config),
        "batch_size": config["batch_size"],
        "draft_length": config["draft_length"],
        "isl": config["isl"],
        "hardware": config["hardware"],
        "repeat": config["repeat"],
        "requests_per_slot": config["measure"]["requests_per_slot"],
        **capture(config),
    }


def capture(config: Mapping[str, Any]) -> dict[str, str]:
    """What a point captures instead of being timed. Empty for a timed one, which is named as if nothing could be captured."""
    found = str(config.get("capture") or "none")
    return {} if found == "none" else {"capture": found}


def captures_routing(config: Mapping[str, Any]) -> bool:
    """Whether the engine is started with its recorder of experts. Log-probabilities need nothing of the engine's start."""
    return capture(config).get("capture") == "routing"


def declared_group(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: pruned for key, value in values.items() if key not in UNDECLARED[group] and (pruned := _prune(value)) is not None}


def declared_model(group: str, values: Mapping[str, Any], contents: Contents) -> dict[str, Any]:
    """A target or drafter: its keys, and the content of its model (as it is converted) in place of where that lies."""
    if values.get("method") == "none":
        return {"method": "none"}  # whatever else a drafter file says, nothing is drafted
    result = declared_group(group, values)
    model = values.get("model")
    if model:
        try:
            result["model"] = contents.model(model)
        except ConfigError as error:
            raise ConfigError(f"{group}={values['name']}: {error.message}") from error
    elif group == "target" or "model" in values:
        result["name"] = values["name"]  # of a model that nobody describes, its name is all that is known (an attached server's)
    return result


def recipe(workload: Mapping[str, Any]) -> dict[str, Any]:
    """A workload without its name and remarks."""
    return {key: value for key, value in workload.items() if key not in UNDECLARED["workload"]}


def _prune(value: Any) -> Any:
    """None for what is unset: null, and mappings and lists that are empty once their own unset entries are gone."""
    if isinstance(value, Mapping):
        return {key: pruned for key, inner in value.items() if (pruned := _prune(inner)) is not None} or None
    if isinstance(value, list | tuple):
        return list(value) or None
    return value
