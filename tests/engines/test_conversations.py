"""Conversations of several turns on the real llama.cpp: what the engine is asked on a later turn is what was really said before it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from whole_sweeps import finished, specsweep

from specsweep.client.actors import ClientPool, Endpoint, PointLoad, Team
from specsweep.client.conversation import ChatRecipe
from specsweep.client.dialects import dialect
from specsweep.client.load_plan import plan_requests
from specsweep.client.trace import PlannedRequest, PointTrace, RequestTrace, Sampling
from specsweep.client.workload import Prompt, TargetTokenizer, WorkloadError, load_tokenizer
from specsweep.orchestrator.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(600)]

TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
SAID = ("Tell me of the sea.", "And of the ships on it?", "Who sails them?")
SYSTEM = "Be brief."
SAMPLING = Sampling(max_tokens=12)


@pytest.fixture(scope="module")
def pool() -> Iterator[ClientPool]:
    with closing(ClientPool()) as made:
        yield made


@pytest.fixture(scope="module")
def team(pool: ClientPool) -> Iterator[Team]:
    with pool.team() as made:
        yield made


def load(url: str, tokenizer: TargetTokenizer, *, source: Path = TARGET, turns: int = 3, max_model_len: int | None = None) -> PointLoad:
    wire = dialect("llamacpp")

    def prompt(name: str) -> Prompt:
        first = f"{name}. {SAID[0]}"
        ids = tokenizer.render([{"role": "system", "content": SYSTEM}, {"role": "user", "content": first}])
        return Prompt(name, "mixed", tuple(ids), first, 8, turns=SAID[1:turns])

    requests: list[PlannedRequest] = plan_requests(
        [prompt(f"m{i}") for i in range(4)],
        [prompt(f"r{i}") for i in range(2)],
        batch_size=2,
        sampling=SAMPLING,
        dialect=wire,
        model="tiny",
        stateful=False,
        requests_per_slot=2,
    )
    chat = ChatRecipe(str(source), wire.name, "tiny", SAMPLING, system=SYSTEM, draft_length=3, max_model_len=max_model_len)
    return PointLoad(
        Endpoint(url), wire.path, wire.name, 2, requests, draft_length=3, stall_s=200.0, record_raw=True, processes=2, chat=chat
    )


def by_conversation(trace: PointTrace) -> list[list[RequestTrace]]:
    found = defaultdict(list)
    for row in trace.requests:
        found[row.index - row.turn].append(row)
    return list(found.values())


def test_a_later_turn_holds_the_answers_before_it_and_the_engine_counts_its_tokens_as_we_do(drafting_server: str, team: Team) -> None:
    tokenizer = load_tokenizer(TARGET)
    result = team.measure(load(drafting_server, tokenizer))
    assert result.raw is not None
    asked = {index: json.loads(planned.body)["prompt"] for index, planned, _ in result.raw}
    assert {r.read.error for r in result.trace.requests} == {""}
    assert {r.actor for r in result.trace.requests} == {0, 1}
    for turns in by_conversation(result.trace):
        assert [r.turn for r in turns] == [0, 1, 2]
        assert {(r.actor, r.slot) for r in turns} == {(turns[0].actor, turns[0].slot)}
        assert all(r.n_prompt == r.read.n_prompt_server == len(asked[r.index]) for r in turns)
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{turns[0].prompt_id}. {SAID[0]}"}]
        for before, later in pairwise(turns):
            said = tokenizer.decode([i for i in before.read.output_ids if i not in tokenizer.eos_ids])
            assert said.strip()
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": SAID[later.turn]}]
            assert asked[later.index] == tokenizer.render(messages)
            assert later.gap_ns > 0


def test_a_history_that_has_become_too_long_is_not_sent(drafting_server: str, team: Team) -> None:
    tokenizer = load_tokenizer(TARGET)
    trace = team.measure(load(drafting_server, tokenizer, max_model_len=64)).trace
    for turns in by_conversation(trace):
        kinds = [r.read.error_kind for r in turns]
        assert kinds in (["", "context", "not_sent"], ["", "", "context"])
        refused = turns[kinds.index("context")].read.error
        assert "more than target.max_model_len=64" in refused


def test_a_tokenizer_that_a_client_does_not_have_fails_the_point_in_words(drafting_server: str, team: Team, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"no_such does not exist.*where a client process prepares later turns"):
        team.measure(load(drafting_server, load_tokenizer(TARGET), source=tmp_path / "no_such"))


def workers_of(team: Team) -> list[psutil.Process]:
    children = [child for member in team.members for child in psutil.Process(member.pid).children()]
    return [child for child in children if "specsweep.client.turn_process" in " ".join(child.cmdline())]


def test_a_killed_worker_is_replaced_for_the_next_point_and_all_end_with_their_clients(drafting_server: str, pool: ClientPool) -> None:
    point = load(drafting_server, load_tokenizer(TARGET), turns=2)
    with pool.team() as team:
        team.measure(point)
        first = workers_of(team)
        assert len(first) == len(team.members) == 2
        first[0].kill()
        psutil.wait_procs(first[:1], 20)
        again = team.measure(point)
        assert {r.read.error for r in again.trace.requests} == {""}
        now = workers_of(team)
        assert (first[0] in now, first[1] in now, len(now)) == (False, True, 2)
    _, alive = psutil.wait_procs(now, 20)
    assert alive == []


def test_a_sweep_of_a_users_own_conversations(tmp_path: Path, cache: Path) -> None:
    """From a file of the user's to rows of the trace, and the engine's context is large enough for all of a conversation."""
    rows = [
        {"prompt_id": f"q{i}", "category": "c", "text": f"{i}. {SAID[0]}", "turns": list(SAID[1 : 1 + i % 3]), "source": "mine"}
        for i in range(11)
    ]
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = specsweep(
        "run", "engine=llamacpp", "target=tiny", "drafter=tiny", "draft_length=3", "workload=mixed", f"workload.corpus={tmp_path}/talks.jsonl",
        "workload.prompts=9", "workload.ramp_prompts=2", "workload.osl=64", "isl=0", "batch_size=2", "name=talks", f"store={tmp_path}/s",
        f"cache={cache}", "tracking.enabled=false", "measure.stall_seconds=200", limit_s=400,
    )  # fmt: skip
    assert finished(done), done.stderr
    (attempt,) = Store(tmp_path / "s").sweep("talks").latest.values()
    trace = attempt.trace()
    assert {r.read.error for r in trace.requests} == {""}
    assert {r.source for r in trace.requests} == {"mine"}
    assert all(r.n_prompt == r.read.n_prompt_server for r in trace.requests)
    for turns in by_conversation(trace):
        assert [r.turn for r in turns] == list(range(1 + int(turns[0].prompt_id[1:]) % 3))
    assert attempt.measurement is not None
    assert attempt.measurement["counts"]["conversations"] == 9
    assert attempt.measurement["window"]["turn_gap_share"] > 0
