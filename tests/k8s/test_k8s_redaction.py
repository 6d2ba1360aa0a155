"""No secret comes through, and ordinary text does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.k8s.redaction import HIDDEN, is_secret_name, looks_secret, redacted, redacted_object

SECRET = "hf_" + "aB3" * 10
PLAIN = "s3cr3tw0rd"


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "VLLM_API_KEY", "OPENAI_APIKEY", "password"],
)
def test_names_that_say_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "HF_HOME", "KEYBOARD", "VLLM_SECRETARY", "TOKEN_BUDGET"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={PLAIN} rest",
        f"environ({{'HF_TOKEN': '{PLAIN}', 'A': 'b'}})",
        f'"password": "{PLAIN} with spaces", "a": 1',
        f"Authorization: Bearer {PLAIN}longer",
        f"https://user:{PLAIN}@host/path",
        f"args --api-key {PLAIN} --port 1",
        f"api_key={PLAIN}",
    ],
)
def test_a_secret_in_a_text_is_hidden_and_the_text_is_left(text: str) -> None:
    assert PLAIN not in redacted(text)
    assert HIDDEN in redacted(text)


@given(st.text(max_size=50).filter(lambda t: not t or not (t[-1].isalnum() or t[-1] == "_")), st.text(max_size=50))
def test_a_token_of_a_known_kind_is_hidden_anywhere(before: str, after: str) -> None:
    assert SECRET not in redacted(before + SECRET + " " + after)


@pytest.mark.parametrize(
    "text",
    [
        "INFO max_tokens=512, tokenizer: 'meta-llama/Llama-3.1-8B'",
        "0/12 nodes are available: 8 Insufficient nvidia.com/gpu, 4 node(s) didn't match Pod's node affinity/selector",
        "http://10.0.0.1:8000/health",
        "loaded token embeddings: 128256 tokens",
        "secretKeyRef name=hub",
    ],
)
def test_ordinary_words_of_engines_and_clusters_come_through(text: str) -> None:
    assert redacted(text) == text


def test_objects_keep_their_form_and_references() -> None:
    pod = {
        "spec": {
            "containers": [
                {
                    "env": [
                        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
                        {"name": "MY_PASSWORD", "value": PLAIN},
                        {"name": "OTHER", "value": SECRET},
                        {"name": "HF_HOME", "value": "/models"},
                    ],
                    "ports": [{"containerPort": 8000}],
                }
            ]
        }
    }
    clean = redacted_object(pod)
    env = clean["spec"]["containers"][0]["env"]
    assert PLAIN not in json.dumps(clean)
    assert SECRET not in json.dumps(clean)
    assert env[0] == pod["spec"]["containers"][0]["env"][0]
    assert [item.get("value") for item in env] == [None, HIDDEN, HIDDEN, "/models"]
    assert clean["spec"]["containers"][0]["ports"] == [{"containerPort": 8000}]


def test_tokens_are_told_from_words() -> None:
    assert looks_secret(SECRET)
    assert not looks_secret("meta-llama/Llama-3.3-70B-Instruct")
