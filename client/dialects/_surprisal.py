"""Log-probabilities of sampled tokens, as every engine gives them when it was asked: one number a token, in the order of the ids.

They are kept as surprisal, ``-ln p`` in nats, which is never negative. What is wrong with them costs the request nothing: the answer and its
steps are as good without. They are left out as a whole then, and a note says why, since a mean over those that came is a mean over a choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from specsweep.client.trace import Turn

NO_NUMBER = -9999.0  # what vLLM and TensorRT-LLM write for minus infinity; llama.cpp the lowest float that there is
ROUNDING = 1e-3  # a softmax in 16 bits can pass 1 by so much


def surprisal(logprob: object) -> float:
    """``-logprob``. Raises ``ValueError`` for what is no log-probability of a token that was sampled."""
    if type(logprob) not in (int, float):
        raise ValueError(f"a log-probability is {str(logprob)[:40]!r}, not a number")
    value = float(logprob)  # type: ignore[arg-type]  # narrowed by its exact type above
    if math.isnan(value) or value > ROUNDING:
        raise ValueError(f"a log-probability is {value:g}: at most 0 was expected")
    if value <= NO_NUMBER:
        raise ValueError(f"a log-probability is {value:g}, which stands for a probability of 0")
    return max(-value, 0.0)


def fill_surprisal(turn: Turn, logprobs: Sequence[object]) -> None:
    """``logprobs``: all that the stream held, empty where none were asked for. ``turn`` must already hold its ids."""
    if not logprobs:
        return
    if len(logprobs) != len(turn.output_ids):
        turn.notes.append(f"{len(logprobs)} log-probabilities came for {len(turn.output_ids)} tokens: which is whose cannot be told")
        return
    try:
        turn.token_surprisal = [surprisal(value) for value in logprobs]
    except (ValueError, OverflowError) as error:
        turn.notes.append(f"the log-probabilities cannot be used: {error}")
