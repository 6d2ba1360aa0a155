"""The process beside a client that makes the requests of later turns, and the frames in which the two speak.

Parsing an answer, decoding it, rendering and encoding a history of 32,000 tokens takes tens of milliseconds of pure Python. In the
client's own process they would delay the stamps of every other slot, and a thread would not help: it would hold the interpreter. So
they happen here. What the process needs of a point comes before its window (``begin``: the recipe, and what the users say); in the
window it gets the bytes of an answer as they came from the socket and gives back a complete request body.

Its standard input is a socket to the client, in both directions. It ends when that does, however the client ended; a thread looks for
that even while a template does not come to its end.

``python -m specsweep.client.turn_process``, by :class:`specsweep.client.turn_worker.TurnWorker` alone.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsweep.client.conversation import ChatRecipe, History, Ready
from specsweep.client.dialects import Dialect, dialect
from specsweep.client.trace import Exchange, Sampling
from specsweep.client.wire import split_head
from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.tokenizer import TargetTokenizer, load_tokenizer

LENGTHS = struct.Struct("!IQ")  # of a frame: bytes of its JSON head, bytes of what follows the head

Head = dict[str, Any]


def pack(head: Mapping[str, Any], blob: bytes = b"") -> bytes:
    """A frame as it is written to the socket."""
    words = json.dumps(head, separators=(",", ":")).encode()
    return LENGTHS.pack(len(words), len(blob)) + words + blob


@dataclass(slots=True)
class _Point:
    """What is under way. ``histories``: of the conversations that have begun and not ended, by the index of their first turn."""

    recipe: ChatRecipe
    wire: Dialect
    tokenizer: TargetTokenizer
    texts: dict[str, tuple[str, ...]]  # by prompt_id all that the user says
    histories: dict[int, History] = field(default_factory=dict)


class Desk:
    """Answers frames. One point at a time; a tokenizer stays loaded until a point has another one."""

    def __init__(self) -> None:
        self._loaded: tuple[str, TargetTokenizer] | None = None
        self._point: _Point | None = None

    def handle(self, head: Head, blob: bytes) -> tuple[Head, bytes]:
        """The answer to one frame. What fails is said in its head (``kind``, ``words``), never raised."""
        try:
            return self._begin(head) if head["what"] == "begin" else self._turn(head, blob)
        except WorkloadError as error:
            return {"kind": "workload", "words": str(error)}, b""
        except Exception as bug:  # of ours, or of a library: it costs this conversation and not the others
            return {"kind": "client", "words": f"{type(bug).__name__}: {bug}"}, b""

    def _begin(self, head: Head) -> tuple[Head, bytes]:
        said = head["recipe"]
        recipe = ChatRecipe(**{**said, "sampling": Sampling(**said["sampling"])})
        if self._loaded is None or self._loaded[0] != recipe.tokenizer:
            self._loaded = recipe.tokenizer, load_tokenizer(Path(recipe.tokenizer))
        tokenizer = self._loaded[1]
        texts = {prompt_id: tuple(words) for prompt_id, words in head["texts"].items()}
        if recipe.chat and texts:  # once before the window: the first template imports and compiles
            tokenizer.render([{"role": "user", "content": next(iter(texts.values()))[0]}], **recipe.template_args)
        self._point = _Point(recipe, dialect(recipe.dialect), tokenizer, texts)
        return {}, b""

    def _turn(self, head: Head, blob: bytes) -> tuple[Head, bytes]:
        if self._point is None:
            raise RuntimeError("a turn before begin")
        point, turn, conversation = self._point, int(head["turn"]), int(head["conversation"])
        texts = point.texts[head["prompt_id"]]
        history = point.histories.pop(conversation) if turn > 1 else History(point.recipe, texts)
        t_end = int(head["t_end_ns"])
        split = split_head([(t_end, blob)])
        answer = Exchange(int(head["t_send_ns"]), split.status, split.headers, split.reads, head["ended"], t_end)
        made = history.next_turn(turn, answer, int(head["n_prompt"]), wire=point.wire, tokenizer=point.tokenizer)
        if not isinstance(made, Ready):
            return {"kind": made.kind, "words": made.words}, b""
        if turn + 1 < len(texts):
            point.histories[conversation] = history
        return {"n_prompt": made.n_prompt}, made.body


def serve(client: socket.socket) -> None:
    """Until the client is gone."""
    desk = Desk()
    with client.makefile("rb") as frames:
        while len(lengths := frames.read(LENGTHS.size)) == LENGTHS.size:
            words, blob = LENGTHS.unpack(lengths)
            head = json.loads(frames.read(words))
            answer, body = desk.handle(head, frames.read(blob))
            client.sendall(pack({**answer, "cpu_s": time.process_time()}, body))


def _end_with(client: socket.socket) -> None:
    watch = select.poll()
    watch.register(client, select.POLLHUP | select.POLLERR)
    watch.poll()
    os._exit(0)


def main() -> None:
    client = socket.socket(fileno=0)
    threading.Thread(target=_end_with, args=(client,), daemon=True).start()
    try:
        serve(client)
    except (OSError, ValueError):  # the client is gone in the middle of a frame
        return


if __name__ == "__main__":
    main()
