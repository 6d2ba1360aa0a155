"""How a text of each committed tier becomes a user message, and where the assistant's answer starts.

The tier decides how predictable the *answer* is, which is what a drafter feels:

* ``low``: the message holds the same code twice and the answer is a third copy, already begun. What comes next stands in the context.
  Two copies and a begun third are needed for models of 100M parameters to keep copying; larger ones do anyway.
* ``mixed``: explain a piece of documentation. Names and phrases come back, sentences do not.
* ``high``: an essay inspired by a passage of fiction. Nothing of the answer stands in the context. (Asked to continue the passage
  itself, small models fall into greedy loops, and a loop is as predictable as code.)

The instruction comes first, so that cutting at the bucket's end never removes it.
"""

from __future__ import annotations

from specsweep.client.workload import buckets
from specsweep.client.workload.buckets import Fitted

VERSION = 1  # part of every workload's hash: raise it when anything here changes a prompt

_COPY = "The same code is written down again and again, without any change. Write it down once more.\n\n"
_EXPLAIN = "Explain what this part of the Python documentation says.\n\n"
_ESSAY = "Here is a passage. Write an essay about how it might have inspired a modern novel.\n\n"
_BETWEEN_COPIES = "\n\n\n"
_BEGUN_TOKENS = 24  # of the third copy, to the end of a line

CATEGORIES = {"low": "low_entropy", "mixed": "mixed", "high": "high_entropy"}


def message(tier: str, text: str, isl: int, padding: str) -> tuple[Fitted, str]:
    """The user message in its bucket, and the start of the answer (empty but for ``low``)."""
    if tier == "low":
        return _copied(text, isl, padding)
    return buckets.fit((_EXPLAIN if tier == "mixed" else _ESSAY) + text, isl, padding), ""


def whole(tier: str, text: str) -> str:
    """The user message that holds all of a text, at no length in particular."""
    return f"{_COPY}{text}{_BETWEEN_COPIES}{text}" if tier == "low" else (_EXPLAIN if tier == "mixed" else _ESSAY) + text


def _copied(text: str, isl: int, padding: str) -> tuple[Fitted, str]:
    ids = buckets.encode(text)
    size = max(1, (isl - buckets.count(_COPY) - buckets.count(_BETWEEN_COPIES)) // 2 - 2)
    while True:
        passage = buckets.decode(ids[:size]).rstrip()
        doubled = _COPY + passage + _BETWEEN_COPIES + passage
        if buckets.count(doubled) >= isl or size >= len(ids):
            return buckets.fit(doubled, isl, padding), _begun(passage)
        size += 1


def _begun(passage: str) -> str:
    """The first lines of ``passage``, at least :data:`_BEGUN_TOKENS` tokens but at most half of its lines (one at least).

    It ends before a line break, where every tokenizer has a border too: the model then continues as if it had written the start itself.
    """
    lines = passage.splitlines()
    for n in range(1, max(1, len(lines) // 2) + 1):
        begun = "\n".join(lines[:n]).rstrip()
        if buckets.count(begun) >= _BEGUN_TOKENS:
            break
    return begun
