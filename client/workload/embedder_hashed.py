"""An embedder that works everywhere, at once, with no model: what words and characters a text is made of, hashed into a vector.

Two families of features, each scaled to unit length, so that the similarity of two texts is the mean of two cosines: words with pairs
of neighbouring words, and sequences of three characters. A feature weighs 1 + ln(count), times the root of the logarithm of how rare it
is in the documents that come with this package. Rarity is *not* taken from the texts at hand: what all of them share, a template
say, is exactly the likeness that must be seen, and a text's vector would depend on its neighbours. Features are hashed to 64 bits
and added into the vector with a sign of their own (count sketch, Charikar, Chen and Farach-Colton 2002): a product is right on average, with
an error of about 1/√dimensions.

What it cannot do: it sees form, not meaning. A translation or a paraphrase in other words is unlike its original; texts in one language or
script are alike for that; function words of languages other than English count as rare. Values are comparable with each other, not with
those of a neural embedder. And who minimises over products with errors also picks the errors that please: the average similarity of an
optimised choice comes out too low, by about 0.01 at 4,096 dimensions and 0.02 at 2,048 (choices of 40 from 1,000 passages of fiction
and of code). So such a choice is judged with an independent sketch, one with another ``salt``, which knows nothing of those errors.

The same text has the same vector on every machine (to the last bits of a logarithm) and in every Python: the hash is our own.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from specsweep.client.workload.documents import corpus, documents
from specsweep.client.workload.embedders import Vectors, unit
from specsweep.client.workload.errors import WorkloadError

DIMENSIONS = 4096
VERSION = 1  # raise it when a vector changes
TIERS = ("low", "mixed", "high")  # the documents that say what is rare
READ_CHARS = 1_000  # of each of them: enough to tell common from rare, and read in a fraction of a second
COMMON = 2  # documents; what fewer of them have is as rare as what none has
GRAM = 3  # characters
_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"\s+")

Hashes = NDArray[np.uint64]
_MULTIPLIER = np.uint64(0x100000001B3)  # FNV's prime


class HashedEmbedder:
    def __init__(self, dimensions: int = DIMENSIONS, *, salt: int = 0) -> None:
        """``salt``: another one gives an independent sketch of the same features, to see how much of a result is the sketch's error."""
        if not 64 <= dimensions <= 65_536:
            raise WorkloadError(f"embedder hashed:{dimensions}: dimensions must be from 64 to 65536")
        self._dimensions = dimensions
        self._salt = np.uint64(salt)
        revision = zlib.crc32("".join(corpus(tier).sha256 for tier in TIERS).encode())
        self.name = f"hashed-{VERSION}:{dimensions}@{revision:08x}" + (f"+{salt}" if salt else "")

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self._dimensions))
        for i, text in enumerate(texts):
            for n, hashes in enumerate(_families(text)):
                if hashes.size:
                    vectors[i] += self._sketch(*_weighted(hashes, n))
            if not vectors[i].any():
                raise WorkloadError(f"embedder {self.name}: text {i} is empty or has nothing but white space; leave it out")
        return unit(vectors, self.name)

    def _sketch(self, features: Hashes, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        mixed = _mix(features ^ _mix(self._salt + np.zeros(1, dtype=np.uint64)))
        places = (mixed % np.uint64(self._dimensions)).astype(np.intp)
        signs = np.where(mixed >> np.uint64(63), 1.0, -1.0)
        return np.asarray(np.bincount(places, weights=signs * weights, minlength=self._dimensions), dtype=np.float64)


def _weighted(hashes: Hashes, family: int) -> tuple[Hashes, NDArray[np.float64]]:
    """The distinct features of a text with their weights, of unit length together."""
    features, counts = np.unique(hashes, return_counts=True)
    known, rarity, most = _rarity()[family]
    at = np.minimum(np.searchsorted(known, features), len(known) - 1)
    weights = (1 + np.log(counts)) * np.where(known[at] == features, rarity[at], most)
    return features, weights / np.linalg.norm(weights)


@cache
def _rarity() -> tuple[tuple[Hashes, NDArray[np.float64], float], ...]:
    """For each family the features that several documents have, sorted, their rarity √ln((2 + documents) / (1 + documents with it)), and that of all others."""
    texts = [document.text[:READ_CHARS] for tier in TIERS for document in documents(corpus(tier))]
    by_family = zip(*map(_families, texts), strict=True)
    made = []
    for family in by_family:
        features, counts = np.unique(np.concatenate([np.unique(hashes) for hashes in family]), return_counts=True)
        common = counts >= COMMON
        # 2 and not 1 above the fraction line: what every document has stays above 0, as a text may be made of that alone.
        rarity = np.sqrt(np.log((2 + len(texts)) / (1 + counts[common])))
        made.append((features[common], rarity, float(np.sqrt(np.log(2 + len(texts))))))
    return tuple(made)


def _families(text: str) -> Iterator[Hashes]:
    """Hashes of the features with repetitions: words and pairs of words, then sequences of characters."""
    text = _SPACE.sub(" ", unicodedata.normalize("NFKC", text).lower()).strip()
    words = _mix(np.fromiter((zlib.crc32(w.encode("utf-8", "surrogatepass")) for w in _WORD.findall(text)), dtype=np.uint64))
    pairs = _mix(words[:-1] * _MULTIPLIER + words[1:])
    yield np.concatenate([words, pairs])
    letters = np.frombuffer(f" {text} ".encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64) if text else words[:0]
    value = np.full(max(len(letters) - GRAM + 1, 0), GRAM, dtype=np.uint64)
    for j in range(GRAM):
        value = value * _MULTIPLIER + letters[j : j + len(value)]
    yield _mix(value)


def _mix(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the input reaches every bit of the output."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
