"""The simulator as a process: its start, its ends, its connections, and its truth against what a real client saw."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_sim_wire import body, prompt_of

from specsweep.client.dialects import dialect
from specsweep.client.protocol import connect, parse_base_url, request_head
from specsweep.client.sim.ticker import Ticker
from specsweep.client.sim.truth import prompt_key, read_truth
from specsweep.client.trace import Exchange, Turn
from specsweep.client.wire import split_head

LIMIT_S = 30.0


def command(folder: Path, settings: Any, port: int = 0) -> list[str]:
    path = folder / "settings.json"
    path.write_text(settings if isinstance(settings, str) else json.dumps({"model": "tiny", "model_name": "m", **settings}))
    return [sys.executable, "-m", "specsweep.client.sim.server", str(path), str(port)]


@contextmanager
def started(folder: Path, **settings: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its base URL."""
    process = subprocess.Popen(command(folder, settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), line + (process.stderr.read() if process.stderr else "")
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def ask(url: str, name: str, bodies: list[bytes], *, again: bool = False) -> list[tuple[Turn, Exchange, bool]]:
    """Each body on a connection of its own, all at once. The last is whether the connection could be used once more."""
    address = parse_base_url(url)
    path = dialect(name).path

    async def one(data: bytes) -> tuple[Turn, Exchange, bool]:
        connection, _ = await connect(address, tls=None, timeout_s=LIMIT_S)
        answer = await asyncio.wait_for(connection.send(request_head(address, path, (), len(data)) + data), LIMIT_S)
        head = split_head(answer.reads)
        exchange = Exchange(answer.t_send_ns, head.status, head.headers, head.reads, answer.ended)
        if again:
            await asyncio.sleep(0.05)  # a server that closes has done so
        reusable = connection.reusable
        connection.abort()
        return dialect(name).read(exchange, draft_length=3, n_prompt=None), exchange, reusable

    return list(await asyncio.gather(*(one(data) for data in bodies)))


@pytest.mark.parametrize("name", ["vllm", "llamacpp"])
async def test_the_truth_log_tells_what_the_client_saw(tmp_path: Path, name: str) -> None:
    log = tmp_path / "truth" / "log.jsonl"
    with started(tmp_path, dialect=name, drafter="eagle3", draft_length=3, truth_log=str(log)) as (process, url):
        prompts = [prompt_of(i) for i in range(6)]
        answers = await ask(url, name, [body(name, prompt, 40) for prompt in prompts])
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    truths = {truth.key: truth for truth in read_truth(log)}
    assert len(truths) == 6
    for prompt, (turn, exchange, _) in zip(prompts, answers, strict=True):
        truth = truths[prompt_key(prompt)]
        assert turn.outcome == "ok", turn.error
        assert turn.step_tokens == [step.tokens for step in truth.steps]
        assert turn.step_accepted == [step.accepted for step in truth.steps]
        assert exchange.t_send_ns < truth.t_arrived_ns < truth.chunks[0].t_ns
        assert len(truth.chunks) == len(turn.step_t_ns)
        assert all(true.t_ns < seen for true, seen in zip(truth.chunks, turn.step_t_ns, strict=True)), "seen after it was sent"
        assert all(chunk.late_ns >= 0 for chunk in truth.chunks), "and never sent before its time"


@pytest.mark.parametrize(("name", "kept"), [("vllm", True), ("llamacpp", False)])
async def test_connections_are_kept_as_the_engine_keeps_them(tmp_path: Path, name: str, kept: bool) -> None:
    with started(tmp_path, dialect=name) as (_, url):
        ((turn, exchange, reusable),) = await ask(url, name, [body(name, prompt_of(1), 5)], again=True)
        assert turn.outcome == "ok"
        assert "close" not in dict(exchange.headers).get("Connection", "")
        assert reusable is kept
        address = parse_base_url(url)
        connection, _ = await connect(address, tls=None, timeout_s=LIMIT_S)
        data = body(name, prompt_of(1), 3)
        for _ in range(3 if kept else 1):
            assert (await asyncio.wait_for(connection.send(request_head(address, dialect(name).path, (), len(data)) + data), LIMIT_S)).reads
        connection.abort()


def test_it_says_everywhere_that_it_is_a_simulation(tmp_path: Path) -> None:
    with started(tmp_path, dialect="sglang", drafter="ngram", draft_length=2) as (_, url):
        about = json.loads(get(url + "/sim")[1])
        assert about["simulated"] is True
        assert (about["drafter"], about["draft_length"], about["model"]) == ("ngram", 2, "tiny")
        assert get(url + "/health")[0] == 200
        assert json.loads(get(url + "/server_info")[1])["version"] == "0.5.23"
        assert get(url + "/nothing")[0] == 404


def test_a_request_in_pieces_and_two_at_once_are_understood(tmp_path: Path) -> None:
    import socket

    with started(tmp_path, dialect="vllm") as (_, url):
        address = parse_base_url(url)
        data = body("vllm", prompt_of(1), 3)
        request = request_head(address, "/v1/completions", (("Connection", "close"),), len(data)) + data
        with socket.create_connection((address.host, address.port), timeout=LIMIT_S) as client:
            for piece in (b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" + request[:30], request[30:300], request[300:]):
                client.sendall(piece)
                time.sleep(0.02)
            got = b""
            while piece := client.recv(65536):
                got += piece
        assert got.count(b"HTTP/1.1 200 OK") == 2
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        with socket.create_connection((address.host, address.port), timeout=LIMIT_S) as client:
            client.sendall(b"GARBAGE\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_never_healthy_is_up_and_says_no(tmp_path: Path) -> None:
    with started(tmp_path, dialect="vllm", troubles={"never_healthy": True}) as (_, url):
        assert get(url + "/health")[0] == 503


def test_a_slow_start_answers_503_on_llamacpp_and_nothing_elsewhere(tmp_path: Path) -> None:
    with started(tmp_path, dialect="llamacpp", troubles={"slow_start_s": 0.5}) as (_, url):
        status, text = get(url + "/health")
        assert (status, json.loads(text)["error"]["message"]) == (503, "Loading model")
        deadline = time.monotonic() + LIMIT_S
        while get(url + "/health")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    began = time.monotonic()
    with started(tmp_path, dialect="vllm", troubles={"slow_start_s": 0.5}) as (_, url):
        assert time.monotonic() - began >= 0.5, "it said where it listens only then"
        assert get(url + "/health")[0] == 200


def test_it_dies_at_start_in_its_own_words(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, {"troubles": {"dies_at_start": "CUDA out of memory"}}), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stderr.strip(), done.stdout) == (1, "CUDA out of memory", "")


async def test_it_dies_in_the_middle_and_what_it_sent_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with started(tmp_path, dialect="vllm", troubles={"dies_after_steps": 30}, truth_log=str(log)) as (process, url):
        short, long = await ask(url, "vllm", [body("vllm", prompt_of(1), 10), body("vllm", prompt_of(2), 1000)])
        assert process.wait(LIMIT_S) == -signal.SIGKILL
    assert short[0].outcome == "ok"
    assert (long[0].outcome, long[0].error_kind) == ("failed", "disconnected")
    assert [truth.finish for truth in read_truth(log)] == ["length"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "no-such-preset"}, "model='no-such-preset' is neither a preset (deepseek-r1"),
        ({"drafter": "medusa", "draft_length": 2}, "drafter='medusa' is not described for tiny; it has none, draft_model"),
        ({"dialect": "tgi"}, "dialect='tgi': the simulator speaks vllm"),
        ("not json", "settings.json: "),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(tmp_path: Path, settings: Any, words: str) -> None:
    done = subprocess.run(command(tmp_path, settings), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_truth_log_is_told_by_its_line_and_a_cut_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    good = json.dumps(
        {
            "kind": "request", "ordinal": 0, "request_id": "a", "key": "k", "category": "", "n_prompt": 3, "t_arrived_ns": 5,
            "finish": "length", "chunks": [[7, 1, 1, 0]], "steps": [[1, 1, 0, 0]],
        }
    )  # fmt: skip
    path.write_text(f'{{"kind":"meta"}}\n{good}\n{good[:40]}')
    (request,) = read_truth(path)
    assert (request.tokens, request.chunks[0].t_ns) == (1, 7)
    path.write_text(f'{good}\n{{"kind":"step"}}\n')
    with pytest.raises(ValueError, match=r"truth.jsonl, line 2: .*unknown kind 'step'"):
        read_truth(path)


async def test_the_ticker_fires_once_and_never_early() -> None:
    fired: list[int] = []
    ticker = Ticker(asyncio.get_running_loop(), lambda: fired.append(time.monotonic_ns()))
    due = [time.monotonic_ns() + 3_000_000, time.monotonic_ns() - 1]  # one in the past fires at once
    for t_ns in due:
        seen = len(fired)
        ticker.at(t_ns)
        async with asyncio.timeout(LIMIT_S):
            while len(fired) == seen:
                await asyncio.sleep(0.001)
        assert fired[-1] >= t_ns
    await asyncio.sleep(0.005)
    assert len(fired) == 2
    ticker.close()
    ticker.close()
