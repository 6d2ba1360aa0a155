"""For every test of the tree."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# How long a machine takes to make an example says nothing about what is tested.
settings.register_profile("specsweep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("specsweep")


@pytest.fixture(autouse=True)
def no_terminal_width_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables fill ``COLUMNS``, which pytest-xdist passes on to its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)
