"""Every error of this room, as one tree.

    KubernetesError
    ├── SpecError              a spec or a pod template that cannot be right; found before anything is sent
    ├── AccessError            no usable kubeconfig, context or service account
    ├── ApiError               the API server's answer, or none
    │   ├── Unreachable        no answer for as long as we are patient
    │   ├── Unauthorized       it does not know who we are
    │   ├── Forbidden          a right is missing; named with verb, resource and namespace
    │   ├── NotFound
    │   ├── Conflict           an object of that name is not ours, or somebody changed it meanwhile
    │   │   └── Outdated       it is ours, but was made with other settings
    │   ├── Expired            the wanted version is no longer kept (410): list anew
    │   └── Invalid            the object is refused: its fields, an admission policy, a quota
    ├── RemovalError           something of ours could not be deleted: it may still hold GPUs
    └── StartError             a server that did not become ready, or did not stay it; evidence attached
        ├── StartRetryable     another start may heal it: a lost node, an eviction, an unknown end
        └── StartTerminal      it will not: no such node, no such image, out of memory, never healthy

``message`` says what to do; ``evidence`` is a dict of texts (pod, events, logs) that was taken before anything was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping


class KubernetesError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SpecError(KubernetesError):
    pass


class AccessError(KubernetesError):
    pass


class ApiError(KubernetesError):
    """``status``: the HTTP status, 0 without an answer. ``reason``: the API's machine-readable word (``AlreadyExists``)."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Unreachable(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class Outdated(Conflict):
    pass


class Expired(ApiError):
    pass


class Invalid(ApiError):
    pass


class RemovalError(KubernetesError):
    pass


class StartError(KubernetesError):
    """``kind``: one or two words for counting (``image``, ``host memory``, ``node lost``). ``once``: worth one more start, not several."""

    def __init__(self, message: str, *, kind: str = "", once: bool = False, evidence: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.once = once
        self.evidence = dict(evidence or {})


class StartRetryable(StartError):
    pass


class StartTerminal(StartError):
    pass
