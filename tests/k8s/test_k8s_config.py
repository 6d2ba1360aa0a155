"""The way to a cluster is found as kubectl finds it, and what is missing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specsweep.k8s import config
from specsweep.k8s.errors import AccessError


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def written(path: Path, *contexts: str, current: str | None = None, namespace: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.example:6443"}} for name in contexts],
        "users": [{"name": name, "user": {"token": f"token-of-{name}"}} for name in contexts],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}}
            for name in contexts
        ],
        **({"current-context": current} if current else {}),
    }
    path.write_text(yaml.safe_dump(entries))
    return path


async def test_the_home_folders_kubeconfig_and_its_current_context(tmp_path: Path) -> None:
    written(tmp_path / "home/.kube/config", "one", "two", current="two", namespace="bench")
    found = await config.find_access()
    assert (found.context, found.namespace, found.configuration.host) == ("two", "bench", "http://two.example:6443")
    assert "token-of-two" in str(found.configuration.api_key)


async def test_the_variable_goes_before_and_its_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "home/.kube/config", "home", current="home")
    one, two = written(tmp_path / "a", "one", current="one"), written(tmp_path / "b", "two")
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}")
    assert (await config.find_access()).context == "one"
    assert (await config.find_access(context="two")).configuration.host == "http://two.example:6443"
    assert (await config.find_access(kubeconfig=str(two), context="two")).context == "two"


async def test_a_named_namespace_goes_before_the_contexts_and_default_is_the_last(tmp_path: Path) -> None:
    file = str(written(tmp_path / "c", "one", current="one", namespace="theirs"))
    assert (await config.find_access(kubeconfig=file, namespace="mine")).namespace == "mine"
    assert (await config.find_access(kubeconfig=file)).namespace == "theirs"
    assert (await config.find_access(kubeconfig=str(written(tmp_path / "d", "one", current="one")))).namespace == "default"


async def test_a_pod_has_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "abc"), ("namespace", "bench\n"), ("ca.crt", "certificate")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(config.official.incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(config.official.incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = await config.find_access()
    assert (found.context, found.namespace, found.configuration.host) == ("in-cluster", "bench", "https://10.0.0.1:443")


async def test_a_pod_without_a_token_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        await config.find_access()


async def test_nothing_there_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"no kubeconfig at .*home/\.kube/config"):
        await config.find_access()
    with pytest.raises(AccessError, match="no kubeconfig at /nowhere"):
        await config.find_access(kubeconfig="/nowhere")


@pytest.mark.parametrize(
    ("text", "context", "says"),
    [
        (None, "three", "context='three' is not in .*; it has: one, two"),
        ("{", None, "cannot be read"),
        ("[1, 2]", None, "cannot be read"),
        ("clusters: []", None, "it has: none"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_says_why(tmp_path: Path, text: str | None, context: str | None, says: str) -> None:
    file = written(tmp_path / "e", "one", "two", current="one")
    if text is not None:
        file.write_text(text)
    with pytest.raises(AccessError, match=says):
        await config.find_access(kubeconfig=str(file), context=context)


async def test_no_current_context_says_so(tmp_path: Path) -> None:
    file = written(tmp_path / "f", "one")
    with pytest.raises(AccessError, match=r"context=None is not in .*it has: one.*get-contexts"):
        await config.find_access(kubeconfig=str(file))
