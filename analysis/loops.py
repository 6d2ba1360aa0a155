"""Answers that fell into a loop.

Greedy decoding of a small model, or a broken drafter, can end in a period that repeats until the cap. Such answers are long, and a
drafter guesses them perfectly: acceptance and speed look splendid and mean nothing. So the share of looping answers is a
metric of every point, and arms whose shares differ are not compared without a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_PERIOD = 32  # tokens
REPETITIONS = 3  # of the period at the end of the answer, at least
SHORTEST_LOOP = 16  # tokens: "no no no" at the end of a sentence is not a loop


def loops(ids: Sequence[int]) -> bool:
    """Whether the answer ends in at least three repetitions of a period of at most 32 tokens, 16 tokens or more in all."""
    n = len(ids)
    for period in range(1, min(LONGEST_PERIOD, n // REPETITIONS) + 1):
        span = max(REPETITIONS * period, SHORTEST_LOOP)
        if span <= n and all(ids[n - i - 1] == ids[n - i - 1 - period] for i in range(span - period)):
            return True
    return False
