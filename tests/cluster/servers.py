"""What the tests of this folder run as servers, and the fleet in which they run them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cluster.harness import Tenant
from cluster.images import LOCAL
from specsweep.k8s.api import Api
from specsweep.k8s.fleet import Fleet, Pace
from specsweep.k8s.names import SWEEP, labels
from specsweep.k8s.specs import Placement, Program, ServerSpec

PACE = Pace(first_look_s=0.2, longest_look_s=1.0, delete_s=20.0)
SWEEP_NAME = "fig7"
HTTP = ("python", "-m", "http.server", "{port}", "--bind", "{host}")
ENGINE = ("python", "-m", "specsweep.client.sim.server", "{files}/settings.json", "{port}", "{host}")
OF_THE_PROGRAM = ("env", "secret_env", "files", "claims", "memory", "pull_policy")
ENGINE_FILES = {"settings.json": json.dumps({"model": "tiny", "model_name": "m", "dialect": "vllm"})}


def server(tenant: Tenant, argv: tuple[str, ...] = HTTP, *, name: str = "engine", image: str = LOCAL, **fields: Any) -> ServerSpec:
    """Ready as soon as it answers. Fields of the program (``env``, ``memory``, …) and of the spec alike."""
    program: dict[str, Any] = {key: fields.pop(key) for key in OF_THE_PROGRAM if key in fields}
    place: dict[str, Any] = fields.pop("placement", {})
    placement = Placement(**{**tenant.placement, **place})
    given: dict[str, Any] = {
        "health_path": "/",
        "startup_s": 60,
        "probe_period_s": 1,
        "grace_s": 5,
        "node_lost_s": 1,
        "labels": labels("engine", sweep=SWEEP_NAME, session=name),
        **fields,
    }
    made = Program(image=image, argv=argv, **{"cpu": "1", "memory": "256Mi", **program})
    return ServerSpec(name=name, namespace=tenant.namespace, program=made, placement=placement, **given)


@asynccontextmanager
async def fleet(tenant: Tenant, *, pace: Pace = PACE) -> AsyncIterator[Fleet]:
    """With the rights of a sweep."""
    async with Api.connect(kubeconfig=str(tenant.kubeconfig)) as api, Fleet(api, {SWEEP: SWEEP_NAME}, pace=pace) as found:
        yield found
