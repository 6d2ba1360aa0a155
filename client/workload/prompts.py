"""From a workload's settings to token ids: the same prompts on every machine, for every engine.

``load_prompts`` takes documents in an order drawn from ``seed``, brings each to the ISL bucket in ``o200k_base`` tokens and renders it
through the target's template. ``workload_hash`` names exactly what went in, so that two points with one hash saw the same prompts (given
the same target); it needs no tokenizer and is cheap enough to be asked for each of 100,000 points.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsweep.client.workload import buckets, random_tokens, recipes
from specsweep.client.workload.asked import Asked, asked
from specsweep.client.workload.choice import chosen
from specsweep.client.workload.documents import NATURAL, Corpus, Document, corpus
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.repetition import repeated_share
from specsweep.client.workload.tokenizer import TargetTokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, ready to be sent. ``ids`` are the target's, template included; there are none without a tokenizer."""

    prompt_id: str
    category: str
    ids: tuple[int, ...]
    text: str  # the bare user text, in its bucket; what a server gets that takes no ids
    isl_o200k: int  # real length of ``text`` in o200k_base tokens
    padding_share: float = 0.0  # part of ``isl_o200k`` that is padding, 0 to 1
    turns: tuple[str, ...] = ()  # what the user says after the first answer, one text a turn
    sub_category: str = ""
    difficulty: str = ""
    source: str = ""  # the data set that it is from
    isl_target: int = -1  # length of ``text`` in tokens of the target; -1: without a tokenizer
    max_tokens: int | None = None  # of each answer, where the prompt's own line says so
    repeated_share: float = 0.0  # part of ``text`` that stood in it before, 0 to 1

    def cap(self, osl: int) -> int:
        """Tokens that each of its answers may have, where the workload's cap is ``osl``."""
        return self.max_tokens or osl


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Measured prompts, and others for the ramp-up. The two share no prompt."""

    main: tuple[Prompt, ...]
    ramp: tuple[Prompt, ...]


def load_prompts(workload: Mapping[str, Any], *, isl: int, tokenizer: TargetTokenizer | None) -> PromptSet:
    """``prompts`` measured and ``ramp_prompts`` ramp-up prompts of ``isl`` o200k tokens each.

    Without a ``tokenizer`` (a server that takes text only) the ids are left empty, and a begun answer cannot be sent.

    ``isl`` 0: each text at its natural length. Conversations of several turns have no other, and need a chat template.

    Fields read: ``corpus`` and ``data`` (:mod:`~specsweep.client.workload.documents`, or ``random``), ``category``, ``sub_category`` and
    ``difficulty`` (one, several or null), ``order`` (``drawn`` by ``seed``; ``round_robin`` over the categories, as the official benchmark
    takes fewer requests than it has; ``as_listed``), ``ramp_corpus`` (where ramp-up prompts come from; null: from the rest of the
    corpus), ``vocabulary`` (of ``random``: then ``isl`` is in tokens of the target), ``prompts``, ``ramp_prompts``, ``chat``, ``system``,
    ``template_args``, ``padding``, ``seed``. Raises :class:`WorkloadError` naming the field for a value that cannot be used, for too few
    documents, and for a chat workload on a target without a template.
    """
    settings = asked(workload)
    if settings.corpus == random_tokens.NAME:
        return _random(settings, isl, tokenizer)
    main, ramp = chosen(settings, isl)
    return PromptSet(
        main=tuple(_prompt(d, source, settings, isl, tokenizer) for source, d in main),
        ramp=tuple(_prompt(d, source, settings, isl, tokenizer) for source, d in ramp),
    )


def check_prompts(workload: Mapping[str, Any], isl: int) -> None:
    """Raises the :class:`WorkloadError` of :func:`load_prompts` that needs no tokenizer: unknown category, malformed file, too few texts."""
    settings = asked(workload)
    if settings.corpus != random_tokens.NAME:
        chosen(settings, isl)
    elif isl == NATURAL:
        raise WorkloadError("workload.corpus=random: random tokens have no length of their own; set isl, for example isl=1k")


def shortest_text(workload: Mapping[str, Any], isl: int) -> int | None:
    """o200k tokens that the shortest measured prompt has before it is padded; None where there are no texts that could be short.

    Raises :class:`WorkloadError` as :func:`check_prompts` does."""
    settings = asked(workload)
    if settings.corpus == random_tokens.NAME:
        return None
    main, _ = chosen(settings, isl)
    return min(buckets.count(d.text if source.tier is None else recipes.whole(source.tier, d.text)) for source, d in main)


def task_names(workload: Mapping[str, Any], isl: int) -> dict[str, str]:
    """Names of the measured prompts by prompt_id, of those that have one beside it: tasks of ``llama-spec-bench``.

    Raises :class:`WorkloadError` as :func:`check_prompts` does."""
    settings = asked(workload)
    if settings.corpus == random_tokens.NAME:
        return {}
    main, _ = chosen(settings, isl)
    return {d.doc_id: d.name for _, d in main if d.name}


def workload_hash(workload: Mapping[str, Any], isl: int) -> str:
    """64 hex digits over the corpus file's content, every field that shapes a prompt, ``isl`` and the recipe's version.

    ``osl`` is in as well, since it is part of what the workload asks for. ``name`` is not: two names of one recipe are one workload.
    """
    settings = asked(workload)
    facts = {
        "recipe_version": recipes.VERSION,
        "corpus_sha256": random_tokens.VERSION if settings.vocabulary else settings.source(isl).sha256,
        "category": sorted(settings.labels.get("category", ())),
        "prompts": settings.prompts,
        "ramp_prompts": settings.ramp_prompts,
        "osl": workload.get("osl"),
        "chat": settings.chat,
        "system": settings.system,
        "template_args": dict(settings.template_args),
        "padding": settings.padding,
        "seed": settings.seed,
        "isl": isl,
        **settings.shapes,
        **({"ramp_sha256": corpus(settings.ramp_corpus, isl, settings.data).sha256} if settings.ramp_corpus else {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _prompt(document: Document, source: Corpus, settings: Asked, isl: int, tokenizer: TargetTokenizer | None) -> Prompt:
    try:
        fitted, answer_start = _fitted(document, source, settings, isl)
    except WorkloadError as e:
        raise WorkloadError(f"prompt {document.doc_id}: {e}") from None
    return _rendered(document, fitted, answer_start, settings, tokenizer)


def _fitted(document: Document, source: Corpus, settings: Asked, isl: int) -> tuple[buckets.Fitted, str]:
    """The text in its bucket, and the begun answer."""
    if source.tier is not None:
        size = isl if isl != NATURAL else buckets.count(recipes.whole(source.tier, document.text))
        return recipes.message(source.tier, document.text, size, settings.padding)
    if source.as_it_is(isl):
        return buckets.Fitted(document.text, buckets.encode(document.text), 0.0), document.answer_start
    return buckets.fit(document.text, isl, settings.padding), document.answer_start


def _random(settings: Asked, isl: int, tokenizer: TargetTokenizer | None) -> PromptSet:
    if tokenizer is None:
        raise WorkloadError("workload.corpus=random: tokens are those of a target, and this one has no tokenizer; set target.model")
    wanted = settings.prompts + settings.ramp_prompts
    texts = random_tokens.random_texts(tokenizer, count=wanted, isl=isl, words=settings.vocabulary, seed=settings.seed)
    made = [
        _rendered(
            Document(f"random-{i:03d}", random_tokens.CATEGORY, text),
            buckets.Fitted(text, buckets.encode(text), 0.0),
            "",
            settings,
            tokenizer,
        )
        for i, text in enumerate(texts)
    ]
    return PromptSet(tuple(made[: settings.prompts]), tuple(made[settings.prompts :]))


def _rendered(document: Document, fitted: buckets.Fitted, answer_start: str, settings: Asked, tokenizer: TargetTokenizer | None) -> Prompt:
    if tokenizer is None:
        ids = []
    elif settings.chat:
        messages = [{"role": "system", "content": settings.system}] if settings.system else []
        messages.append({"role": "user", "content": fitted.text})
        ids = tokenizer.render(messages, answer_start=answer_start, **settings.template_args)
    else:
        ids = tokenizer.encode(fitted.text + (f"\n\n\n{answer_start}" if answer_start else ""), add_bos=True)
    return Prompt(
        document.doc_id,
        document.category,
        tuple(ids),
        fitted.text,
        fitted.isl,
        fitted.padding_share,
        turns=document.turns,
        sub_category=document.sub_category,
        difficulty=document.difficulty,
        source=document.source,
        max_tokens=document.max_tokens,
        isl_target=-1 if tokenizer is None else len(tokenizer.encode(fitted.text)),
        repeated_share=repeated_share(fitted.ids),
    )
