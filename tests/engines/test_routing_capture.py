"""Routing captures as a user runs them: on the simulator through Ray, and the real torch on what the simulator writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from whole_sweeps import finished, specsweep

from specsweep.analysis.routing import from_npz
from specsweep.client.sim.routing import Mixture, Recorder
from specsweep.orchestrator.engines.vllm_env import built
from specsweep.orchestrator.store import Store

CAPTURE = (
    "engine=sim", "engine.dialect=sglang", "engine.preset=gpt-oss-120b", "engine.speedup=100", "target=tiny", "capture=none,routing",
    "isl=256", "workload=mixed,random", "batch_size=4", "workload.prompts=6", "workload.osl=1", "measure.requests_per_slot=1",
    "name=experts_sim",
)  # fmt: skip


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_capture_lands_beside_timed_points_and_is_none_of_them(tmp_path: Path, cache: Path) -> None:
    store = tmp_path / "store"
    done = specsweep("run", *CAPTURE, f"store={store}", f"cache={cache}", "tracking.enabled=false")
    assert done.returncode in (0, 5), done.stderr  # one token an answer: timed points of it may not be valid
    captures = [a for a in Store(store).sweep("experts_sim").latest.values() if a.point["axes"]["capture"] == "routing"]
    assert len(captures) == 2
    for attempt in captures:
        assert attempt.valid, attempt.measurement["checks"]
        assert attempt.measurement["untimed"] is attempt.measurement["simulated"] is True
        assert attempt.measurement["metrics"] == {}
        assert not (attempt.path / "trace.parquet").exists()
        routing, counts = attempt.measurement["routing"], attempt.measurement["counts"]
        assert routing["tokens"] == counts["prompt_tokens"] > 6 * 200
        assert (routing["layers"], routing["experts"], routing["top_k"], counts["requests"]) == (24, 128, 4, 6)
        kept = from_npz((attempt.path / "evidence" / "routing.npz").read_bytes())
        assert kept.counts.shape == (routing["passes"], 24, 128)
        assert kept.counts.sum() == routing["tokens"] * 4 * 24
        assert len(list((attempt.path / "evidence" / "routing").glob("*.pt"))) == 1
    assert "2 of them untimed routing captures" in done.stdout
    report = json.loads(specsweep("report", "experts_sim", f"store={store}", "--json").stdout)
    assert len(report["tables"]["pareto"]["rows"]) == 2, "the timed ones"
    assert {row["workload"] for row in report["tables"]["routing"]["rows"]} == {"mixed", "random"}
    inspected = specsweep("inspect", str(captures[0].path))
    assert finished(inspected), inspected.stderr
    assert "routing capture, simulated" in inspected.stdout
    status = specsweep("status", "experts_sim", f"store={store}")
    assert "sim · tiny · none · routing capture" in status.stdout


@pytest.mark.own_env
def test_the_real_torch_reads_what_the_simulator_writes(tmp_path: Path) -> None:
    python = built()
    if not python.exists():
        pytest.skip("needs `make engines`")
    recorder = Recorder(Mixture(3, 16, 2), tmp_path, seed=0)
    recorder.order("/start_expert_distribution_record")
    recorder.step(2**40, 1000)
    recorder.order("/dump_expert_distribution_record")
    program = (
        "import json, sys, torch; d = torch.load(sys.argv[1], weights_only=True); r = d['records'][0]; c = r.pop('global_physical_count'); "
        "m = d['last_physical_to_logical_map']; print(json.dumps([r, str(c.dtype), c.tolist(), str(m.dtype), m.tolist()]))"
    )
    (file,) = tmp_path.glob("*.pt")
    done = subprocess.run([str(python), "-c", program, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    record, kind, counts, map_kind, places = json.loads(done.stdout)
    assert record == {"forward_pass_id": 2**40, "rank": 0, "gatherer_key": "primary"}
    assert (kind, map_kind) == ("torch.int32", "torch.int64")
    assert np.array(counts).sum(axis=1).tolist() == [2000] * 3
    assert places == [list(range(16))] * 3
