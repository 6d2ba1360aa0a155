"""Texts as unit vectors whose products say how alike the texts are: one interface, three kinds, named in a word.

    hashed[:DIMENSIONS[+SALT]]  words and characters counted; needs no model and no network   (:mod:`.embedder_hashed`)
    st:MODEL[@REVISION]         a sentence-transformers model, from the hub or a folder
    openai:MODEL                an OpenAI-compatible endpoint                                 (:mod:`.embedder_openai`)

A number like "average similarity 0.14" means something only beside the embedder that made it, so every embedder has a ``name`` that is
recorded with the result and says which revision it is. Vectors of different embedders must never be mixed; the cache keys them by that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specsweep.client.workload.errors import WorkloadError

Vectors = NDArray[np.float32]
KINDS = "hashed[:DIMENSIONS[+SALT]], st:MODEL[@REVISION] or openai:MODEL"


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """What is recorded: kind, model and revision."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(n, d) rows of unit length, one a text; a text's row does not depend on the others. Raises :class:`WorkloadError`."""


def embedder(name: str, *, cache: Path | None = None) -> Embedder:
    """The embedder that ``name`` asks for; with ``cache``, a folder, texts that were embedded before are looked up there.

    Raises :class:`WorkloadError` for a name of no known kind, and if what the kind needs (a package, a key, a model) is not there.
    """
    made = _made(name)
    if cache is None:
        return made
    from specsweep.client.workload.embedding_cache import CachedEmbedder

    return CachedEmbedder(made, cache)


def judge_of(chooser: str) -> str | None:
    """The embedder that judges a choice made by ``chooser``, where the choice would please the chooser's own errors: of ``hashed`` an
    independent sketch (:mod:`.embedder_hashed`); None of the others."""
    kind, _, rest = chooser.partition(":")
    if kind != "hashed":
        return None
    dimensions, _, salt = rest.partition("+")
    return f"hashed:{dimensions}+{int(salt or 0) + 1}"


def unit(vectors: NDArray[Any], name: str) -> Vectors:
    """The rows scaled to unit length. Raises :class:`WorkloadError` for a row that has no direction, which no text should have."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    if (bad := np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))).size:
        raise WorkloadError(f"embedder {name}: the vector of text {bad[0]} has length {lengths[bad[0]]}; it cannot be compared with others")
    return np.asarray(rows / lengths[:, None], dtype=np.float32)


def _made(name: str) -> Embedder:
    kind, _, rest = name.partition(":")
    if kind == "hashed":
        from specsweep.client.workload.embedder_hashed import DIMENSIONS, HashedEmbedder

        dimensions, _, salt = rest.partition("+")
        if not all(part.isdecimal() or not part for part in (dimensions, salt)):
            raise WorkloadError(f"embedder {name!r}: dimensions and salt must be whole numbers, as in hashed:{DIMENSIONS}+1")
        return HashedEmbedder(int(dimensions or DIMENSIONS), salt=int(salt or 0))
    if kind == "st" and rest:
        return SentenceTransformersEmbedder(rest)
    if kind == "openai" and rest:
        from specsweep.client.workload.embedder_openai import OpenAIEmbedder

        return OpenAIEmbedder.from_environment(rest)
    raise WorkloadError(f"embedder {name!r} is not known; give {KINDS}")


class SentenceTransformersEmbedder:
    """A model of the sentence-transformers library. It reads the beginning of a long text only (``max_seq_length`` tokens, its own)."""

    def __init__(self, model: str) -> None:
        try:
            library = import_module("sentence_transformers")
        except ImportError as error:
            raise WorkloadError(
                f"embedder st:{model} needs a package that is not installed ({error}): pip install sentence-transformers, or use hashed"
            ) from error
        source, _, revision = model.partition("@")
        try:
            self._model = library.SentenceTransformer(source, revision=revision or None)
        except (OSError, ValueError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise WorkloadError(f"embedder st:{model}: the model cannot be loaded: {first}") from error
        self.name = f"st:{source}@{revision or self._commit()}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        return unit(self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False), self.name)

    def _commit(self) -> str:
        """The hub's commit of the loaded files, as transformers notes it; a local folder has none."""
        config = getattr(getattr(self._model[0], "auto_model", None), "config", None)
        return getattr(config, "_commit_hash", None) or "local"
