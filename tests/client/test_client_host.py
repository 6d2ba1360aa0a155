"""What a process says of its host: its clock, its versions, its cores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specsweep.client import host
from specsweep.client.host import Host, this_host

ASK = "from specsweep.client.host import this_host; print(this_host().clock, this_host().processes)"


def other(*before: str) -> Host:
    said = subprocess.run([*before, sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60, check=True).stdout.split()
    return replace(this_host(), clock=said[0], processes=said[1])


def test_another_process_of_this_host_shares_its_clock_and_its_process_ids() -> None:
    assert this_host().shares_clock(other())
    assert this_host().shares_processes(other())


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="namespaces need root and unshare")
def test_namespaces_of_their_own_are_seen() -> None:
    try:
        shifted, hidden = other("unshare", "--time", "--fork"), other("unshare", "--pid", "--fork")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this kernel has no such namespaces: {error.stderr}")
    assert not this_host().shares_clock(shifted)
    assert this_host().shares_processes(shifted)
    assert this_host().shares_clock(hidden)
    assert not this_host().shares_processes(hidden)


def test_what_is_not_known_is_shared_with_nobody() -> None:
    unknown = replace(this_host(), clock="", processes="")
    assert not unknown.shares_clock(unknown)
    assert not unknown.shares_processes(unknown)


def test_unlike_versions_are_named() -> None:
    assert this_host().unlike(this_host()) == ""
    ours = Host("a", "", "", (("specsweep", "1.0"), ("Python", "3.11.7"), ("Ray", "2.60.0")))
    theirs = replace(ours, versions=(("specsweep", "1.0"), ("Python", "3.12.1")))
    assert ours.unlike(theirs) == "Python 3.12.1 instead of 3.11.7, Ray unknown instead of 2.60.0"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),  # a container with its own view
        (
            "0::/kubepods/pod1/c1",
            {"cpu.max": "max 100000", "kubepods/pod1/cpu.max": "400000 100000", "kubepods/pod1/c1/cpu.max": "max 100000"},
            4.0,
        ),
        ("0::/not/here", {}, float("inf")),
        ("4:cpu,cpuacct:/docker/x\n1:name=systemd:/y", {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, float("inf")),
        ("", {}, float("inf")),
    ],
)
def test_quotas_of_control_groups(tmp_path: Path, groups: str, files: dict[str, str], quota: float) -> None:
    (tmp_path / "own").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert min(host._quotas(tmp_path / "cgroup", tmp_path / "own")) == quota


def test_cores_are_whole_and_never_more_than_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= host.cores() <= len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for quotas, cores in (([2.9], 2), ([0.2], 1), ([float("inf")], 8), ([3.0, 12.0], 3)):
        monkeypatch.setattr(host, "_quotas", lambda quotas=quotas: quotas)
        assert host.cores() == cores
