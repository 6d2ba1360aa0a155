"""The settings that a draft-length map exports, held against vLLM's own reader of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from specsweep.analysis.attempts import Cell, Estimate
from specsweep.analysis.draft_length_map import Choice, DraftLengthMap
from specsweep.analysis.operator_config import KEY, as_yaml, vllm_config
from specsweep.orchestrator.engines.vllm_env import built, problem

pytestmark = [pytest.mark.own_env, pytest.mark.engine, pytest.mark.timeout(300)]

READ = """
import json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
given = parser.parse_args(["--config", sys.argv[1]]).speculative_config
lookup = build_dynamic_sd_schedule_lookup(given["num_speculative_tokens_per_batch_size"], 128, given["num_speculative_tokens"])
print(json.dumps({"given": given, "lookup": lookup[1:]}))
"""


def test_vllm_reads_the_exported_schedule_as_it_was_meant(tmp_path: Path) -> None:
    if why := problem({}):
        pytest.skip(why)
    best = {1: 5, 8: 5, 32: 2, 64: 0}
    choices = []
    for batch_size, tokens in best.items():
        axes = {"drafter": "ngram" if tokens else "none", "draft_length": tokens or None, "batch_size": batch_size}
        attempt = {
            "point": {"point_id": "0" * 64, "status": "measured", "axes": axes, "config": {"drafter": {"method": "ngram"}}, "env": {}},
            "measurement": {"metrics": {}},
        }
        beaten = {9: Estimate(0.5, 0.4, 0.6)}
        choices.append(Choice(batch_size, 1000, Cell(axes, (attempt,)), Estimate(1.0), (tokens,), beaten, None))
    axes = {"engine": "vllm", "target": "t", "drafter": "ngram", "workload": "w"}
    made = vllm_config(DraftLengthMap(axes, "output_tps", tuple(choices)), 1000, sweep="s", version="1")
    path = tmp_path / "vllm.yaml"
    path.write_text(as_yaml(made))
    ran = subprocess.run([str(built()), "-c", READ, str(path)], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["given"] == made["speculative_config"]
    ranges = made["speculative_config"][KEY]
    wanted = [next((k for first, last, k in ranges if first <= bs <= last), ranges[-1][2]) for bs in range(1, 129)]
    assert told["lookup"] == wanted
    assert [told["lookup"][bs - 1] for bs in best] == list(best.values())
