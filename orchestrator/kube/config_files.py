"""A user's own config groups on their way into the cluster: as files of the sweep's ConfigMap, and back.

Only the YAML files of config groups travel. A ConfigMap holds 1 MB, and a folder that is given with ``--config-dir`` may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specsweep.k8s.errors import SpecError
from specsweep.k8s.specs import check_files
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import GROUPS
from specsweep.orchestrator.kube.secrets import refuse_in_file

FOLDERS = (*GROUPS, "sweep")


def packed(config_dirs: Sequence[str | Path]) -> dict[str, str]:
    """``config-1/engine/mine.yaml`` → text, for each folder in order. Raises ConfigError for what a ConfigMap cannot hold."""
    files: dict[str, str] = {}
    for i, folder in enumerate(config_dirs, start=1):
        root = Path(folder).expanduser().absolute()
        for group in FOLDERS:
            for file in sorted((root / group).rglob("*.yaml")):
                try:
                    text = file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError) as error:
                    raise ConfigError(f"--config-dir {folder}: {file} cannot be read: {error}") from error
                refuse_in_file(text, f"--config-dir {folder}: {file}")
                files[f"config-{i}/{file.relative_to(root).as_posix()}"] = text
    try:
        check_files(files)
    except SpecError as error:
        raise ConfigError(f"--config-dir {', '.join(map(str, config_dirs))}: {error.message}") from error
    return files


def unpacked(files: Mapping[str, str], folder: Path) -> list[str]:
    """The same folders below ``folder``, in order."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [str(folder / place) for place in places(files)]


def places(files: Mapping[str, str]) -> list[str]:
    """The folders of ``files``, in the order in which they were given."""
    return sorted({name.partition("/")[0] for name in files}, key=lambda place: int(place.rpartition("-")[2]))
