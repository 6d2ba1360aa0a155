"""A pod's volumes as folders of this machine, and where each container sees them.

A claim is bound by the real controller to a PersistentVolume with a ``hostPath`` or a disk (:mod:`cluster.disks`): that folder is the
volume. Everything else is a folder
below the pod's own, filled once when the pod starts (a real kubelet would follow later changes of a ConfigMap; nothing here needs that).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.environment import ConfigError, Fetch, bytes_of, content, field_of
from cluster.rest import Json, RestError
from cluster.view import Bind

Attached = Callable[[str], bool]  # whether that PersistentVolume is attached to the pod's node
Token = Callable[[Json], Awaitable[str]]  # a projected serviceAccountToken → the token


class MountError(Exception):
    """A volume that cannot be set up now; the kubelet's words."""


class NotAttached(MountError):
    """One that the controller has not brought to this node: that is waited for without a word, the controller has its own."""


@dataclass(frozen=True, slots=True)
class Volume:
    folder: Path | None
    read_only: bool = False
    size: int | None = None


async def prepare(pod: Json, folder: Path, fetch: Fetch, token: Token, attached: Attached) -> dict[str, Volume]:
    """Every volume of the pod by name. Raises MountError for the first that cannot be had."""
    found = {}
    for volume in pod["spec"].get("volumes") or ():
        name = volume["name"]
        try:
            found[name] = await _prepared(volume, pod, folder / "volumes" / name, fetch, token, attached)
        except (ConfigError, RestError) as error:
            raise MountError(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error
    return found


# What every image here is made of. It may lie anywhere on this machine.
IMAGE_FOLDERS = tuple({Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[2]})


def binds(container: Json, volumes: Mapping[str, Volume]) -> list[Bind]:
    """Where that container sees them, outer folders before inner ones; and what one of them would hide of the image itself (a ``/tmp`` of the
    pod's own does, if the checkout lies there).
    """
    found = []
    for mount in container.get("volumeMounts") or ():
        volume = volumes[mount["name"]]
        source = volume.folder
        if source is not None and mount.get("subPath"):
            source = source / mount["subPath"]
            if not volume.read_only and not source.exists():
                source.mkdir(parents=True)
        found.append(Bind(source, mount["mountPath"], volume.read_only or bool(mount.get("readOnly")), volume.size))
    hidden = [folder for folder in IMAGE_FOLDERS if any(folder.is_relative_to(os.path.realpath(bind.target)) for bind in found)]
    return sorted([*found, *(Bind(folder, str(folder), read_only=True) for folder in hidden)], key=lambda bind: bind.target)


async def _prepared(volume: Json, pod: Json, folder: Path, fetch: Fetch, token: Token, attached: Attached) -> Volume:
    if "emptyDir" in volume:
        empty = volume["emptyDir"] or {}
        if empty.get("medium") == "Memory":
            return Volume(None, size=bytes_of(empty["sizeLimit"]) if empty.get("sizeLimit") else None)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        return Volume(folder)
    if "persistentVolumeClaim" in volume:
        return await _claimed(volume["persistentVolumeClaim"], fetch, attached)
    if "hostPath" in volume:
        return Volume(Path(volume["hostPath"]["path"]))
    for source in volume["projected"]["sources"] if "projected" in volume else [volume]:
        _write(folder, await _files(source, pod, fetch, token))
    return Volume(folder, read_only=True)


async def _claimed(source: Json, fetch: Fetch, attached: Attached) -> Volume:
    claim = await fetch("persistentvolumeclaims", source["claimName"])
    name = claim["spec"].get("volumeName")
    if not name:
        raise ConfigError(f'persistentvolumeclaim "{source["claimName"]}" is not bound')
    spec = (await fetch("persistentvolumes", name))["spec"]
    if "csi" in spec and not attached(name):
        raise NotAttached(f"volume {name} is not attached")
    path = Path(spec["csi"]["volumeAttributes"]["path"] if "csi" in spec else spec["hostPath"]["path"])
    if not path.is_dir():
        raise ConfigError(f"hostPath type check failed: {path} is not a directory")
    return Volume(path, read_only=bool(source.get("readOnly")))


async def _files(source: Json, pod: Json, fetch: Fetch, token: Token) -> dict[str, bytes]:
    for kind, key, name_key in (("configmaps", "configMap", "name"), ("secrets", "secret", "name"), ("secrets", "secret", "secretName")):
        wanted = source.get(key) or {}
        if name_key in wanted:
            data = await content(kind, wanted[name_key], bool(wanted.get("optional")), pod, fetch) or {}
            if not wanted.get("items"):
                return data
            for item in wanted["items"]:
                if item["key"] not in data and not wanted.get("optional"):
                    raise ConfigError(f"references non-existent {kind[:-1]} key: {item['key']}")
            return {item["path"]: data[item["key"]] for item in wanted["items"] if item["key"] in data}
    if "serviceAccountToken" in source:
        return {source["serviceAccountToken"]["path"]: (await token(source["serviceAccountToken"])).encode()}
    if "downwardAPI" in source:
        items = source["downwardAPI"].get("items") or ()
        return {item["path"]: field_of(pod, item["fieldRef"]["fieldPath"]).encode() for item in items if "fieldRef" in item}
    raise ConfigError(f"a volume of the kind {sorted(source)} is not known here")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
