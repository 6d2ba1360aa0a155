"""What an answer of the API server means: an error of our tree with the server's own words, and whether asking again may help."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specsweep.k8s.errors import ApiError, Conflict, Expired, Forbidden, Invalid, NotFound, Unauthorized
from specsweep.k8s.resources import Request

RETRIED = frozenset({408, 429, 500, 502, 503, 504})
LONGEST_RETRY_AFTER_S = 60.0
_KINDS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    404: NotFound,
    409: Conflict,
    410: Expired,
    **dict.fromkeys((400, 403, 413, 422), Invalid),  # 403 in other words than "cannot": an admission policy, a quota
}


def error_of(status: int, body: bytes, request: Request) -> ApiError:
    """The error for an answer that is not 2xx. ``body``: usually a ``v1`` Status, but a proxy in between may send anything."""
    told = status_of(body)
    words = str(told.get("message") or body[:300].decode(errors="replace").strip() or "no message")
    reason = str(told.get("reason") or "")
    if status == 403 and "cannot" in words:
        return Forbidden(
            f"the right to {request.right} is missing; ask for a Role with it (the chart's Role has it). The API server says: {words}",
            status=status,
            reason=reason,
        )
    advice = "; log in again, or look at the credentials of this context: kubectl auth whoami" if status == 401 else ""
    return _KINDS.get(status, ApiError)(f"{request}: {words}{advice}", status=status, reason=reason)


def status_of(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks us to wait, 0 if it does not say (or says it as a date, which the API server never does)."""
    try:
        return min(LONGEST_RETRY_AFTER_S, max(0.0, float(headers.get("Retry-After", "0"))))
    except ValueError:
        return 0.0
