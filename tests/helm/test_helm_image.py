"""The container image, as far as it can be known without building it: linted, made of what is there, pinned, and of one version with the chart."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import CHART, ROOT
from packaging.requirements import Requirement
from sqlalchemy.dialects import postgresql

BIN = Path(sys.prefix) / "bin"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of that name, continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return [line.removeprefix(name).strip() for line in joined.splitlines() if line.startswith(f"{name} ")]


def copied() -> list[str]:
    """Paths of the checkout that go into the build."""
    return [path for words in instructions("COPY") if "--from" not in words for path in words.split()[:-1]]


def pins(lock: str) -> dict[str, str]:
    """name → the whole entry, hashes included."""
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements" / lock).read_text().strip())
    return {re.split(r"[=\[ ]", entry, maxsplit=1)[0]: entry for entry in entries if not entry.startswith("#")}


def lint(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / "hadolint", "-"], input=text, capture_output=True, text=True, timeout=60, check=False)


def test_the_linter_has_nothing_to_say() -> None:
    done = lint(DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (":3.11.15-slim-bookworm", "", "DL3006"),
        ("--no-install-recommends ", "", "DL3015"),
        ('["tini", "--", "specsweep"]', "tini -- specsweep", "DL3025"),
        ("USER 10001:10001\n", "USER root\n", "DL3002"),
    ],
)
def test_the_linter_would_say_something(right: str, wrong: str, rule: str) -> None:
    worse = DOCKERFILE.replace("${BASE}", "python:3.11.15-slim-bookworm")
    assert right in worse
    assert rule in lint(worse.replace(right, wrong)).stdout


def test_what_is_copied_is_in_the_checkout_and_nothing_else_is_sent_to_the_builder() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split("\n")
    for path in copied():
        assert path in listed or any(file.startswith(f"{path}/") for file in listed), path
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied())


def test_every_package_is_copied() -> None:
    folders = set(PROJECT["tool"]["setuptools"]["package-dir"].values())
    assert folders <= set(copied())


@pytest.mark.slow
def test_the_copied_files_make_the_whole_wheel(tmp_path: Path) -> None:
    """The build's last step, on what the build has."""
    source = tmp_path / "source"
    for path in copied():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, source / path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / path, source / path)
    build = [BIN / "uv", "build", "-q", "--wheel", "--build-constraints", source / "requirements" / "build.txt", "--require-hashes"]
    subprocess.run([*build, "--out-dir", tmp_path / "wheels", source], check=True, timeout=100)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("specsweep/")}
    for name, folder in PROJECT["tool"]["setuptools"]["package-dir"].items():
        room = Path(name.replace(".", "/"))
        wanted = {str(room / file.relative_to(source / folder)) for file in (source / folder).rglob("*.py")}
        wanted |= {str(room / file.relative_to(source / folder)) for file in (source / folder).rglob("*.yaml")}
        assert wanted <= found, wanted - found


def test_the_image_has_the_locked_versions_and_a_driver_for_the_database() -> None:
    runtime, image = pins("runtime.txt"), pins("image.txt")
    assert {name: image.get(name) for name in runtime} == runtime
    assert image.keys() - runtime.keys() == {"psycopg", "psycopg-binary"}
    assert postgresql.dialect.driver == "psycopg", "what postgresql:// means"
    assert "torch" not in image
    for entry in [*image.values(), *pins("build.txt").values(), *pins("uv.txt").values()]:
        assert "--hash=sha256:" in entry
    for words in instructions("RUN"):
        for install in re.findall(r"pip install[^&]*", words):
            assert "--require-hashes" in install or "--no-deps" in install, install


def test_the_lock_of_the_build_has_what_the_project_is_built_with() -> None:
    locked = {name: entry.split("==")[1].split()[0] for name, entry in pins("build.txt").items()}
    for text in PROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked[requirement.name])


def test_the_last_stage_takes_only_the_environment() -> None:
    last = DOCKERFILE.rsplit("\nFROM ", 1)[1]
    assert re.findall(r"^COPY (.*)$", last, flags=re.MULTILINE) == ["--from=build /opt/specsweep /opt/specsweep"]
    assert not re.search(r"gcc|g\+\+|build-essential|-dev\b|pip install", last)


def test_the_user_is_a_number_and_the_chart_s() -> None:
    security = VALUES["podSecurityContext"]
    assert instructions("USER") == [f"{security['runAsUser']}:{security['runAsGroup']}"]
    assert security["runAsUser"] > 0


def test_chart_image_and_project_are_of_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = PROJECT["project"]["version"]
    assert chart["appVersion"] == version
    assert f"VERSION={version}" in instructions("ARG")


def test_ray_nodes_are_of_the_locked_ray_and_of_the_python_that_the_lock_is_for() -> None:
    assert pins("image.txt")["ray"].startswith(f"ray[serve]=={VALUES['ray']['version']} ") or pins("image.txt")["ray"].startswith(
        f"ray=={VALUES['ray']['version']} "
    )
    (base,) = {words.removeprefix("BASE=") for words in instructions("ARG") if words.startswith("BASE=")}
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)


def test_the_commands_that_pods_run_are_in_the_environment() -> None:
    scripts = {script.name for script in entry_points(group="console_scripts")}
    assert {"specsweep", "mlflow", "ray"} <= scripts
