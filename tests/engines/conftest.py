from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign_servers import llama_server

sys.path.append(str(Path(__file__).parents[1] / "client"))  # the client's stubs serve here too


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of converted models for all tests of a run."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def server(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a llama.cpp server that was there before us: the tiny target, no drafter."""
    with llama_server(cache, tmp_path_factory.mktemp("plain"), draft_length=0) as url:
        yield url


@pytest.fixture(scope="session")
def drafting_server(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with the tiny drafter, which drafts three tokens."""
    with llama_server(cache, tmp_path_factory.mktemp("drafting"), draft_length=3) as url:
        yield url
