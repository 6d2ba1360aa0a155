"""Brings a text to an ISL bucket, the way that SPEED-Bench prepares its prompts.

ISL is counted with ``o200k_base`` on the bare user text, before any chat template and whatever the target's own tokenizer is, so that a
bucket holds the same text for every target. Too long: the first ``isl`` tokens are kept. Too short: the padding sentence is appended,
ceil(missing / its tokens) times, the whole is encoded again and cut. Cutting happens between tokens and decoding gives text, so the
count of the result can differ from the bucket by a token or so (a space that merges with the padding; a cut inside a character).
The real count is therefore returned, never assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from specsweep.client.workload.errors import WorkloadError

DEFAULT_PADDING = "Answer now please.\n"  # SPEED-Bench's: 4 tokens


@dataclass(frozen=True, slots=True)
class Fitted:
    """A text in its bucket. ``ids`` are its own in o200k_base; ``padding_share`` is the part of them that is padding, 0 to 1."""

    text: str
    ids: Sequence[int]
    padding_share: float

    @property
    def isl(self) -> int:
        """Its real length in o200k tokens."""
        return len(self.ids)


def count(text: str) -> int:
    """Length of ``text`` in ``o200k_base`` tokens; special-token text counts as plain text."""
    return len(encode(text))


def encode(text: str) -> list[int]:
    """``o200k_base`` ids of ``text``, special-token text encoded as plain text."""
    ids: list[int] = _o200k().encode_ordinary(text)
    return ids


def fit(text: str, isl: int, padding: str = DEFAULT_PADDING) -> Fitted:
    """``text`` cut or padded to ``isl`` tokens. Raises :class:`WorkloadError` if padding is needed and ``padding`` is empty."""
    if isl < 1:
        raise WorkloadError(f"isl={isl}: a bucket holds at least 1 token")
    ids = encode(text)
    missing = isl - len(ids)
    if missing == 0:
        return Fitted(text, ids, 0.0)
    if missing < 0:
        cut = decode(ids[:isl])
        return Fitted(cut, encode(cut), 0.0)
    unit = count(padding)
    if unit == 0:
        raise WorkloadError(
            f"isl={isl}: a text has {len(ids)} tokens and workload.padding is empty; set it, or take a smaller isl or longer texts"
        )
    ids = encode(text + padding * -(-missing // unit))
    if len(ids) + unit < isl:
        raise WorkloadError(
            f"workload.padding={padding!r} merges with itself and cannot fill isl={isl}; take a sentence with a line break at its end"
        )
    padded = decode(ids[:isl])
    return Fitted(padded, encode(padded), missing / isl)


def decode(ids: Sequence[int]) -> str:
    """Text of ``o200k_base`` ids; a cut inside a character becomes U+FFFD."""
    return str(_o200k().decode(list(ids)))


@cache
def _o200k() -> Any:
    import quicktok

    return quicktok.get_encoding("o200k_base")
