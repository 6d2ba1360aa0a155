"""From a workload's settings to token ids: the same prompts on every machine, for every engine.

``load_prompts`` takes documents in an order drawn from ``seed``, brings each to the ISL bucket in ``o200k_base`` tokens and renders it
through the target's template. ``workload_hash`` names exactly what went in, so that two points with one hash saw the same prompts (given
the same target); it needs no tokenizer and is cheap enough to be asked for each of 100,000 points.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsweep.client.workload import buckets, random_tokens, recipes
from specsweep.client.workload.documents import Corpus, Document, corpus, documents
from specsweep.client.workload.errors import WorkloadError
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


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Measured prompts, and others for the ramp-up. The two share no prompt."""

    main: tuple[Prompt, ...]
    ramp: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class _Settings:
    corpus: str
    category: tuple[str, ...]  # empty: all
    prompts: int
    ramp_prompts: int
    chat: bool
    system: str | None
    template_args: Mapping[str, Any]
    padding: str
    seed: int
    vocabulary: str = ""  # of random tokens


def load_prompts(workload: Mapping[str, Any], *, isl: int, tokenizer: TargetTokenizer | None) -> PromptSet:
    """``prompts`` measured and ``ramp_prompts`` ramp-up prompts of ``isl`` o200k tokens each.

    Without a ``tokenizer`` (a server that takes text only) the ids are left empty, and a begun answer cannot be sent.

    Fields read: ``corpus`` (``low_entropy``, ``mixed``, ``high_entropy``, ``random`` or a JSON-lines file), ``category`` (one, several or
    null), ``vocabulary`` (of ``random``: then ``isl`` is in tokens of the target), ``prompts``, ``ramp_prompts``, ``chat``, ``system``,
    ``template_args``, ``padding``, ``seed``. Raises :class:`WorkloadError` naming the field for a value that cannot be used, for too few
    documents, and for a chat workload on a target without a template.
    """
    settings = _settings(workload)
    if settings.corpus == random_tokens.NAME:
        return _random(settings, isl, tokenizer)
    source = corpus(settings.corpus)
    main, ramp = _chosen(source, settings)
    return PromptSet(
        main=tuple(_prompt(d, source.tier, settings, isl, tokenizer) for d in main),
        ramp=tuple(_prompt(d, source.tier, settings, isl, tokenizer) for d in ramp),
    )


def check_prompts(workload: Mapping[str, Any]) -> None:
    """Raises the :class:`WorkloadError` of :func:`load_prompts` that needs no tokenizer: unknown category, malformed file, too few texts."""
    settings = _settings(workload)
    if settings.corpus != random_tokens.NAME:
        _chosen(corpus(settings.corpus), settings)


def shortest_text(workload: Mapping[str, Any]) -> int | None:
    """o200k tokens that the shortest measured prompt has before it is padded; None where there are no texts that could be short.

    Raises :class:`WorkloadError` as :func:`check_prompts` does."""
    settings = _settings(workload)
    if settings.corpus == random_tokens.NAME:
        return None
    source = corpus(settings.corpus)
    main, _ = _chosen(source, settings)
    return min(buckets.count(d.text if source.tier is None else recipes.whole(source.tier, d.text)) for d in main)


def workload_hash(workload: Mapping[str, Any], isl: int) -> str:
    """64 hex digits over the corpus file's content, every field that shapes a prompt, ``isl`` and the recipe's version.

    ``osl`` is in as well, since it is part of what the workload asks for. ``name`` is not: two names of one recipe are one workload.
    """
    settings = _settings(workload)
    facts = {
        "recipe_version": recipes.VERSION,
        "corpus_sha256": random_tokens.VERSION if settings.vocabulary else corpus(settings.corpus).sha256,
        "category": sorted(settings.category),
        "prompts": settings.prompts,
        "ramp_prompts": settings.ramp_prompts,
        "osl": workload.get("osl"),
        "chat": settings.chat,
        "system": settings.system,
        "template_args": dict(settings.template_args),
        "padding": settings.padding,
        "seed": settings.seed,
        "isl": isl,
        **({"vocabulary": settings.vocabulary} if settings.vocabulary else {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _prompt(document: Document, tier: str | None, settings: _Settings, isl: int, tokenizer: TargetTokenizer | None) -> Prompt:
    try:
        if tier is None:
            fitted, answer_start = buckets.fit(document.text, isl, settings.padding), document.answer_start
        else:
            fitted, answer_start = recipes.message(tier, document.text, isl, settings.padding)
    except WorkloadError as e:
        raise WorkloadError(f"prompt {document.doc_id}: {e}") from None
    return _rendered(document, fitted, answer_start, settings, tokenizer)


def _random(settings: _Settings, isl: int, tokenizer: TargetTokenizer | None) -> PromptSet:
    if tokenizer is None:
        raise WorkloadError("workload.corpus=random: tokens are those of a target, and this one has no tokenizer; set target.model")
    wanted = settings.prompts + settings.ramp_prompts
    texts = random_tokens.random_texts(tokenizer, count=wanted, isl=isl, words=settings.vocabulary, seed=settings.seed)
    made = [
        _rendered(
            Document(f"random-{i:03d}", random_tokens.CATEGORY, text),
            buckets.Fitted(text, buckets.count(text), 0.0),
            "",
            settings,
            tokenizer,
        )
        for i, text in enumerate(texts)
    ]
    return PromptSet(tuple(made[: settings.prompts]), tuple(made[settings.prompts :]))


def _rendered(
    document: Document, fitted: buckets.Fitted, answer_start: str, settings: _Settings, tokenizer: TargetTokenizer | None
) -> Prompt:
    if tokenizer is None:
        ids = []
    elif settings.chat:
        messages = [{"role": "system", "content": settings.system}] if settings.system else []
        messages.append({"role": "user", "content": fitted.text})
        ids = tokenizer.render(messages, answer_start=answer_start, **settings.template_args)
    else:
        ids = tokenizer.encode(fitted.text + (f"\n\n\n{answer_start}" if answer_start else ""), add_bos=True)
    return Prompt(document.doc_id, document.category, tuple(ids), fitted.text, fitted.isl, fitted.padding_share)


def _chosen(source: Corpus, settings: _Settings) -> tuple[list[Document], list[Document]]:
    found = documents(source)
    if settings.category:
        known = sorted({d.category for d in found})
        for name in settings.category:
            if name not in known:
                raise WorkloadError(f"workload.category={name!r} is not in {settings.corpus}; it has {', '.join(known)}")
        found = tuple(d for d in found if d.category in settings.category)
    drawn = sorted(found, key=lambda d: hashlib.sha256(f"{settings.seed}:{d.doc_id}".encode()).digest())
    if all(d.ramp is None for d in drawn):
        wanted = settings.prompts + settings.ramp_prompts
        _enough("workload.prompts + workload.ramp_prompts", wanted, len(drawn), settings)
        _refuse_repeats(drawn[:wanted])
        return drawn[: settings.prompts], drawn[settings.prompts : wanted]
    main, ramp = [d for d in drawn if not d.ramp], [d for d in drawn if d.ramp]
    _enough("workload.prompts", settings.prompts, len(main), settings)
    _enough("workload.ramp_prompts", settings.ramp_prompts, len(ramp), settings)
    return main[: settings.prompts], ramp[: settings.ramp_prompts]


def _enough(field: str, wanted: int, there: int, settings: _Settings) -> None:
    if wanted > there:
        raise WorkloadError(f"{field}={wanted}, but corpus {settings.corpus!r} has {there}; ask for fewer or give a larger corpus")


def _refuse_repeats(chosen: Sequence[Document]) -> None:
    """One text under two ids would count as two independent prompts. Data sets whose texts were never filled in look like that, too."""
    seen: dict[str, str] = {}
    for d in chosen:
        other = seen.setdefault(d.text, d.doc_id)
        if other != d.doc_id:
            raise WorkloadError(
                f"prompts {other} and {d.doc_id} have the same text (a placeholder that was never filled in?); each must be its own"
            )


def _settings(workload: Mapping[str, Any]) -> _Settings:
    category = workload.get("category")
    settings = _Settings(
        corpus=str(workload.get("corpus") or ""),
        category=() if category is None else (category,) if isinstance(category, str) else tuple(str(c) for c in category),
        prompts=_count(workload, "prompts", least=1),
        ramp_prompts=_count(workload, "ramp_prompts", least=1),
        chat=bool(workload.get("chat", True)),
        system=workload.get("system"),
        template_args=workload.get("template_args") or {},
        padding=str(workload.get("padding", buckets.DEFAULT_PADDING)),
        seed=_count(workload, "seed", least=0, default=0),
        vocabulary=random_tokens.vocabulary(workload.get("vocabulary")) if workload.get("corpus") == random_tokens.NAME else "",
    )
    if not settings.corpus:
        raise WorkloadError("workload.corpus is missing: low_entropy, mixed, high_entropy, random or the path of a JSON-lines file")
    return settings


def _count(workload: Mapping[str, Any], field: str, *, least: int, default: int | None = None) -> int:
    value = workload.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise WorkloadError(f"workload.{field}={value!r} must be a whole number of at least {least}")
    return value
