"""What Kubernetes says of a server, as errors of ours: whose fault it was decides which, and whether another start may heal it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from specsweep.k8s.ends import LogCause
from specsweep.k8s.errors import AccessError, ApiError, KubernetesError, SpecError, StartError, StartRetryable, Unreachable
from specsweep.k8s.outcomes import Retryable, Terminal
from specsweep.orchestrator.engines.verdicts import cause_of
from specsweep.orchestrator.errors import ClusterRetryable, ClusterTerminal, ConfigError, EngineRetryable, EngineTerminal, SpecsweepError

# Kinds of ends that the cluster brought about or that keep a pod from starting. Every other kind is the engine's own, out of its log.
CLUSTER_KINDS = frozenset(
    {
        "no node", "quota", "refused", "no pod", "image", "image access", "node disk", "mount", "create", "container config",
        "container", "command", "own limit", "evicted", "node lost", "preempted", "deadline", "node shut down",
        "refused by the node", "disrupted", "deleted", "pod gone", "restarted", "not ready any more",
    }
)  # fmt: skip


def cause(log: str) -> LogCause | None:
    """What an engine's last words mean."""
    found = cause_of(log)
    if found is None:
        return None
    known, line = found
    return LogCause(known.kind, f"{known.advice}. It wrote: {line}", retryable=known.retryable)


def as_error(error: KubernetesError) -> SpecsweepError:
    """An error of the Kubernetes room in our own tree."""
    if isinstance(error, StartError):
        retryable = isinstance(error, StartRetryable)
        return _error(error.message, error.kind, retryable, error.evidence)
    if isinstance(error, SpecError | AccessError):
        return ConfigError(error.message)
    healing = isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.status >= 500)
    return ClusterRetryable(error.message) if healing else ClusterTerminal(error.message)


def from_verdict(verdict: Retryable | Terminal, who: str, evidence: Mapping[str, str]) -> SpecsweepError:
    return _error(f"{who}: {verdict.reason}", verdict.kind, isinstance(verdict, Retryable), evidence)


def joined(evidence: Mapping[str, str]) -> str:
    """Texts one below the other, the log last: it is what people look for."""
    order = sorted(evidence, key=lambda name: ("log" in name, name))
    return "\n".join(f"── {name}\n{evidence[name].rstrip()}\n" for name in order)


def _error(message: str, kind: str, retryable: bool, evidence: Mapping[str, str]) -> SpecsweepError:
    healing, final = (ClusterRetryable, ClusterTerminal) if kind in CLUSTER_KINDS else (EngineRetryable, EngineTerminal)
    found: type[SpecsweepError] = healing if retryable else final
    return found(message, evidence=joined(evidence), node=_node(evidence))


def _node(evidence: Mapping[str, str]) -> str:
    """Where it ran; empty if it came to no node."""
    with suppress(ValueError, AttributeError):
        return str(json.loads(evidence.get("where.json", "{}")).get("node") or "")
    return ""
