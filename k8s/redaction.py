"""What must never be written down: values of secrets, in whatever text they turn up.

Secrets reach a pod by reference only, so its JSON has none by our doing. But a user's template may hold one, and programs print
their environment when they die. Two nets, both by form: the value of a variable whose *name* says secret, and text that *looks*
like a well-known kind of token. Both rather catch too much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[redacted]"
_WORDS = r"TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?|AUTHORIZATION"
_SECRET_NAME = re.compile(rf"(?:^|[_\-.])(?:{_WORDS})(?:_ID)?$", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}|nvapi-[\w\-]{16,}"
    r"|AKIA[A-Z0-9]{12,}|xox[abprs]-[\w\-]{10,}|eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*)"
)
_IN_TEXT = (
    re.compile(r"(?P<keep>(?i:bearer|basic)\s+)[A-Za-z0-9._~+/\-]{8,}=*"),
    re.compile(r"(?P<keep>://[^\s/:@]*:)[^\s/@]+(?=@)"),
    # NAME=value, NAME: value, 'NAME': 'value': to the end of the word or of the quotes
    re.compile(
        rf"(?P<keep>\b(?:\w+[_\-])?(?i:{_WORDS})(?:_ID)?['\"]?\s*[=:]\s*)(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\",;}}\])]+)",
    ),
    re.compile(rf"(?P<keep>--(?:[\w\-]+-)?(?i:{_WORDS.replace('_', '-')})\s+)[^\s'\"]+"),
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret (``HF_TOKEN`` does, ``MAX_TOKENS`` and ``TOKENIZERS_PARALLELISM`` do not)."""
    return _SECRET_NAME.search(name) is not None


def looks_secret(value: str) -> bool:
    return _TOKEN.search(value) is not None


def redacted(text: str) -> str:
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\g<keep>{HIDDEN}", text)
    return _TOKEN.sub(HIDDEN, text)


def redacted_object(value: Any) -> Any:
    """The same JSON with the values of secret-like variables hidden and every text passed through :func:`redacted`."""
    if isinstance(value, Mapping):
        name = value.get("name")
        hides = isinstance(name, str) and is_secret_name(name) and isinstance(value.get("value"), str)
        return {key: HIDDEN if hides and key == "value" else redacted_object(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_object(item) for item in value]
    return redacted(value) if isinstance(value, str) else value
