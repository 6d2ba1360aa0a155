"""TensorRT-LLM's window of expert statistics: filled up over HTTP, and the capture cut out of everything that ran since the start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from safetensors.numpy import save
from test_routing_recorder import serving

from specsweep.client.routing_dump import RoutingDumpError
from specsweep.client.routing_recorder import RecorderError
from specsweep.client.routing_window import FILL_PROMPT, META, Window, read_trtllm

EXPERTS, TOP_K = 6, 2
WARM_UP = [300, 8, 8, 8]
FILLING = [FILL_PROMPT, *[1] * 9]
REFUSED = "cannot be told from the rest"


def files(tokens: list[int], *, ranks: int = 1, start: int = 5, shares: bool = False) -> dict[str, bytes]:
    """Statistics of passes of so many tokens each: layer 0 is dense; two ranks tell the same, or each counts half (``shares``)."""
    made = {META: json.dumps({"num_experts": EXPERTS, "num_experts_per_token": TOP_K}).encode()}
    rng = np.random.default_rng(0)
    whole = {f"{start + i}_{layer}": rng.multinomial(n * TOP_K, [1 / EXPERTS] * EXPERTS) for i, n in enumerate(tokens) for layer in (1, 2)}
    for rank in range(ranks):
        part = {key: values // 2 + (rank == 0) * (values % 2) for key, values in whole.items()} if shares else whole
        made[f"rank{rank}.safetensors"] = save({key: values.astype(np.int64) for key, values in part.items()})
    return made


def test_the_capture_is_what_stands_before_the_filling_and_sums_up() -> None:
    found = read_trtllm(files([*WARM_UP, 512, 512, 100, *FILLING, *FILLING, FILL_PROMPT, 1]), wanted=1124, fills=3, top_k=TOP_K)
    assert found.pass_ids.tolist() == [9, 10, 11]
    assert found.counts.shape == (3, 3, EXPERTS)
    assert found.counts.sum(axis=2).tolist() == [[0, 1024, 1024], [0, 1024, 1024], [0, 200, 200]]
    assert (found.ranks, found.ranks_added) == (1, False)


@pytest.mark.parametrize("tail", [[1], [FILL_PROMPT], [1, 1, FILL_PROMPT, 1]])
def test_passes_of_the_capture_that_look_like_filling_are_told_apart_by_the_number_of_fillings(tail: list[int]) -> None:
    capture = [512, *tail]
    found = read_trtllm(files([*WARM_UP, *capture, *FILLING, *FILLING]), wanted=sum(capture), fills=2)
    assert len(found.pass_ids) == len(capture)


def test_a_filling_that_came_after_the_window_is_not_missed() -> None:
    assert len(read_trtllm(files([*WARM_UP, 512, 100, *FILLING]), wanted=612, fills=2).pass_ids) == 2


def test_ranks_that_tell_the_same_are_one_and_others_are_added() -> None:
    tokens = [*WARM_UP, 512, *FILLING]
    one, same, added = (
        read_trtllm(files(tokens, **how), wanted=512, fills=1)
        for how in ({}, {"ranks": 2}, {"ranks": 2, "shares": True})  # type: ignore[arg-type]
    )
    np.testing.assert_array_equal(one.counts, same.counts)
    np.testing.assert_array_equal(one.counts, added.counts)
    assert [(d.ranks, d.ranks_added) for d in (one, same, added)] == [(1, False), (2, False), (2, True)]


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (files([*WARM_UP, 512, *FILLING]), {"wanted": 513}, REFUSED),
        (files([*WARM_UP, 512, *FILLING, 40]), {"wanted": 512}, REFUSED),
        (files([512, 100]), {"wanted": 612}, REFUSED),
        (files([512, *FILLING]), {"wanted": 512, "top_k": 4}, "target.experts.per_token=4"),
        ({META: b"{}"}, {"wanted": 1}, "meta_info.json"),
        ({}, {"wanted": 1}, "meta_info.json is missing"),
        ({META: files([1])[META]}, {"wanted": 1}, "no rank"),
        ({**files([1]), "rank0.safetensors": b"no"}, {"wanted": 1}, "rank0.safetensors: not the engine's"),
        ({**files([1]), "rank0.safetensors": save({"1_1": np.ones(5, np.int64)})}, {"wanted": 1}, "6 experts are needed"),
        ({**files([1]), "rank0.safetensors": save({"one": np.ones(6, np.int64)})}, {"wanted": 1}, "not the engine's"),
        ({**files([1]), "rank0.safetensors": save({"1_1": np.array([3, 0, 0, 0, 0, 0])})}, {"wanted": 1}, "no number of tokens"),
    ],
)
def test_what_cannot_be_cut_or_read_is_refused(given: dict[str, bytes], options: dict[str, Any], words: str) -> None:
    with pytest.raises(RoutingDumpError, match=words):
        read_trtllm(given, fills=1, **options)


def window(url: str, folder: Path, **changed: Any) -> Window:
    given = {"url": f"{url}/v1", "folder": folder, "files": 1, "iterations": 40, "body": b"{}", "tokens": 10, "headers": {}}
    return Window(**{**given, **changed})


async def test_the_window_is_filled_until_every_rank_has_written(tmp_path: Path) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("X-Mine"))
        if len(asked) == 3:
            for name, content in files([512, *FILLING], ranks=2).items():
                (tmp_path / name).write_bytes(content)
        return web.Response(text="data: [DONE]")

    async with serving(answer) as url:
        one = window(url, tmp_path, files=2, headers={"X-Mine": "yes"})
        found = await one.dump()
    assert sorted(found) == [META, "rank0.safetensors", "rank1.safetensors"]
    assert one.fills == 3
    assert asked == ["yes"] * 3


async def test_an_engine_that_counts_nothing_is_told(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500, text="out of memory")

    async with serving(answer) as url:
        with pytest.raises(RecorderError, match=r"more than 40 iterations ran and no expert statistics.*moe_backend"):
            await window(url, tmp_path).dump()
    async with serving(broken) as url:
        with pytest.raises(RecorderError, match="cannot be filled up: HTTP 500: out of memory"):
            await window(url, tmp_path).dump()
