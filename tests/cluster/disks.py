"""Disks that one node has at a time: the real controller attaches and detaches them, and says when another node holds one.

For the controller they are volumes of a CSI driver. Of that driver, only the attacher is needed: it says that what is asked for is done.
"""

from __future__ import annotations

from contextlib import suppress

from cluster.rest import Json, Rest, RestError

DRIVER = "disks.specsweep.test"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class Disks:
    def __init__(self) -> None:
        self._attached: dict[str, tuple[str, str]] = {}  # by the attachment's uid: node and volume

    async def follow(self, rest: Rest) -> None:
        async for kind, found in rest.follow(ATTACHMENTS):
            spec, uid = found["spec"], found["metadata"]["uid"]
            if kind == "DELETED" or spec["attacher"] != DRIVER:
                self._attached.pop(uid, None)
            elif uid not in self._attached:
                with suppress(RestError):  # not wanted any more
                    await rest.patch(f"{ATTACHMENTS}/{found['metadata']['name']}/status", {"status": {"attached": True}})
                    self._attached[uid] = (spec["nodeName"], spec["source"]["persistentVolumeName"])

    def has(self, node: str, volume: str) -> bool:
        """Whether that PersistentVolume is attached to that node."""
        return (node, volume) in self._attached.values()


def disk(name: str, folder: str) -> Json:
    """The source of a PersistentVolume that stands for a folder of this machine."""
    return {"csi": {"driver": DRIVER, "volumeHandle": name, "volumeAttributes": {"path": folder}}}
