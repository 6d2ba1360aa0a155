"""Which documents a workload takes, and in which order: measured ones, and others for the ramp-up. No text stands in both."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol, TypeVar

from specsweep.client.workload.asked import AS_LISTED, ROUND_ROBIN, Asked
from specsweep.client.workload.documents import NATURAL, Corpus, Document, corpus, documents
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.labels import having

Chosen = list[tuple[Corpus, Document]]  # each with the corpus that it is from


def chosen(asked: Asked, isl: int) -> tuple[Chosen, Chosen]:
    """Measured and ramp-up documents. Raises :class:`WorkloadError` naming the field if there are too few, or none of a category."""
    source = asked.source(isl)
    found = _wanted(documents(source, isl), asked)
    drawn = _drawn(found, asked)
    if asked.ramp_corpus:
        others, there = _of_ramp(asked, isl)
        main, ramp = [d for d in drawn if not d.ramp], _drawn(there, asked)
    elif all(d.ramp is None for d in drawn):
        others, wanted = source, asked.prompts + asked.ramp_prompts
        _enough("workload.prompts + workload.ramp_prompts", wanted, len(drawn), asked.name)
        main, ramp = drawn[: asked.prompts], drawn[asked.prompts :]
    else:
        others, main, ramp = source, [d for d in drawn if not d.ramp], [d for d in drawn if d.ramp]
    _enough("workload.prompts", asked.prompts, len(main), asked.name)
    _enough("workload.ramp_prompts", asked.ramp_prompts, len(ramp), asked.ramp_corpus or asked.name)
    main, ramp = main[: asked.prompts], ramp[: asked.ramp_prompts]
    _refuse_repeats([*main, *ramp])
    if both := {d.doc_id for d in main} & {d.doc_id for d in ramp}:
        raise WorkloadError(
            f"prompt {min(both)} would be in the ramp-up and measured too: give workload.ramp_corpus another corpus, or ask for fewer workload.prompts"
        )
    _refuse_turns([*main, *ramp], isl)
    return [(source, d) for d in main], [(others, d) for d in ramp]


def _of_ramp(asked: Asked, isl: int) -> tuple[Corpus, list[Document]]:
    try:
        others = corpus(asked.ramp_corpus, isl, asked.data)
        return others, [d for d in documents(others, isl) if d.ramp is not False]
    except WorkloadError as e:  # it may speak of workload.corpus, which is another one
        raise WorkloadError(str(e).replace("workload.corpus=", "workload.ramp_corpus=")) from e


def _wanted(found: Sequence[Document], asked: Asked) -> list[Document]:
    if not found:
        raise WorkloadError(f"workload.corpus={asked.corpus!r}: it has no prompts; give a file that has some")
    return having(found, asked.labels, of=asked.corpus, field="workload.")


def _drawn(found: Sequence[Document], asked: Asked) -> list[Document]:
    if asked.order == AS_LISTED:
        return list(found)
    if asked.order == ROUND_ROBIN:
        return [*round_robin(found, asked.prompts), *_rotation(found)[asked.prompts :]]
    return sorted(found, key=lambda d: hashlib.sha256(f"{asked.seed}:{d.doc_id}".encode()).digest())


class _Labelled(Protocol):
    @property
    def category(self) -> str: ...


_L = TypeVar("_L", bound=_Labelled)


def round_robin(found: Sequence[_L], n: int) -> tuple[_L, ...]:
    """``n`` prompts, one of each category in turn: categories in order of their first prompt, those of one in the order of the data set.

    That is how the official benchmark takes fewer requests than the data set has. A category that has none left is passed over.
    With ``n`` of all or more the data set is taken as it is, in its own order. Raises :class:`WorkloadError` if ``n`` is below 1.
    """
    if n < 1:
        raise WorkloadError(f"{n} rows of a data set: take at least 1")
    return tuple(found) if n >= len(found) else tuple(_rotation(found)[:n])


def _rotation(found: Sequence[_L]) -> list[_L]:
    by_category: dict[str, list[_L]] = {}
    for prompt in found:
        by_category.setdefault(prompt.category, []).append(prompt)
    return [prompt for round_ in zip_longest(*by_category.values()) for prompt in round_ if prompt is not None]


def _enough(field: str, wanted: int, there: int, name: str) -> None:
    if wanted > there:
        raise WorkloadError(f"{field}={wanted}, but corpus {name!r} has {there}; ask for fewer or give a larger corpus")


def _refuse_turns(chosen: Sequence[Document], isl: int) -> None:
    if isl != NATURAL and (d := next((d for d in chosen if d.turns), None)) is not None:
        turns = 1 + len(d.turns)
        raise WorkloadError(f"prompt {d.doc_id} is a conversation of {turns} turns, which cannot be brought to isl={isl}; set isl=natural")


def _refuse_repeats(chosen: Sequence[Document]) -> None:
    """One text under two ids would count as two independent prompts. Data sets whose texts were never filled in look like that, too."""
    seen: dict[tuple[str, ...], str] = {}
    for d in chosen:
        other = seen.setdefault((d.text, *d.turns), d.doc_id)
        if other != d.doc_id:
            raise WorkloadError(
                f"prompts {other} and {d.doc_id} have the same text (a placeholder that was never filled in?); each must be its own"
            )
