"""Whole texts as typed after ``key=``: a prompt on the command line is sent as it stands there.

Hydra's grammar gives a meaning to nearly everything that occurs in a prompt: commas list values, braces open a mapping, ``${`` asks for
another key, ``=`` and quotes end a word. So after these keys nothing is parsed. Quotes around the whole are taken off, as everywhere,
since a shell may have passed them on; and ``null`` alone is none. Several prompts are a file, or a list under ``axes`` of a sweep file.
"""

from __future__ import annotations

import re
from typing import Literal

TEXT_KEYS = ("workload.prompt",)
_TYPED = re.compile(rf"\s*(?P<sign>\+{{0,2}})(?P<key>{'|'.join(map(re.escape, TEXT_KEYS))})\s*=(?P<text>.*)", re.DOTALL)
_QUOTED = re.compile(r"""\s*(?P<quote>['"])(?P<inner>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)\s*""", re.DOTALL)
_INTERPOLATION = re.compile(r"(\\*)\$\{")


def text_setting(word: str) -> tuple[Literal["set", "add", "force"], str, str | None] | None:
    """Action, key and text of an override that sets one; None for any other override."""
    found = _TYPED.fullmatch(word)
    if found is None:
        return None
    action: Literal["set", "add", "force"] = "set" if not found["sign"] else "add" if found["sign"] == "+" else "force"
    return action, found["key"], typed_text(found["text"])


def typed_text(typed: str) -> str | None:
    """The text that ``typed`` stands for, with what OmegaConf would resolve escaped; None for ``null``."""
    if typed.strip().lower() == "null":
        return None
    quoted = _QUOTED.fullmatch(typed)
    text = re.sub(rf"\\([\\{quoted['quote']}])", r"\1", quoted["inner"]) if quoted else typed
    return _INTERPOLATION.sub(r"\1\1\\${", text)
