from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of converted models for all tests of a run."""
    return tmp_path_factory.mktemp("cache")
