"""What a user is told when the hub or a server does not give a file. No network: the hub's library and the server are stood in for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors

from specsweep.client.workload.prepare import HubFiles, SourceAway
from specsweep.client.workload.prepare.tables import Table

EXAM = Table("cais/hle", ("data/test-*.parquet",), "c" * 40)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, ["gated", "https://huggingface.co/datasets/cais/hle", "HF_TOKEN"]),
        (errors.RepositoryNotFoundError, ["no such data set"]),
        (errors.RevisionNotFoundError, ["no revision"]),
        (errors.OfflineModeIsEnabled, ["HF_HUB_OFFLINE", "from="]),
        (errors.LocalEntryNotFoundError, ["not reached", "from="]),
        (ConnectionError, ["again later", "from="]),
    ],
)
def test_each_reason_says_the_way_out(kind: type[Exception], words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise kind.__new__(kind, "no")  # without the answer of a server that the hub's own errors are made from

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(SourceAway) as told:
        HubFiles(tmp_path).fetch(EXAM)
    assert all(word in str(told.value) for word in words)


@pytest.mark.parametrize("offline", [True, False])
def test_only_who_is_offline_by_setting_is_told_to_unset_it(offline: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise errors.LocalEntryNotFoundError("no")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(SourceAway) as told:
        HubFiles(tmp_path).fetch(EXAM)
    assert ("HF_HUB_OFFLINE" in str(told.value)) is offline
    assert ("look at the network" in str(told.value)) is not offline


def test_a_snapshot_that_lacks_a_part_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/test-00000-of-00002.parquet").touch()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **kwargs: str(tmp_path))
    with pytest.raises(SourceAway, match="not every part"):
        HubFiles(tmp_path).fetch(EXAM)
    (tmp_path / "data/test-00001-of-00002.parquet").touch()
    assert [file.name for file in HubFiles(tmp_path).fetch(EXAM)] == [
        "data/test-00000-of-00002.parquet",
        "data/test-00001-of-00002.parquet",
    ]


class Server(BaseHTTPRequestHandler):
    """``/half``: fewer bytes than announced; ``/gone``: 404; ``/twice``: fails once; else whole."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/gone.json":
            self.send_error(404)
            return
        if self.path == "/twice.json" and self.asked.count("/twice.json") == 1:
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Content-Length", "10" if self.path == "/half.json" else "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.asked = []
    with HTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_file_of_the_web_is_fetched_once(server: str, tmp_path: Path) -> None:
    files = HubFiles(tmp_path, sleep=lambda seconds: None)
    assert files.fetch(Table(f"{server}/twice.json"))[0].path.read_bytes() == b"[]"
    files.fetch(Table(f"{server}/twice.json"))
    assert Server.asked == ["/twice.json"] * 2  # one that failed, one that did not


@pytest.mark.parametrize(("name", "words", "times"), [("half", "2 of 10 bytes|IncompleteRead", 3), ("gone", "404", 1)])
def test_a_file_that_does_not_come_whole_leaves_nothing(server: str, tmp_path: Path, name: str, words: str, times: int) -> None:
    with pytest.raises(SourceAway, match=words):
        HubFiles(tmp_path, sleep=lambda seconds: None).fetch(Table(f"{server}/{name}.json"))
    assert len(Server.asked) == times
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
