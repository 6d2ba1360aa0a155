"""Whole sweeps against servers that are not simply there: behind TLS and a token, with streams that break, with MLflow dying."""

from __future__ import annotations

import gzip
import json
import shlex
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from foreign_servers import free_port, gateway, is_up, mlflow_server, vllm_like
from stream_stubs import self_signed
from whole_sweeps import events, finished, measured_points, problems, running, specsweep, until

from specsweep.client.trace import read_trace
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(300)]

TOKEN = "sk-Zq7-nobody-may-read-this"
SMALL = ("cluster=attach", "target=tiny", "workload=mixed", "isl=128", "batch_size=2", "name=troubled")


def everything_written(folder: Path) -> str:
    """All that lies below a folder, compressed formats unpacked."""
    parts = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        parts.append(str(path))
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            parts.append(f"{table.schema.metadata} {table.to_pylist()}")
        else:
            data = path.read_bytes()
            parts.append((gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace"))
    return "\n".join(parts)


def test_behind_tls_and_a_token_a_sweep_is_whole_and_the_token_is_nowhere(
    tmp_path: Path, cache: Path, drafting_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("GATEWAY_TOKEN", TOKEN)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store = tmp_path / "store"
    words = (
        "run", "engine=llamacpp", "drafter=draft_model", "draft_length=3", "workload.prompts=6", "workload.osl=32", *SMALL,
        "cluster.token_env=GATEWAY_TOKEN", "record_raw=true", f"store={store}", f"cache={cache}",
    )  # fmt: skip
    with gateway(drafting_server, TOKEN, context) as gate:
        done = specsweep(*words, f"endpoint={gate.url}")
        assert finished(done), done.stderr
        assert gate.refused == 0
        (attempt,) = Store(store).sweep("troubled").latest.values()
        assert problems(attempt) == []
        trace = read_trace(attempt.path / "trace.parquet")
        assert {r.read.outcome for r in trace.requests} == {"ok"}
        assert gate.passed > len(trace.requests)  # health, counters and warm-up went the same way
        assert all(r.connect_ns > 0 for r in trace.requests), "the gateway closes every connection, and says so"
        assert not any(r.attempts > 1 for r in trace.requests)
        assert attempt.measurement["metrics"]["al_decode"] > 1.2

        monkeypatch.setenv("GATEWAY_TOKEN", "sk-a-wrong-one")
        refused = specsweep(*words, f"endpoint={gate.url}", "name=refused", "batch_size=1")
        assert refused.returncode not in (0, 2), refused.stderr
        assert "401" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert is_up(drafting_server), "nobody ends a server that is only attached to"

    raw = attempt.path / "evidence" / "raw.jsonl.gz"
    told = specsweep("inspect", str(raw), "--json")
    assert told.returncode == 0, told.stderr
    stored = specsweep("inspect", str(attempt.path / "trace.parquet"), "--json")
    (from_bytes,), (from_trace,) = json.loads(told.stdout), json.loads(stored.stdout)
    assert len(from_bytes["requests"]) == len(trace.requests)
    for fact in ("outcome", "output_tokens", "chunks", "decode_steps", "accepted_per_position", "ttft_ms"):
        assert [r[fact] for r in from_bytes["requests"]] == [r[fact] for r in from_trace["requests"]]

    said = done.stdout + done.stderr + refused.stdout + refused.stderr + told.stdout
    written = everything_written(store)
    assert "raw.jsonl.gz" in written
    assert "mlflow.db" in written
    for secret in (TOKEN, "sk-a-wrong-one"):
        assert secret not in said
        assert secret not in written


def test_error_events_in_every_tenth_stream_spoil_the_point_and_nothing_else(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    with vllm_like() as server:
        done = specsweep(
            "run", "engine=vllm", "drafter=none", "workload.prompts=20", "workload.osl=32", *SMALL, "batch_size=1,2",
            f"endpoint={server.url}", f"store={store}", f"cache={cache}", "tracking.enabled=false",
        )  # fmt: skip
        assert done.returncode == 5, done.stderr
        assert "Traceback" not in done.stderr
    attempts = list(Store(store).sweep("troubled").latest.values())
    assert len(attempts) == 2, "the first spoilt point does not end the sweep"
    seen = []
    for attempt in attempts:
        assert attempt.measured
        assert not attempt.valid
        trace = read_trace(attempt.path / "trace.parquet")
        bad = [r for r in trace.requests if r.read.outcome != "ok"]
        assert {r.read.error_kind for r in bad} == {"stream_error"}
        assert all("EngineCore ran out of patience" in r.read.error for r in bad)
        assert all(len(r.read.output_ids) == r.max_tokens // 2 for r in bad), "what came before the error is kept"
        assert all(len(r.read.output_ids) == r.max_tokens for r in trace.requests if r.read.outcome == "ok")
        main = [r for r in trace.requests if r.phase == "main"]
        share = sum(r.phase == "main" for r in bad) / len(main)
        (check,) = (c for c in attempt.measurement["checks"] if c["name"] == "failed_share")
        assert not check["ok"]
        assert check["value"] == pytest.approx(share)
        assert 0.05 <= share <= 0.15
        counts = attempt.measurement["counts"]
        assert counts["failed_by_kind"] == {"stream_error": len(bad)}
        assert counts["ok"] + counts["failed"] == len(trace.requests)
        assert attempt.measurement["metrics"]["output_tokens_mean"] == 32, "a broken answer is no short answer"
        seen.append(len(bad))
    assert sum(seen) == server.broken


def runs_of(database: Path) -> list[str]:
    """The point ids that MLflow has runs of, one entry a run; "" is the parent."""
    query = "select (select value from tags t where t.run_uuid = r.run_uuid and t.key = 'point_id') from runs r where lifecycle_stage = 'active'"
    with sqlite3.connect(database) as connection:
        return sorted(row[0] or "" for row in connection.execute(query))


@pytest.mark.timeout(600)
def test_mlflow_that_dies_in_the_middle_costs_the_sweep_nothing_and_sync_makes_up_for_it(tmp_path: Path, cache: Path) -> None:
    store, port = tmp_path / "store", free_port()
    uri = f"http://127.0.0.1:{port}"
    words = ("run", "sweep=smoke", "workload.prompts=12", "workload.osl=160", f"store={store}", f"cache={cache}", f"tracking.uri={uri}")
    with mlflow_server(tmp_path, port) as kill, running(*words) as run:
        until(lambda: len(runs_of(tmp_path / "server.db")) >= 2, "the first point in MLflow", 180)
        kill()
        before = runs_of(tmp_path / "server.db")
        code, output = run.wait()
    assert code in (0, 5), output
    assert "0 points failed" in output or code == 0, output
    assert "Traceback" not in output
    (gone,) = (e for e in events(store, "smoke") if e["kind"] == "tracking_unavailable")
    assert gone["catch_up"] in output
    catch_up = shlex.split(gone["catch_up"])[1:]
    points = measured_points(store, "smoke")
    assert set(points.values()) == {1}
    assert len(before) < 1 + len(points), "MLflow died too late: the test proves nothing"

    away = specsweep(*catch_up)
    assert away.returncode == 5
    assert "Traceback" not in away.stderr
    with mlflow_server(tmp_path, port):
        for again in (False, True):
            done = specsweep(*catch_up, "--json")
            assert done.returncode == 0, done.stderr
            (result,) = json.loads(done.stdout)["sweeps"]
            assert (result["created"] + result["repaired"] == 0) is again
            assert runs_of(tmp_path / "server.db") == sorted(["", *points])
