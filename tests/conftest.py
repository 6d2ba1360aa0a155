"""For every test of the tree."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_terminal_width_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables fill ``COLUMNS``, which pytest-xdist passes on to its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)
