"""`specsweep inspect` on recordings and traces: what is printed, what JSON says, and what is refused with a clear word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from specsweep.client.recording import RecordingWriter, read_recording
from specsweep.client.trace import EngineCounters, PointTrace, write_trace
from specsweep.orchestrator.cli import main
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.inspection import CounterCheck, accepted_by_position, inspect_file

RECORDINGS = Path(__file__).parents[1] / "recordings"


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["inspect", *map(str, arguments)]) == code
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(printed(capsys, *arguments, "--json"))
    assert len(found) == 1
    return found[0]


def row(out: str, name: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if line.startswith(f"{name} "))


def test_a_recording_request_by_request(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, RECORDINGS / "llamacpp-draft3.jsonl.gz")
    assert "draft length 3 (from the launch flags)" in out
    assert row(out, "batch_5")[:12] == ["batch_5", "ok", "length", "193", "63", "63", "27", "2.31", "79", "35", "16", "11"]
    assert "over all: 12 requests, 12 ok" in out
    assert "AR at position 3" in out
    assert out.count("agree") == 3
    assert "differ" not in out


def test_what_was_repaired_stands_below_with_its_requests(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, RECORDINGS / "vllm-draft3-interval4.jsonl.gz")
    assert "12 repaired" in out
    assert "batch_7: 17 of 18 chunks held several steps" in out
    assert "no arrival time of their own" in out


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["vllm-draft3-interval4", "llamacpp-draft3", "sglang-none"])
def test_a_narrow_terminal_breaks_no_word_and_no_number(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = set(re.findall(r"[^\s]+", printed(capsys, RECORDINGS / f"{name}.jsonl.gz")))
    monkeypatch.setenv("COLUMNS", str(width))
    out = printed(capsys, RECORDINGS / f"{name}.jsonl.gz")
    lines = [line for line in out.splitlines() if not line.startswith(str(RECORDINGS))]
    assert max(map(len, lines)) <= width
    own = {"No", "room", "for:", "(--json", "has", "all)"}
    strange = {word for line in lines for word in line.split()} - whole - own - {w + "," for w in whole}
    assert not strange, strange
    assert {"request", "outcome", "notes"} <= set(out.split()) or name == "sglang-none"


def test_what_failed_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, RECORDINGS / "vllm-none.jsonl.gz")
    assert row(out, "bad_token")[1] == "stream_error"
    assert "bad_token: Token id 9999999 is out of vocabulary" in out
    assert "7 failed (5 http_status, 1 stream_error, 1 aborted)" in out
    assert "1 unfinished: the engine counts what no stream brought" in out
    notes = out[out.index("\nnotes") : out.index("over all")]
    assert all(line.startswith("  ") for line in notes.splitlines()[2:] if line)  # servers' own line breaks are gone


def test_json_has_full_precision_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, RECORDINGS / "llamacpp-draft3.jsonl.gz")
    by_name = {r["name"]: r for r in found["requests"]}
    assert by_name["single_2"]["accepted_per_position"] == [13, 5, 1]
    assert by_name["single_2"]["ttft_ms"] == pytest.approx(15.4, abs=0.1)
    assert by_name["single_2"]["step_clock"] == "server"
    totals = found["totals"]
    assert totals["al_verify"]["value"] == pytest.approx(1 + 224 / 376)
    assert totals["acceptance_rate"]["value"] == pytest.approx(224 / 1103)
    assert [p["accepted"] for p in totals["ar_cond"]] == [162, 48, 14]
    assert totals["step_states"] == {"exact": 12}
    assert [c["differs"] for c in found["counters"]] == [[], [], []]


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("[lv]*.jsonl.gz")), ids=lambda p: p.name)
def test_every_recording_can_be_inspected_and_agrees_with_its_counters(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, path)
    assert len(found["requests"]) == len(read_recording(path).requests)
    assert all(r["error"] for r in found["requests"] if r["outcome"] == "failed")
    assert not [c for c in found["counters"] if c["differs"]]
    assert "over all" in printed(capsys, path)


def test_the_dialect_follows_from_the_paths_if_no_meta_line_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, RECORDINGS / "vllm-server_killed.jsonl.gz")
    assert (found["dialect"], found["totals"]["failed_by_kind"]) == ("vllm", {"disconnected": 3, "connect": 1})


def test_a_given_draft_length_wins(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, RECORDINGS / "vllm-draft3.jsonl.gz", "--draft-length", 2)
    assert found["draft_length"] == 2
    assert "(from --draft-length)" in printed(capsys, RECORDINGS / "vllm-draft3.jsonl.gz", "--draft-length", 2)


def test_limit_shortens_the_table_and_not_the_totals(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, RECORDINGS / "llamacpp-none.jsonl.gz", "--limit", 2)
    assert "… 19 more requests" in out
    assert "over all: 21 requests" in out


def test_streams_that_disagree_with_the_counters_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = read_recording(RECORDINGS / "llamacpp-draft3.jsonl.gz")
    del recording.requests[2]  # a request that the engine counted and the file lost
    recording.before = [0, 1, 3, 11]
    path = tmp_path / "short.jsonl"
    with RecordingWriter(path) as writer:
        writer.write(recording)
    out = printed(capsys, path, code=5)
    assert "differ: drafts, draft_tokens, accepted_tokens, generation_tokens, accepted per position" in out


class TestTrace:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """An attempt's folder as the store lays it out."""
        inspected = inspect_file(RECORDINGS / "llamacpp-draft3.jsonl.gz")
        totals = EngineCounters(drafts=376, draft_tokens=1103, accepted_tokens=224, accepted_per_pos=(162, 48, 14), generation_tokens=620)
        trace = PointTrace(batch_size=8, requests=inspected.requests, actors=[], counters=totals, meta={"dialect": "llamacpp"})
        write_trace(trace, tmp_path / "trace.parquet")
        axes = {"engine": "llamacpp", "target": "tiny", "drafter": "draft_model", "draft_length": 3, "batch_size": 8}
        (tmp_path / "point.json").write_text(json.dumps({"axes": axes}))
        metrics = {"al_decode": 1.589, "al_decode_ci_low": 1.39, "al_decode_ci_high": 1.89}
        check = {"name": "lag", "ok": False, "message": "the client was late", "affects": ["steps"]}
        (tmp_path / "measurement.json").write_text(json.dumps({"metrics": metrics, "checks": [check]}))
        return tmp_path

    def test_a_stored_trace_says_what_its_recording_says(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        stored, recorded = facts(capsys, folder / "trace.parquet"), facts(capsys, RECORDINGS / "llamacpp-draft3.jsonl.gz")
        assert stored["totals"] == recorded["totals"]
        assert (stored["kind"], stored["draft_length"], stored["dialect"]) == ("trace", 3, "llamacpp")

    def test_a_trace_from_before_conversations_says_the_same(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        now = facts(capsys, folder / "trace.parquet")
        newer = [
            "sub_category",
            "difficulty",
            "source",
            "isl_o200k",
            "isl_target",
            "padding_share",
            "repeated_share",
            "gap_ns",
            "token_surprisal",
            "retried",
        ]
        table = pq.read_table(folder / "trace.parquet").drop_columns(newer)
        head = json.loads(table.schema.metadata[b"specsweep"]) | {"schema_version": 2}
        pq.write_table(table.replace_schema_metadata({"specsweep": json.dumps(head)}), folder / "trace.parquet", write_page_checksum=True)
        assert facts(capsys, folder / "trace.parquet") == now
        assert "".join(printed(capsys, folder).split())

    def test_the_folder_of_an_attempt_will_do(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = printed(capsys, folder)
        assert "llamacpp · tiny · draft_model · batch size 8" in out
        assert "draft length 3 (from the point)" in out
        assert "whole point" in out
        assert "agree" in out
        assert "al_decode                      1.589 [1.390, 1.890]" in out
        assert "not valid: the client was late (affects steps)" in out

    def test_a_trace_alone_will_do(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "point.json").unlink()
        (folder / "measurement.json").unlink()
        assert facts(capsys, folder / "trace.parquet")["measurement"] is None


class TestRefused:
    def refused(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
        assert main(["inspect", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    def test_an_unknown_dialect_names_the_known_ones(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        other = tmp_path / "other.jsonl"
        other.write_text('{"kind": "meta", "label": "another engine", "dialect": "tgi"}\n')
        err = self.refused(capsys, other)
        assert "dialect 'tgi' (from the recording's meta line) is not known here; known: llamacpp, vllm, sglang, trtllm, openai_chat" in err
        assert "--dialect tgi: not a dialect; known" in self.refused(capsys, RECORDINGS / "vllm-none.jsonl.gz", "--dialect", "tgi")

    def test_a_file_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "absent.jsonl: no such file" in self.refused(capsys, "absent.jsonl")

    def test_files_of_another_kind(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for name, content in (("a.jsonl", b"hello"), ("b.parquet", b"PAR1 and no more"), ("c.jsonl.gz", b"\x1f\x8b\x08 cut")):
            path = tmp_path / name
            path.write_bytes(content)
            assert name in self.refused(capsys, path)

    def test_a_negative_draft_length(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "--draft-length -1: must be 0 or more" in self.refused(capsys, RECORDINGS / "vllm-none.jsonl.gz", "--draft-length", "-1")

    def test_a_draft_length_that_no_engine_has(self, capsys: pytest.CaptureFixture[str]) -> None:
        recording = RECORDINGS / "vllm-ngram3.jsonl.gz"
        for length in ("4097", "99999999999999999999999"):
            assert f"--draft-length {length}: no engine" in self.refused(capsys, recording, "--draft-length", length)

    def test_a_recording_of_nobody_knows_what(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        path.write_text('{"kind":"request","name":"a","path":"/v9/generate","body":null,"status":"HTTP/1.1 200 OK","ended":"eof"}\n')
        with pytest.raises(ConfigError, match=r"does not name its dialect; give --dialect NAME \(known: llamacpp"):
            inspect_file(path)

    def test_a_draft_length_that_is_no_count(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        path.write_text('{"kind":"meta","dialect":"vllm","draft_length":"x"}\n')
        with pytest.raises(ConfigError, match="draft_length is 'x'"):
            inspect_file(path)


def test_accepted_by_position_counts_steps_that_accepted_at_least_so_many() -> None:
    assert accepted_by_position([0, 3, 1, 1]) == (3, 1, 1)
    assert accepted_by_position([]) == ()


def test_counters_that_an_engine_does_not_keep_are_not_compared() -> None:
    check = CounterCheck("x", {"drafts": None, "generation_tokens": 5.0}, {"drafts": 3, "generation_tokens": 5}, (), (2, 1), unfinished=0)
    assert check.differs == ()
