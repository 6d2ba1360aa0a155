"""What is known of single config keys: which are kept as text, and which values the others may have.

Hydra reads every value as YAML would. That is wrong for versions and hashes: ``0.10`` is not 0.1 and ``12e4567`` is not
infinity. Keys named here as text keep the characters that were typed. In a YAML file the characters are gone by the time we
see the value, so a number found under such a key is refused with the advice to quote it.

The table of :data:`FIELDS` is small on purpose: it holds the keys that specsweep itself reads as numbers, flags or choices.
Every other key belongs to an engine or to a user's own group and is passed on as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from specsweep.orchestrator.errors import ConfigError

GROUPS = ("engine", "target", "drafter", "workload", "cluster")
GROUP_AXES = ("engine", "target", "drafter", "workload")
SCALAR_AXES = ("draft_length", "batch_size", "isl", "temperature", "repeat")
ALIASES = {
    "workload.temperature": "temperature",
    "workload.isl": "isl",
    "endpoint": "cluster.endpoint",
}
# One value for the whole sweep: where things are and how the sweep is driven, never what is measured.
SWEEP_WIDE = (
    "name",
    "store",
    "cache",
    "heads",
    "record_raw",
    "rerun",
    "repeats",
    "sweep",
    "cluster",
    "tracking",
    "measure.client_processes",
)

_TEXT_NAMES = frozenset(
    {"version", "revision", "sha256", "image", "digest", "commit", "tag", "package", "path", "endpoint", "repo", "name"}
)
_KUBERNETES_TEXTS = (
    *(f"cluster.{name}" for name in ("kubeconfig", "context", "namespace", "service_account", "queue", "queue_priority")),
    *("cluster.results.claim", "cluster.weights.claim", "cluster.hub_token.secret", "cluster.hub_token.key", "cluster.clients.ray_address"),
)
_TEXT_KEYS = frozenset(
    {
        *GROUPS,
        "sweep",
        "name",
        "store",
        "cache",
        "heads",
        "hardware",
        "tracking.uri",
        "cluster.model",
        "cluster.token_env",
        "workload.prompt",
        *_KUBERNETES_TEXTS,
    }
)
# Mappings that hold whatever their reader understands: new keys need no ``+``.
OPEN_MAPPINGS = frozenset({"args", "env", "template_args", "pod", "template", "node_selector", "extra_resources", "gpu_limits"})


def is_text(key: str) -> bool:
    """Whether values of this key keep their characters: ``engine.version``, ``target.model.sha256``, group options, names."""
    return key in _TEXT_KEYS or key.rpartition(".")[2] in _TEXT_NAMES


@dataclass(frozen=True, slots=True)
class Field:
    """What a key may hold. Bounds are inclusive unless ``above`` (then ``low`` itself is refused)."""

    kind: Literal["int", "float", "bool", "choice"]
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()
    word: str = ""  # for the lowest value

    def describe(self) -> str:
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        noun = "a whole number" if self.kind == "int" else "a number"
        if math.isfinite(self.high):
            noun += f" {'above' if self.above else 'from'} {self.low:.15g} to {self.high:.15g}"
        elif math.isfinite(self.low):
            noun += f" above {self.low:g}" if self.above else f" of at least {self.low:g}"
        if self.word:
            noun += f" ({self.low:g}: {self.word})"
        return noun + (" or null" if self.optional else "")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_COUNT = Field("int", 1)
MAX_REPEATS = 10_000  # each is an engine start of every arm, so that more are a slip
FIELDS: Mapping[str, Field] = {
    "batch_size": Field("int", 1, 65536),
    "draft_length": Field("int", 0, 65536),
    "isl": Field("int", 0, word="natural"),  # 0: every text at its own length
    "temperature": Field("float", 0),
    "repeat": _COUNT,
    "repeats": Field("int", 1, MAX_REPEATS, optional=True),
    "seed": Field("int", 0, 2**32 - 2),  # of 32 bits in most engines, and 2**32 - 1 means "any" to llama.cpp
    "record_raw": Field("bool"),
    "capture": Field("choice", choices=("none", "routing", "logprobs")),
    "rerun": Field("choice", choices=("failed", "invalid", "all")),
    "measure.requests_per_slot": _COUNT,
    "measure.stall_seconds": Field("float", 0, above=True),
    "measure.retries": Field("int", 0, 10),
    "measure.quiet_seconds": Field("float", 0),
    "measure.client_processes": Field("int", 1, optional=True),
    "tracking.enabled": Field("bool"),
    "engine.max_batch": Field("int", 1, optional=True),
    "engine.threads": Field("int", 1, optional=True),
    "engine.port": Field("int", 1, 65535, optional=True),
    "engine.speedup": Field("float", 0, above=True),
    "engine.max_batched_tokens": Field("int", 1, optional=True),
    "engine.kv_tokens": Field("int", 1, optional=True),
    "engine.startup_timeout_s": Field("float", 0, above=True),
    "engine.dialect": Field("choice", choices=("llamacpp", "vllm", "sglang", "trtllm", "openai_chat")),
    "engine.step_clock": Field("choice", choices=("client", "server")),
    "target.max_model_len": Field("int", 1, optional=True),
    "target.vocab_size": Field("int", 1, optional=True),
    "target.tensor_parallel": Field("int", 1, optional=True),
    "target.gpus": Field("int", 0, optional=True),
    "drafter.vocab_size": Field("int", 1, optional=True),
    "drafter.stateful": Field("bool"),
    "drafter.match_size": _COUNT,
    "target.experts.count": _COUNT,
    "target.experts.per_token": _COUNT,
    "target.experts.layers": _COUNT,
    "workload.prompts": _COUNT,
    "workload.ramp_prompts": _COUNT,
    "workload.osl": _COUNT,
    "workload.chat": Field("bool"),
    "workload.order": Field("choice", choices=("drawn", "round_robin", "as_listed"), optional=True),
    "workload.thinking": Field("choice", choices=("keep", "cut"), optional=True),  # of earlier answers of a conversation
    "workload.seed": Field("int", 0, 2**32 - 1),  # what NumPy's frozen generator takes
    "workload.top_p": Field("float", 0, 1, above=True),
    "workload.top_k": Field("int", -1),
    "workload.ignore_eos": Field("bool"),
    "cluster.kind": Field("choice", choices=("local", "attach", "kubernetes")),
    "cluster.max_parallel_sessions": _COUNT,  # the rest of a Kubernetes cluster: orchestrator/kube/kinds.py
}
# Without these nothing can be planned or measured. `defaults: [mixed, _self_]` in a file takes over what it does not say itself.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "engine": ("name", "dialect", "step_clock"),
    "drafter": ("method",),
    "workload": ("prompts", "osl", "chat", "top_p", "top_k", "ignore_eos"),
    "cluster": ("kind",),
}


def check_required(config: Mapping[str, Any]) -> None:
    for group, names in REQUIRED.items():
        for name in names:
            if config[group].get(name) is None:
                option = config[group].get("name")
                advice = "set it, or build the file on one that has it (defaults: [OPTION, _self_])"
                raise ConfigError(f"{group}={option}: {group}.{name} is missing; {advice}")


def checked(key: str, value: Any) -> Any:
    """``value`` as the key's own kind: an int, a float, a bool or text. Raises ConfigError naming key, value and what it may be."""
    if is_text(key):
        if value is None or isinstance(value, str):
            return value
        raise ConfigError(f"{key}: {value!r} was read as a {type(value).__name__}; put it in quotes to keep its characters")
    known = FIELDS.get(key)
    if known is None:
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}={value}: not a finite number; put it in quotes if it is text")
        return value
    result = _as_kind(key, known, value)
    if result is _REFUSED:
        raise ConfigError(f"{key}={_shown(value)}: must be {known.describe()}{_hint(key, value)}")
    return result


_REFUSED = object()


def _as_kind(key: str, known: Field, value: Any) -> Any:
    if value is None:
        return None if known.optional else _REFUSED
    if known.kind == "choice":
        return value if value in known.choices else _REFUSED
    if known.kind == "bool":
        return value if isinstance(value, bool) else _REFUSED
    if known.word and value == known.word:
        value = int(known.low)
    if key == "isl" and isinstance(value, str) and value[-1:] == "k" and value[:-1].isdecimal():
        value = int(value[:-1]) * 1000  # buckets are named 1k … 32k, 1k = 1000
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return _REFUSED
    if known.kind == "int":
        if value != int(value):
            return _REFUSED
        value = int(value)
    else:
        value = float(value)
    below = value <= known.low if known.above else value < known.low
    return _REFUSED if below or value > known.high else value


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else repr(value)


def _hint(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"; to sweep over it write {key}={','.join(map(str, value))}"
    return ""


def folder(key: str, value: Any) -> Path:
    """The folder that a setting names, there or not yet.

    Raises ConfigError for none (an unset variable in a shell), for a home that is not known, and for what is a file, or is below one.
    """
    if not str(value or "").strip():
        raise ConfigError(f"{key}={value or ''}: no folder is named; write {key}=DIR")
    try:
        path = Path(str(value)).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{key}={value}: it is not known where that home is; write the folder out, {key}=/…") from error
    try:
        there = next((p for p in (path, *path.parents) if p.exists()), None)
    except (OSError, ValueError) as error:  # a name that is too long, a folder that may not be entered, a zero byte
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{key}={value}: cannot be a folder: {reason}; give another one with {key}=DIR") from error
    if there is not None and not there.is_dir():
        raise ConfigError(f"{key}={value}: {there} is a file, a folder is needed; give another one with {key}=DIR")
    return path


def sweep_name(value: object) -> str:
    """The name of a sweep, which is a folder of the store and an experiment of MLflow. Raises ConfigError for what cannot be both."""
    name = str(value)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name={name}: {name!r} is not the name of a sweep; use up to 128 letters, digits, '.', '_', '+' and '-', "
            "beginning with a letter or digit"
        )
    return name


def endpoint(value: object) -> str:
    """The base URL of a running server. Raises ConfigError for what is none.

    A password in it would be stored with every point; ``/v1`` is the dialect's to add.
    """
    from specsweep.client.protocol import parse_base_url

    url = str(value or "").rstrip("/")
    try:
        parse_base_url(url)
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(
            f"endpoint={str(value or '')!r} is not a URL ({error}); give the running server as endpoint=http://host:port"
        ) from error
    if "@" in parts.netloc:
        raise ConfigError(
            f"endpoint=…@{parts.netloc.rpartition('@')[2]}: no user or password in the URL; a token goes by cluster.token_env"
        )
    if parts.path.endswith(("/v1", "/completions")):
        raise ConfigError(f"endpoint={url!r} must end before /v1: specsweep adds the path that the engine's dialect asks for")
    return url


def missing_database_folder(uri: str) -> Path | None:
    """The folder in which ``uri`` (of MLflow) wants its sqlite file, if it is not there. None for a server, and if all is well."""
    if not uri.startswith("sqlite:///"):
        return None
    parent = Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute().parent
    return None if parent.is_dir() else parent


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of everything in ``config`` that is not itself a mapping with keys."""
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def check_tree(config: dict[str, Any], prefix: str = "") -> None:
    """Checks every known key in place. Interpolations (``${…}``) are left for later, when they are resolved."""
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            if name not in OPEN_MAPPINGS:
                check_tree(value, f"{key}.")
        elif not (isinstance(value, str) and "${" in value):
            config[name] = checked(key, value)
