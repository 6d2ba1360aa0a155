"""Conversations of several turns on the simulator: real server, real client, real analysis, one conversation the unit of it all."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from test_sim_points import failed
from test_sim_server import get, started

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.actor import read_sent
from specsweep.client.conversation import ChatRecipe
from specsweep.client.dialects import dialect
from specsweep.client.load import LoadSpec, run_load
from specsweep.client.load_plan import plan_requests
from specsweep.client.sim.wire import WIRES
from specsweep.client.trace import PointTrace, RequestTrace, Sampling
from specsweep.client.workload import Prompt, load_tokenizer

TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
BATCH = 3
TURNS = (3, 1, 2)


def by_conversation(rows: list[RequestTrace]) -> dict[int, list[RequestTrace]]:
    found = defaultdict(list)
    for row in sorted(rows, key=lambda r: r.index):
        found[row.index - row.turn].append(row)
    return found


@pytest.mark.parametrize("name", WIRES)
async def test_a_point_of_conversations(tmp_path: Path, name: str) -> None:
    tokenizer, wire = load_tokenizer(TARGET), dialect(name)
    prompts = [
        Prompt(
            f"p{i}",
            "mixed",
            tuple(tokenizer.render([{"role": "user", "content": f"Question {i}?"}])),
            f"Question {i}?",
            4,
            turns=tuple(f"And {k}?" for k in range(1, TURNS[i % 3])),
        )
        for i in range(4 * BATCH)
    ]
    sampling = Sampling(max_tokens=24)
    requests = plan_requests(prompts[BATCH:], prompts[:BATCH], batch_size=BATCH, sampling=sampling, dialect=wire, model="m", stateful=False)
    chat = ChatRecipe(str(TARGET), name, "m", sampling, draft_length=3)
    with started(tmp_path, dialect=name, drafter="eagle3", draft_length=3) as (process, url):
        before = wire.counters(get(url + (wire.metrics_path or ""))[1])
        sent, report = await run_load(LoadSpec(url, wire.path, (), BATCH, requests, 20.0, chat=chat))
        after = wire.counters(get(url + (wire.metrics_path or ""))[1])
        process.terminate()
        process.wait(30)
    rows = read_sent(sent, actor=0, dialect=name, draft_length=3)
    assert {r.read.error for r in rows} == {""}  # so the server counted the tokens of every history as we did
    for turns in by_conversation(rows).values():
        assert [r.turn for r in turns] == list(range(TURNS[int(turns[0].prompt_id[1:]) % 3]))
        sizes = [r.n_prompt for r in turns]
        assert all(later > earlier for earlier, later in pairwise(sizes))
    facts = PointFacts(
        batch_size=BATCH,
        draft_length=3,
        drafter="eagle3",
        stateful=False,
        gpus=0,
        step_clock="server" if name == "llamacpp" else "client",
    )
    found = measure(PointTrace(BATCH, rows, [report], counters=after - before, simulated=True), facts)
    wrong = {"failed_share", "requests", "prompt_tokens", "merged_requests", "step_size"}  # not what depends on how busy the machine is
    assert not failed(found) & wrong
    scored = [r for r in rows if r.phase == "main" and r.pass_index == 0]
    assert found["counts"]["scored"] == len(scored) == sum(1 + len(p.turns) for p in prompts[BATCH:])
    assert found["counts"]["conversations"] == len(prompts) - BATCH
    assert found["window"]["turn_gap_share"] > 0
    assert {c["conversation_id"] for c in found["per_conversation"]} == {p.prompt_id for p in prompts[BATCH:]}
    official = found["official"]["acceptance"]["Request_AL"]
    assert set(official) == {p.prompt_id for p in prompts[BATCH:]}  # one request of the official framework is all turns
