"""The recorder's orders over real HTTP: to the simulator, which obeys, and to servers that do not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from test_sim_server import started

from specsweep.client.routing_dump import read_sglang
from specsweep.client.routing_recorder import Recorder, RecorderError
from specsweep.client.sim.service_settings import read_service
from specsweep.client.sim.settings import ModelError
from specsweep.client.sim.torch_dump import dumped

MOE = {"model": "gpt-oss-120b", "dialect": "sglang", "expert_layers": 3, "expert_folder": "routing", "speedup": 1000}


async def ask(url: str, length: int) -> None:
    body = {"input_ids": list(range(20, 20 + length)), "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    async with aiohttp.ClientSession() as session, session.post(url + "/generate", data=json.dumps(body)) as answer:
        assert answer.status == 200, await answer.text()


async def test_the_simulator_counts_the_tokens_between_start_and_stop(tmp_path: Path) -> None:
    with started(tmp_path, **MOE) as (_, url):
        recorder = Recorder(url, tmp_path / "routing", files=1)
        await ask(url, 100)
        await recorder.start()
        await ask(url, 30)
        await ask(url, 7)
        await recorder.stop()
        await ask(url, 50)
        files = await recorder.dump()
        assert not list((tmp_path / "routing").glob("*.pt")), "what was taken is gone"
        found = read_sglang(files)
        assert found.counts.shape == (2, 3, 128)
        assert found.counts.sum(axis=2).tolist() == [[30 * 4] * 3, [7 * 4] * 3]
        await recorder.start()
        await ask(url, 11)
        assert read_sglang(await recorder.dump()).counts.sum(axis=(1, 2)).tolist() == [11 * 4 * 3], "a second capture holds its own only"


async def test_a_simulation_without_a_recorder_has_no_such_path(tmp_path: Path) -> None:
    with (
        started(tmp_path, dialect="sglang") as (_, url),
        pytest.raises(RecorderError, match="POST /start_expert_distribution_record: HTTP 404"),
    ):
        await Recorder(url, tmp_path, files=1).start()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"dialect": "vllm"}, "expert_layers=3: vllm has no recorder"), ({"model": "tiny"}, "the model is dense")],
)
def test_a_recorder_where_there_is_nothing_to_record_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read_service({**MOE, "model_name": "m", **change}).recorder()


async def test_every_ranks_file_is_waited_for_until_it_is_whole(tmp_path: Path) -> None:
    whole = dumped({"records": []}, name="rank")

    async def dump(_: web.Request) -> web.Response:
        (tmp_path / "a_0.pt").write_bytes(whole)
        (tmp_path / "a_1.pt").write_bytes(whole[:-30])
        asyncio.get_running_loop().call_later(0.3, (tmp_path / "a_1.pt").write_bytes, whole)
        return web.Response(text="ok")

    async with serving(dump) as url:
        (tmp_path / "old_0.pt").write_bytes(b"of another dump")
        files = await Recorder(url, tmp_path, files=2).dump(timeout_s=20)
    assert files == {"a_0.pt": whole, "a_1.pt": whole}
    assert [path.name for path in tmp_path.iterdir()] == ["old_0.pt"]


async def test_files_that_never_come_and_orders_that_are_refused_are_told(tmp_path: Path) -> None:
    async def nothing(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def refused(_: web.Request) -> web.Response:
        return web.Response(status=500, text="Please set ServerArgs.expert_distribution_recorder_mode")

    async with serving(nothing) as url:
        with pytest.raises(RecorderError, match="0 of 2 files"):
            await Recorder(url, tmp_path, files=2).dump(timeout_s=0.2)
    async with serving(refused) as url:
        with pytest.raises(RecorderError, match="HTTP 500: Please set"):
            await Recorder(url, tmp_path, files=1).dump()
    with pytest.raises(RecorderError, match="POST /stop_expert"):
        await Recorder(url, tmp_path, files=1).stop()


class serving:
    """A server whose every path is answered by one handler."""

    def __init__(self, handler: Any) -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", handler)
        self._runner = web.AppRunner(app)

    async def __aenter__(self) -> str:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
