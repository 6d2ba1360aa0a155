"""Lines that real engines wrote, and the verdict that each must give."""

import pytest

from specsweep.orchestrator.engines.verdicts import cause_of, verdict
from specsweep.orchestrator.errors import EngineRetryable, EngineTerminal

LINES = [
    ("port", True, "0.00.004.141 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18080"),
    ("port", True, "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"),
    ("port", True, "The server socket has failed to listen on any local network address."),
    ("bad flag", False, "error: invalid argument: --draft-model"),
    ("bad flag", False, "engine.args: llama.cpp's CommonParams has no 'n_ctxx'"),
    ("vocabulary", False, "draft model vocab type must match target model to use speculation"),
    ("memory", False, "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 92093.17 MiB on device 0: cudaMalloc failed: out of memory"),
    ("memory", False, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB."),
    ("memory", False, "Memory cgroup out of memory: Killed process (VLLM::Worker_TP)"),
    ("driver", False, "ggml_cuda_init: failed to initialize CUDA: forward compatibility was attempted on non supported HW"),
    ("hub rate limit", True, "429 Client Error: Too Many Requests for URL: …/config.json"),
    ("gated", False, "OSError: You are trying to access a gated repo."),
]


@pytest.mark.parametrize(("kind", "retryable", "line"), LINES)
def test_a_line_gives_its_kind(kind: str, retryable: bool, line: str) -> None:
    error = verdict("x", "ended with code 1 while starting", f"loading\n{line}\nEngineCore failed to start.\n")
    assert isinstance(error, EngineRetryable if retryable else EngineTerminal)
    assert f": {kind}:" in error.message
    assert line in error.message


def test_the_first_cause_wins_over_what_follows_from_it() -> None:
    found = cause_of("error: invalid argument: --x\nexiting\n[Errno 98] address already in use\n")
    assert found is not None
    assert found[0].kind == "bad flag"


def test_a_harmless_line_is_no_cause() -> None:
    assert (
        cause_of("failed to initialize the context: dflash requires ctx_other to be set (this warning is normal during memory fitting)")
        is None
    )


def test_without_a_known_cause_the_last_lines_are_shown() -> None:
    log = "\n".join(f"line {i}" for i in range(100))
    error = verdict("x", "was killed by SIGKILL", log)
    assert "line 99" in error.message
    assert "line 50" not in error.message
    assert error.evidence == log
