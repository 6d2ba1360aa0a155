"""A path as typed after ``store=``: one grammar for every command, whether or not it loads Hydra.

Hydra's grammar fits names and numbers. Of a path it refuses every letter outside of ASCII, and it gives quotes a meaning that a plain
split at ``=`` does not, so that one word would be two folders. Here the characters of a path are what was typed. Three things keep
the meaning that they have in every override: quotes around the whole (a shell that passes them on must not change the folder), a
backslash before a character that Hydra reserves, and a bare comma, which lists values and is refused, since a sweep has one store.
"""

from __future__ import annotations

import re
from pathlib import Path

from specsweep.orchestrator.errors import ConfigError

PATH_KEYS = ("store", "cache")
_RESERVED = r"\\()[\]{}:=, \t'\""
_ESCAPED = re.compile(rf"\\([{_RESERVED}])")
_QUOTED = re.compile(r"""(?P<quote>['"])(?P<inner>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)""", re.DOTALL)
_SWEEP = re.compile(r"\s*(choice|range|interval|glob|shuffle|sort)\s*\(")
_INTERPOLATION = re.compile(r"\$\{[^{}]*\}")
_PLAIN = re.compile(r"[^\\,'\"\s]+")


def path_setting(text: str) -> tuple[str, str | None] | None:
    """Key and path of an override that sets one; None for any other override. Raises ConfigError for what names no one path."""
    key, equals, typed = text.partition("=")
    if not equals or key.strip() not in PATH_KEYS:
        return None
    return key.strip(), typed_path(key.strip(), typed)


def typed_path(key: str, typed: str) -> str | None:
    """The path that ``typed`` stands for, None for ``null``. Raises ConfigError for an open quote and for several values."""
    typed = typed.strip()
    if typed[:1] in ("'", '"'):
        quoted = _QUOTED.fullmatch(typed)
        if quoted is not None:
            return re.sub(r"\\([\\'\"])", r"\1", quoted["inner"])
        if _QUOTED.match(typed) is None:
            raise ConfigError(f"{key}={typed}: the quote is not closed; write {key}=DIR or '{key}=\"DIR\"'")
    bare = _ESCAPED.sub("", _INTERPOLATION.sub("", typed))
    if "," in bare or _SWEEP.match(typed):
        raise ConfigError(
            f"{key}={typed}: {key} has one value for the whole sweep, it is not an axis; a comma in its name is quoted: '{key}=\"a,b\"'"
        )
    return None if typed.lower() == "null" else _ESCAPED.sub(r"\1", typed)


def as_typed(key: str, path: Path | str) -> str:
    """``key=path`` so that reading it gives that path again."""
    text = str(path)
    if _PLAIN.fullmatch(text) and text.lower() != "null" and not _SWEEP.match(text):
        return f"{key}={text}"
    inner = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{inner}'"
