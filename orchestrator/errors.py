"""Every error of specsweep, as one tree.

    SpecsweepError
    ├── ConfigError           exit 2   the user's input; found before any engine is started
    ├── ClusterError          exit 3   a place where engines run
    │   ├── ClusterRetryable  exit 75  can heal: a node that was lost, an API server that is away; the same command goes on
    │   └── ClusterTerminal            cannot: no such device, forbidden, image not found
    ├── EngineError           exit 4   an engine that was started
    │   ├── EngineRetryable            may heal with another start: port taken, hub rate limit
    │   └── EngineTerminal             will not: out of memory, bad flag, missing file, wrong model
    ├── RequestError          exit 4   too many failed requests on a point
    ├── ClientError           exit 6   our own measuring side: a lost actor, a clock, a bug
    │   └── RunError                   nothing more can be measured: ends the run, points that are left stay missing
    │       ├── StoreError             results cannot be written (a full disk): what it measured would be lost
    │       └── NoClientsError         no client process comes up: every further point would fail for the same reason
    └── TrackingError         exit 0   MLflow is away; never ends a sweep

Errors carry what a person needs to act: a message that names the field, the value and what to do, and ``evidence`` (the
last log lines, pod state, events) that is written beside the point.
"""

from __future__ import annotations


class SpecsweepError(Exception):
    exit_code = 1

    def __init__(self, message: str, *, evidence: str = "", node: str = "") -> None:
        """``node``: the host where it happened, if the place of the engines names its hosts."""
        super().__init__(message)
        self.message = message
        self.evidence = evidence
        self.node = node


class ConfigError(SpecsweepError):
    exit_code = 2


class ClusterError(SpecsweepError):
    exit_code = 3


class ClusterRetryable(ClusterError):
    exit_code = 75  # EX_TEMPFAIL of sysexits.h: a Job tries such a sweep again, and no other that says why it failed


class ClusterTerminal(ClusterError):
    pass


class EngineError(SpecsweepError):
    exit_code = 4


class EngineRetryable(EngineError):
    pass


class EngineTerminal(EngineError):
    pass


class RequestError(SpecsweepError):
    exit_code = 4


class ClientError(SpecsweepError):
    exit_code = 6


class RunError(ClientError):
    pass


class StoreError(RunError):
    pass


class NoClientsError(RunError):
    pass


class TrackingError(SpecsweepError):
    exit_code = 0


EXIT_OK = 0
EXIT_INCOMPLETE = 5  # finished, with failed or invalid points
EXIT_REGRESSION = 7  # found by `compare`
EXIT_INTERRUPTED = 130
