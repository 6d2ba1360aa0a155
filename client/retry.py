"""Which failures are worth sending a request again for, and how long to wait before it.

Off unless a sweep asks for it (``measure.retries``): a server that refuses requests is a finding, and whoever measures one wants to see it.
Where a proxy or a starting replica loses a request now and then, a bounded number of retries saves the conversation, at a price that stays
visible: each failed try is kept with the request, counted in the measurement, and the request is left out of every latency and rate of users.

Only what came before the first token is repeated. Once the server has begun to answer, an answer that breaks is a result: its tokens are
counted in the server's own numbers already, and a second answer would be measured beside what is left of the first.
"""

from __future__ import annotations

from specsweep.client.protocol import Answer
from specsweep.client.wire import split_head

MOST_RETRIES = 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LOST = ("eof", "reset")  # ways in which a connection ends under a request
_HEAD_READS = 8  # a head that takes more is not looked for: between two requests of a full batch nothing may take long


def transient(answer: Answer) -> str:
    """Why a request may be sent again after this answer; "" if it succeeded, has begun to succeed, or would only fail again.

    Connections that cannot be made or are lost before the first byte of a body, 429 (too many requests) and 5xx. Silence (``stalled``) is
    none: it has cost its time already.
    """
    if answer.ended.startswith("connect: "):
        return answer.ended
    head = split_head(answer.reads[:_HEAD_READS])
    if head.status == 429 or 500 <= head.status < 600:
        return f"HTTP {head.status}"
    began = any(data for _, data in head.reads) or len(answer.reads) > _HEAD_READS
    return f"{answer.ended} before the first byte of an answer" if answer.ended in _LOST and not began else ""


def pause_s(retry: int) -> float:
    """Seconds before the ``retry``-th retry (1, 2, …): doubled each time, up to two seconds."""
    return float(min(_FIRST_PAUSE_S * 2.0 ** (retry - 1), _LONGEST_PAUSE_S))
