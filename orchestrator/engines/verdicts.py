"""From an engine's last words to a verdict: what kind of failure it was, whether another start can heal it, what to do.

Wrappers are not causes: an engine's log ends in "failed to start" whatever happened. So the first line that names a cause
wins, however far above the end it stands. The table is data; a new engine or wording is a new row with a test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specsweep.orchestrator.errors import EngineError, EngineRetryable, EngineTerminal


@dataclass(frozen=True, slots=True)
class Cause:
    kind: str
    pattern: re.Pattern[str]
    advice: str
    retryable: bool = False


def _cause(kind: str, pattern: str, advice: str, *, retryable: bool = False) -> Cause:
    return Cause(kind, re.compile(pattern), advice, retryable)


_PORT = "another process has the port; leave engine.port unset to get a free one"
_MEMORY = "lower engine.max_batch, the ISL buckets or the output cap, or use a smaller checkpoint"
_CONTEXT = "the KV cache does not hold one request of that length: lower the ISL buckets or workload.osl, or use more GPUs"
CAUSES = (
    _cause("port", r"couldn't bind HTTP server socket|[Aa]ddress already in use", _PORT, retryable=True),
    _cause("port", r"The server socket has failed to listen on any local network address", _PORT, retryable=True),
    _cause("bad flag", r"error: invalid argument: ?(?P<what>\S+)", "correct engine.args"),
    _cause("bad flag", r"CommonParams has no '(?P<what>[^']+)'", "correct engine.args"),
    _cause(
        "bad flag", r"error: (?:unrecognized arguments|argument --\S+): ?(?P<what>.+)", "this version does not know it: correct engine.args"
    ),
    _cause("bad flag", r"selected index k out of range", "drafter.topk and drafter.num_draft_tokens do not fit each other"),
    _cause("vocabulary", r"draft model vocab type must match target model", "choose a drafter with the target's tokenizer"),
    _cause("vocabulary", r"draft vocab|vocab.*(?:not compatible|mismatch)", "choose a drafter with the target's tokenizer"),
    _cause(
        "vocabulary file",
        r"HarmonyError: error downloading or loading vocab file",
        "the image has no network: put the vocabulary files into it",
    ),
    _cause("checkpoint", r"LoadingError: (?P<what>.+)", "correct that field"),
    _cause("drafter", r"Model architectures \[(?P<what>[^\]]*)\] are not supported", "this version cannot load that drafter or target"),
    _cause("drafter", r"The expanded size of the tensor \(\d+\) must match the existing size", "the drafter's sizes are not the target's"),
    _cause(
        "memory in use",
        r"Free memory on device .* is less than desired GPU memory utilization",
        "another process holds memory of that GPU: end it",
    ),
    _cause("context", r"max(?:imum)? seq(?:uence)? len(?:gth)?\)? \(\d+\).*(?:KV cache|number of tokens that can be stored)", _CONTEXT),
    _cause("memory", r"cudaMalloc failed: out of memory|CUDA out of memory|failed to allocate buffer|unable to allocate", _MEMORY),
    _cause(
        "memory", r"No available memory for the cache blocks|insufficient GPU memory|Please try to increase --mem-fraction-static", _MEMORY
    ),
    _cause("memory", r"Memory cgroup out of memory|std::bad_alloc", _MEMORY),
    _cause("shared memory", r"NCCL WARN Error while creating shared memory segment", "give the container a larger /dev/shm"),
    _cause("NCCL", r"NCCL error", "run once with NCCL_DEBUG=INFO (engine.env) and look at the interconnect"),
    _cause(
        "driver",
        r"ggml_cuda_init: failed to initialize CUDA",
        "the GPU driver is older than the build's CUDA; it would fall back to the CPU",
    ),
    _cause(
        "driver", r"Error 804: forward compatibility", "the GPU driver is older than the image's CUDA: another image, or a newer driver"
    ),
    _cause("fabric manager", r"Error 802: system not yet initialized", "the host's NVIDIA fabric manager does not run"),
    _cause(
        "environment", r"VLLM_PORT '[^']*' appears to be a URI", "a Kubernetes service is named vllm: rename it, or turn service links off"
    ),
    _cause("not installed", r"No module named '?(?P<what>[\w.]+)'?", "the environment of engine.python lacks it"),
    _cause("missing file", r"failed to open (?:GGUF )?file '?(?P<what>[^'\n]+?)'? ?\(?No such file", "check target.model.path"),
    _cause("missing file", r"gguf_init_from_file: failed to open|No such file or directory", "check target.model and drafter.model"),
    _cause(
        "bad model file",
        r"invalid magic characters|not a GGUF|tensor .* data is not within the file bounds|corrupted|failed to read magic",
        "the file is not a complete GGUF; fetch it again",
    ),
    _cause("bad model file", r"unknown model architecture: ?'?(?P<what>[^'\n]+)'?", "this llama.cpp does not know the architecture"),
    _cause("hub rate limit", r"429 Client Error: Too Many Requests", "prefetch the weights and set HF_HUB_OFFLINE=1", retryable=True),
    _cause("gated", r"You are trying to access a gated repo", "accept the model's terms and give a hub token"),
)
# An engine with one of these serves on, but not as what it is taken for.
FALSE_STARTS = ("driver",)
TAIL_LINES = 12


def cause_of(log: str) -> tuple[Cause, str] | None:
    """The first line of ``log`` that names a cause, or None."""
    for line in log.splitlines():
        for cause in CAUSES:
            if cause.pattern.search(line):
                return cause, line.strip()
    return None


def false_start(engine: str, log: str) -> EngineError | None:
    """For an engine that is to run on GPUs and is up: why it must not be measured (llama.cpp falls back to the CPU with one line)."""
    found = cause_of(log)
    return verdict(engine, "is up", log) if found is not None and found[0].kind in FALSE_STARTS else None


def tail(log: str, lines: int = TAIL_LINES) -> str:
    return "\n".join(log.rstrip().splitlines()[-lines:])


def verdict(engine: str, what: str, log: str) -> EngineError:
    """The error for an engine that ended. ``what``: how it ended, in words ("ended with code 1 while starting")."""
    found = cause_of(log)
    last = tail(log) or "(the engine wrote nothing)"
    if found is None:
        return EngineTerminal(f"engine {engine} {what}; no known cause in its log. Its last lines:\n{last}", evidence=log)
    cause, line = found
    kind = EngineRetryable if cause.retryable else EngineTerminal
    return kind(f"engine {engine} {what}: {cause.kind}: {cause.advice}. It wrote: {line}\nIts last lines:\n{last}", evidence=log)
