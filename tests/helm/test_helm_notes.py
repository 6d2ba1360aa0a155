"""The next commands that an installation tells: whole, and with the names of what it has made."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml
from helm_chart import Json, notes, of, rendered
from hydra.core.override_parser.overrides_parser import OverridesParser

import specsweep.sweeps


def command(text: str, *start: str) -> list[str]:
    """The words of the one command in ``text`` that begins with ``start``, as a shell reads them."""
    lines = text.replace("\\\n", " ").splitlines()
    (found,) = [words for line in lines if line.startswith("    ") and (words := shlex.split(line))[: len(start)] == list(start)]
    return found


def overrides(words: list[str]) -> dict[str, str]:
    """What the command line takes them for."""
    parser = OverridesParser.create()
    read = [parser.parse_override(word) for word in words if "=" in word]
    return {override.key_or_group: str(override.value()) for override in read}


def is_configured(key: str) -> bool:
    """Whether the config tree has that key, once Kubernetes is chosen."""
    folder = Path(specsweep.sweeps.__path__[0])
    room, *path = key.split(".")
    node = yaml.safe_load((folder / "cluster" / "kubernetes.yaml" if room == "cluster" else folder / "config.yaml").read_text())
    for name in path if room == "cluster" else key.split("."):
        if name not in node:
            return False
        node = node[name]
    return True


def test_the_commands_get_every_name_of_a_full_installation() -> None:
    text = notes(everything=True, release="team-a")
    objects = rendered(everything=True, release="team-a")
    claims = {
        obj["metadata"]["labels"]["app.kubernetes.io/component"]: obj["metadata"]["name"]
        for obj in objects
        if obj["kind"] == "PersistentVolumeClaim"
    }
    mlflow = of("Service", objects)
    expected = {
        "cluster": "kubernetes",
        "cluster.namespace": "bench",
        "cluster.image": of("Deployment", objects)["spec"]["template"]["spec"]["containers"][0]["image"],
        "cluster.image_pull_secrets": "['regcred']",
        "cluster.service_account": of("ServiceAccount", objects)["metadata"]["name"],
        "cluster.results.claim": claims["results"],
        "cluster.weights.claim": claims["weights"],
        "cluster.weights.path": "/weights",
        "cluster.hub_token.secret": "hub-token",
        "cluster.hub_token.key": "token",
        "cluster.clients.ray_address": f"{of('RayCluster', objects)['metadata']['name']}-head-svc:6379",
        "tracking.uri": f"http://{mlflow['metadata']['name']}:{mlflow['spec']['ports'][0]['port']}",
    }
    words = overrides(command(text, "specsweep", "doctor"))
    assert words.pop("sweep") == "NAME"
    assert words == expected
    assert not [key for key in expected if key != "cluster" and not is_configured(key)]
    for other in ("plan", "submit"):
        assert overrides(command(text, "specsweep", other)) == {"sweep": "NAME"}, "and the words above"
    forward = command(text, "kubectl", "-n", "bench", "port-forward")
    assert forward[4:] == [f"svc/{mlflow['metadata']['name']}", f"5000:{mlflow['spec']['ports'][0]['port']}"]
    assert command(text, "kubectl", "-n", "bench", "get")[-1] == "specsweep.io/sweep=NAME"
    assert command(text, "specsweep", "status")[2] == "NAME"


def test_a_small_installation_names_only_what_it_has() -> None:
    text = notes()
    assert overrides(command(text, "specsweep", "doctor")) == {
        "sweep": "NAME",
        "cluster": "kubernetes",
        "cluster.namespace": "bench",
        "cluster.image": "REGISTRY/specsweep:TAG",
        "cluster.service_account": "specsweep",
        "cluster.results.claim": "specsweep-results",
    }
    assert "image.repository is not set" in text
    assert "port-forward" not in text
    assert "WARNING" not in text


def test_mlflow_elsewhere_is_the_tracking_uri() -> None:
    values: Json = {"mlflow": {"externalUri": "https://mlflow.example.com"}, "results": {"enabled": False}}
    text = notes(values)
    assert overrides(command(text, "specsweep", "doctor"))["tracking.uri"] == "https://mlflow.example.com"
    assert "WARNING" not in text


def test_results_without_a_place_are_warned_of() -> None:
    assert "WARNING: results have no place of their own" in notes({"results": {"enabled": False}})


def test_an_account_without_rights_is_mentioned() -> None:
    assert "rbac.create is false" in notes({"rbac": {"create": False}})


def test_an_empty_weights_volume_is_mentioned_and_one_that_was_there_is_not() -> None:
    assert "weights volume specsweep-weights is empty" in notes({"weights": {"enabled": True}})
    assert "is empty until" not in notes({"weights": {"enabled": True, "existingClaim": "models"}})
