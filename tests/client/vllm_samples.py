"""vLLM streams made by hand, for the tests of its dialect: chunks of given sizes, the server's account of its steps, merges."""

from __future__ import annotations

from typing import Any

from dialect_samples import answer
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.trace import Exchange, Turn

VLLM = dialect("vllm")


def read(exchange: Exchange, draft_length: int | None = 3, n_prompt: int | None = None) -> Turn:
    return VLLM.read(exchange, draft_length=draft_length, n_prompt=n_prompt)


def chunk(*ids: int, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "x", "finish_reason": finish, "token_ids": list(ids)}]}


def usage(tokens: int, *, prompt: int = 5, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}}
    return found if spec is None else found | {"metrics": {"speculative_decoding": spec}}


def stream(sizes: list[int], *, spec: dict[str, Any] | None = None, finish: str = "length") -> Exchange:
    chunks = [chunk(*range(n), finish=finish if i == len(sizes) - 1 else None) for i, n in enumerate(sizes)]
    return answer(*chunks, usage(sum(sizes), spec=spec), "[DONE]")


def summary(accepted: list[int], length: int = 3, *, detailed: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "acceptance_histogram": [accepted.count(k) for k in range(length + 1)],
        "num_spec_steps": len(accepted),
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": length * len(accepted),
        "num_spec_tokens": length,
    }
    return found | ({"per_step_accepted": accepted, "per_step_drafted": [length] * len(accepted)} if detailed else {})


ACCEPTED = st.lists(st.integers(0, 3), min_size=1, max_size=25)


@st.composite
def merged(draw: st.DrawFn, steps: st.SearchStrategy[list[int]]) -> tuple[list[int], list[int], int]:
    """Accepted counts of drafted steps, chunks that hold one or several of them (cut at the end), and the tokens lost to the cut."""
    accepted = draw(steps)
    cut = draw(st.integers(0, accepted[-1]))
    sizes = [1]
    for i, a in enumerate(accepted):
        size = a + 1 - (cut if i == len(accepted) - 1 else 0)
        if i and draw(st.booleans()):
            sizes[-1] += size
        else:
            sizes.append(size)
    return accepted, sizes, cut
