"""Conversations over several client processes, on the simulator: whole at a large batch, and true or not there when a process is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from test_sim_server import started

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.actors import ClientPool, Endpoint, LostActor, PointLoad, Team
from specsweep.client.conversation import ChatRecipe
from specsweep.client.dialects import dialect
from specsweep.client.load_plan import plan_requests
from specsweep.client.trace import PointTrace, RequestTrace, Sampling
from specsweep.client.workload import Prompt, load_tokenizer

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

TARGET = Path(__file__).parents[1] / "tiny_pair" / "target"
WIRE = dialect("vllm")
SAMPLING = Sampling(max_tokens=16)
TURNS = (3, 1, 2)


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    with closing(ClientPool()) as pool, pool.team() as made:
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(tmp_path_factory.mktemp("sim"), dialect="vllm", drafter="eagle3", draft_length=3, speedup=2) as (_, found):
        yield found


def load(url: str, batch_size: int, *, rounds: int = 2, max_model_len: int | None = None) -> PointLoad:
    tokenizer = load_tokenizer(TARGET)

    def prompt(i: int, kind: str) -> Prompt:
        text = f"Question {i}?"
        ids = tuple(tokenizer.render([{"role": "user", "content": text}]))
        return Prompt(f"{kind}{i}", "mixed", ids, text, 4, turns=tuple(f"And {k}?" for k in range(1, TURNS[i % 3])))

    requests = plan_requests(
        [prompt(i, "p") for i in range(batch_size)],
        [prompt(i, "r") for i in range(batch_size)],
        batch_size=batch_size,
        sampling=SAMPLING,
        dialect=WIRE,
        model="m",
        stateful=False,
        requests_per_slot=rounds,
    )
    chat = ChatRecipe(str(TARGET), WIRE.name, "m", SAMPLING, draft_length=3, max_model_len=max_model_len)
    return PointLoad(Endpoint(url), WIRE.path, WIRE.name, batch_size, requests, draft_length=3, stall_s=60.0, processes=2, chat=chat)


def by_conversation(trace: PointTrace) -> list[list[RequestTrace]]:
    found = defaultdict(list)
    for row in sorted(trace.requests, key=lambda r: r.index):
        found[row.index - row.turn].append(row)
    return list(found.values())


def check_whole(trace: PointTrace, batch_size: int, rounds: int = 2) -> None:
    assert {r.read.error for r in trace.requests} == {""}
    talks = by_conversation(trace)
    assert len(talks) == batch_size * (1 + rounds)
    slots: dict[tuple[int, int], list[list[RequestTrace]]] = defaultdict(list)
    for turns in talks:
        assert [r.turn for r in turns] == list(range(TURNS[int(turns[0].prompt_id[1:]) % 3]))
        assert len({(r.actor, r.slot) for r in turns}) == 1
        assert all(later.n_prompt > before.n_prompt for before, later in pairwise(turns))
        slots[turns[0].actor, turns[0].slot].append(turns)
    assert Counter(actor for actor, _ in slots) == {0: batch_size // 2, 1: batch_size // 2}
    for own in slots.values():  # one conversation after the other, to its end
        own.sort(key=lambda turns: turns[0].t_send_ns)
        assert all(later[0].t_send_ns >= before[-1].t_end_ns for before, later in pairwise(own))


def test_a_large_batch_of_conversations_over_two_processes_is_whole(url: str, team: Team) -> None:
    trace = team.measure(load(url, 32)).trace
    check_whole(trace, 32)
    assert all(actor.worker_cpu_s > 0 for actor in trace.actors)


def workers_of(team: Team) -> list[psutil.Process]:
    children = [child for member in team.members for child in psutil.Process(member.pid).children()]
    return [child for child in children if "specsweep.client.turn_process" in " ".join(child.cmdline())]


def killed_in_the_window(team: Team, url: str, victim: Callable[[], int]) -> tuple[int, LostActor]:
    """Measures, and kills a process while it does: the pid and what was raised."""
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and running(url) < 8:
            time.sleep(0.01)
        killed.append(victim())
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with pytest.raises(LostActor) as lost:
            team.measure(load(url, 8, rounds=60))
    finally:
        thread.join()
    return killed[0], lost.value


def running(url: str) -> float:
    with urlopen(f"{url}{WIRE.metrics_path}", timeout=20) as answer:
        return WIRE.counters(answer.read().decode()).running or 0.0


def test_a_point_whose_turn_process_is_killed_is_lost_in_words_and_measured_again(url: str, team: Team) -> None:
    team.measure(load(url, 2))  # so that the processes are there
    pid, lost = killed_in_the_window(team, url, lambda: workers_of(team)[0].pid)
    assert f"the process that prepares later turns (pid {pid}) failed: killed by SIGKILL" in str(lost)
    assert "Traceback" not in str(lost)
    check_whole(team.measure(load(url, 8)).trace, 8)


def test_a_point_whose_client_process_is_killed_between_turns_is_lost_and_leaves_no_process(url: str, team: Team) -> None:
    team.measure(load(url, 2))
    workers = workers_of(team)
    pid, lost = killed_in_the_window(team, url, lambda: team.members[1].pid)
    assert (lost.actor, lost.pid) == (1, pid)
    _, alive = psutil.wait_procs(workers, 20)
    assert alive == []
    check_whole(team.measure(load(url, 8)).trace, 8)


def test_a_history_that_outgrows_the_context_is_a_failed_turn_of_its_own_kind(url: str, team: Team) -> None:
    trace = team.measure(load(url, 6, max_model_len=50)).trace
    kinds = Counter(r.read.error_kind for r in trace.requests)
    assert kinds["context"] > 0
    assert kinds.keys() <= {"", "context", "not_sent"}
    assert "more than target.max_model_len=50" in next(r.read.error for r in trace.requests if r.read.error_kind == "context")
    facts = PointFacts(batch_size=6, draft_length=3, drafter="eagle3", stateful=False, gpus=0, step_clock="client")
    counts = measure(trace, facts)["counts"]
    assert counts["failed_by_kind"]["context"] == kinds["context"]
    assert counts["failed"] == kinds["context"] + kinds["not_sent"]
