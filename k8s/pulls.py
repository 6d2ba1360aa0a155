"""What a failed image pull means, from the words of the container runtime and its registry.

A node tries again by itself, so most failures are waited for: a cancelled context, a slow or absent registry, a rate limit. Three are
not, since a pod that waits for an image holds its GPUs: what the registry does not have, what it does not give to us, and a disk that is
full. The last is the node's trouble, and another node may have room.
"""

from __future__ import annotations

import re

from specsweep.k8s.outcomes import Retryable, Terminal

# As containerd, CRI-O and the registries' API (`MANIFEST_UNKNOWN`, `NAME_UNKNOWN`, `UNAUTHORIZED`, `DENIED`) say it.
_NO_ROOM = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_NO_ACCESS = re.compile(
    r"\bunauthorized\b|authentication required|authorization failed|no basic auth credentials|access .*denied|\bdenied:|403 forbidden",
    re.IGNORECASE,
)
_NOT_THERE = re.compile(
    r"manifest[_ ]unknown|name[_ ]unknown|code = notfound|: not found\b|repository does not exist|no match for platform", re.IGNORECASE
)


def pull_end(words: str, where: str) -> Retryable | Terminal | None:
    """``words``: of the failed pull; ``where``: " on node x". None if the node's next try may bring it."""
    if _NO_ROOM.search(words):
        return Retryable(f"no room for its image{where}: {words}; another node may have it", "node disk")
    if _NO_ACCESS.search(words):
        return Terminal(
            f"its image is not given to us{where}: {words}; name a pull secret of that registry, or correct the image's name",
            "image access",
        )
    if _NOT_THERE.search(words):
        return Terminal(f"its image does not exist{where}: {words}; correct the image's name and tag", "image")
    return None
