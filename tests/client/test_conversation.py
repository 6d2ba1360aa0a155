"""From an answer to the next turn: what goes into the history, what a later turn is not sent for, and the process that does the work."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from stream_stubs import DONE, END, HEAD, token_event

from specsweep.client.conversation import ChatRecipe, History, Ready, Refused, spoken
from specsweep.client.dialects import dialect
from specsweep.client.protocol import Answer
from specsweep.client.trace import Exchange, PlannedRequest, Sampling
from specsweep.client.turn_process import Desk
from specsweep.client.turn_worker import TurnWorker, WorkerLost
from specsweep.client.wire import split_head
from specsweep.client.workload import WorkloadError

TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
RECIPE = ChatRecipe(str(TARGET), "vllm", "m", Sampling(max_tokens=32))


class Letters:
    """A tokenizer with a token for each character; 0 ends an answer. The template writes roles in brackets."""

    eos_ids: tuple[int, ...] = (0,)
    vocab_size = 256
    has_template = True

    def encode(self, text: str, *, add_bos: bool = False) -> list[int]:
        return [1] * add_bos + [ord(c) for c in text]

    def render(self, messages: Sequence[Any], *, answer_start: str = "", **template_args: Any) -> list[int]:
        if any("#" in m["content"] for m in messages):
            raise WorkloadError("the target's chat template failed: no # here")
        return self.encode("".join(f"[{m['role'][0]}]{m['content']}" for m in messages) + "".join(template_args) + "[a]")

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def ordinary_ids(self) -> Sequence[int]:
        return range(1, 256)


def stream(text: str, *, eos: bool = True, finish: str = "stop", body: bytes | None = None) -> bytes:
    """The bytes of vLLM's answer ``text``, a character a token."""
    ids = [ord(c) for c in text] + [0] * eos
    return HEAD + (token_event(ids, finish) + DONE if body is None else body) + END


def exchange(data: bytes) -> Exchange:
    head = split_head([(2, data)])
    return Exchange(1, head.status, head.headers, head.reads, "complete", 2)


def next_turn(history: History, turn: int, data: bytes) -> Ready | Refused:
    return history.next_turn(turn, exchange(data), 8, wire=dialect("vllm"), tokenizer=Letters())


def words(made: Ready | Refused) -> str:
    """The prompt that would be sent."""
    import json

    assert isinstance(made, Ready), made
    ids = json.loads(made.body)["prompt"]
    assert made.n_prompt == len(ids)
    return "".join(map(chr, ids))


# --- the history


def test_each_turn_holds_all_that_was_said_before_it() -> None:
    recipe = replace(RECIPE, system="be brief", template_args={"!": True})
    history = History(recipe, ("one", "two", "three"))
    assert words(next_turn(history, 1, stream("A"))) == "[s]be brief[u]one[a]A[u]two![a]"
    assert words(next_turn(history, 2, stream("B", eos=False, finish="length"))) == "[s]be brief[u]one[a]A[u]two[a]B[u]three![a]"


def test_an_answer_that_is_empty_is_an_empty_message() -> None:
    assert words(next_turn(History(RECIPE, ("one", "two")), 1, stream(""))) == "[u]one[a][u]two[a]"


def test_without_a_template_only_the_last_words_are_sent() -> None:
    history = History(replace(RECIPE, chat=False), ("one", "two"))
    assert words(next_turn(history, 1, stream("A"))) == "\x01two"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<think>hm</think>\n\nyes", "yes"),
        ("hm</think>so</think>yes", "yes"),
        ("yes", "yes"),
        ("<think>never ends", "<think>never ends"),
        ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>", "yes"),
        ("<|channel|>final<|message|>yes", "yes"),
    ],
)
def test_thinking_is_cut_where_it_is_asked_for(text: str, kept: str) -> None:
    assert spoken(text, replace(RECIPE, thinking="cut")) == kept
    assert spoken(text, RECIPE) == text


def test_the_end_of_thinking_is_a_setting() -> None:
    assert spoken("hm[/T] yes</think>", replace(RECIPE, thinking="cut", thinking_end="[/T]")) == " yes</think>"


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match=r"workload\.thinking='drop': must be one of keep, cut"):
        replace(RECIPE, thinking="drop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"workload\.thinking_end is empty"):
        replace(RECIPE, thinking="cut", thinking_end="")


# --- what a turn is not sent for


def refused(data: bytes, recipe: ChatRecipe = RECIPE) -> Refused:
    made = next_turn(History(recipe, ("one", "two")), 1, data)
    assert isinstance(made, Refused)
    return made


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'HTTP/1.1 500 Oops\r\nContent-Length: 16\r\n\r\n{"error": "full"}', "http_status: HTTP 500"),
        (stream("", body=token_event([65])), "no_finish"),
        (stream("", body=b"1\r\nx\r\n"), "no_finish"),
        (HEAD + b"zz\r\n", "protocol"),
        (b"\x00\xff", "disconnected"),
    ],
)
def test_after_an_answer_that_failed_there_is_no_next_turn(data: bytes, said: str) -> None:
    made = refused(data)
    assert made.kind == "not_sent"
    assert made.words.startswith("turn 0 of this conversation failed: ")
    assert said in made.words


def test_a_server_that_streams_no_ids_has_no_history() -> None:
    text_only = b'data: {"choices":[{"text":"hi","finish_reason":"stop"}]}\n\n'
    made = refused(stream("", body=b"%x\r\n%s\r\n" % (len(text_only), text_only) + DONE))
    assert "streams no token ids" in made.words


def test_what_a_template_refuses_is_not_sent_and_the_way_out_is_named() -> None:
    made = refused(stream("A#"))
    assert made.kind == "not_sent"
    assert "turn 1 cannot be rendered: the target's chat template failed: no # here" in made.words
    assert "workload.thinking=cut" in made.words
    assert "thinking" not in refused(stream("A#"), replace(RECIPE, thinking="cut")).words


def test_a_history_that_does_not_fit_is_not_sent() -> None:
    said = "[u]one[a]A[u]two[a]"
    room = len(said) + RECIPE.sampling.max_tokens
    made = refused(stream("A"), replace(RECIPE, max_model_len=room - 1))
    assert made.kind == "context"
    assert f"a prompt of {len(said)} tokens" in made.words
    assert f"target.max_model_len={room - 1}" in made.words
    assert words(next_turn(History(replace(RECIPE, max_model_len=room), ("one", "two")), 1, stream("A"))) == said


def test_a_frame_that_makes_no_sense_costs_one_conversation(tmp_path: Path) -> None:
    desk = Desk()
    assert desk.handle({"what": "turn", "turn": 1, "conversation": 0}, b"")[0]["kind"] == "client"
    head, _ = desk.handle({"what": "begin", "recipe": {"sampling": {"max_tokens": 1}}, "texts": {}}, b"")
    assert head["kind"] == "client"


# --- the process


def first(turns: int = 2, index: int = 0) -> PlannedRequest:
    later = tuple(f"and {i}?" for i in range(turns))
    return PlannedRequest(index, "p", "p", 0, "c", "main", 0, 3, 32, b"", text="what?", turns=later)


def answer(data: bytes) -> Answer:
    return Answer(1, 3, [(2, data[:50]), (3, data[50:])], "complete")


@pytest.fixture
async def worker() -> Any:
    made = TurnWorker(turn_limit_s=30.0)
    await made.begin(RECIPE, [first()])
    yield made
    made.close()


async def test_the_process_answers_for_several_conversations_at_once(worker: TurnWorker) -> None:
    data = stream("\x05\x06\x07", eos=True)
    made = await asyncio.gather(*(worker.next_turn(first(index=i), 1, 3, answer(data)) for i in (0, 3, 6)))
    assert made[0] == made[1] == made[2]
    n_prompt, body = made[0]
    assert body.count(b",") > n_prompt > 3
    later = await asyncio.gather(*(worker.next_turn(first(index=i), 2, n_prompt, answer(data)) for i in (0, 3, 6)))
    assert all(not isinstance(more, str) and more[0] > n_prompt for more in later)
    assert worker.cpu_s > 0
    assert await worker.next_turn(first(), 1, 3, Answer(1, 3, [], "reset")) == "not_sent: turn 0 of this conversation got no answer (reset)"


async def test_its_death_is_said_and_the_next_point_has_a_new_one(worker: TurnWorker) -> None:
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for _ in range(2):  # in the middle of a request or before it
        with pytest.raises(WorkerLost, match=r"the process that prepares later turns .*killed by SIGKILL"):
            await worker.next_turn(first(), 1, 3, answer(stream("A")))
    await worker.begin(RECIPE, [first()])
    assert worker.pid != pid
    assert not isinstance(await worker.next_turn(first(), 1, 3, answer(stream("\x05"))), str)


async def test_one_that_does_not_come_to_an_end_is_ended() -> None:
    worker = TurnWorker(turn_limit_s=0.3)
    await worker.begin(RECIPE, [first()])
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLost, match=rf"later turns \(pid {worker.pid}\) failed: it gave no answer within 0.3 s, and was ended"):
        await worker.next_turn(first(), 1, 3, answer(stream("A")))
    worker.close()
    assert worker.pid is None


async def test_it_ends_with_its_client() -> None:
    worker = TurnWorker()
    await worker.begin(RECIPE, [first()])
    process = psutil.Process(worker.pid)
    assert worker._writer is not None
    worker._writer.transport.abort()  # what a client leaves that was killed
    gone, alive = await asyncio.to_thread(psutil.wait_procs, [process], 20)
    assert (len(gone), alive) == (1, [])
    worker.close()


async def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    worker = TurnWorker()
    with pytest.raises(WorkloadError, match=r"no_such.* does not exist.*where a client process prepares later turns"):
        await worker.begin(replace(RECIPE, tokenizer=str(tmp_path / "no_such")), [first()])
    worker.close()
