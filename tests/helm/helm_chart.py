"""The chart as Helm itself renders it, for the tests. Nothing here is sent to a cluster."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.build import build, find

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "specsweep"
EVERYTHING = Path(__file__).with_name("everything.yaml")

Json = dict[str, Any]


@functools.cache
def binary() -> Path:
    """Skips, and says what to do, where Helm is neither built nor installed."""
    if os.environ.get("SPECSWEEP_CONTROL_PLANE") == "1":
        build("helm")
    found = find("helm")
    if found is None:
        pytest.skip("Helm is not here; `make control-plane` builds it, and so does SPECSWEEP_CONTROL_PLANE=1 before the tests")
    return found


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """With no plugins, repositories or settings of whoever runs the tests."""
    return subprocess.run([binary(), *words], env={"HOME": "/nonexistent"}, capture_output=True, text=True, timeout=60, check=False)


def rendered(values: Mapping[str, Any] | None = None, *, release: str = "specsweep", everything: bool = False) -> list[Json]:
    """The objects that an installation into namespace ``bench`` makes."""
    return json.loads(_installation(json.dumps(values or {}), release, everything))["objects"]  # type: ignore[no-any-return]


def notes(values: Mapping[str, Any] | None = None, *, release: str = "specsweep", everything: bool = False) -> str:
    """What ``helm install`` says at its end."""
    return str(json.loads(_installation(json.dumps(values or {}), release, everything))["notes"])


def refusal(values: Mapping[str, Any], *, everything: bool = False) -> str:
    """What Helm says to values that it does not take."""
    done = helm(*_install(json.dumps(values), "specsweep", everything))
    assert done.returncode != 0, f"{values} was taken"
    return done.stderr


@functools.cache
def _installation(values: str, release: str, everything: bool) -> str:
    done = helm(*_install(values, release, everything))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert not said.get("hooks"), "no hook is needed for an installation"
    objects = [obj for obj in yaml.safe_load_all(said["manifest"]) if obj]
    return json.dumps({"objects": objects, "notes": said["info"]["notes"]})


def _install(values: str, release: str, everything: bool) -> list[str]:
    words = ["install", release, str(CHART), "--namespace", "bench", "--dry-run=client", "--output", "json"]
    pairs = [word for key, value in json.loads(values).items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
    return [*words, *(["--values", str(EVERYTHING)] if everything else []), *pairs]


def of(kind: str, objects: list[Json], name: str | None = None) -> Json:
    (found,) = [obj for obj in objects if obj["kind"] == kind and name in (None, obj["metadata"]["name"])]
    return found


def pod_templates(objects: list[Json]) -> list[Json]:
    """Of all objects that make pods."""
    found = [obj["spec"]["template"] for obj in objects if obj["kind"] == "Deployment"]
    for obj in objects:
        if obj["kind"] == "RayCluster":
            found += [group["template"] for group in (obj["spec"]["headGroupSpec"], *obj["spec"]["workerGroupSpecs"])]
    return found
