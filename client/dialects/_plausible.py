"""What a server's numbers must be before anything is computed from them: counts, token ids, and times that are possible at all.

JSON knows no kinds of numbers: a count can come as ``true``, as ``1e400``, as an integer of a thousand digits, or as NaN (which
Python reads although it is not JSON). A rate over such a number is wrong in silence, or it ends the process in an
arithmetic error or a list of any length. So every number that enters a :class:`~specsweep.client.trace.Turn` passes here, and
``ValueError`` says which one was refused; the reader of a stream turns that into a request that failed as ``protocol``.

Possible is not true: whether counts agree with each other and with what was asked for is checked where both are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from specsweep.client.trace import Turn

MOST = 2**31 - 1  # of any count and any token id: engines keep both in 32 bits
MOST_DRAFTED = 4096  # draft tokens of one step; the longest drafts of any engine are some hundred
_MOST_LISTED = 200  # characters of a refused value that are shown


def count(name: str, value: object, most: int = MOST) -> int:
    """``value`` as a count. Raises ``ValueError`` if it is no integer (``bool`` is none), negative, or above ``most``."""
    if type(value) is not int:
        raise ValueError(f"{name} is {_shown(value)}, not a count")
    if not 0 <= value <= most:
        raise ValueError(f"{name} is {_shown(value)}: a count from 0 to {most} was expected")
    return value


def amount(name: str, value: object) -> float:
    """``value`` as a time or a mean. Raises ``ValueError`` if it is no number (``bool`` is none), not finite, or negative."""
    if type(value) not in (int, float):
        raise ValueError(f"{name} is {_shown(value)}, not a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # narrowed by its exact type above
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} is {_shown(value)}: a finite number of 0 or more was expected")
    return number


def require(turn: Turn) -> None:
    """What came out of a server's JSON must be what a trace can store. Raises ``ValueError``."""
    for name in ("n_prompt_server", "n_completion_server", "srv_steps", "srv_accepted", "srv_drafted"):
        if (value := getattr(turn, name)) is not None:
            count(name, value)
    _all("a token id", turn.output_ids, 0, MOST)
    _all("the tokens of a chunk", turn.chunk_tokens, 0, MOST)
    _all("the tokens of a step", turn.step_tokens, -MOST, MOST)  # may be short of what the counters promise
    for name in ("srv_accepted_per_step", "srv_drafted_per_step"):
        _all(name, getattr(turn, name), 0, MOST_DRAFTED)
    for name in ("step_drafted", "step_accepted"):
        _all(name, getattr(turn, name), -1, MOST_DRAFTED)  # -1: not known
    for ms in turn.step_server_ms:
        amount("the engine's clock", ms)


def accepted_of_drafted(accepted: Sequence[int], drafted: Sequence[int]) -> None:
    """Step by step, no more can be accepted than was drafted. Raises ``ValueError``."""
    for step, (a, d) in enumerate(zip(accepted, drafted, strict=False)):
        if count("an accepted count", a, MOST_DRAFTED) > count("a drafted count", d, MOST_DRAFTED):
            raise ValueError(f"verify step {step} accepted {a} of {d} drafted tokens")


def _all(name: str, values: Iterable[object], least: int, most: int) -> None:
    for value in values:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} is {_shown(value)}: an integer from {least} to {most} was expected")


def _shown(value: object) -> str:
    """``repr`` of an integer beyond some thousand digits is an error of its own."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)[:_MOST_LISTED]
