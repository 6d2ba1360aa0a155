"""What a decoding method is: an iterator of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Finish = Literal["", "stop", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0 is greedy; ``top_k`` below 1 is off."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int = 0
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One decoding iteration. ``tokens`` are what the request gets of it: ``accepted`` + 1, unless the cap or an end token cut it.

    ``drafted`` is 0 for the prefill, for plain decoding, and where a drafter found nothing to propose. ``finish`` says why this is the last.
    """

    tokens: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0
    finish: Finish = ""


class Method(Protocol):
    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Step]:
        """The steps of one request, the prefill with its one token first. Nothing of a request is kept for the next one."""
        ...


def cut(new: Sequence[int], left: int, end_tokens: frozenset[int]) -> tuple[tuple[int, ...], Finish]:
    """What remains of a step's tokens with ``left`` tokens to the cap: up to the first end token, which is part of the answer."""
    for at, token in enumerate(new[:left]):
        if token in end_tokens:
            return tuple(new[: at + 1]), "stop"
    return tuple(new[:left]), "length" if len(new) >= left else ""
