"""Overrides as typed on the command line, in Hydra's own grammar, sweeps included.

Hydra's parser decides what an override means; this module adds what a plan needs. Folders and prompts are read as typed (see
:mod:`~specsweep.orchestrator.typed_paths`, :mod:`~specsweep.orchestrator.typed_texts`). Text-like keys get back the characters that were typed (see
:mod:`~specsweep.orchestrator.fields`). A sweep is a plain tuple of values, so that one and
several values take the same path from here on: nothing can behave in another way only because something else is swept. And
what would make a plan depend on chance (``shuffle``, ``interval``) is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import ALIASES, is_text
from specsweep.orchestrator.typed_paths import path_setting
from specsweep.orchestrator.typed_texts import text_setting

Action = Literal["set", "add", "force", "delete"]
_CHOICE = re.compile(r"\s*choice\s*\((.*)\)\s*", re.DOTALL)
_FUNCTION = re.compile(r"\s*(str|int|float|bool|json_str|sort|range|extend_list)\s*\(")
_OPEN, _CLOSE = "([{", ")]}"
# Every number of a sweep is typed or counted by a person; more than this is a slip (range(1,1e9)).
MAX_VALUES = 1_000_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One override. ``values`` has one entry unless the key is swept; for ``delete`` it is empty or the value that must be there."""

    key: str
    action: Action
    values: tuple[Any, ...]
    swept: bool
    text: str  # as typed or as found in a sweep file, for messages
    typed: bool = True  # on the command line; False: from a sweep file

    @property
    def value(self) -> Any:
        return self.values[0]


def parse_overrides(texts: Iterable[str], *, options: Callable[[str], Sequence[str]]) -> list[Setting]:
    """Settings in the order of ``texts``. ``options`` names the options of a config group (for ``drafter=glob(*)``).

    Raises ConfigError with the override and what is wrong with it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    return [_setting(parser, text, options) for text in texts]


def literal(key: str, value: Any, *, origin: str) -> Setting:
    """A setting whose value comes from a YAML file: nothing in it is parsed, a list is a value."""
    return Setting(ALIASES.get(key, key), "set", (value,), False, f"{key}={value} ({origin})", typed=False)


def from_axis(key: str, value: Any, *, origin: str, options: Callable[[str], Sequence[str]]) -> Setting:
    """A setting from ``axes:`` of a sweep file: a list is swept over; a string is read in the grammar of the command line."""
    if isinstance(value, str):
        return replace(parse_overrides([f"{key}={value}"], options=options)[0], typed=False)
    if not isinstance(value, list):
        value = [value]
    if not value:
        raise ConfigError(f"{origin}: axes.{key} is empty; give at least one value")
    return Setting(ALIASES.get(key, key), "set", tuple(value), len(value) > 1, f"{key}={','.join(map(str, value))} ({origin})", typed=False)


def _setting(parser: Any, text: str, options: Callable[[str], Sequence[str]]) -> Setting:
    from hydra.core.override_parser.types import OverrideType
    from hydra.errors import HydraException

    if (found := path_setting(text)) is not None:
        return Setting(found[0], "set", (found[1],), False, text)
    if (typed_text := text_setting(text)) is not None:
        return Setting(typed_text[1], typed_text[0], (typed_text[2],), False, text)
    try:
        override = parser.parse_override(text)
    except HydraException as error:
        reason = " ".join(str(error).split("\n")[0].split())
        raise ConfigError(
            f"override {text!r} cannot be read: {reason}; write key=value, and text with unusual characters as 'key=\"…\"'"
        ) from error
    typed: str = override.key_or_group
    key = ALIASES.get(typed, typed)
    if typed.startswith("hydra") and typed[5:6] in ("", ".", "/"):
        raise ConfigError(
            f"override {text!r}: Hydra's own settings have no effect here; folders are set with store=DIR and --config-dir DIR"
        )
    if override.package is not None:
        raise ConfigError(f"override {text!r}: packages (@{override.package}) are not used; write {typed}=…")
    action: Action = {OverrideType.CHANGE: "set", OverrideType.ADD: "add", OverrideType.FORCE_ADD: "force", OverrideType.DEL: "delete"}[
        override.type
    ]  # type: ignore[assignment]
    if override.value_type is None:
        return Setting(key, action, (), False, text)
    values, swept = _values(key, override, options)
    return Setting(key, action, values, swept, text)


def _values(key: str, override: Any, options: Callable[[str], Sequence[str]]) -> tuple[tuple[Any, ...], bool]:
    from hydra.core.override_parser.types import Glob, Override, ValueType

    text = override.input_line
    if not override.is_sweep_override():
        return (_keep_text(key, [override._value], [override.get_value_string()], text)[0],), False
    if override.value_type == ValueType.INTERVAL_SWEEP:
        raise ConfigError(f"override {text!r}: an interval has no list of values; write them, or use range(start,stop,step)")
    sweep = override._value
    if isinstance(sweep, Glob):
        found = tuple(sweep.filter(list(options(key))))
        if not found:
            raise ConfigError(f"override {text!r}: the pattern matches none of {', '.join(options(key)) or 'no options'}")
        return found, True
    if sweep.shuffle:
        raise ConfigError(f"override {text!r}: a plan does not depend on chance; leave shuffle out")
    if override.value_type == ValueType.RANGE_SWEEP:
        return _range(key, sweep, text), True
    parsed = list(sweep.list)
    if not is_text(key):
        return tuple(Override._convert_value(v) for v in parsed), True
    raw = override.get_value_string()
    inner = _CHOICE.fullmatch(raw)
    return tuple(_keep_text(key, parsed, split_values(inner[1] if inner else raw), text)), True


def _range(key: str, sweep: Any, text: str) -> tuple[Any, ...]:
    if is_text(key):
        raise ConfigError(f"override {text!r}: {key} is text and has no range; write its values")
    if sweep.step == 0:
        raise ConfigError(f"override {text!r}: the step of a range is not 0")
    count = math.ceil((float(sweep.stop) - float(sweep.start)) / float(sweep.step))
    if count < 1:
        raise ConfigError(f"override {text!r}: the range is empty (it ends before its stop, as Python's does)")
    if count > MAX_VALUES:
        raise ConfigError(f"override {text!r}: {count} values; at most {MAX_VALUES} make sense")
    return tuple(sweep.range())


def _keep_text(key: str, parsed: Sequence[Any], raw: Sequence[str], text: str) -> list[Any]:
    """Parsed values, except that numbers and flags of a text-like key become the characters that were typed."""
    from hydra.core.override_parser.types import Override

    values = [Override._convert_value(v) for v in parsed]
    if not is_text(key):
        return values
    if len(raw) != len(values) or any(_FUNCTION.match(piece) for piece in raw):
        raise ConfigError(f"override {text!r}: {key} is kept as typed, so its values must be written out: {key}=a,b,c")
    return [piece.strip() if isinstance(value, bool | int | float) else value for value, piece in zip(values, raw, strict=True)]


def split_values(text: str) -> list[str]:
    """Splits at commas that are outside quotes and brackets and not escaped."""
    pieces, start, depth, quote, i = [], 0, 0, "", 0
    while i < len(text):
        char = text[i]
        if char == "\\":
            i += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
        i += 1
    return [*pieces, text[start:]]
