"""The four verdicts on a server (:mod:`specsweep.k8s.verdict` says when which)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

GAVE_UP = "gave up"  # kind of the end of a program that says itself that another try is of no use


@dataclass(frozen=True, slots=True)
class Starting:
    waits_for: str
    since: datetime | None  # on the cluster's clock
    until: datetime | None  # when waiting turns into an end; None: not known
    kind: str = ""  # of the end that it then is


@dataclass(frozen=True, slots=True)
class Ready:
    pass


@dataclass(frozen=True, slots=True)
class Retryable:
    reason: str
    kind: str
    once: bool = False  # nothing known speaks for it: one more start and no more


@dataclass(frozen=True, slots=True)
class Terminal:
    reason: str
    kind: str


Verdict = Starting | Ready | Retryable | Terminal
