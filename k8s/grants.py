"""Whether a refusal is to be believed.

An API server that has just started does not have the cluster's roles and accounts yet, and for a second or two refuses everybody (403,
even 401) what they may do. A sweep that runs for days must not end by that. So it is asked again for a while after the server was away,
and where it granted the same before; else a right that is refused is missing, at once.
"""

from __future__ import annotations

from math import inf

from specsweep.k8s.errors import ApiError, Forbidden, Unauthorized


class Grants:
    """``doubt_s``: for how long a refusal is not believed. Times are the event loop's."""

    def __init__(self, doubt_s: float) -> None:
        self._doubt_s = doubt_s
        self._away_at = -inf
        self._refused_since: dict[str, float | None] = {}  # by right; None: granted the last time

    def granted(self, right: str) -> None:
        self._refused_since[right] = None

    def away(self, now: float) -> None:
        """There was no answer."""
        self._away_at = now

    def doubts(self, error: ApiError, right: str, now: float) -> bool:
        if not isinstance(error, Forbidden | Unauthorized):
            return False
        if now - self._away_at < self._doubt_s:
            return True
        if right not in self._refused_since:
            return False
        since = self._refused_since[right]
        if since is None:
            since = self._refused_since[right] = now
        return now - since < self._doubt_s
