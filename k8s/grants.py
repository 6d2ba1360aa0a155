"""Whether a refusal is to be believed.

An API server that has just started does not have the cluster's roles and accounts yet, and for a second or two refuses everybody (403,
even 401) what it granted before. A sweep that runs for days must not end by that. So a right that we had is asked for again for a
while before it is taken for lost; one that we never had is missing at once.
"""

from __future__ import annotations

from specsweep.k8s.errors import ApiError, Forbidden, Unauthorized


class Grants:
    """``doubt_s``: how long a refusal of what was granted before is not believed. Times are the event loop's."""

    def __init__(self, doubt_s: float) -> None:
        self._doubt_s = doubt_s
        self._refused_since: dict[str, float | None] = {}  # by right; None: granted the last time

    def granted(self, right: str) -> None:
        self._refused_since[right] = None

    def doubts(self, error: ApiError, right: str, now: float) -> bool:
        if not isinstance(error, Forbidden | Unauthorized) or right not in self._refused_since:
            return False
        since = self._refused_since[right]
        if since is None:
            since = self._refused_since[right] = now
        return now - since < self._doubt_s
