"""What a drafter's checkpoint says of itself, against how it is to be used.

A head under another algorithm than its own often gives no error: an EAGLE3 head started as EAGLE loads, drafts, and has not one token
accepted. A head of another target fails minutes later, in the shape of a tensor. Both stand in its ``config.json`` before a GPU is asked for.

Only what is on this machine is read: the folder of a local model, the header of a GGUF file, what the hub's cache holds. A plan fetches
nothing for it; a run looks again when it has fetched the files. What a config leaves open is taken as right.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.gguf_metadata import is_gguf, read_metadata
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.model_sources import package_data

Facts = Mapping[str, Any]
Kind = Literal["eagle", "eagle3", "medusa", "dflash", "model"]

WANTED: Mapping[str, Kind] = {"eagle3": "eagle3", "medusa": "medusa", "dflash": "dflash", "draft_model": "model", "pard": "model"}
WORDS: Mapping[Kind, str] = {
    "eagle": "a head of the first EAGLE",
    "eagle3": "an EAGLE3 head",
    "medusa": "Medusa heads",
    "dflash": "a DFlash drafter",
    "model": "a whole language model",
}
ADVICE: Mapping[Kind, str] = {
    "eagle": "no drafter here runs it; give a head of the drafter's own kind",
    "eagle3": "set drafter=eagle3 with this drafter.model, or give a drafter.model of the kind",
    "medusa": "set drafter=medusa with this drafter.model, or give a drafter.model of the kind",
    "dflash": "set drafter=dflash with this drafter.model, or give a drafter.model of the kind",
    "model": "set drafter=draft_model with this drafter.model, or give a drafter.model of the kind",
}
READS_THE_TARGET = ("eagle3", "medusa", "dflash")  # their input is the target's hidden state
WHOLE_MODEL_LAYERS = 3  # some heads call themselves LlamaForCausalLM, and have a layer or two
VOCABULARY_PADDING = 0.02  # sizes that differ by less are one vocabulary, padded differently
FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("architectures", "eagle_aux_hidden_state_layer_ids"), list),
    **dict.fromkeys(("model_type", "speculators_model_type"), str),
    **dict.fromkeys(("eagle_config", "dflash_config", "transformer_layer_config", "text_config"), dict),
    **dict.fromkeys(("hidden_size", "target_hidden_size", "vocab_size", "draft_vocab_size", "num_hidden_layers", "medusa_num_heads"), int),
    "use_aux_hidden_state": bool,
}
LARGEST = 2**31  # of any of these numbers; what is beyond, or below 1, says nothing
OTHER_METHODS = ("dspark", "domino")  # built on DFlash, with fields of its configs, and run by none of the methods here
OWN_LAYERS = ("mtp", "nextn")  # the target's own, in a config of all its layers
ALGORITHM_KEYS = ("speculative-algorithm", "speculative_algorithm", "method")  # of SGLang and vLLM, where drafter.args may set them


def mismatch(config: Mapping[str, Any], cache: Path) -> str | None:
    """Why the drafter of this point cannot be what its method needs, with the field and what to do; None if nothing speaks against it."""
    drafter, target = config["drafter"], config["target"]
    if (other := _other_algorithm(drafter)) is not None:
        return other
    wanted = WANTED.get(str(drafter["method"]))
    head = facts(drafter.get("model"), cache)
    if wanted is None or head is None:
        return None
    found = kind(head)
    if found is not None and found != wanted:
        return (
            f"drafter {drafter['name']} (method {drafter['method']}) needs {WORDS[wanted]}, and the config of {_named(drafter['model'])} "
            f"says {WORDS[found]} ({_evidence(head)}); {ADVICE[found]}"
        )
    reads = facts(target.get("model"), cache) or {}
    return _other_sizes(drafter, head, target, reads) if wanted in READS_THE_TARGET else None


def facts(spec: Mapping[str, Any] | None, cache: Path) -> Facts | None:
    """The ``config.json`` of a model on this machine, or what a GGUF header has of it; None if it is not here or cannot be read."""
    place = _place(spec, cache) if isinstance(spec, Mapping) else None
    if place is None:
        return None
    with suppress(OSError, ValueError):  # a path with a zero byte
        return _read(place, place.stat().st_mtime_ns)
    return None


def kind(head: Facts) -> Kind | None:
    """What a config is of, None where it does not say. Names decide first, then fields that only one kind has."""
    texts = [*(head.get("architectures") or ()), head.get("model_type"), head.get("speculators_model_type")]
    names = " ".join(str(text) for text in texts if text).lower()
    eagle = head.get("eagle_config") or {}
    of_eagle3 = bool(_aux_layers(head) or eagle.get("use_aux_hidden_state") or head.get("draft_vocab_size"))
    if any(name in names for name in OTHER_METHODS):
        return None
    if "dflash" in names or "dflash_config" in head:
        return "dflash"
    if "medusa" in names or "medusa_num_heads" in head:
        return "medusa"
    if "eagle3" in names:
        return "eagle3"
    if "eagle" in names:
        many = _layers(head).get("num_hidden_layers", 0) >= WHOLE_MODEL_LAYERS  # vision models are named so too
        return None if of_eagle3 or (many and not eagle) else "eagle"
    if eagle.get("use_aux_hidden_state") is False:  # EAGLE3 without it is trained as well, and has a vocabulary of its own
        return None if of_eagle3 else "eagle"
    if of_eagle3:
        return "eagle3"
    whole = "gguf" in head or head.get("num_hidden_layers", 0) >= WHOLE_MODEL_LAYERS
    return "model" if whole and not any(name in names for name in OWN_LAYERS) else None


def _other_algorithm(drafter: Mapping[str, Any]) -> str | None:
    for key in ALGORITHM_KEYS:
        given = (drafter.get("args") or {}).get(key)
        if drafter["method"] == "eagle3" and given is not None and str(given).lower() != "eagle3":
            return (
                f"drafter.args.{key}={given} runs the head of drafter {drafter['name']} (method eagle3) under another algorithm, which gives "
                f"no error and no accepted token; leave {key} out of drafter.args"
            )
    return None


def _other_sizes(drafter: Mapping[str, Any], head: Facts, target: Mapping[str, Any], reads: Facts) -> str | None:
    ours, theirs = _layers(reads), _layers(head)
    who = f"drafter {drafter['name']} ({_named(drafter['model'])}) was made for another target than {target['name']}: "
    hidden, width = ours.get("hidden_size"), head.get("target_hidden_size") or theirs.get("hidden_size")
    if hidden and width and hidden != width:
        return f"{who}it reads hidden states of {width} values, the target's have {hidden}; set drafter.model"
    vocabulary, known = ours.get("vocab_size") or target.get("vocab_size"), theirs.get("vocab_size")
    if vocabulary and known and abs(known - vocabulary) > VOCABULARY_PADDING * vocabulary:
        return f"{who}its vocabulary has {known} tokens, the target's {vocabulary}; set drafter.model"
    layers, read = ours.get("num_hidden_layers"), max(_aux_layers(head), default=0)
    if layers and read > layers:
        return f"{who}it reads layer {read}, the target has {layers}; set drafter.model"
    return None


def _layers(config: Facts) -> Facts:
    """Where the sizes stand: speculators and multimodal models have them one level down."""
    return config.get("transformer_layer_config") or config.get("text_config") or config


def _aux_layers(head: Facts) -> list[int]:
    found = head.get("eagle_aux_hidden_state_layer_ids") or (head.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    return [n for n in found or () if type(n) is int and 0 <= n < LARGEST]


def _evidence(head: Facts) -> str:
    said = head.get("architectures") or head.get("speculators_model_type") or head.get("model_type") or "by its fields"
    return ", ".join(map(str, said)) if isinstance(said, list) else str(said)


def _named(spec: Mapping[str, Any]) -> str:
    return str(spec.get("repo") or spec.get("path") or spec.get("file"))


def _place(spec: Mapping[str, Any], cache: Path) -> Path | None:
    """The file that tells what the model is, if this machine has it."""
    with suppress(ConfigError, OSError, ValueError, KeyError):  # a spec that is not whole is refused where it is read
        match spec.get("source"):
            case "path":
                path = Path(str(spec["path"])).expanduser()
                return path if path.is_file() else path / "config.json"
            case "package_data":
                return package_data(str(spec["file"])) / "config.json"
            case "hub":
                return _in_hub_cache(spec, cache.expanduser() / "hub")
    return None


def _in_hub_cache(spec: Mapping[str, Any], hub: Path) -> Path | None:
    """As the hub's library lays its cache out; asked without it, since to import it takes longer than a plan."""
    repo = hub / f"models--{str(spec['repo']).replace('/', '--')}"
    revision = str(spec["revision"])
    named = repo / "refs" / revision
    commit = named.read_text().strip() if named.is_file() else revision
    return repo / "snapshots" / commit / str(spec.get("file") or "config.json")


@functools.lru_cache(maxsize=64)
def _read(place: Path, mtime_ns: int) -> Facts | None:
    with suppress(OSError, ValueError, RecursionError, WorkloadError):
        if is_gguf(place):
            return {"gguf": True, "architectures": [str(read_metadata(place).get("general.architecture", ""))]}
        found = json.loads(place.read_text("utf-8"))
        return _known(found) if isinstance(found, dict) else None
    return None


def _known(config: Mapping[str, Any]) -> Facts:
    """The fields that are read here, where they have the type that they should; a field of another type says nothing."""
    kept = {key: value for key, value in config.items() if key in FIELDS and _fits(value, FIELDS[key])}
    return {key: _known(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _fits(value: object, kind: type) -> bool:
    if isinstance(value, int) and kind is int:
        return not isinstance(value, bool) and 0 < value < LARGEST
    return isinstance(value, kind)
