"""A secret that a user wrote in plain is refused wherever it stands, and no message has its value."""

from __future__ import annotations

from typing import Any

import pytest

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.secrets import in_url, refuse_in_config, refuse_in_file, refuse_in_words

PLAIN = "hunter2"
TOKEN = "hf_" + "Ab1" * 10


@pytest.mark.parametrize(
    "word",
    [
        f"+engine.env.HF_TOKEN={PLAIN}",
        f"engine.env={{HF_TOKEN: {PLAIN}}}",
        f"+engine.args.api-key={PLAIN}",
        f"engine.args={{api_key: {PLAIN}}}",
        f"target.pod={{env: {{MY_SECRET: {PLAIN}}}}}",
        f"cluster.pod.template={{spec: {{containers: [{{name: main, args: ['--api-key', {PLAIN}]}}]}}}}",
        f"cluster.pod.template={{spec: {{containers: [{{name: main, args: ['--api-key={PLAIN}']}}]}}}}",
        f"cluster.sweep.template={{spec: {{containers: [{{name: main, env: [{{name: DB_PASSWORD, value: {PLAIN}}}]}}]}}}}",
        f"tracking.uri=https://{PLAIN}@host/path",
        f"cluster.hub_token.token={PLAIN}",
        f"cluster.hub_token.secret={TOKEN}",
        f"name={TOKEN}",
    ],
)
def test_in_words(word: str) -> None:
    with pytest.raises(ConfigError, match="a secret in it could be read by everybody") as told:
        refuse_in_words(["sweep=smoke", word])
    assert PLAIN not in told.value.message
    assert TOKEN not in told.value.message


@pytest.mark.parametrize(
    "word",
    [
        "cluster.hub_token.secret=hub",
        "cluster.hub_token={secret: hub, key: token}",
        "cluster.hub_token.key=api_key",
        "+engine.env.HF_TOKEN=null",
        "engine.args={max_tokens: 5, tokenizer: x}",
        "cluster.token_env=MY_TOKEN",
        "cluster.pod.template={spec: {containers: [{name: main, args: ['--api-key', '$(KEY)', '--port', 1]}]}}",
        "cluster.sweep.template={spec: {containers: [{name: main, env: [{name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]}]}}",
        "tracking.uri=http://mlflow:5000",
        "batch_size=1,4",
    ],
)
def test_what_only_names_a_secret_is_right(word: str) -> None:
    refuse_in_words([word])


def test_in_settings_wherever_they_came_from() -> None:
    config: dict[str, Any] = {"engine": {"args": {"api_key": PLAIN}}, "cluster": {"hub_token": {"secret": "hub", "key": "token"}}}
    with pytest.raises(ConfigError, match=r"engine\.args\.api_key holds a secret") as told:
        refuse_in_config(config)
    assert PLAIN not in told.value.message


@pytest.mark.parametrize(
    "text", [f"env: {{HF_TOKEN: {PLAIN}}}\n", f"a: 1  # HF_TOKEN={PLAIN}\n", f"a: {TOKEN}\n", f"u: 'postgresql://me:{PLAIN}@db/x'\n"]
)
def test_in_a_file_that_would_travel(text: str) -> None:
    with pytest.raises(ConfigError, match="which everybody could read in the sweep's ConfigMap") as told:
        refuse_in_file(text, "engine/mine.yaml")
    assert PLAIN not in told.value.message


def test_a_file_that_speaks_of_secrets_is_none() -> None:
    refuse_in_file(
        "hub_token: {secret: hub, key: token}  # the token's Secret: HF_TOKEN=$TOKEN\nenv: {HF_TOKEN: null}\n", "cluster/mine.yaml"
    )


@pytest.mark.parametrize(
    ("uri", "has"),
    [
        (f"http://{PLAIN}@h", True),
        (f"http://h?token={PLAIN}", True),
        (f"postgresql://u:{PLAIN}@h/d", True),
        ("https://h:5000/mlflow", False),
    ],
)
def test_in_the_address_of_a_server(uri: str, has: bool) -> None:
    assert in_url(uri) is has
