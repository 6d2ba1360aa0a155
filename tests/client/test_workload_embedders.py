"""Embedders: what their rows say of texts, and an endpoint that is slow to answer, refuses, or answers nonsense."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsweep.client.workload import embedder_openai
from specsweep.client.workload.embedder_hashed import HashedEmbedder
from specsweep.client.workload.embedder_openai import OpenAIEmbedder
from specsweep.client.workload.embedders import embedder
from specsweep.client.workload.embedding_cache import CachedEmbedder
from specsweep.client.workload.errors import WorkloadError

FOX = (
    "The quick brown fox jumps over the lazy dog.",
    "A quick brown fox jumped over lazy dogs!",
    "def area(radius):\n    return 3.14 * radius ** 2",
)


# --- hashed ----------------------------------------------------------------------------------------------------------------------


def test_hashed_rows_are_unit_and_say_what_is_alike() -> None:
    x = embedder("hashed").embed(FOX)
    assert x.dtype == np.float32
    assert np.linalg.norm(x, axis=1) == pytest.approx(1)
    assert x[0] @ x[1] > 0.4
    assert abs(x[0] @ x[2]) < 0.15


def test_hashed_row_does_not_depend_on_its_neighbours() -> None:
    e = embedder("hashed:256")
    assert np.array_equal(e.embed(FOX)[1], e.embed([FOX[1]])[0])
    assert e.embed(FOX).shape == (3, 256)


def test_hashed_ignores_layout_and_case_but_not_order() -> None:
    e = embedder("hashed")
    a, b, c = e.embed(["Large  models\nrun", "large models run", "run models large"])
    assert a @ b == pytest.approx(1)
    assert a @ c < 0.9


def test_hashed_is_the_same_in_every_process() -> None:
    code = f"from specsweep.client.workload.embedders import embedder\nprint(embedder('hashed:64').embed([{FOX[0]!r}])[0].tobytes().hex())"
    other = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=True).stdout
    assert bytes.fromhex(other.strip()) == embedder("hashed:64").embed([FOX[0]])[0].tobytes()


def test_what_all_texts_share_counts_as_likeness() -> None:
    """A template must be seen: rarity does not come from the texts at hand."""
    names = ("Ada", "Ben", "Cho", "Dia", "Eva", "Fay")
    template = [f"Translate the following sentence of {name} into German, please, and explain each step." for name in names]
    x = embedder("hashed").embed(template)
    assert (x @ x.T).min() > 0.6


def test_independent_sketches_agree_on_average() -> None:
    texts = [f"{FOX[i % 3]} {i} {'abc' * i}" for i in range(12)]
    a, b = (HashedEmbedder(salt=salt).embed(texts) for salt in (0, 1))
    assert HashedEmbedder(salt=1).name != HashedEmbedder().name
    assert not np.allclose(a, b)
    assert np.abs(a @ a.T - b @ b.T).max() < 0.15  # six standard deviations of a pair


@pytest.mark.parametrize("text", ["你好,世界", "?!", "x", "\ud800 broken", "é́̂"])
def test_hashed_takes_any_text(text: str) -> None:
    assert np.linalg.norm(embedder("hashed").embed([text])) == pytest.approx(1)


def test_hashed_refuses_a_text_of_nothing() -> None:
    with pytest.raises(WorkloadError, match="text 1 is empty"):
        embedder("hashed").embed(["a", " \n"])


@pytest.mark.parametrize(
    ("name", "said"), [("bert", "is not known"), ("st:", "is not known"), ("hashed:big", "whole number"), ("hashed:8", "from 64")]
)
def test_names_that_are_none(name: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        embedder(name)


# --- cache -----------------------------------------------------------------------------------------------------------------------


class Counting:
    """An embedder that notes what it was asked."""

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.asked: list[str] = []

    def embed(self, texts: Any) -> np.ndarray:
        self.asked += texts
        return HashedEmbedder(64).embed(texts) if len(texts) else np.zeros((0, 64), np.float32)


def test_cache_asks_once_for_a_text(tmp_path: Path) -> None:
    inner = Counting()
    first = CachedEmbedder(inner, tmp_path)
    x = first.embed([FOX[0], FOX[1], FOX[0]])
    assert inner.asked == [FOX[0], FOX[1]]
    again = CachedEmbedder(inner, tmp_path)  # another process
    assert np.array_equal(again.embed([FOX[2], FOX[1], FOX[0]])[[2, 1]], x[:2])
    assert inner.asked == [FOX[0], FOX[1], FOX[2]]
    assert again.name == "counting"
    assert isinstance(embedder("hashed", cache=tmp_path), CachedEmbedder)
    assert again.embed([]).shape == (0, 64)


def test_cache_keeps_embedders_apart(tmp_path: Path) -> None:
    CachedEmbedder(Counting("one"), tmp_path).embed(FOX)
    other = Counting("two")
    CachedEmbedder(other, tmp_path).embed(FOX)
    assert len(other.asked) == 3


def test_cache_keeps_what_came_before_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsweep.client.workload.embedding_cache.CHUNK", 2)

    class Failing(Counting):
        def embed(self, texts: Any) -> np.ndarray:
            if "end" in texts:
                raise WorkloadError("no quota")
            return super().embed(texts)

    with pytest.raises(WorkloadError, match="no quota"):
        CachedEmbedder(Failing(), tmp_path).embed(["a b", "c d", "end"])
    inner = Counting()
    CachedEmbedder(inner, tmp_path).embed(["a b", "c d", "end"])
    assert inner.asked == ["end"]


def test_a_broken_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "embeddings.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(WorkloadError, match=r"embeddings.sqlite: the cache .* cannot be used"):
        CachedEmbedder(Counting(), tmp_path).embed(FOX)


# --- sentence-transformers -------------------------------------------------------------------------------------------------------


def test_sentence_transformers_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(WorkloadError, match="pip install sentence-transformers"):
        embedder("st:all-MiniLM-L6-v2")


def test_sentence_transformers_records_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        """The part of the library's class that is used."""

        def __init__(self, source: str, revision: str | None = None) -> None:
            if source == "gone":
                raise OSError("gone is not a local folder\nand not on the hub")
            config = types.SimpleNamespace(_commit_hash="c0ffee")
            self.parts = [types.SimpleNamespace(auto_model=types.SimpleNamespace(config=config))]

        def __getitem__(self, i: int) -> Any:
            return self.parts[i]

        def encode(self, texts: list[str], *, convert_to_numpy: bool, show_progress_bar: bool) -> np.ndarray:
            return np.array([[3.0 * len(t), 4.0 * len(t)] for t in texts])

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Model))
    assert embedder("st:mini").name == "st:mini@c0ffee"
    assert embedder("st:mini@v2").name == "st:mini@v2"
    assert embedder("st:mini").embed(["a", "bc"]) == pytest.approx(np.array([[0.6, 0.8]] * 2))
    with pytest.raises(WorkloadError, match=r"cannot be loaded: gone is not a local folder$"):
        embedder("st:gone")


# --- OpenAI ----------------------------------------------------------------------------------------------------------------------

Answer = tuple[int, dict[str, str], Any]  # status, headers, body


def direction(text: str) -> list[float]:
    return [float(len(text)), 1.0, 0.5]


def vectors(body: dict[str, Any], *, numbers: bool = False) -> Answer:
    """What the API answers; the items in no order."""
    data = []
    for i, text in enumerate(body["input"]):
        row = np.array(direction(text), dtype="<f4")
        data.insert(0, {"index": i, "embedding": row.tolist() if numbers else base64.b64encode(row.tobytes()).decode()})
    return 200, {}, {"data": data, "model": body["model"]}


@contextmanager
def endpoint(
    answer: Callable[[int, dict[str, Any]], Answer],
) -> Iterator[tuple[OpenAIEmbedder, list[tuple[dict[str, str], dict[str, Any]]]]]:
    """A real HTTP server; ``answer`` gets the number of the request and its body. Yields an embedder for it and what it was sent."""
    seen: list[tuple[dict[str, str], dict[str, Any]]] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                seen.append(({k.lower(): v for k, v in self.headers.items()} | {"path": self.path}, body))
                n = len(seen)
            status, headers, value = answer(n, body)
            raw = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            for key, header in {**headers, "Content-Length": str(len(raw))}.items():
                self.send_header(key, header)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield OpenAIEmbedder("text-embedding-3-large", f"http://127.0.0.1:{server.server_port}/v1", "sk-test", first_pause_s=0.001), seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def expected(texts: list[str]) -> np.ndarray:
    rows = np.array([direction(t) for t in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("numbers", [False, True])
def test_openai_rows_are_those_of_their_texts(numbers: bool) -> None:
    texts = [f"text {'x' * i}" for i in range(5)]
    with endpoint(lambda _, body: vectors(body, numbers=numbers)) as (e, seen):
        x = e.embed(texts)
    assert x == pytest.approx(expected(texts), abs=1e-6)
    headers, body = seen[0]
    assert headers["authorization"] == "Bearer sk-test"
    assert headers["path"] == "/v1/embeddings"
    assert body == {"model": "text-embedding-3-large", "input": texts, "encoding_format": "base64"}


def test_openai_batches_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_openai, "REQUEST_TEXTS", 3)
    texts = [f"text {'x' * i}" for i in range(20)]
    with endpoint(lambda _, body: vectors(body)) as (e, seen):
        assert e.embed(texts) == pytest.approx(expected(texts), abs=1e-6)
    assert sorted(len(body["input"]) for _, body in seen) == [2, *[3] * 6]


def test_openai_requests_stay_below_the_limit_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_openai, "REQUEST_TOKENS", 25)
    with endpoint(lambda _, body: vectors(body)) as (e, seen):
        e.embed(["word " * 9, "word " * 9, "word " * 30, "word"])  # about 10, 10, 31 and 1 tokens
    assert sorted(len(body["input"]) for _, body in seen) == [1, 1, 2]


def test_only_the_official_endpoint_gets_the_beginning_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_openai, "INPUT_TOKENS", 4)
    with endpoint(lambda _, body: vectors(body)) as (e, seen):
        e.embed(["one two three four five six"])
        assert e.name.endswith(f" at {e.base_url}")
        monkeypatch.setattr(embedder_openai, "OFFICIAL", e.base_url)
        e.embed(["one two three four five six", "世界世界世界"])
        assert e.name == "openai:text-embedding-3-large"
    assert seen[0][1]["input"] == ["one two three four five six"]
    cut = seen[1][1]["input"]
    assert cut[0] == "one two three four"
    assert cut[1]
    assert "世界世界世界".startswith(cut[1])  # no half character at the cut


def test_openai_tries_again_what_may_heal() -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        return {1: (429, {"Retry-After": "0.01"}, {"error": {"message": "slow down"}}), 2: (503, {}, "<html>busy</html>")}.get(
            n
        ) or vectors(body)

    with endpoint(answer) as (e, seen):
        assert e.embed(["a"]) == pytest.approx(expected(["a"]), abs=1e-6)
    assert len(seen) == 3


def test_openai_gives_up_with_the_last_reason() -> None:
    with (
        endpoint(lambda _n, _b: (500, {}, {"error": {"message": "the model fell over"}})) as (e, seen),
        pytest.raises(WorkloadError, match="no answer in 6 attempts; the last one: HTTP 500: the model fell over"),
    ):
        e.embed(["a"])
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {}, {"error": {"message": "Incorrect API key"}}), "HTTP 401: Incorrect API key; check OPENAI_API_KEY"),
        ((429, {}, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}), "You exceeded your quota"),
        ((200, {}, {"data": []}), "vectors .* for 1 texts"),
        ((200, {}, "hello"), "not one of an embeddings endpoint"),
        ((200, {}, {"data": [{"index": 0, "embedding": "AAAA"}]}), "not one of an embeddings endpoint"),
        ((200, {}, {"data": [{"index": 0, "embedding": [0.0, 0.0]}]}), "vector of text 0 has length 0"),
    ],
)
def test_openai_answers_that_stay_wrong_end_it_at_once(answer: Answer, said: str) -> None:
    with endpoint(lambda _n, _b: answer) as (e, seen), pytest.raises(WorkloadError, match=said):
        e.embed(["a"])
    assert len(seen) == 1


def test_openai_takes_key_and_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(WorkloadError, match="set OPENAI_API_KEY"):
        embedder("openai:m")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    made = embedder("openai:m")
    assert made == OpenAIEmbedder("m", key="sk-secret")
    assert "sk-secret" not in repr(made)
    with endpoint(lambda _, body: vectors(body)) as (e, seen):
        monkeypatch.setenv("OPENAI_BASE_URL", e.base_url + "/")
        monkeypatch.delenv("OPENAI_API_KEY")
        assert embedder("openai:m").embed(["abc"]) == pytest.approx(expected(["abc"]), abs=1e-6)
    assert "authorization" not in seen[0][0]


def test_openai_endpoint_that_is_not_there() -> None:
    with endpoint(lambda _, body: vectors(body)) as (e, _):
        pass
    with pytest.raises(WorkloadError, match="no answer in 6 attempts"):
        replace(e, first_pause_s=0.0).embed(["a"])


def test_openai_refuses_an_empty_text_before_it_asks() -> None:
    with endpoint(lambda _, body: vectors(body)) as (e, seen):
        with pytest.raises(WorkloadError, match="text 1 is empty"):
            e.embed(["a", ""])
        assert e.embed([]).shape[0] == 0
    assert not seen
