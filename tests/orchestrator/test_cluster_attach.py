"""What names a running server: told before anything is sent to it."""

from __future__ import annotations

import pytest

from specsweep.orchestrator.clusters.attach import AttachCluster
from specsweep.orchestrator.errors import ConfigError


def place(endpoint: str, **settings: str) -> AttachCluster:
    return AttachCluster.from_config({"cluster": {"kind": "attach", "endpoint": endpoint, **settings}})


@pytest.mark.parametrize("endpoint", ["http://box:8000", "http://box:8000/", "https://box/serving", "http://[::1]:8000"])
def test_a_base_url(endpoint: str) -> None:
    assert place(endpoint).base_url == endpoint.rstrip("/")


@pytest.mark.parametrize(
    ("endpoint", "told"),
    [
        ("box:8000", "http://host:port"),
        ("http://", "no host"),
        ("http://box:99999", "65535"),
        ("http://[::1", "not a URL"),
        ("http://box:8000?key=1", "must end before"),
        ("http://me:secret@box:8000", "token_env"),
        ("http://box:8000/v1", "before /v1"),
        ("http://box:8000/v1/chat/completions", "before /v1"),
    ],
)
def test_what_is_no_base_url(endpoint: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        place(endpoint)
    assert "secret" not in caught.value.message


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret\n")  # as read from a file
    assert place("http://box", token_env="TOKEN").headers == (("Authorization", "Bearer s3cret"),)


@pytest.mark.parametrize("value", ["", " \n", "two\nlines", "schlüssel"])
def test_a_token_that_cannot_be_sent(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", value)
    with pytest.raises(ConfigError, match="token_env") as caught:
        place("http://box", token_env="TOKEN")
    assert "schl" not in caught.value.message
