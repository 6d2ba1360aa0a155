"""Prompts of random tokens: the workload that serving benchmarks use when they have no texts, here to be compared with texts.

The recipe is that of vLLM's random data set, which the field's reports use: one offset per prompt, drawn uniformly over the vocabulary,
and from there consecutive ids, prompt ``i`` starting ``i`` further on. Half as many again as are needed are decoded, encoded again
without special tokens and cut, because decoding and encoding merges some of them; what comes out is a text, and goes through the chat
template like any other. Offsets come from NumPy's legacy generator, whose stream is frozen, so that a seed means the same for ever.

A text cut within a character, or between tokens that merge, is encoded to another number of tokens than it was cut at. Then a few
shorter cuts and later starts are tried; only where none gives the length is the nearest taken, a token or two off, which
happens to prompts of a few tokens. Results hold the number that was sent.

A length is in tokens of the target, not of o200k_base as elsewhere: the ids are the target's from the start.

``ordinary`` draws from the ids that exist and are not special. ``all`` draws from the whole range of ids, as older benchmarks do: then an
end-of-text can stand in the middle of a prompt, and ids that no token has decode to nothing.
"""

from __future__ import annotations

import sys

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.tokenizer import TargetTokenizer

NAME = "random"  # of the corpus
CATEGORY = "random"
VERSION = "random-tokens-2"  # in place of a file's hash; raise it when anything here changes a prompt
VOCABULARIES = ("ordinary", "all")
_EXTRA = 1.5
_CUTS = 4  # ids fewer at the end than the text should have, before the start moves on
_STARTS = 8
_MOST_TRIES = 4  # a vocabulary whose tokens merge more than that has none to draw from


def vocabulary(value: object) -> str:
    """``workload.vocabulary`` as given, ``ordinary`` if it is not. Raises :class:`WorkloadError` for another word."""
    found = "ordinary" if value is None else str(value)
    if found not in VOCABULARIES:
        raise WorkloadError(f"workload.vocabulary={value!r}: choose one of {', '.join(VOCABULARIES)}")
    return found


def random_texts(tokenizer: TargetTokenizer, *, count: int, isl: int, words: str, seed: int) -> list[str]:
    """``count`` texts of ``isl`` tokens of the target each, or of as near as it goes. Raises :class:`WorkloadError` for a vocabulary that cannot give them."""
    ids = list(tokenizer.ordinary_ids()) if words == "ordinary" else list(range(tokenizer.vocab_size))
    if not ids:
        raise WorkloadError("workload.corpus=random: the target's vocabulary has no ids but special ones; set workload.vocabulary=all")
    import numpy as np  # a plan names prompts and makes none

    offsets = np.random.RandomState(seed).randint(0, len(ids), size=count)
    return [_text(tokenizer, ids, int(offset) + i, isl) for i, offset in enumerate(offsets)]


def _text(tokenizer: TargetTokenizer, ids: list[int], start: int, isl: int) -> str:
    length = max(int(_EXTRA * isl), isl + 2 * _STARTS)
    for _ in range(_MOST_TRIES):
        again = tokenizer.encode(tokenizer.decode([ids[(start + j) % len(ids)] for j in range(length)]))
        if len(again) >= isl:
            return _nearest(tokenizer, again, isl)
        length *= 2
    raise WorkloadError(
        f"workload.corpus=random: {length // 2} ids of the target's vocabulary make a text of {len(again)} tokens, not of isl={isl}"
    )


def _nearest(tokenizer: TargetTokenizer, ids: list[int], isl: int) -> str:
    """Of windows of ``ids`` the first whose text has ``isl`` tokens, or the one that comes nearest."""
    best, off = "", sys.maxsize
    for start in range(_STARTS):
        for end in range(start + isl, start + isl - _CUTS, -1):
            if start < end <= len(ids):
                text = tokenizer.decode(ids[start:end])
                wrong = abs(len(tokenizer.encode(text)) - isl)
                if not wrong:
                    return text
                if text and wrong < off:
                    best, off = text, wrong
    return best
