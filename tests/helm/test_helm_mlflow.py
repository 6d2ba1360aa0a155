"""MLflow as the chart starts it: the rendered command, run here, answers to the names that pods use and to no stranger's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm_chart import Json, of, rendered

pytestmark = pytest.mark.slow  # MLflow makes its schema for ten seconds
START_S = 100.0


class Server:
    def __init__(self, container: Json, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / "log"

        def here(text: str) -> str:
            return (
                text.replace("/var/lib/mlflow", str(folder / "data"))
                .replace("--port=5000", f"--port={self.port}")
                .replace("0.0.0.0", "127.0.0.1")
            )

        (folder / "data").mkdir()
        (folder / "tmp").mkdir()
        variables = {variable["name"]: here(variable["value"]) for variable in container["env"]}
        env = {"PATH": os.environ["PATH"], **variables, "HOME": str(folder / "tmp"), "TMPDIR": str(folder / "tmp")}
        argv = [str(Path(sys.prefix) / "bin" / container["command"][0]), *container["command"][1:], *map(here, container["args"])]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, env=env, cwd=folder / "tmp", stdout=log, stderr=log, start_new_session=True)

    def ask(self, path: str, host: str, body: bytes | None = None) -> tuple[int, str]:
        headers = {"Host": host, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait(self, probe: Json) -> None:
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if self.ask(probe["httpGet"]["path"], f"10.1.2.3:{self.port}")[0] == 200:  # as a kubelet asks: by the pod's address
                    return
            except (urllib.error.URLError, ConnectionError):
                pass
            time.sleep(0.2)
        raise AssertionError(self.log.read_text())


@pytest.fixture(scope="module")
def container() -> Json:
    values: dict[str, Any] = {"image": {"repository": "reg/specsweep"}, "mlflow": {"enabled": True, "allowedHosts": ["*.example.com"]}}
    (found,) = of("Deployment", rendered(values))["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.fixture(scope="module")
def server(container: Json, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(container, tmp_path_factory.mktemp("mlflow"))
    try:
        found.wait(container["startupProbe"])
        yield found
    finally:
        if found.process.poll() is None:
            os.killpg(found.process.pid, signal.SIGKILL)
            found.process.wait()


LIST = "/api/2.0/mlflow/experiments/search"


@pytest.mark.parametrize(
    "host",
    [
        "specsweep-mlflow",
        "specsweep-mlflow:5000",
        "specsweep-mlflow.bench:5000",
        "specsweep-mlflow.bench.svc:5000",
        "specsweep-mlflow.bench.svc.cluster.local:5000",
        "localhost:5000",
        "127.0.0.1:8080",
        "mlflow.example.com",
    ],
)
def test_it_answers_to_the_names_of_its_service(server: Server, host: str) -> None:
    status, text = server.ask(LIST, host, b'{"max_results": 5}')
    assert (status, '"Default"' in text) == (200, True), text


@pytest.mark.parametrize("host", ["evil.example.org", "specsweep-mlflow.evil.example.org", "other-mlflow:5000"])
def test_a_stranger_s_name_is_refused(server: Server, host: str) -> None:
    assert server.ask(LIST, host, b'{"max_results": 5}')[0] == 403


def test_artifacts_go_through_the_server_onto_the_volume(server: Server) -> None:
    """A sweep's pod has no access to that volume."""
    name = "specsweep-mlflow:5000"
    put = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/api/2.0/mlflow-artifacts/artifacts/fig7/point.json",
        data=b"{}",
        headers={"Host": name},
        method="PUT",
    )
    with urllib.request.urlopen(put, timeout=30) as answer:
        assert answer.status == 200
    assert (server.log.parent / "data" / "artifacts" / "fig7" / "point.json").read_bytes() == b"{}"
    status, text = server.ask("/api/2.0/mlflow/experiments/create", name, b'{"name": "fig7"}')
    assert status == 200, text
    status, text = server.ask("/api/2.0/mlflow/experiments/get-by-name?experiment_name=fig7", name)
    assert '"artifact_location": "mlflow-artifacts:/' in text
    assert (server.log.parent / "data" / "mlflow.db").exists()


def test_it_ends_on_sigterm_alone_and_leaves_no_process(server: Server) -> None:
    """Last: what a kubelet sends when the pod is deleted, to the first process only."""
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=60)
    with pytest.raises(ProcessLookupError):
        os.killpg(server.process.pid, 0)
