"""What the operating system refuses is a message that names the file, not a traceback; a bug stays one."""

from __future__ import annotations

import argparse
import errno
import io
import sys

import pytest

from specsweep.orchestrator import cli
from specsweep.orchestrator.cli import status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/r/report.html"), 2),
        (OSError(errno.EROFS, "Read-only file system", "/r"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 6),
    ],
)
def test_a_refusal_of_the_system(error: OSError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(status, "run", run)
    assert cli.main(["status"]) == code
    told = capsys.readouterr().err
    assert told.startswith("specsweep status: ")
    assert (error.filename or "No space") in told


def test_a_terminal_without_our_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()

    def run(_: argparse.Namespace) -> int:
        print("smoke · 0.9 – 1.1")
        return 0

    monkeypatch.setattr(status, "run", run)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert cli.main(["status"]) == 0
    sys.stdout.flush()
    assert written.getvalue() == b"smoke ? 0.9 ? 1.1\n"


def test_an_error_without_a_file_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: argparse.Namespace) -> int:
        raise ConnectionError(errno.ECONNRESET, "reset")

    monkeypatch.setattr(status, "run", run)
    with pytest.raises(ConnectionError):
        cli.main(["status"])
