"""Dumps of SGLang's recorder: those of the real torch, those of the simulator, and those that cannot be believed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsweep.client.routing_dump import RoutingDumpError, read_sglang
from specsweep.client.sim.routing import Mixture, Recorder, draw
from specsweep.client.sim.torch_dump import Tensor, dumped
from specsweep.client.torch_file import load

FILES = Path(__file__).parent / "torch_files"


def dump(*passes: Any, rank: int = 0, ids: tuple[int, ...] | None = None, places: Any = None) -> bytes:
    records = [
        {"forward_pass_id": i, "rank": rank, "gatherer_key": "primary", "global_physical_count": Tensor.of(np.array(counts, np.int32))}
        for i, counts in zip(ids or range(1, len(passes) + 1), passes, strict=True)
    ]
    mapped = {} if places is None else {"last_physical_to_logical_map": Tensor.of(np.array(places, np.int64))}
    return dumped({"records": records, **mapped}, name="dump")


def test_two_ranks_of_one_server_that_saw_the_same_tokens_are_counted_once() -> None:
    found = read_sglang({f"{rank}.pt": (FILES / f"sglang_per_pass_{rank}.pt").read_bytes() for rank in (0, 1)})
    assert found.counts.shape == (2, 4, 8)
    assert found.counts.dtype == np.int32
    assert found.pass_ids.tolist() == [1, 2]
    assert (found.ranks, found.ranks_added, found.empty_passes) == (2, False, 1)
    assert found.counts.sum(axis=2).tolist() == [[0, 10, 10, 10], [0, 6, 6, 6]], "5 and 3 tokens, top 2, in three of four layers"
    assert found.physical_to_logical is not None
    assert found.physical_to_logical[:, 7].tolist() == [0, 1, 2, 3]


def test_ranks_that_counted_different_tokens_are_added() -> None:
    found = read_sglang({"0.pt": dump([[1, 0]], [[2, 0]]), "1.pt": dump([[0, 1]], [[1, 1]], rank=1)})
    assert found.counts.tolist() == [[[1, 1]], [[3, 1]]]
    assert found.ranks_added


def test_a_map_that_moves_nothing_is_no_map() -> None:
    assert read_sglang({"0.pt": dump([[1, 0]], places=[[0, 1]])}).physical_to_logical is None


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no file"),
        ({"0.pt": b"no zip"}, "0.pt: not a file of torch.save"),
        ({"0.pt": dumped({"logical_count": 1, "rank": 0}, name="stat")}, "mode per_pass"),
        ({"0.pt": dump()}, "no pass"),
        ({"0.pt": dump([[0, 0]], [[0, 0]])}, "none of 2 recorded passes routed a token.*moe_backend"),
        ({"0.pt": dump([[1, 0]], [[1, 0, 0]])}, "not the same table"),
        ({"0.pt": dump([[1, -1]])}, "is none"),
        ({"0.pt": dump([[1, 0]]), "1.pt": dump([[1, 0]], [[1, 0]], rank=1)}, "1.pt has 2 passes.*0.pt has 1"),
        ({"0.pt": dump([[1, 0]]), "1.pt": dump([[1, 0]])}, "same rank"),
        ({"0.pt": dump([[1, 0]], places=[[0, 1, 2]])}, "does not fit"),
        ({"0.pt": dump([[1, 0]], places=[[0, -1]])}, "does not fit"),
        ({"0.pt": dump([[1, 0]], places=[[0, 10**12]])}, "experts 0 to 1000000000000, on 2 places"),
        ({"0.pt": dump(np.ones((2, 0)))}, "2 layers and 0 experts"),
        ({"0.pt": dump(np.ones((0, 4)))}, "0 layers and 4 experts"),
        ({"0.pt": dump(np.ones((1, 65_537)))}, "65537 experts; 1 to 65536"),
        ({"0.pt": dump([[1, 0]], rank=2**70)}, "rank.*no whole number of 64 bits"),
        ({"0.pt": dump([[1, 0]], ids=(2**70,))}, "forward_pass_id.*no whole number of 64 bits"),
        ({"0.pt": dump([[1, 0]], rank=[0])}, "rank.*no whole number"),  # type: ignore[arg-type]
        ({"0.pt": dump([[1, 0]], rank=True)}, "rank.*no whole number"),
        ({"0.pt": dump([[1, 0]], rank=Tensor.of(np.zeros(2, np.int32)))}, "rank.*no whole number"),  # type: ignore[arg-type]
        ({"0.pt": dumped({"records": [{"rank": 0}, 5]}, name="d")}, "each a dict"),
        (
            {"0.pt": dumped({"records": [{"rank": 0, "global_physical_count": Tensor.of(np.ones((1, 2), np.int32))}]}, name="d")},
            "forward_pass",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_dump_that_cannot_be_believed_is_refused_by_name(files: dict[str, bytes], words: str) -> None:
    with pytest.raises(RoutingDumpError, match=words):
        read_sglang(files)


def test_one_table_named_by_many_passes_is_not_multiplied() -> None:
    """A few bytes name a record again, whatever its size."""
    once = dumped(
        {"records": [{"rank": 0, "forward_pass_id": 1, "global_physical_count": Tensor.of(np.ones((8, 4096), np.int32))}]}, name="d"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(once)) as made, zipfile.ZipFile(buffer, "w") as changed:
        for member in made.namelist():
            content = made.read(member)
            # the record is kept in the memo, and then named 1,000 times more: … q\x00 (h\x00 …)
            changed.writestr(member, content[:-3] + b"q\x00" + b"h\x00" * 1000 + b"eu." if member.endswith("data.pkl") else content)
    with pytest.raises(RoutingDumpError, match="larger than the file"):
        read_sglang({"0.pt": buffer.getvalue()})


# -- the simulator's recorder


def test_simulated_tokens_take_different_experts_each_and_all_alike() -> None:
    mixture = Mixture(layers=3, experts=16, top_k=4)
    one = draw(mixture, 1, np.random.default_rng(0))
    assert one.max() == 1, "no expert twice for one token"
    many = draw(mixture, 40_000, np.random.default_rng(1))
    assert many.sum(axis=1).tolist() == [160_000] * 3
    expected, sd = 40_000 * 4 / 16, (40_000 * 0.25 * 0.75) ** 0.5
    assert np.abs(many - expected).max() < 5 * sd
    assert not np.array_equal(many[0], many[1])


def test_the_recorder_records_between_start_and_stop_and_forgets_with_the_dump(tmp_path: Path) -> None:
    recorder = Recorder(Mixture(2, 8, 2), tmp_path / "made", seed=0, clock=iter([1.5, 2.5]).__next__)
    recorder.step(1, 100)
    assert recorder.order("/start_expert_distribution_record") == "Start recording the expert distribution.\n"
    recorder.step(2, 5)
    recorder.step(3, 0)
    assert recorder.order("/stop_expert_distribution_record") == "Stop recording the expert distribution.\n"
    recorder.step(4, 100)
    assert recorder.order("/dump_expert_distribution_record") == "Dump expert distribution record.\n"
    assert recorder.order("/dump_expert_distribution_records") is None
    assert recorder.order("/generate") is None
    (file,) = (tmp_path / "made").iterdir()
    assert file.name == "expert_distribution_recorder_1.5_0.pt"
    found = read_sglang({file.name: file.read_bytes()})
    assert found.pass_ids.tolist() == [2]
    assert found.counts.sum(axis=2).tolist() == [[10, 10]]
    recorder.order("/dump_expert_distribution_record")
    assert load((tmp_path / "made" / "expert_distribution_recorder_2.5_0.pt").read_bytes())["records"] == []


def test_what_the_simulator_writes_is_what_the_real_torch_writes() -> None:
    """Value by value, from one structure; the other way round, torch reads the simulator's files (tests of engines)."""
    real = load((FILES / "sglang_per_pass_0.pt").read_bytes())
    again = {
        "records": [{**r, "global_physical_count": Tensor.of(r["global_physical_count"])} for r in real["records"]],
        "last_physical_to_logical_map": Tensor.of(real["last_physical_to_logical_map"]),
    }
    ours = load(dumped(again, name="again"))
    assert list(ours) == list(real)
    for mine, theirs in zip(ours["records"], real["records"], strict=True):
        assert list(mine) == list(theirs)
        np.testing.assert_array_equal(mine["global_physical_count"], theirs["global_physical_count"])
        assert mine["global_physical_count"].dtype == theirs["global_physical_count"].dtype
    assert ours["last_physical_to_logical_map"].dtype == real["last_physical_to_logical_map"].dtype
    np.testing.assert_array_equal(ours["last_physical_to_logical_map"], real["last_physical_to_logical_map"])
