from __future__ import annotations

import pytest


class _Any(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def every_engine_version_is_installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are tested with versions that exist nowhere; the rule that refuses those has its own test."""
    if request.module.__name__ != "test_engines":
        monkeypatch.setattr("specsweep.orchestrator.engines.llamacpp.installed_version", lambda: _Any("any"))
