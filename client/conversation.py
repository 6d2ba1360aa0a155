"""From an answer to the next turn's request: the pure part of a conversation.

The history goes through text again, as a chat does and as the official framework has it: the ids of an answer are decoded, the text is
appended as the assistant's message, the user's next words follow, the template renders all of it, and the result is encoded without
special tokens of the tokenizer's own. So an engine gets ids on every turn, and its own count of them can be compared with ours on every
turn.

What a reasoning model thought may stay in the history or be cut out of it (:attr:`ChatRecipe.thinking`). Some templates cut it
themselves, some refuse a message that still holds it; what a template makes of it is the template's business.

Without a template (``chat`` false) there is no history: the last words of the user are all that is encoded, as in the completions mode
of the official framework.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from specsweep.client.dialects import Dialect
from specsweep.client.trace import ErrorKind, Exchange, PlannedRequest, Sampling, Turn
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.tokenizer import TargetTokenizer

Thinking = Literal["keep", "cut"]
THINKING_END = "</think>"
_FINAL_CHANNEL = "<|channel|>final<|message|>"  # of the Harmony format (GPT-OSS)
_MESSAGE_ENDS = ("<|end|>", "<|return|>")


@dataclass(frozen=True, slots=True)
class ChatRecipe:
    """What it takes to make the requests of later turns; the same for all conversations of a point.

    Raises ``ValueError`` for a ``thinking`` that is not known.
    """

    tokenizer: str  # path of a GGUF or a Hugging Face folder, on the host of every client process
    dialect: str
    model: str
    sampling: Sampling
    chat: bool = True
    system: str = ""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    thinking: Thinking = "keep"
    thinking_end: str = THINKING_END
    max_model_len: int | None = None  # tokens that a prompt and its answer may have together
    draft_length: int | None = None

    def __post_init__(self) -> None:
        if self.thinking not in get_args(Thinking):
            raise ValueError(f"workload.thinking={self.thinking!r}: must be one of {', '.join(get_args(Thinking))}")
        if self.thinking == "cut" and not self.thinking_end:
            raise ValueError("workload.thinking_end is empty: with workload.thinking=cut it must be the text that ends the thinking")


@dataclass(frozen=True, slots=True)
class Ready:
    """The next turn's request."""

    n_prompt: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the next turn is not sent. ``kind``: one of :data:`~specsweep.client.trace.NOT_SENT`."""

    kind: ErrorKind
    words: str


class History:
    """The messages of one conversation so far. ``texts``: all that the user says, turn by turn."""

    def __init__(self, recipe: ChatRecipe, texts: Sequence[str]) -> None:
        self._recipe = recipe
        self._texts = texts
        self._messages = [{"role": "system", "content": recipe.system}] if recipe.system else []
        self._messages.append({"role": "user", "content": texts[0]})

    def next_turn(self, turn: int, answer: Exchange, n_prompt: int, *, wire: Dialect, tokenizer: TargetTokenizer) -> Ready | Refused:
        """The request of ``turn`` (1, 2, …), after the ``answer`` to the turn before, whose prompt had ``n_prompt`` tokens."""
        recipe = self._recipe
        read = wire.read(answer, draft_length=recipe.draft_length, n_prompt=n_prompt)
        if reason := _useless(read):
            return Refused("not_sent", f"turn {turn - 1} of this conversation failed: {reason}")
        try:
            said = spoken(answer_text(read.output_ids, tokenizer), recipe)
            self._messages.append({"role": "assistant", "content": said})
            self._messages.append({"role": "user", "content": self._texts[turn]})
            ids = self._prompt(turn, tokenizer)
        except WorkloadError as error:
            advice = "; workload.thinking=cut keeps thinking text out of the history" if recipe.thinking == "keep" else ""
            return Refused("not_sent", f"turn {turn} cannot be rendered: {error}{advice}")
        if (limit := recipe.max_model_len) is not None and len(ids) + recipe.sampling.max_tokens > limit:
            return Refused(
                "context",
                f"turn {turn} has a prompt of {len(ids)} tokens, history included; with workload.osl={recipe.sampling.max_tokens} that is "
                f"more than target.max_model_len={limit}",
            )
        return Ready(len(ids), wire.request(ids, recipe.sampling, model=recipe.model))

    def _prompt(self, turn: int, tokenizer: TargetTokenizer) -> list[int]:
        if self._recipe.chat:
            return tokenizer.render(self._messages, **self._recipe.template_args)
        return tokenizer.encode(self._texts[turn], add_bos=True)


def answer_text(ids: Sequence[int], tokenizer: TargetTokenizer) -> str:
    """The text of an answer. The id that ended it is no part of it: the template puts its own there."""
    end = len(ids)
    while end and ids[end - 1] in tokenizer.eos_ids:
        end -= 1
    return tokenizer.decode(ids[:end])


def spoken(text: str, recipe: ChatRecipe) -> str:
    """What of an answer goes into the history.

    Cut: what follows the last final-channel marker up to the end of that message, else what follows the last end of thinking. An answer
    with neither stays as it is: it cannot be told whether it is one without thinking, or thinking that the cap cut off.
    """
    if recipe.thinking == "keep":
        return text
    if _FINAL_CHANNEL in text:
        final = text.rpartition(_FINAL_CHANNEL)[2]
        return final[: min((at for end in _MESSAGE_ENDS if (at := final.find(end)) >= 0), default=len(final))]
    if recipe.thinking_end in text:
        return text.rpartition(recipe.thinking_end)[2].lstrip("\n")
    return text


def _useless(read: Turn) -> str:
    """Why there is no going on after this answer; "" if there is."""
    if read.outcome != "ok":
        return f"{read.error_kind}: {read.error}"
    if read.chunk_tokens and not read.output_ids:  # with neither it is an empty answer: the first token ended it
        return "the server streams no token ids, so the history cannot be built as it saw it"
    return ""


def conversations(requests: Sequence[PlannedRequest]) -> dict[str, tuple[str, ...]]:
    """By prompt_id all that the user says, of the requests that begin a conversation of several turns."""
    return {r.prompt_id: (r.text, *r.turns) for r in requests if r.turns}
