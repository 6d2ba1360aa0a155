"""One writer at a time, killed at any moment: the store stays whole and the next one finds everything once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from store_samples import axes, measurement, record, trace

from specsweep.orchestrator import durable
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.store import Store

HERE = Path(__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def _hold_lock(root: Path, seconds: float) -> subprocess.Popen[str]:
    code = f"""
        import fcntl, os, sys, time
        from specsweep.orchestrator.store import Store
        with Store({str(root)!r}).lock():
            print("held", flush=True)
            time.sleep({seconds})
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_writer_is_told_who_writes_and_a_dead_one_does_not_count(store: Store) -> None:
    child = _hold_lock(store.root, 60)
    try:
        with pytest.raises(ConfigError, match=rf"pid {child.pid} on .*store=DIR"), store.lock():
            pass
        writer = store.writer()
        assert writer is not None
        assert writer["pid"] == child.pid
        assert Store(store.root).attempts() == []  # readers do not wait
    finally:
        child.kill()
        child.wait()
    assert store.writer() is None
    with store.lock():
        pass


def test_the_lock_is_reentrant_in_one_store_and_refused_to_another_of_the_same_process(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "LOCK_PATIENCE_S", 0.0)
    with store.lock(), store.lock():
        store.commit(record(axes()), measurement(), trace())
        with pytest.raises(ConfigError, match="this process already writes"), Store(store.root).lock():
            pass
    assert store.writer() is None


def test_a_child_that_outlives_the_writer_does_not_keep_the_lock(store: Store) -> None:
    with store.lock():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert store.writer() is None
    finally:
        child.kill()
        child.wait()


def test_a_folder_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"store=.*file/results.*store=DIR"), Store(tmp_path / "file" / "results").lock():
        pass


_COMMITTER = """
import os, sys
sys.path.insert(0, {here!r})
from specsweep.orchestrator.store import Store
from store_samples import axes, measurement, record, trace
from specsweep.client.trace import to_table
to_table(trace(1))  # imports what Arrow imports late

def work():
    store = Store({root!r})
    with store.lock():
        store.event("kill", "run_started", pid=os.getpid())
        for repeat in range(1, 10_000):
            values = axes(repeat=repeat)
            rec = record(values)
            if store.needs(rec["point_id"]):
                store.commit(rec, measurement(tps=float(repeat)), trace(40), {{"engine.log": "x" * 30_000}})
                store.event("kill", "point_finished", repeat=repeat)

for line in sys.stdin:  # a process that has imported everything forks the ones that are killed
    pid = os.fork()
    if pid == 0:
        work()
    print(pid, flush=True)
    os.waitpid(pid, 0)
"""


def test_kill_9_at_any_moment_leaves_whole_attempts_once(store: Store) -> None:
    random.seed(5)
    code = _COMMITTER.format(here=str(HERE), root=str(store.root))
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    seen_partial, counts = 0, []
    try:
        for _ in range(30):
            parent.stdin.write("go\n")
            parent.stdin.flush()
            pid = int(parent.stdout.readline())
            time.sleep(random.uniform(0.01, 0.25))
            os.kill(pid, signal.SIGKILL)
            while store.writer() is not None:
                time.sleep(0.005)
            seen_partial += any(store.root.glob("staging/*"))
            reader = Store(store.root)
            attempts = reader.attempts()
            counts.append(len(attempts))
            assert reader.damaged == []
            assert all(a.number == 1 for a in attempts), "measured twice"
            repeats = sorted(a.point["axes"]["repeat"] for a in attempts)
            assert repeats == list(range(1, len(attempts) + 1)), "lost or doubled"
            assert len(durable.read_json_lines(store.root / "sweeps/kill/events.jsonl")) >= len(attempts) - 1
    finally:
        parent.kill()
        parent.wait()
    assert seen_partial > 0, "no kill hit a commit: the test proves nothing"
    assert counts[-1] > counts[0]
    for attempt in Store(store.root).attempts():
        assert attempt.measurement == measurement(tps=float(attempt.point["axes"]["repeat"]))
        assert len(attempt.trace().requests) == 40
    with store.lock():
        assert not list(store.root.glob("staging/*")), "leftovers are cleared by the next writer"
