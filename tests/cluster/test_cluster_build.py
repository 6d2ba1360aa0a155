"""Where the binaries come from, without building any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cluster import build
from cluster.build import GROUPS, Group, find, missing


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is built, and with no binary of that kind."""
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    fresh = {name: replace(group) for name, group in GROUPS.items()}  # a group remembers its folder
    monkeypatch.setattr(build, "GROUPS", fresh)
    monkeypatch.setattr(build, "_GROUP_OF", {binary: group for group in fresh.values() for binary in group.binaries})
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)


def test_nothing_is_there(bare: Path) -> None:
    assert missing(*GROUPS) == list(GROUPS)
    assert find("etcd") is None


def test_the_users_own_come_first_then_what_was_built_then_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bare / "path", "etcd")
    assert find("etcd") == bare / "path" / "etcd"
    put(build.GROUPS["etcd"].folder, "etcd")
    assert find("etcd") == build.GROUPS["etcd"].folder / "etcd"
    put(bare / "assets", "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(bare / "assets"))
    assert find("etcd") == bare / "assets" / "etcd"
    assert missing("etcd", "kubernetes") == ["kubernetes"]


def test_a_binary_without_the_manifests_beside_it_does_not_do(bare: Path) -> None:
    put(bare / "path", "kueue", "helm")
    assert missing("kueue", "helm") == ["kueue"]


def test_another_version_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MODULES", tmp_path)
    names = []
    for version, sums in (("v1.2.3", None), ("v1.2.4", None), ("v1.2.4", "a"), ("v1.2.4", "b")):
        (tmp_path / "m").mkdir(exist_ok=True)
        (tmp_path / "m" / "go.mod").write_text(f"module x\n\nrequire example.org/m {version}\n")
        if sums is not None:
            (tmp_path / "m" / "go.sum").write_text(sums)
        names.append(Group("m", "example.org/m", {"m": "example.org/m"}).folder.name)
    assert len(set(names)) == 4
    assert names[0].startswith("m-v1.2.3-")
