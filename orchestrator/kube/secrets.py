"""Secrets that a user wrote where everybody in the namespace could read them: refused before anything of it is sent or stored.

The words of a sweep stand in its Job, its config files in a ConfigMap, its settings in what it starts. A secret is known by the name that
it is given (``api_key``, ``HF_TOKEN``, ``--api-key``) or by its form (``hf_…``, a password in a URL). No message has its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from specsweep.k8s.redaction import is_secret_name, looks_secret, redacted
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.run_command import key_of

ADVICE = (
    "put it into a Secret and refer to it in a template: cluster.sweep.template or cluster.pod.template with "
    "env: [{name: …, valueFrom: {secretKeyRef: …}}]"
)
NAMES_OF_SECRETS = ("hub_token.secret",)  # what these fields hold is no secret, but what one is called
_PASSWORD = re.compile(r"://[^\s/@]*:[^\s/@]+@|https?://[^\s/@]+@")


def refuse_in_words(overrides: Sequence[str]) -> None:
    """Whoever may look at a Job sees its words. Raises ConfigError."""
    for word in overrides:
        key, value = key_of(word), word.partition("=")[2]
        if looks_secret(word) or _PASSWORD.search(word) or next(_found(_as_config(key, value)), None):
            raise ConfigError(f"{key}=…: a secret in it could be read by everybody who may look at the sweep's Job; {ADVICE}")


def refuse_in_config(config: Mapping[str, Any]) -> None:
    """Of a session, wherever its settings came from. Raises ConfigError naming the key."""
    if (key := next(_found(config), None)) is not None:
        raise ConfigError(f"{key} holds a secret as a plain value, which everybody could read in a pod; {ADVICE}")


def refuse_in_file(text: str, where: str) -> None:
    """``text``: of a YAML file that is to travel in a ConfigMap, whether the sweep uses it or not. Raises ConfigError."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        content = None  # whoever composes it says so
    key = "a token" if looks_secret(text) or _PASSWORD.search(text) else next(_found(content), None) or next(_in_comments(text), None)
    if key is not None:
        raise ConfigError(
            f"{where} holds {'' if key == 'a token' else 'a secret at '}{key}, which everybody could read in the sweep's ConfigMap; put it "
            "into a Secret and refer to it (cluster.hub_token.secret, or a template with valueFrom.secretKeyRef)"
        )


def in_url(uri: str) -> bool:
    return bool(_PASSWORD.search(uri)) or redacted(uri) != uri


def _as_config(key: str, value: str) -> Any:
    """An override as the nesting that it means. Hydra's flow of mappings and lists is YAML's, near enough to look for names."""
    try:
        found: Any = yaml.safe_load(value)
    except yaml.YAMLError:
        found = value
    for part in reversed(key.split(".")):
        found = {part: found}
    return found


def _found(value: Any, path: str = "") -> Iterator[str]:
    """Dotted keys under which secrets stand."""
    if isinstance(value, Mapping):
        name = value.get("name")
        for key, item in value.items():
            here = f"{path}.{key}" if path else str(key)
            named = _says_secret(str(key)) and not here.endswith(NAMES_OF_SECRETS)
            if (named or (key == "value" and _says_secret(str(name)))) and _is_value(item):
                yield here if named else f"{path}[{name}]"
            else:
                yield from _found(item, here)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            if isinstance(item, str) and item.startswith("--"):
                flag, given, rest = item.partition("=")
                following = rest if given else value[i + 1] if i + 1 < len(value) else None
                if _says_secret(flag.lstrip("-")) and _is_value(following) and not str(following).startswith("--"):
                    yield f"{path}[{flag}]"
                    continue
            yield from _found(item, f"{path}[{i}]")
    elif isinstance(value, str) and (looks_secret(value) or _PASSWORD.search(value)):
        yield path


def _says_secret(name: str) -> bool:
    """Of variables, keys and flags alike: ``HF_TOKEN``, ``api_key``, ``api-key``."""
    return is_secret_name(name.replace("-", "_"))


def _is_value(item: Any) -> bool:
    """Something that is said in plain: not nothing, and not a variable of the pod or of this machine."""
    return isinstance(item, str | int | float) and not isinstance(item, bool) and str(item) != "" and not str(item).startswith(("$(", "${"))


def _in_comments(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.partition("#")[2].split():
            name, equals, value = word.partition("=")
            if equals and _says_secret(name) and value[:1] not in ("", "$", "<", "…"):
                yield f"line {number} (a comment)"
