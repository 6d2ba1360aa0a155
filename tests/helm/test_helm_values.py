"""What the chart does not take: each value that is wrong is refused by its name, before anything is sent to a cluster."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from helm_chart import CHART, EVERYTHING, ROOT, Json, helm, refusal
from hypothesis import example, given
from hypothesis import strategies as st

from specsweep.k8s.redaction import is_secret_name, looks_secret

MLFLOW = {"image": {"repository": "reg/specsweep"}}


@pytest.mark.parametrize(
    ("values", "where"),
    [
        # keys that do not exist
        ({"imagee": {}}, "'imagee' not allowed"),
        ({"image": {"name": "x"}}, "'name' not allowed"),
        ({"results": {"claim": "x"}}, "'claim' not allowed"),
        ({"mlflow": {"database": {"uri": "postgresql://u:p@h/d"}}}, "'uri' not allowed"),
        ({"mlflow": {"database": {"password": "x"}}}, "'password' not allowed"),
        ({"hubToken": {"token": "hf_x"}}, "'token' not allowed"),
        ({"hubToken": {"value": "hf_x"}}, "'value' not allowed"),
        ({"networkPolicy": {"dns": {}}}, "'dns' not allowed"),
        ({"rbac": {"clusterWide": True}}, "'clusterWide' not allowed"),
        ({"tolerations": [{"key": "a", "operater": "Exists"}]}, "'operater' not allowed"),
        ({"mlflow": {"podTemplate": {"containers": []}}}, "'containers' not allowed"),
        # wrong types
        ({"image": {"tag": 1.1}}, "/image/tag"),
        ({"results": {"enabled": "yes"}}, "/results/enabled"),
        ({"mlflow": {"workers": "2"}}, "/mlflow/workers"),
        ({"imagePullSecrets": ["regcred"]}, "/imagePullSecrets/0"),
        ({"nodeSelector": {"pool": 1}}, "/nodeSelector/pool"),
        ({"results": {"accessModes": "ReadWriteOnce"}}, "/results/accessModes"),
        # values that cannot be
        ({"image": {"repository": "reg/specsweep:1.0"}}, "/image/repository"),
        ({"image": {"digest": "sha256:12"}}, "/image/digest"),
        ({"image": {"pullPolicy": "always"}}, "/image/pullPolicy"),
        ({"fullnameOverride": "Not_A_Name"}, "/fullnameOverride"),
        ({"results": {"size": "20GB"}}, "/results/size"),
        ({"results": {"size": "0"}}, "/results/size"),
        ({"results": {"accessModes": ["RWO"]}}, "/results/accessModes/0"),
        ({"weights": {"path": "weights"}}, "/weights/path"),
        ({"mlflow": {"service": {"port": 70000}}}, "/mlflow/service/port"),
        ({"mlflow": {"externalUri": "mlflow:5000"}}, "/mlflow/externalUri"),
        ({"ray": {"workers": {"replicas": 0}}}, "/ray/workers/replicas"),
        ({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}}, "/networkPolicy/apiServer/cidrs/0"),
        # secrets as plain values
        ({"mlflow": {"externalUri": "https://user:pass@mlflow"}}, "/mlflow/externalUri"),
        ({"mlflow": {"env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "abc"}]}}, "/mlflow/env/0"),
        ({"mlflow": {"env": [{"name": "HF_TOKEN", "value": "abc"}]}}, "/mlflow/env/0"),
        ({"mlflow": {"env": [{"name": "db_password", "value": "abc"}]}}, "/mlflow/env/0"),
        ({"mlflow": {"env": [{"name": "URI", "value": "postgresql://me:word@db/mlflow"}]}}, "/mlflow/env/0/value"),
        ({"mlflow": {"env": [{"name": "A", "value": "x", "valueFrom": {}}]}}, "/mlflow/env/0"),
        (
            {
                "ray": {
                    "head": {"podTemplate": {"spec": {"containers": [{"name": "ray-head", "env": [{"name": "API_KEY", "value": "x"}]}]}}}
                }
            },
            "/ray/head/podTemplate/spec/containers/0/env/0",
        ),
    ],
    ids=lambda case: json.dumps(case)[:60] if isinstance(case, dict) else "",
)
def test_the_schema_names_what_it_refuses(values: Json, where: str) -> None:
    assert where in refusal(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mlflow": {"enabled": True}}, ["image.repository is empty", "--set image.repository="]),
        ({"ray": {"enabled": True}}, ["image.repository is empty"]),
        (
            {**MLFLOW, "mlflow": {"enabled": True, "workers": 2}},
            ["mlflow.workers=2", "SQLite has one writer", "mlflow.database.type=external"],
        ),
        ({**MLFLOW, "mlflow": {"enabled": True, "database": {"type": "external"}}}, ["needs mlflow.database.existingSecret", '"uri"']),
        ({**MLFLOW, "mlflow": {"enabled": True, "database": {"existingSecret": "db"}}}, ["existingSecret=db", "type=external"]),
        ({**MLFLOW, "mlflow": {"enabled": True, "externalUri": "http://m:5000"}}, ["mlflow.externalUri=http://m:5000", "not both"]),
        ({**MLFLOW, "ray": {"enabled": True}, "rbac": {"kuberay": False}}, ["rbac.kuberay=false"]),
    ],
    ids=lambda case: json.dumps(case)[:60] if isinstance(case, dict) else "",
)
def test_values_that_do_not_go_together_are_refused_with_what_to_do(values: Json, words: list[str]) -> None:
    said = refusal(values)
    for word in words:
        assert word in said


def test_every_default_is_in_the_schema_and_everything_in_the_schema_has_a_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"

    def compare(node: Json, values: Any, path: str) -> None:
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rsplit("/", 1)[1]]
        properties = node.get("properties", {})
        if node.get("additionalProperties") is False and isinstance(values, dict) and values:
            assert set(properties) - {"global"} == set(values), path
            for name, value in values.items():
                compare(properties[name], value, f"{path}.{name}")

    compare(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "values")


@pytest.mark.parametrize("values", [[], ["--values", str(EVERYTHING)]], ids=["default", "everything"])
def test_the_linter_has_nothing_to_say(values: list[str]) -> None:
    done = helm("lint", "--strict", str(CHART), *values)
    assert done.returncode == 0, done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith(("[WARNING]", "[ERROR]"))]


@given(st.from_regex(r"\A[A-Z]{0,4}[_.-]?(TOKEN|PASSWORD|API_?KEY|SECRET|CREDENTIALS?|ACCESS_KEY)S?[_.-]?(ID|BUDGET)?\Z", fullmatch=True))
@example("HF_TOKEN")
@example("password")
@example("TOKENIZERS_PARALLELISM")
def test_the_schema_and_the_sweep_agree_on_which_names_are_secret(name: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    pattern = schema["definitions"]["secretName"]["pattern"]
    for text in (name, name.lower()):
        assert (re.search(pattern, text) is not None) == is_secret_name(text)


@pytest.mark.parametrize(
    "text",
    ["hf_" + "aB3" * 8, "x=sk-" + "a" * 20, "ghp_" + "A" * 24, "AKIA" + "B" * 14, "hf_home", "risk-" + "a" * 20, "sha256:" + "0" * 64],
)
def test_the_schema_and_the_sweep_agree_on_which_texts_are_secret(text: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    patterns = [form["pattern"] for form in schema["definitions"]["secretText"]["anyOf"]]
    assert any(re.search(pattern, text) for pattern in patterns) == looks_secret(text)


def has(values: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def test_the_documentation_sets_and_names_only_what_there_is() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text().replace("\\\n", " ")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    commands = [found for line in text.splitlines() if (found := re.findall(r"--set ([\w.]+=[^\s`]+)", line))]
    assert sum(map(len, commands)) >= 10
    for settings in commands:
        words = [word for setting in ["image.repository=reg/specsweep", *settings] for word in ("--set", setting)]
        done = helm("template", "specsweep", str(CHART), *words)
        assert done.returncode == 0, (settings, done.stderr)
        assert [setting for setting in settings if not has(values, setting.split("=")[0])] == []
    named = re.findall(r"`((?:results|weights|mlflow|ray|rbac|networkPolicy)\.[\w.]+)`", text)
    assert named
    assert [name for name in named if not has(values, name)] == []
