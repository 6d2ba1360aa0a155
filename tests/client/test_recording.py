from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from specsweep.client.recording import RecordedRequest, Recording, RecordingWriter, read_recording
from specsweep.client.trace import Exchange

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_every_recording_survives_a_round_trip(path: Path, ending: str, tmp_path: Path) -> None:
    recording = read_recording(path)
    copy = tmp_path / f"copy{ending}"
    with RecordingWriter(copy) as writer:
        writer.write(recording)
    assert read_recording(copy) == recording
    with gzip.open(path, "rt") as lines:
        kinds = [json.loads(line)["kind"] for line in lines]
    text = gzip.decompress(copy.read_bytes()).decode() if ending.endswith("gz") else copy.read_text()
    assert [json.loads(line)["kind"] for line in text.splitlines()] == kinds  # pages stay between the requests that they enclose


def test_the_exchange_of_a_recorded_request() -> None:
    recording = read_recording(next(p for p in RECORDINGS if p.name == "vllm-server_terminated.jsonl.gz"))
    by_name = {r.name: r.exchange for r in recording.requests}
    stalled = by_name["server_terminated_0"]
    assert (stalled.status, stalled.ended) == (200, "stalled")
    assert ("server", "uvicorn") in stalled.headers
    assert stalled.t_send_ns < stalled.reads[0][0]
    assert all(isinstance(d, bytes) for _, d in stalled.reads)
    refused = by_name["server_terminated_after"]
    assert (refused.status, refused.reads, refused.ended) == (0, [], "connect: ConnectionRefusedError")


def test_what_the_client_knows_is_kept(tmp_path: Path) -> None:
    exchange = Exchange(
        t_send_ns=7,
        status=599,
        headers=[("Server", "x"), ("Empty", "")],
        reads=[(9, bytes(range(256)))],
        ended="reset",
        t_end_ns=11,
        connect_ns=3,
        attempts=2,
    )
    path = tmp_path / "own.jsonl.gz"
    with RecordingWriter(path) as writer:
        writer.meta(label="x", dialect="vllm", draft_length=None)
        writer.metrics("before", "a 1\n")
        writer.request("0", "/v1/completions", b'{"prompt":[1,2]}', exchange, plan={"phase": "ramp"})
    assert read_recording(path) == Recording(
        meta={"label": "x", "dialect": "vllm", "draft_length": None},
        metrics=[("before", "a 1\n")],
        requests=[RecordedRequest("0", "/v1/completions", {"prompt": [1, 2]}, exchange, {"phase": "ramp"})],
        before=[0],
    )


def test_a_recording_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "half.jsonl"

    def interrupted() -> None:
        with RecordingWriter(path) as writer:
            writer.meta(label="x")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_the_name_says_the_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.jsonl or \.jsonl\.gz"):
        RecordingWriter(tmp_path / "raw.txt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no records"),
        ("hello\n", "line 1"),
        ('{"kind":"meta"}\n{"kind":"surprise"}\n', r"line 2.*unknown kind 'surprise'"),
        ('{"kind":"request","name":"a"}\n', "field 'ended' is missing"),
        ('{"kind":"request","name":"a","ended":"eof","reads":[1]}\n', "line 1"),
        ("[1]\n", "line 1"),
        ('{"kind":"request","name":"a","ended":"eof","headers":[1]}\n', "line 1"),
        ('{"kind":"request","name":"a","ended":"eof","plan":[1]}\n', "line 1"),
        ('{"kind":"metrics","name":"a","text":5}\n', "line 1.*not a page"),
        ("[" * 100_000 + "]" * 100_000, "line 1.*recursion"),
        ('{"kind":"request","name":"a","ended":"eof","t_send_ns":1e400}\n', "line 1.*t_send_ns holds inf"),
        ('{"kind":"request","name":"a","ended":"eof","t_end_ns":NaN}\n', "line 1.*t_end_ns holds nan"),
        ('{"kind":"request","name":"a","ended":"eof","reads":[[9223372036854775808,"x"]]}\n', "line 1.*reads holds 9223372036854775808"),
        ('{"kind":"request","name":"a","ended":"eof","reads":[[7,"x"],[6,"y"]]}\n', "line 1.*run back in time at 6"),
        ('{"kind":"request","name":"a","ended":"eof","connect_ns":true}\n', "line 1.*connect_ns holds True"),
    ],
)
def test_a_bad_file_is_named_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        read_recording(path)
    assert str(path) in str(caught.value)


def test_a_cut_or_false_gzip_file_is_named(tmp_path: Path) -> None:
    false = tmp_path / "false.jsonl.gz"
    false.write_text("{}")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(RECORDINGS[0].read_bytes()[:2000])
    for path in (false, cut):
        with pytest.raises(ValueError, match=path.name):
            read_recording(path)


def test_a_gzip_file_that_was_damaged_inside_is_named(tmp_path: Path) -> None:
    whole = bytearray(RECORDINGS[0].read_bytes())
    whole[2000:2040] = bytes(b ^ 0xFF for b in whole[2000:2040])
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(whole)
    with pytest.raises(ValueError, match=r"damaged\.jsonl\.gz"):
        read_recording(damaged)
