"""Files of torch.save are read without torch: real ones right, and none that is a program in disguise."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsweep.client.torch_file import TorchFileError, load

FILES = Path(__file__).parent / "torch_files"
REAL = FILES / "odd_tensors.pt"


def archive(program: bytes, *, compression: int = zipfile.ZIP_STORED, storage: bytes = b"\x01\x00\x00\x00" * 4) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        made.writestr("a/data.pkl", program)
        made.writestr("a/data/0", storage)
    return buffer.getvalue()


def tensor(*, kind: bytes = b"torch\nIntStorage", count: int = 4, offset: int = 0, size: Any = (2, 2), stride: Any = (2, 1)) -> bytes:
    """The program of one tensor, put together by hand."""

    def part(value: Any) -> bytes:
        return pickle.dumps(value, 2)[2:-1]

    reference = b"(" + part("storage") + b"c" + kind + b"\n" + part("0") + part("cpu") + part(count) + b"tQ"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + reference + part(offset) + part(size) + part(stride) + part(False) + b")tR."


def test_what_the_real_torch_wrote() -> None:
    found = load(REAL.read_bytes())
    base = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    expected = {
        "transposed": base.transpose(2, 1, 0),
        "part": base[1, 1:, ::2],
        "scalar": np.float64(2.5),
        "empty": np.zeros((0, 4), np.float32),
        "flags": np.array([True, False]),
        "bytes": np.array([255], np.uint8),
        "half": np.array([0.5], np.float16),
    }
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert found["nested"] == [{"a": (1, None, "text", 1.5, True)}]


def test_a_tensor_put_together_by_hand_is_read() -> None:
    np.testing.assert_array_equal(load(archive(tensor())), np.ones((2, 2), np.int32))


class Evil:
    """Pickled, it is a call of whatever it was made with."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self._call = call, arguments

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_program_is_refused_before_it_runs(protocol: int, wrapped: bool, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    evil: Any = Evil(exec, f"open({str(proof)!r}, 'w')")
    with pytest.raises(TorchFileError, match="asks for"):
        load(archive(pickle.dumps(OrderedDict(records=[evil]) if wrapped else evil, protocol)))
    assert not proof.exists()
    pickle.loads(pickle.dumps(evil, protocol))
    assert proof.exists(), "the same bytes do run where pickles are trusted"


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"ctorch\nload\n(S'x'\ntR.",
        b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
        b"ctorch._utils\n_rebuild_parameter\n.",
        b"ccollections\nOrderedDict.__init__.__globals__\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"(i__main__\nAnything\n.",
        b"\x80\x02\x82\x01.",
    ],
)
def test_names_that_no_tensor_needs_are_refused(program: bytes) -> None:
    with pytest.raises(TorchFileError):
        load(archive(program))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"offset": 1}, "reaches to element 4 of a storage of 4"),
        ({"size": (2, 3), "stride": (3, 1)}, "reaches to element 5"),
        ({"stride": (10**9, 1)}, "reaches"),
        ({"stride": (-1, 1)}, "strides"),
        ({"size": (10**9,), "stride": (0,)}, "shows an element twice"),  # torch's expand
        ({"size": (2, 3)}, "shows an element twice"),
        ({"size": (2, 2), "stride": (1, 1)}, "shows an element twice"),
        ({"size": ((2,), 2)}, "whole numbers"),
        ({"size": (1,) * 40, "stride": (1,) * 40}, "40 dimensions"),
        ({"count": -1}, "number of elements"),
        ({"offset": -1}, "strides"),
        ({"size": (2,)}, "dimensions"),
        ({"count": 5}, "holds 4 elements"),
        ({"kind": b"torch\nBFloat16Storage"}, "BFloat16Storage"),
        ({"kind": b"torch\nDoubleStorage"}, "holds 2 elements"),
    ],
)
def test_a_tensor_that_reaches_out_of_its_storage_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(TorchFileError, match=words):
        load(archive(tensor(**wrong)))


def test_what_torch_would_not_have_written_is_refused() -> None:
    with pytest.raises(TorchFileError, match="compressed"):
        load(archive(tensor(), compression=zipfile.ZIP_DEFLATED))
    for data in (b"", b"PK", pickle.dumps({"a": 1}), archive(b""), archive(b"\x80\x02]"), REAL.read_bytes()[:-40]):
        with pytest.raises(TorchFileError):
            load(data)


def test_one_opcode_cannot_ask_for_all_memory() -> None:
    with pytest.raises(TorchFileError, match="entry 2147483647"):
        load(archive(b"\x80\x02j\xff\xff\xff\x7f."))
    assert load(archive(b"\x80\x02]r\xff\xff\xff\x7f.")) == [], "what is written there costs one entry"


def test_a_tensor_is_no_storage_of_another_tensor() -> None:
    """A tensor of no element may have any strides and sizes; as a storage it would be memory that nobody owns."""
    inner = tensor(size=(10**8, 0), stride=(1, 1))[2:-1]
    outer = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + inner + b"K\x00J\x00\xe1\xf5\x05\x85K\x01\x85)tR."
    with pytest.raises(TorchFileError, match="over a ndarray, which is no storage"):
        load(archive(outer))


DOUBLED = b"K\x01" + b"q\x01h\x01\x86" * 64  # a tuple of two of a tuple of two …: years to hash, to compare or to print


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (DOUBLED + b"Q.", "a reference is a tuple"),
        (DOUBLED + b"\x85Q.", "a reference is a tuple"),
        (b"}" + DOUBLED + b"K\x01s.", "a tuple is the key of a dict"),
        (b"ccollections\nOrderedDict\n" + DOUBLED + b"\x85R.", "broken"),
        (b"ctorch\nIntStorage\n}b.", "opcode BUILD"),
        (b"ctorch._utils\n_rebuild_tensor_v2\nN}X\x0c\x00\x00\x00__defaults__K\x01s\x86b.", "opcode BUILD"),
        (b"ctorch\nIntStorage\n)R.", "calls a _Kind"),
        (b"]N}b.", "opcode BUILD"),
        (b"}]a.", "given to a dict"),
        (b"]K\x01K\x02s.", "given to a list"),
        (b"}(K\x01u.", "without a value"),
        (b"(\x85.", "more from the stack"),
        (b"K\x01K\x02.", "belong to nothing"),
        (b"]", "broken"),
    ],
)
def test_what_would_change_us_or_never_end_is_refused(program: bytes, words: str) -> None:
    with pytest.raises(TorchFileError, match=words):
        load(archive(b"\x80\x02" + program))


def test_every_cut_and_many_changes_of_a_real_file_end_in_one_kind_of_error() -> None:
    whole = (FILES / "sglang_per_pass_0.pt").read_bytes()
    start = whole.index(b"\x80\x02")
    rng = np.random.default_rng(0)
    for place in rng.integers(start, start + 700, size=300):
        changed = bytearray(whole)
        changed[place] ^= int(rng.integers(1, 256))
        try:
            load(bytes(changed))
        except TorchFileError:
            continue
