"""Lines that real engines wrote, and the verdict that each must give."""

import pytest

from specsweep.orchestrator.engines.verdicts import cause_of, false_start, verdict
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
    (
        "memory in use",
        False,
        "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB).",
    ),
    ("memory", False, "ValueError: No available memory for the cache blocks"),
    ("context", False, "The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (3664)."),
    (
        "context",
        False,
        "To serve at least one request with the models's max seq len (131072), (4.00 GiB KV cache is needed, which is larger than the "
        "available KV cache memory (0.65 GiB).",
    ),
    (
        "context",
        False,
        "To serve at least one request with the model's max seq len (131072), 4.00 GiB KV cache is needed. Estimated maximum: 21200",
    ),
    ("drafter", False, "ValueError: Model architectures ['EagleQwen2ForCausalLM'] are not supported for now."),
    (
        "drafter",
        False,
        "RuntimeError: The expanded size of the tensor (1024) must match the existing size (4096) at non-singleton dimension 1.",
    ),
    ("environment", False, "ValueError: VLLM_PORT 'tcp://10.0.0.1:6785' appears to be a URI."),
    ("NCCL", False, "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    ("shared memory", False, "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB3 (size 7340384)"),
    ("driver", False, "Error 804: forward compatibility was attempted on non supported HW"),
    ("fabric manager", False, "Error 802: system not yet initialized"),
    ("memory", False, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    ("bad flag", False, "RuntimeError: selected index k out of range"),
    ("bad flag", False, "api_server.py: error: unrecognized arguments: --per-request-spec-decode-metrics detailed"),
    ("memory", False, "Executor creation failed due to insufficient GPU memory."),
    (
        "vocabulary file",
        False,
        "openai_harmony.HarmonyError: error downloading or loading vocab file: failed to download or load vocab file",
    ),
    ("not installed", False, "/usr/bin/python3: No module named sglang"),
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


@pytest.mark.parametrize(
    "wrapper",
    [
        "EngineCore failed to start.",
        "WorkerProc failed to start.",
        "RuntimeError: Executor worker returned error",
        "Received sigquit from a child proces. It usually means the child failed.",
    ],
)
def test_a_wrapper_is_no_cause(wrapper: str) -> None:
    assert cause_of(wrapper) is None


def test_an_engine_that_fell_back_to_the_cpu_is_told_from_one_that_runs() -> None:
    line = "ggml_cuda_init: failed to initialize CUDA: forward compatibility was attempted on non supported HW"
    error = false_start("llamacpp", f"{line}\nserver is listening\n")
    assert error is not None
    assert "fall back to the CPU" in error.message
    assert false_start("llamacpp", "server is listening\n") is None
    assert false_start("llamacpp", "error: invalid argument: --x\n") is None


def test_without_a_known_cause_the_last_lines_are_shown() -> None:
    log = "\n".join(f"line {i}" for i in range(100))
    error = verdict("x", "was killed by SIGKILL", log)
    assert "line 99" in error.message
    assert "line 50" not in error.message
    assert error.evidence == log
