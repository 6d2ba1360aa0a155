"""What an image's name stands for here: an environment of this machine, or the trouble that a registry gives.

A container sees this machine's files, so an image is only what a container's own command needs: variables, and perhaps an entry point.
A name that nobody put here does not exist, in the words that containerd has for it.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOCAL = "local/specsweep:test"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME = re.compile(r"[a-z0-9][a-z0-9._:/-]*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?")


@dataclass(frozen=True, slots=True)
class Image:
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": f"{Path(sys.prefix) / 'bin'}:{SYSTEM_PATH}"})
    entrypoint: tuple[str, ...] = ()
    user: int = 0


class PullError(Exception):
    """``reason``: the waiting reason that a kubelet gives."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Images:
    """A registry. Tests put images into it."""

    def __init__(self) -> None:
        self._images: dict[str, list[Image | PullError]] = {LOCAL: [Image()]}

    def put(self, name: str, *outcomes: Image | PullError) -> None:
        """Of its first, second, … pull; the last stays."""
        self._images[name] = list(outcomes)

    def pull(self, name: str, *, may_pull: bool = True) -> Image:
        """Raises PullError."""
        if not _NAME.fullmatch(name):
            words = f'Failed to apply default image tag "{name}": couldn\'t parse image name "{name}": invalid reference format'
            raise PullError("InvalidImageName", words)
        outcomes = self._images.get(name)
        if outcomes is None and not may_pull:
            raise PullError("ErrImageNeverPull", f'Container image "{name}" is not present with pull policy of Never')
        if outcomes is None:
            full = name if "." in name.split("/")[0] else f"docker.io/{name}"
            words = f'failed to pull and unpack image "{full}": failed to resolve reference "{full}": {full}: not found'
            raise PullError("ErrImagePull", f'failed to pull image "{name}": rpc error: code = NotFound desc = {words}')
        found = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(found, PullError):
            raise found
        return found


def digest(name: str) -> str:
    """Always the same for a name, as if it had been built once."""
    return f"{name.split('@')[0].rsplit(':', 1)[0]}@sha256:{hashlib.sha256(name.encode()).hexdigest()}"
