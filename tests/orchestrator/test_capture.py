"""What makes a capture whole, and what fails it: a real recorder over HTTP, client processes that are made up."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from plan_samples import only, plan_of

from specsweep.analysis.routing import Routing, to_npz
from specsweep.client.actors import PointResult
from specsweep.client.sim.routing import Mixture, Recorder
from specsweep.client.trace import PointTrace, RequestTrace, Turn
from specsweep.client.workload import Prompt, PromptSet
from specsweep.orchestrator.capture import capture_point, capture_requests, whole
from specsweep.orchestrator.cli import main
from specsweep.orchestrator.errors import RequestError
from specsweep.orchestrator.points import Point

LENGTHS = (30, 40, 50)
PROMPTS = PromptSet(
    tuple(Prompt(f"p{i}", "c", tuple(range(100, 100 + n)), "text", n) for i, n in enumerate(LENGTHS)),
    (Prompt("ramp", "c", (1, 2), "t", 2),),
)


def point(*more: str) -> Point:
    words = ("engine=sglang", "target=qwen3-235b", "capture=routing", "workload=mixed", "workload.prompts=3", "workload.osl=1", "isl=64")
    return only(plan_of(*words, "batch_size=2", *more))


@dataclass
class Engine:
    base_url: str
    files: Path | None
    headers: tuple[tuple[str, str], ...] = ()


class Pool:
    """Client processes that tell the recorder what a batch of these requests would be to the engine."""

    def __init__(self, recorder: Recorder, *, routes: int = sum(LENGTHS), fails: bool = False) -> None:
        self._recorder, self._routes, self._fails = recorder, routes, fails

    def measure(self, load: Any) -> PointResult:
        self._recorder.step(1, self._routes)
        read = Turn(outcome="failed", error_kind="stalled", error="silence") if self._fails else Turn(outcome="ok", chunk_tokens=[1])
        rows = [
            RequestTrace(
                index=r.index, prompt_id=r.prompt_id, conversation_id=r.conversation_id, turn=0, category=r.category, phase=r.phase,
                pass_index=0, n_prompt=r.n_prompt, max_tokens=r.max_tokens, actor=0, slot=0, t_send_ns=0, t_end_ns=1, connect_ns=0, attempts=1,
                ended="complete", read=replace(read),
            )
            for r in load.requests
        ]  # fmt: skip
        return PointResult(PointTrace(load.batch_size, rows, []))


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    """An engine with experts and a recorder, and nothing else."""
    recorder = Recorder(Mixture(3, 128, 8), tmp_path / "routing", seed=0)

    async def answer(request: web.Request) -> web.Response:
        said = recorder.order(request.path)
        return web.Response(status=404) if said is None else web.Response(text=said)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield recorder, Engine(f"http://127.0.0.1:{runner.addresses[0][1]}", tmp_path)
    await runner.cleanup()


async def captured(server: Any, *more: str, files: int = 1, **pool: Any) -> Any:
    recorder, engine = server
    of = point(*more)
    requests = capture_requests(of, PROMPTS, "m")
    return await capture_point(of, requests, engine, Pool(recorder, **pool), found={}, files=files, actors=None)  # type: ignore[arg-type]


def test_every_measured_prompt_is_sent_once_and_no_ramp() -> None:
    requests = capture_requests(point(), PROMPTS, "m")
    assert [(r.index, r.prompt_id, r.phase, r.n_prompt, r.max_tokens) for r in requests] == [
        (i, f"p{i}", "main", n, 1) for i, n in enumerate(LENGTHS)
    ]
    body = json.loads(requests[0].body)
    assert body["sampling_params"]["max_new_tokens"] == 1
    assert body["input_ids"] == list(range(100, 130))


async def test_a_capture_holds_counts_and_no_time(server: Any) -> None:
    found = await captured(server)
    assert found.trace is None
    assert found.measurement["validity"] == {"valid": True, "tps": False, "steps": False, "acceptance": False}
    assert found.measurement["untimed"] is True
    assert found.measurement["counts"] == {"requests": 3, "ok": 3, "prompt_tokens": 120, "output_tokens": 3}
    routing = found.measurement["routing"]
    assert (routing["tokens"], routing["passes"], routing["layers"], routing["top_k"], routing["ranks"]) == (120, 1, 3, 8, 1)
    assert sorted(name.partition("/")[0] for name in found.evidence) == ["routing", "routing.npz"]
    json.dumps(found.measurement, allow_nan=False)


async def test_a_token_that_the_recorder_missed_makes_it_invalid(server: Any) -> None:
    found = await captured(server, routes=119)
    assert not found.measurement["validity"]["valid"]
    assert "counted 119 tokens; prompts and answers have 120" in found.measurement["checks"][0]["message"]


async def test_a_request_that_failed_fails_the_capture(server: Any) -> None:
    with pytest.raises(RequestError, match=r"3 of 3 requests failed.*stalled: silence"):
        await captured(server, fails=True)


async def test_a_pass_without_tokens_fails_the_capture(server: Any) -> None:
    with pytest.raises(RequestError, match=r"nothing was captured: .*holds no pass"):
        await captured(server, routes=0)


async def test_more_experts_than_the_target_has_fail_the_capture(server: Any) -> None:
    with pytest.raises(RequestError, match=r"counted 128 experts, target\.experts\.count=64"):
        await captured(server, "target.experts.count=64")


async def test_an_engine_whose_files_are_elsewhere_is_told(server: Any) -> None:
    server[1].files = None
    with pytest.raises(RequestError, match="cannot be read from here"):
        await captured(server)


@pytest.mark.parametrize(
    ("routed", "drafts", "ok"),
    [(100, False, True), (101, False, False), (99, False, False), (130, True, True), (99, True, False), (None, False, True)],
)
def test_drafts_come_on_top_of_what_was_sent(routed: int | None, drafts: bool, ok: bool) -> None:
    assert whole(routed, 100, drafts=drafts).ok is ok


# -- looking at one


@pytest.fixture
def attempt_folder(tmp_path: Path) -> Path:
    (tmp_path / "evidence").mkdir()
    counts = np.zeros((2, 3, 4), np.int32)
    counts[:, 1:, :2] = 5
    (tmp_path / "evidence" / "routing.npz").write_bytes(to_npz(Routing(counts, np.arange(2), None, 2)))
    (tmp_path / "point.json").write_text(json.dumps({"simulated": True, "axes": {"engine": "sim", "workload": "random"}}))
    return tmp_path


def test_inspect_shows_a_capture_layer_by_layer(attempt_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(attempt_folder)]) == 0
    printed = capsys.readouterr().out
    assert "routing capture, simulated · engine sim · workload random" in printed
    assert "2 layers with experts, 1 without" in printed
    assert printed.count("50.0 %") == 4
    assert main(["inspect", "--json", str(attempt_folder / "evidence" / "routing.npz")]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["routing"]["tokens"] == 10
    assert [layer["layer"] for layer in found["routing"]["by_layer"]] == [1, 2]


def test_inspect_of_a_file_that_is_no_capture_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.npz").write_bytes(b"text")
    assert main(["inspect", str(tmp_path / "some.npz")]) == 2
    assert "some.npz" in capsys.readouterr().err
