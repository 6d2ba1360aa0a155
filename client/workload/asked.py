"""What a workload asks for, read once from its settings: every field is checked here, and nowhere else taken for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specsweep.client.workload import buckets, random_tokens
from specsweep.client.workload.documents import DATA, INLINE, KNOWN, Corpus, corpus, inline
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.labels import LABELS

DRAWN, ROUND_ROBIN, AS_LISTED = "drawn", "round_robin", "as_listed"
KEEP, CUT = "keep", "cut"
ORDERS = (DRAWN, ROUND_ROBIN, AS_LISTED)


@dataclass(frozen=True, slots=True)
class Asked:
    corpus: str
    labels: Mapping[str, tuple[str, ...]]  # category, sub_category and difficulty that are wanted; those that are not there: all
    prompts: int
    ramp_prompts: int
    chat: bool
    system: str | None
    template_args: Mapping[str, Any]
    padding: str
    seed: int
    data: str
    order: str
    ramp_corpus: str
    thinking: str  # of the answers that are part of a conversation
    thinking_end: str
    vocabulary: str = ""  # of random tokens
    prompt: str | None = None  # the only one, given in the settings themselves; then there is no corpus

    @property
    def name(self) -> str:
        """Where prompts come from, in words."""
        return self.corpus if self.prompt is None else INLINE

    def source(self, isl: int) -> Corpus:
        """Raises as :func:`~specsweep.client.workload.documents.corpus` does."""
        return corpus(self.corpus, isl, self.data) if self.prompt is None else inline(self.prompt)

    @property
    def shapes(self) -> dict[str, Any]:
        """What is not as it always was before these settings came, for the hash: the prompts that existed keep their names."""
        declared: dict[str, Any] = {name: sorted(values) for name, values in self.labels.items() if name != "category"}
        return {
            **declared,
            **({"order": self.order} if self.order != DRAWN else {}),
            **({"thinking": self.thinking, "thinking_end": self.thinking_end} if self.thinking != KEEP else {}),
            **({"vocabulary": self.vocabulary} if self.vocabulary else {}),
        }


def asked(workload: Mapping[str, Any]) -> Asked:
    """Raises :class:`WorkloadError` naming the field and what it may hold."""
    found = Asked(
        corpus=str(workload.get("corpus") or ""),
        labels={name: values for name in LABELS if (values := _several(workload.get(name)))},
        prompts=_count(workload, "prompts", least=1),
        ramp_prompts=_count(workload, "ramp_prompts", least=1),
        chat=bool(workload.get("chat", True)),
        system=workload.get("system"),
        template_args=workload.get("template_args") or {},
        padding=str(workload.get("padding", buckets.DEFAULT_PADDING)),
        seed=_count(workload, "seed", least=0, default=0),
        data=str(workload.get("data") or DATA),
        order=str(workload.get("order") or DRAWN),
        ramp_corpus=str(workload.get("ramp_corpus") or ""),
        thinking=workload.get("thinking") or KEEP,
        thinking_end=_thinking_end(workload.get("thinking_end")),
        vocabulary=random_tokens.vocabulary(workload.get("vocabulary")) if workload.get("corpus") == random_tokens.NAME else "",
        prompt=_inline(workload),
    )
    if not found.corpus and found.prompt is None:
        raise WorkloadError(f"workload.corpus is missing: {KNOWN}; or give one prompt as workload.prompt")
    if found.prompt is not None:
        _check_inline(found)
    if found.order not in ORDERS:
        raise WorkloadError(f"workload.order={found.order!r}: choose one of {', '.join(ORDERS)}")
    if found.thinking not in (KEEP, CUT):
        raise WorkloadError(f"workload.thinking={found.thinking!r}: choose {KEEP} or {CUT}")
    if found.ramp_corpus == random_tokens.NAME:
        raise WorkloadError("workload.ramp_corpus=random: ramp-up prompts are texts; name a corpus of texts, or leave it null")
    if own := sorted({"messages", "answer_start"} & found.template_args.keys()):
        raise WorkloadError(f"workload.template_args: {own[0]!r} is what a prompt is rendered from; take it out")
    return found


def _thinking_end(value: object) -> str:
    """ "" stands for the default, which those who cut know."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.strip():
        raise WorkloadError(
            f"workload.thinking_end={value!r} must be the text that ends the thinking, for example '</think>'; leave it out for that one"
        )
    return value


def _several(value: object) -> tuple[str, ...]:
    if value is None or isinstance(value, str):
        return () if value is None else (value,)
    if not isinstance(value, Sequence):
        raise WorkloadError(f"workload: {value!r} is no label; category, sub_category and difficulty take a name or a list of names")
    return tuple(str(v) for v in value)


def _inline(workload: Mapping[str, Any]) -> str | None:
    prompt = workload.get("prompt")
    if prompt is None:
        return None
    if isinstance(prompt, str) and prompt.strip():
        try:
            prompt.encode()
        except UnicodeEncodeError as error:  # bytes of a shell that are not UTF-8 come as halves of surrogate pairs
            found = ascii(prompt[error.start : error.end])
            raise WorkloadError(
                f"workload.prompt: {found} at character {error.start} is no text; give the prompt in UTF-8, or as a file (workload=tasks)"
            ) from error
        return prompt
    raise WorkloadError(f"workload.prompt={prompt!r}: must be a text that is not empty, or null")


def _check_inline(found: Asked) -> None:
    if found.corpus:
        raise WorkloadError(
            f"workload.prompt and workload.corpus={found.corpus!r} are both given, and prompts come from one of them; set the other to null"
        )
    if found.prompts != 1 or not found.ramp_corpus:
        raise WorkloadError(
            f"workload.prompt is one prompt, with workload.prompts={found.prompts} and workload.ramp_corpus={found.ramp_corpus or 'null'}; set "
            "workload.prompts=1 and workload.ramp_corpus=mixed (texts for the ramp-up), as workload=prompt does"
        )


def _count(workload: Mapping[str, Any], field: str, *, least: int, default: int | None = None) -> int:
    value = workload.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise WorkloadError(f"workload.{field}={value!r} must be a whole number of at least {least}")
    return value
