"""What every client is given: a rung of the ladder, and its prompts and output caps in one order.

The list is the one that our product plans for a point: a first wave with caps of its own, so that requests do not march in phase, and then
requests of full length. All clients get all of it, and answers never end before their cap, so the work is the same to the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from specsweep.client.dialects import dialect
from specsweep.client.load_plan import plan_requests
from specsweep.client.trace import PlannedRequest, Sampling
from specsweep.client.workload.prompts import Prompt
from specsweep.client.workload.tokenizer import TargetTokenizer, load_tokenizer

MODEL_FOLDER = Path(__file__).resolve().parents[2] / "tiny_pair" / "target"
MODEL = "tiny"  # as it is served
DRAFTER = "eagle3"
DIALECT = "vllm"
_TEXT = (
    "Question {number}: a queue holds jobs that arrive one by one. Write down in which order they leave it, what each of them waits for, "
    "and how the answer changes when every second one is cancelled before its turn."
)
_LONG_TEXT = "the list of names is read from the file and then it is sorted by size and the first of them is shown to the user " * 40


@dataclass(frozen=True, slots=True)
class Rung:
    """One load. ``draft_length`` 0: nothing is drafted. ``waves``: requests of full length, in batches. ``processes``: of each client."""

    batch_size: int
    draft_length: int
    step_ms: float
    max_tokens: int
    waves: int
    processes: int = 1

    @property
    def name(self) -> str:
        return f"bs{self.batch_size}-dl{self.draft_length}"


# Steps grow with the batch so that the server stays below 15,000 chunks a second, as it does on a GPU.
LADDER = (
    Rung(1, 0, 10, 64, 10),
    Rung(8, 0, 8, 64, 10),
    Rung(32, 0, 16, 64, 6),
    Rung(64, 0, 16, 64, 6),
    Rung(8, 3, 10, 96, 10),
    Rung(64, 3, 20, 96, 4),
    Rung(128, 0, 16, 64, 5),
    Rung(256, 0, 25, 64, 3),
    Rung(512, 0, 40, 64, 3),
    Rung(1024, 0, 75, 48, 2, processes=2),
    Rung(2048, 0, 150, 24, 2, processes=2),
)
DEFAULT_BS = (1, 8, 64, 128, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Job:
    """A rung on a running server. ``folder``: for what the client reads and writes."""

    rung: Rung
    base_url: str
    folder: Path

    def as_json(self) -> dict[str, object]:
        return {"rung": asdict(self.rung), "base_url": self.base_url, "folder": str(self.folder)}


@dataclass(frozen=True, slots=True)
class Item:
    text: str
    cap: int  # output tokens


def planned(rung: Rung, tokenizer: TargetTokenizer) -> list[PlannedRequest]:
    """The requests as our client sends them, ids in the place of text."""
    count = rung.batch_size * (1 + rung.waves)
    texts = [_TEXT.format(number=number) for number in range(count)]
    prompts = [Prompt(f"p{i}", "mixed", tuple(tokenizer.encode(text)), text, 0) for i, text in enumerate(texts)]
    return plan_requests(
        prompts[rung.batch_size :],
        prompts[: rung.batch_size],
        batch_size=rung.batch_size,
        sampling=Sampling(max_tokens=rung.max_tokens, ignore_eos=True),
        dialect=dialect(DIALECT),
        model=MODEL,
        stateful=False,
        requests_per_slot=rung.waves,
    )


def items(rung: Rung) -> list[Item]:
    """The same requests for clients that take text."""
    return [Item(_TEXT.format(number=int(r.prompt_id[1:])), r.max_tokens) for r in planned(rung, load_tokenizer(MODEL_FOLDER))]


def dealt(work: Sequence[Item], processes: int) -> list[list[Item]]:
    """For clients that run as one process only: every n-th item to one of n of them."""
    return [list(work[i::processes]) for i in range(processes)]


def text_of_length(tokenizer: TargetTokenizer, tokens: int) -> str:
    """A text that encodes to exactly so many tokens, for clients that learn an output length from a sample answer.

    Raises ``ValueError`` where the tokenizer has none among the beginnings of a long text.
    """
    ids = tokenizer.encode(_LONG_TEXT)
    for start in range(64):
        text = tokenizer.decode(ids[start : start + tokens])
        if len(tokenizer.encode(text)) == tokens:
            return text
    raise ValueError(f"tokens={tokens}: no piece of the sample text encodes to so many")
