"""One word names one folder, whichever command reads it and whichever quotes a shell left around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import plan
from tracking_samples import GRID

from specsweep.orchestrator import cli
from specsweep.orchestrator.cli.selection import names_and_store
from specsweep.orchestrator.config import compose
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.typed_paths import as_typed, path_setting

NAMES = ["plain", "ergebnisse-äöü", "a b", "結果", "it's", "a,b", "x=y", "100%", "(1)", "back\\slash", 'say "hi"', "null", "{a}", "é,'\""]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_finds_the_folder_that_a_run_writes(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    home.mkdir()
    word = as_typed("store", home)
    assert Path(compose(["sweep=smoke", word]).base["store"]) == home
    assert names_and_store([word])[1].root == home


@pytest.mark.parametrize("form", ["store={}", "store='{}'", 'store="{}"', "store= {} "])
@pytest.mark.parametrize("name", ["plain", "ergebnisse-äöü", "a b"])
def test_quotes_and_none_are_the_same_folder_everywhere(tmp_path: Path, form: str, name: str) -> None:
    (tmp_path / name).mkdir()
    word = form.format(tmp_path / name)
    assert Path(compose([word]).base["store"]) == names_and_store([word])[1].root == tmp_path / name


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_quoted_store_with_letters_of_any_language_is_read(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "Läufe")
    store.write_plan(plan("demo", GRID))
    assert cli.main([command, "demo", f"store='{store.root}'"]) in (0, 5), capsys.readouterr().err


@given(st.text(min_size=1, max_size=12).filter(lambda text: text == text.strip() and "\0" not in text and "${" not in text))
def test_what_is_written_for_a_command_reads_back(text: str) -> None:
    assert path_setting(as_typed("store", text)) == ("store", text)


def test_interpolations_hold_for_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    word = "store=${oc.env:SCRATCH,/nowhere}"
    assert Path(compose([word]).base["store"]) == names_and_store([word])[1].root == tmp_path


@pytest.mark.parametrize("word", ["store=a,b", "store='a','b'", "store=choice(a,b)", "store='open", 'store="open', "store=", "store=null"])
def test_what_names_no_one_folder_is_refused_alike(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reasons = []
    for read in (lambda: compose([word]), lambda: names_and_store([word])):
        with pytest.raises(ConfigError) as refused:
            read()
        reasons.append(refused.value.message)
    assert reasons[0] == reasons[1]
    assert reasons[0].startswith("store=")


def _file(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_text("")
    return str(path)


@pytest.mark.parametrize("key", ["store", "cache"])
@pytest.mark.parametrize("where", [_file, lambda tmp: _file(tmp) + "/below", lambda tmp: "/dev/null", lambda tmp: "x" * 300])
def test_a_plan_tells_that_a_folder_cannot_be_one(key: str, where: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}=.*folder.*{key}=DIR"):
        compose([f"{key}={where(tmp_path)}"])
