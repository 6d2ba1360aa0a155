"""Numbers of a routing capture, on counts that can be checked in the head."""

from __future__ import annotations

import io

import numpy as np
import pytest

from specsweep.analysis.routing import Routing, by_expert, from_npz, imbalance, summarise, to_npz, unique_experts


def routing(counts: list[list[list[int]]], *, logical: list[list[int]] | None = None, top_k: int | None = None) -> Routing:
    made = np.array(counts, np.int32)
    return Routing(made, np.arange(len(made), dtype=np.int64), None if logical is None else np.array(logical), top_k)


# two passes, layers: dense, even, uneven; four experts
COUNTS = [
    [[0, 0, 0, 0], [1, 1, 1, 1], [4, 0, 0, 0]],
    [[0, 0, 0, 0], [1, 1, 0, 0], [0, 2, 0, 0]],
]


def test_unique_experts_unused_and_imbalance() -> None:
    found = summarise(routing(COUNTS, top_k=1))
    assert (found["passes"], found["layers"], found["dense_layers"], found["experts"]) == (2, 2, 1, 4)
    assert found["tokens"] == 6
    assert found["tokens_per_pass"] == {"mean": 3.0, "min": 2, "max": 4}
    even, uneven = found["by_layer"]
    assert (even["layer"], uneven["layer"]) == (1, 2), "layers keep their index"
    assert (even["unique_mean"], even["unique_min"], even["unique_max"]) == (3.0, 2, 4)
    assert even["unused_share_mean"] == 0.25
    assert even["imbalance_mean"] == pytest.approx((1 + 2) / 2)
    assert (even["whole_unique"], even["whole_unused_share"]) == (4, 0.0)
    assert (uneven["whole_unique"], uneven["whole_unused_share"]) == (2, 0.5)
    assert uneven["whole_imbalance"] == pytest.approx(4 / 1.5)
    assert found["unique_mean"] == pytest.approx((4 + 2 + 1 + 1) / 4)
    assert (found["whole_unused_share_mean"], found["whole_unused_share_max"]) == (0.25, 0.5)


def test_copies_of_an_expert_are_one_expert() -> None:
    copied = routing([[[1, 0, 2], [0, 1, 1]]], logical=[[0, 1, 0], [0, 1, 1]])
    assert by_expert(copied).tolist() == [[[3, 0], [0, 2]]]
    assert unique_experts(by_expert(copied)).tolist() == [[1, 1]]
    assert summarise(copied)["places"] == 3


def test_a_layer_that_routes_nothing_in_a_pass_is_no_pass_of_that_layer() -> None:
    found = summarise(routing([[[2, 2], [0, 0]], [[4, 0], [1, 1]]]))
    assert [layer["unique_mean"] for layer in found["by_layer"]] == [1.5, 2.0]
    assert np.isnan(imbalance(np.array([[[0, 0]]]))).all()
    assert found["tokens"] is None, "the experts a token are not known"


def test_layers_that_do_not_hold_the_same_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="pass 0: its layers routed 3, 4 times"):
        summarise(routing([[[4, 0], [1, 2]]], top_k=1))
    with pytest.raises(ValueError, match=r"target\.experts\.per_token"):
        summarise(routing([[[3, 0], [1, 2]]], top_k=2))
    with pytest.raises(ValueError, match="no token"):
        summarise(routing([[[0, 0]]]))


@pytest.mark.parametrize("logical", [None, [[0, 1, 0, 1]] * 3])
@pytest.mark.parametrize("top_k", [None, 1])
def test_the_file_holds_everything_and_needs_no_pickle(logical: list[list[int]] | None, top_k: int | None) -> None:
    before = routing(COUNTS, logical=logical, top_k=top_k)
    data = to_npz(before)
    after = from_npz(data)
    np.testing.assert_array_equal(after.counts, before.counts)
    np.testing.assert_array_equal(after.pass_ids, before.pass_ids)
    assert (after.logical_of is None) == (logical is None)
    assert after.top_k == top_k
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        assert sorted(arrays.files) == ["counts", "logical_of", "pass_ids", "top_k"]
        assert arrays["counts"].dtype == np.int32


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no", b"text", to_npz(routing(COUNTS))[:-30]])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"routing\.npz|pickle"):
        from_npz(data)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="pass, layer and expert"):
        Routing(np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(ValueError, match="pass_ids"):
        Routing(np.ones((2, 3, 4), np.int32), np.zeros(3))
    with pytest.raises(ValueError, match="logical_of"):
        Routing(np.ones((2, 3, 4), np.int32), np.zeros(2), np.zeros((3, 5), np.int64))


@pytest.mark.parametrize("wrong", [[[0, -1]], [[0, 2]], [[0, 10**12]]])
def test_a_map_names_no_expert_that_could_have_no_place(wrong: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="experts of 0 to 1"):
        routing([[[1, 2]]], logical=wrong)
