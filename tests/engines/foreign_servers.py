"""Servers that a sweep attaches to and did not start: the real llama.cpp, a TLS gateway before it, one that speaks vLLM's wire, MLflow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from whole_sweeps import until

from specsweep.orchestrator.models import ensure_model

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.contextmanager
def llama_server(cache: Path, folder: Path, *, draft_length: int) -> Iterator[str]:
    """Four slots; yields the base URL."""
    target, drafter = (
        str(ensure_model({"source": "package_data", "file": f"tiny_pair/{name}"}, cache, progress=lambda _: None).path)
        for name in ("target", "draft")
    )
    drafting = {"type": "draft_simple", "path": drafter, "n_max": draft_length, "n_min": 0, "p_min": 0.0}
    settings = {"model": target, "n_parallel": 4, "n_ctx": 4096, "threads": 2, "args": {}}
    (folder / "server.json").write_text(json.dumps(settings | {"drafter": drafting if draft_length else {"type": "none"}}))
    port = free_port()
    words = [sys.executable, "-m", "specsweep.orchestrator.engines.llamacpp_server", str(folder / "server.json"), str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: is_up(f"http://127.0.0.1:{port}"), "the server")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_up(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/health", timeout=5).status == 200)
    except OSError:
        return False


@contextlib.contextmanager
def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server of ours in a thread; yields its port."""
    loop = asyncio.new_event_loop()
    up, stop = threading.Event(), asyncio.Event()
    ports: list[int] = []

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
            ports.append(server.sockets[0].getsockname()[1])
            up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert up.wait(20)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)


@dataclass
class Gateway:
    """Ends TLS, lets in who has the token, and forwards request by request, as a gateway in front of a model server does."""

    upstream: str
    token: str
    url: str = ""
    passed: int = 0
    refused: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            head, body = await read_request(reader)
            if f"authorization: bearer {self.token}".lower() not in head.decode().lower().split("\r\n"):
                self.refused += 1
                writer.write(b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 9\r\n\r\nno token\n")
            else:
                self.passed += 1
                await self._forward(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), body, writer)
            await writer.drain()
        writer.close()

    async def _forward(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        place = urlsplit(self.upstream)
        answers, requests = await asyncio.open_connection(place.hostname, place.port)
        requests.write(head + body)
        while data := await answers.read(1 << 16):
            writer.write(data)
            await writer.drain()
        requests.close()


@contextlib.contextmanager
def gateway(upstream: str, token: str, tls: ssl.SSLContext) -> Iterator[Gateway]:
    made = Gateway(upstream, token)
    with listening(made.serve, tls) as port:
        made.url = f"https://127.0.0.1:{port}"
        yield made


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return head, await reader.readexactly(int(length[1])) if length else b""


@dataclass
class VllmLike:
    """A server with vLLM's wire whose every tenth stream breaks off with an error event, which it then closes in good order."""

    every: int = 10
    url: str = ""
    streams: int = 0
    broken: int = 0
    counts: dict[str, int] = field(default_factory=lambda: {"prompt": 0, "generation": 0})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head, body = await read_request(reader)
                path = head.split(b" ")[1]
                if path == b"/v1/completions":
                    await self._stream(json.loads(body), writer)
                elif path == b"/metrics":
                    self._plain(writer, "".join(f"vllm:{name}_tokens_total {n}\n" for name, n in self.counts.items()))
                else:
                    self._plain(writer, '{"version": "0.0"}')
                await writer.drain()
        writer.close()

    def _plain(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text.encode()))

    async def _stream(self, asked: dict[str, object], writer: asyncio.StreamWriter) -> None:
        prompt, wanted = asked["prompt"], asked["max_tokens"]
        assert isinstance(prompt, list)
        assert isinstance(wanted, int)
        measured = wanted > 8  # warm-up requests are shorter, and are answered
        breaks = measured and self.streams % self.every == self.every - 1
        self.streams += measured
        self.broken += breaks
        self.counts["prompt"] += len(prompt)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        text = random.Random(str(prompt))
        for n in range(1, (wanted // 2 if breaks else wanted) + 1):
            choice = {"index": 0, "text": "x", "token_ids": [text.randrange(9, 4000)], "finish_reason": "length" if n == wanted else None}
            self._event(writer, {"id": "c", "object": "text_completion", "choices": [choice]})
            self.counts["generation"] += 1
            await asyncio.sleep(0.002)
        if breaks:
            self._event(writer, {"error": {"message": "EngineCore ran out of patience", "type": "InternalServerError", "code": 500}})
        else:
            usage = {"prompt_tokens": len(prompt), "completion_tokens": wanted, "total_tokens": len(prompt) + wanted}
            self._event(writer, {"id": "c", "object": "text_completion", "choices": [], "usage": usage})
        self._event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    def _event(self, writer: asyncio.StreamWriter, event: object) -> None:
        data = b"data: %s\n\n" % (event if isinstance(event, str) else json.dumps(event)).encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))


@contextlib.contextmanager
def vllm_like() -> Iterator[VllmLike]:
    made = VllmLike()
    with listening(made.serve) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


@contextlib.contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[Callable[[], None]]:
    """An MLflow server that keeps its runs in ``folder``; yields what kills it at once."""
    words = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "artifacts")]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(words, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True)

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    try:
        until(lambda: is_up(f"http://127.0.0.1:{port}"), "MLflow")
        yield kill
    finally:
        kill()
