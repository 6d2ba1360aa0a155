"""Specs for tests: one of everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specsweep.k8s.names import labels
from specsweep.k8s.specs import ClaimMount, Owner, Placement, PrefetchSpec, Program, SecretRef, ServerSpec, SweepSpec

OWNER = Owner("batch/v1", "Job", "fig7", "0f9b2c1e-uid")
NAMESPACE = "bench"


def program(**fields: Any) -> Program:
    given: dict[str, Any] = {
        "image": "vllm/vllm-openai:v0.13.0",
        "argv": ("vllm", "serve", "/models/target", "--host", "{host}", "--port", "{port}", "--config", "{files}/engine.yaml"),
        "cpu": "16",
        "memory": "128Gi",
        "env": {"HF_HOME": "/models"},
        "secret_env": {"HF_TOKEN": SecretRef("hub", "token")},
        "files": {"engine.yaml": "max-num-seqs: 64\n"},
        "claims": (ClaimMount("weights", "/models"),),
    }
    return Program(**{**given, **fields})


def server(**fields: Any) -> ServerSpec:
    given: dict[str, Any] = {
        "name": "fig7-3f2a91c0e2",
        "namespace": NAMESPACE,
        "labels": labels("engine", sweep="fig7", session="3f2a91c0e2"),
        "program": program(),
        "placement": Placement(),
        "gpus": 8,
        "gpu_product": "NVIDIA-B200",
        "shm": "32Gi",
        "active_deadline_s": 14400,
        "ttl_s": 600,
    }
    return ServerSpec(**{**given, **fields})


def sweep(**fields: Any) -> SweepSpec:
    given: dict[str, Any] = {
        "name": "fig7",
        "namespace": NAMESPACE,
        "labels": labels("sweep", sweep="fig7"),
        "program": replace(program(), argv=("specsweep", "run", "--config", "{files}/sweep.yaml"), secret_env={}),
        "service_account": "specsweep",
        "final_codes": (5, 2),
    }
    return SweepSpec(**{**given, **fields})


def prefetch(**fields: Any) -> PrefetchSpec:
    given: dict[str, Any] = {
        "name": "weights-77aa",
        "namespace": NAMESPACE,
        "labels": labels("prefetch", sweep="fig7"),
        "program": program(argv=("hf", "download", "m"), claims=(ClaimMount("weights", "/models", read_only=False),), files={}),
    }
    return PrefetchSpec(**{**given, **fields})
