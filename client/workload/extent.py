"""How much the prompts of a workload ask of an engine, before there is a tokenizer: their turns, and about how many tokens.

A plan has to know what can never fit into a context and what all of it will take, and it has to know at once, on a machine that may have
no model at all. So lengths are in ``o200k_base`` tokens, as ISL is, and hardly a text is counted: none has more tokens than bytes, which
settles most, and of the others only the longest are looked at (:data:`COUNTED`). A run counts every prompt with the target's tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from specsweep.client.workload import buckets, random_tokens, recipes
from specsweep.client.workload.asked import Asked, asked
from specsweep.client.workload.choice import Chosen, chosen
from specsweep.client.workload.documents import NATURAL

COUNTED = 64  # conversations of a workload, the longest by their bytes, whose tokens are counted if their bytes do not settle the question
BYTES_PER_TOKEN = 4.0  # of o200k_base, about: where a mean is good enough


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation before it is held. ``fixed``: tokens of its one text, where a bucket says how many those are."""

    prompt_id: str
    texts: tuple[str, ...]  # what the user says, turn by turn
    max_tokens: int | None  # of each answer, where the prompt says so itself
    fixed: int | None = None
    before: str = ""  # the system prompt
    has_history: bool = True  # later turns hold those before them

    def cap(self, osl: int) -> int:
        """As :meth:`specsweep.client.workload.prompts.Prompt.cap`."""
        return self.max_tokens or osl

    @property
    def turns(self) -> int:
        return len(self.texts)

    def said(self, size: Callable[[str], int]) -> list[int]:
        """Length of each turn's prompt without the answers before it and without what a template adds."""
        if self.fixed is not None:
            return [self.fixed]
        own = [size(text) for text in self.texts]
        return [size(self.before) + n for n in (accumulate(own) if self.has_history else own)]

    def need(self, osl: int, size: Callable[[str], int], *, answers: bool) -> int:
        """Tokens of context that it takes. ``answers``: the earlier ones at their cap, else as if they were empty."""
        cap = self.cap(osl)
        return max(n + cap + (turn * cap if answers and self.has_history else 0) for turn, n in enumerate(self.said(size)))


@dataclass(frozen=True, slots=True, eq=False)  # one of its own each, so that what is asked of it is remembered by it
class Extent:
    """The conversations of a workload in the order in which they are sent: ``main`` measured, ``ramp`` before."""

    main: tuple[Talk, ...]
    ramp: tuple[Talk, ...]

    @property
    def all(self) -> tuple[Talk, ...]:
        return self.main + self.ramp


@lru_cache(maxsize=1024)
def requests(of: Extent, main: int, ramp: int) -> int:
    """Turns of so many conversations, where those that there are go round."""
    return _turns(of.main, main) + _turns(of.ramp, ramp)


def _turns(talks: Sequence[Talk], count: int) -> int:
    rounds, rest = divmod(count, len(talks))
    return rounds * sum(talk.turns for talk in talks) + sum(talk.turns for talk in talks[:rest])


@lru_cache(maxsize=1024)
def too_long(of: Extent, osl: int, room: int, *, answers: bool) -> Talk | None:
    """One that takes more than ``room`` tokens. ``answers``: see :meth:`Talk.need`."""
    bounds = [(talk.need(osl, _bytes, answers=answers), talk) for talk in of.all]
    doubtful = sorted((found for found in bounds if found[0] > room), key=lambda found: -found[0])
    return next((talk for _, talk in doubtful[:COUNTED] if talk.need(osl, tokens, answers=answers) > room), None)


@lru_cache(maxsize=1024)
def longest(of: Extent, osl: int) -> int:
    """Tokens of context that the longest takes if all its answers reach their cap."""
    by_bytes = sorted(of.all, key=lambda talk: -talk.need(osl, _bytes, answers=True))
    return max(talk.need(osl, tokens, answers=True) for talk in by_bytes[:COUNTED])


@lru_cache(maxsize=1024)
def prompt_tokens_mean(of: Extent, osl: int) -> float:
    """Of a measured request, about: a later turn's prompt holds the turns and the answers before it."""
    total = turns = 0.0
    for talk in of.main:
        said = talk.said(_bytes)
        scale = 1.0 if talk.fixed is not None else BYTES_PER_TOKEN
        held = sum(range(len(said))) * talk.cap(osl) if talk.has_history else 0
        total, turns = total + sum(said) / scale + held, turns + len(said)
    return total / turns


def extent(workload: Mapping[str, Any], isl: int) -> Extent | None:
    """Of the prompts that :func:`~specsweep.client.workload.prompts.load_prompts` would make; None of random tokens, which have ``isl`` each.

    Raises :class:`WorkloadError` as :func:`~specsweep.client.workload.prompts.check_prompts` does.
    """
    settings = asked(workload)
    if settings.corpus == random_tokens.NAME:
        return None
    main, ramp = chosen(settings, isl)
    return Extent(_talks(main, settings, isl), _talks(ramp, settings, isl))


def _talks(found: Chosen, settings: Asked, isl: int) -> tuple[Talk, ...]:
    made = []
    for source, document in found:
        fixed = isl if isl != NATURAL else None if document.turns else source.bucket
        first = document.text if source.tier is None or fixed else recipes.whole(source.tier, document.text)
        before = settings.system or "" if settings.chat else ""
        made.append(Talk(document.doc_id, (first, *document.turns), document.max_tokens, fixed, before=before, has_history=settings.chat))
    return tuple(made)


def _bytes(text: str) -> int:
    return len(text.encode())


@lru_cache(maxsize=4096)
def tokens(text: str) -> int:
    """Length of ``text`` in ``o200k_base`` tokens."""
    return buckets.count(text)
