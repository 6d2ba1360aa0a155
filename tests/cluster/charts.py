"""The chart of the project, installed by helm itself as whoever owns the namespace would."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from cluster.build import find
from cluster.harness import POOL, Tenant

CHART = Path(__file__).parents[2] / "helm" / "specsweep"
RELEASE = "bench"
ACCOUNT = f"{RELEASE}-specsweep"
IMAGE = ("image.repository=local/specsweep", "image.tag=test", "image.pullPolicy=IfNotPresent")
# The containers here are this machine's own files, so they run as its root.
AS_ROOT = (*(f"podSecurityContext.{name}=0" for name in ("runAsUser", "runAsGroup", "fsGroup")), "podSecurityContext.runAsNonRoot=false")


async def install(tenant: Tenant, *values: str) -> Path:
    """``helm install``; returns a kubeconfig with the rights of the chart's Role and no others."""
    helm = find("helm")
    assert helm is not None, "the control plane's binaries were built without helm"
    pool = (f"nodeSelector.{POOL.replace('.', chr(92) + '.')}={tenant.namespace}", "tolerations[0].operator=Exists")
    settings = [word for value in (*IMAGE, *AS_ROOT, *pool, *values) for word in ("--set", value)]
    command = [str(helm), "install", RELEASE, str(CHART), "--namespace", tenant.namespace, *settings]
    env = {**os.environ, "KUBECONFIG": str(tenant.cluster.plane.kubeconfig())}
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return await tenant.account(ACCOUNT)
