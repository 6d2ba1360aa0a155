"""What is kept, what is told and what is never taken as complete, when sources are away or the process ends in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prepare_samples import HUB, exam_row, unfilled, with_template, write_published, write_raw

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.prepare import FolderFiles, SourceAway, prepare
from specsweep.client.workload.prepare.journal import digest
from specsweep.client.workload.prepare.sources.exam import halves
from specsweep.client.workload.prepare.tables import Fetched, Table
from specsweep.client.workload.rows import Row, placeholders, read_rows

CONFIG = "throughput_1k"
WEB = "http://files.example/AdaLEval"
EXAM = [exam_row(n) for n in range(60)]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """30 exam rows, 30 rows of textsort of which the last ten are in a second file, and one row that is shipped as text."""
    root = tmp_path / "raw"
    exam = [unfilled(f"x{i}", f"{HUB}/cais/hle", EXAM[i]["id"]) for i in halves(60)[1]]
    sort = [unfilled(f"s{n}", f"{WEB}/textsort_{'a' if n < 20 else 'b'}.json", f"textsort_{n % 20}") for n in range(30)]
    write_published(root, CONFIG, [*exam, *sort, Row("t", "c", "", ("As it is.",), "Gutenberg", "", "", False)])
    write_raw(root, "cais/hle/data/test-00000-of-00001.parquet", EXAM)
    for name in "ab":
        write_raw(root, f"files.example/AdaLEval/textsort_{name}.json", [{"prompt": f"{name}{n}"} for n in range(20)])
    return root


class Sometimes:
    """A folder in which some places are away."""

    def __init__(self, raw: Path, *away: str) -> None:
        self._files, self._away, self.asked = FolderFiles(raw), away, list[str]()

    def fetch(self, table: Table) -> tuple[Fetched, ...]:
        self.asked.append(table.place)
        if any(part in table.place for part in self._away):
            raise SourceAway(f"{table.place}: timed out")
        return self._files.fetch(table)


def facts(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / CONFIG / "manifest.json").read_text())
    return found


def test_a_complete_config_has_every_row_and_a_manifest_that_can_be_checked(raw: Path, tmp_path: Path) -> None:
    done = prepare(CONFIG, tmp_path / "out", FolderFiles(raw))
    assert done.is_complete
    rows = read_rows(done.file)
    assert not placeholders(rows)
    manifest = json.loads((done.file.parent / "manifest.json").read_text())
    assert manifest["counts"] == {"rows": 61, "shipped": 1, "filled": 60, "missing": 0}
    assert [one["sha256"] for one in manifest["rows"]] == [digest(row.turns) for row in rows]
    assert {one["tokens"][0] for one in manifest["rows"] if one["source"] == "AdaLEval/textsort"} == {1000}
    assert manifest["quirks"] == "official"
    assert {one["name"] for one in manifest["sources"]["AdaLEval/textsort"]} == {"textsort_a.json", "textsort_b.json"}
    assert sorted(path.name for path in done.file.parent.iterdir()) == ["manifest.json", "test.parquet"]


def test_a_source_that_times_out_after_20_rows_is_gone_on_with(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = prepare(CONFIG, out, Sometimes(raw, "textsort_b"))
    assert first.file.name == "test.partial.parquet"
    assert [(one.source, one.rows, one.why) for one in first.missing] == [("AdaLEval/textsort", 10, f"{WEB}/textsort_b.json: timed out")]
    assert len(placeholders(read_rows(first.file))) == 10
    assert facts(out)["complete"] is False
    files = Sometimes(raw)
    second = prepare(CONFIG, out, files)
    assert second.is_complete
    assert second.made == 10
    assert f"{WEB}/textsort_a.json" not in files.asked
    whole = prepare(CONFIG, tmp_path / "other", FolderFiles(raw))
    assert read_rows(second.file) == read_rows(whole.file)
    assert {one["name"] for one in facts(out)["sources"]["AdaLEval/textsort"]} == {"textsort_a.json", "textsort_b.json"}  # type: ignore[index]
    assert not (second.file.parent / "test.partial.parquet").exists()


def test_a_missing_source_does_not_stop_the_others(raw: Path, tmp_path: Path) -> None:
    done = prepare(CONFIG, tmp_path / "out", Sometimes(raw, "cais/hle"))
    assert [(one.source, one.rows) for one in done.missing] == [("cais/hle", 30)]
    assert done.made == 30


def test_rows_of_one_generator_are_the_same_after_a_stop(raw: Path, tmp_path: Path) -> None:
    whole = prepare(CONFIG, tmp_path / "whole", FolderFiles(raw))
    out = tmp_path / "out"
    prepare(CONFIG, out, Sometimes(raw, "textsort_b"))
    journal = out / CONFIG / ".prepare.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:7]) + lines[7][:40])  # seven exam rows, and half of the next
    second = prepare(CONFIG, out, FolderFiles(raw))
    assert second.made == 53
    assert read_rows(second.file) == read_rows(whole.file)


def test_a_process_that_is_killed_loses_no_finished_row(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from specsweep.client.workload.prepare import FolderFiles, prepare\n"
        "def stop(source, done, total):\n"
        "    if source == 'AdaLEval/textsort' and done == 5:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"prepare({CONFIG!r}, Path(sys.argv[1]), FolderFiles(Path(sys.argv[2])), progress=stop)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(out), str(raw)], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert sorted(path.name for path in (out / CONFIG).iterdir()) == [".prepare.journal"]
    second = prepare(CONFIG, out, FolderFiles(raw))
    assert second.made == 25
    assert read_rows(second.file) == read_rows(prepare(CONFIG, tmp_path / "whole", FolderFiles(raw)).file)


def test_a_complete_file_is_not_made_again_and_not_replaced_by_another_mode(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(CONFIG, out, FolderFiles(raw))
    files = Sometimes(raw)
    assert prepare(CONFIG, out, files).is_complete
    assert files.asked == []
    with pytest.raises(WorkloadError, match="quirks=official"):
        prepare(CONFIG, out, files, quirks="plain")


def test_a_file_that_was_changed_since_is_refused(raw: Path, tmp_path: Path) -> None:
    done = prepare(CONFIG, tmp_path / "out", FolderFiles(raw))
    done.file.write_bytes(done.file.read_bytes()[:-100])
    with pytest.raises(WorkloadError, match="changed since"):
        prepare(CONFIG, tmp_path / "out", FolderFiles(raw))


def test_half_a_raw_file_is_never_taken_as_one(raw: Path, tmp_path: Path) -> None:
    path = raw / "files.example/AdaLEval/textsort_a.json"
    path.write_bytes(path.read_bytes()[:-20])
    done = prepare(CONFIG, tmp_path / "out", FolderFiles(raw), only=["AdaLEval/textsort"])
    assert any("cut off" in one.why and str(path) in one.why for one in done.missing)


def test_a_source_of_a_later_release_is_told_by_its_name(raw: Path, tmp_path: Path) -> None:
    write_published(raw, "qualitative", [unfilled("1", "https://new.example/x", "1")])
    done = prepare("qualitative", tmp_path / "out", FolderFiles(raw))
    assert [(one.source, one.why) for one in done.missing] == [("https://new.example/x", "this version knows no such source")]


def test_multiturn_says_what_the_turns_say(raw: Path, tmp_path: Path) -> None:
    row = unfilled("1", "https://raw.githubusercontent.com/mtbench101/mt-bench-101/x.jsonl", "mtbench_101_0")
    write_published(raw, "qualitative", [row])
    write_raw(raw, "raw.githubusercontent.com/mtbench101/mt-bench-101/x.jsonl", [{"history": [{"user": "a"}, {"user": "b"}]}])
    done = prepare("qualitative", tmp_path / "out", FolderFiles(raw))
    assert [(one.turns, one.multiturn) for one in read_rows(done.file)] == [(("a", "b"), True)]
    assert json.loads((done.file.parent / "manifest.json").read_text())["rows"][0]["multiturn_published"] is False


def test_a_row_of_another_shape_costs_that_row(raw: Path, tmp_path: Path) -> None:
    rows = [unfilled(str(n), f"{HUB}/deepmind/code_contests", f"n{n}", turns=with_template("{question}")) for n in range(2)]
    write_published(raw, "qualitative", rows)
    write_raw(raw, "deepmind/code_contests/data/test-00000-of-00001.parquet", [{"name": "n1", "description": "d"}])
    done = prepare("qualitative", tmp_path / "out", FolderFiles(raw))
    assert [one.rows for one in done.missing] == [1]
    assert done.made == 1


def test_nothing_is_dropped_into_the_current_folder(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    here.chmod(0o500)
    monkeypatch.chdir(here)
    assert prepare(CONFIG, tmp_path / "out", FolderFiles(raw)).is_complete
    assert list(here.iterdir()) == []


def test_an_output_that_cannot_be_written_names_the_word(raw: Path) -> None:
    with pytest.raises(WorkloadError, match="out="):
        prepare(CONFIG, Path("/proc/version/x"), FolderFiles(raw))
