"""Routing that engines send with the answers: for each token and layer the experts that it took, request by request.

What batch-level recorders count a pass, these say a token, so they know which expert came first, second, …; but they know no passes, and tokens of
rejected drafts are not among them. A capture made of answers is one of requests: its "passes" are requests, its unique experts of a
pass a lower bound of what a batch loads. The whole of it, all tokens together, is exact.

* vLLM: ``choices[].routed_experts``, base64 of a ``.npy`` of (tokens − 1, layers, top k), bytes or 16-bit numbers; prompt rows may stand apart in
  ``prompt_routed_experts``, of the choice or of the answer.
* SGLang: base64 of 32-bit integers without a shape, in ``meta_info.routed_experts`` of ``/generate``, or in ``sglext.routed_experts`` of completions
  and chats. The number of tokens follows from the answer's own counts; layers and experts a token must be told.

Layers without experts are rows of zeros in every slot: no token takes one expert twice, so that they are told apart.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from specsweep.client.routing_dump import MOST_EXPERTS, RoutingDumpError

Chosen = np.ndarray[Any, np.dtype[np.int64]]  # [token, layer, slot]
_KEY, _PROMPT_KEY = "routed_experts", "prompt_routed_experts"


def has_routing(answer: object) -> bool:
    """Whether an answer of an engine, as it was parsed from JSON, brought its routing."""
    return isinstance(answer, dict) and bool(_npy_texts(answer) or _raw_text(answer))


def read_answer(answer: Mapping[str, Any], *, layers: int | None = None, top_k: int | None = None, name: str = "answer") -> Chosen:
    """The experts of the tokens of one answer. ``layers``, ``top_k``: of the model; needed for SGLang only, else compared.

    Raises :class:`RoutingDumpError` naming ``name`` for an answer without routing or with one that does not fit."""
    if texts := _npy_texts(answer):
        tables = [_npy(text, name) for text in texts]
        if len({table.shape[1:] for table in tables}) != 1:
            raise RoutingDumpError(f"{name}: prompt and answer are routed through different numbers of layers or experts")
        found = np.concatenate(tables)
    elif text := _raw_text(answer):
        found = _raw(text, answer, layers, top_k, name)
    else:
        raise RoutingDumpError(
            f"{name} has no {_KEY}: the server needs --enable-return-routed-experts, and SGLang return_routed_experts in the request"
        )
    for word, wanted, there in (("layers", layers, found.shape[1]), ("experts a token", top_k, found.shape[2])):
        if wanted is not None and wanted != there:
            raise RoutingDumpError(f"{name}: {there} {word}, and the model has {wanted}")
    return found


def counted(answers: Sequence[Chosen], experts: int | None = None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """``counts[request, layer, expert]`` and ``by_slot[slot, layer, expert]``. ``experts``: of a layer; else as many as the highest number asks for.

    Raises :class:`RoutingDumpError` for answers of different models, or a number beyond ``experts``."""
    if not answers or len({a.shape[1:] for a in answers}) != 1:
        raise RoutingDumpError(f"{len(answers)} answers, of {len({a.shape[1:] for a in answers})} shapes of layers and experts a token")
    highest = max((int(a.max()) for a in answers if a.size), default=-1)
    size = experts or highest + 1
    if not 0 <= highest < size <= MOST_EXPERTS:
        raise RoutingDumpError(f"an expert {highest} of {size}, numbered from 0; set the model's number of experts")
    layers, slots = answers[0].shape[1:]
    counts, by_slot = np.zeros((len(answers), layers, size), np.int32), np.zeros((slots, layers, size), np.int64)
    for n, answer in enumerate(answers):
        routed = _routed_layers(answer)
        for layer in np.flatnonzero(routed):
            for slot in range(slots):
                found = np.bincount(answer[:, layer, slot], minlength=size)
                counts[n, layer] += found.astype(np.int32)
                by_slot[slot, layer] += found
    return counts, by_slot


def _routed_layers(answer: Chosen) -> np.ndarray[Any, Any]:
    """Layers whose tokens took different experts in different slots; with one slot there is no telling, and all are."""
    if answer.shape[2] < 2:
        return np.ones(answer.shape[1], bool)
    return np.asarray((answer != answer[:, :, :1]).any(axis=(0, 2)))


def _npy_texts(answer: Mapping[str, Any]) -> list[str]:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    prompt = first.get(_PROMPT_KEY) or answer.get(_PROMPT_KEY)
    return [text for text in (prompt, first.get(_KEY)) if isinstance(text, str) and text]


def _raw_text(answer: Mapping[str, Any]) -> str:
    for place in ("meta_info", "sglext"):
        found = answer.get(place)
        if isinstance(found, dict) and isinstance(text := found.get(_KEY), str):
            return text
    return ""


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RoutingDumpError(f"{name}: {_KEY} is not base64: {error}") from error


def _npy(text: str, name: str) -> Chosen:
    try:
        found = np.load(io.BytesIO(_decoded(text, name)), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise RoutingDumpError(f"{name}: {_KEY} is no .npy: {error}") from error
    if not isinstance(found, np.ndarray) or found.ndim != 3 or found.dtype.kind not in "iu":
        raise RoutingDumpError(f"{name}: {_KEY} is not whole numbers by token, layer and slot")
    return _checked(found, name)


def _raw(text: str, answer: Mapping[str, Any], layers: int | None, top_k: int | None, name: str) -> Chosen:
    data = _decoded(text, name)
    if len(data) % 4:
        raise RoutingDumpError(f"{name}: {_KEY} of {len(data)} bytes is no list of 32-bit numbers")
    flat = np.frombuffer(data, "<i4")
    if layers is None or top_k is None:
        tokens = _tokens(answer)
        told = f"; {tokens - 1} rows of {flat.size // (tokens - 1)} each" if tokens and tokens > 1 and flat.size % (tokens - 1) == 0 else ""
        raise RoutingDumpError(
            f"{name}: SGLang sends {flat.size} numbers without a shape{told}; give the model's layers and experts a token"
        )
    if flat.size % (layers * top_k):
        raise RoutingDumpError(f"{name}: {flat.size} numbers are not rows of {layers} layers with {top_k} experts a token")
    return _checked(flat.reshape(-1, layers, top_k), name)


def _tokens(answer: Mapping[str, Any]) -> int | None:
    facts: Iterable[Any] = (answer.get("meta_info"), answer.get("usage"))
    for found in facts:
        if isinstance(found, dict) and type(found.get("prompt_tokens")) is int and type(found.get("completion_tokens")) is int:
            return int(found["prompt_tokens"] + found["completion_tokens"])
    return None


def _checked(found: np.ndarray[Any, Any], name: str) -> Chosen:
    if 0 in found.shape:
        raise RoutingDumpError(f"{name}: {_KEY} of shape {found.shape} holds nothing")
    least, most = int(found.min()), int(found.max())
    if least < 0 or most >= MOST_EXPERTS:
        raise RoutingDumpError(f"{name}: experts {least} to {most}; they are numbered from 0")
    return found.astype(np.int64)
