"""Startup, readiness and liveness probes as a kubelet runs them, in its words.

A container that has a startup probe is asked nothing else until that succeeded once. Without a readiness probe it is ready when it is
started. What fails often enough is either not ready (readiness) or ended (the other two), and every failure is an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from cluster.container import Process
from cluster.rest import Json
from cluster.status import State

Event = Callable[[str, str, str], None]  # type, reason, message


async def probe_for_ever(spec: Json, process: Process, ip: str, state: State, changed: Callable[[], None], event: Event) -> None:
    """Returns when the container is to be ended for a probe, which an event has then said.

    ``state``: started and ready are set in it, then ``changed`` is called.
    """
    startup, liveness, readiness = (spec.get(f"{kind}Probe") for kind in ("startup", "liveness", "readiness"))
    if startup is not None and not await _once(startup, "Startup", spec, process, ip, event):
        event("Normal", "Killing", f"Container {state.name} failed startup probe, will be restarted")
        return
    state.started = True
    state.ready = readiness is None
    changed()
    watching = [asyncio.create_task(_keep_ready(readiness, spec, process, ip, state, changed, event))] if readiness is not None else []
    try:
        if liveness is None:
            await asyncio.Event().wait()
        else:
            await _until_dead(liveness, spec, process, ip, event)
            event("Normal", "Killing", f"Container {state.name} failed liveness probe, will be restarted")
    finally:
        for task in watching:
            task.cancel()


async def _once(probe: Json, kind: str, spec: Json, process: Process, ip: str, event: Event) -> bool:
    """Whether it succeeded before it failed too often."""
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    for _ in range(probe.get("failureThreshold", 3)):
        if (trouble := await ask(probe, spec, process, ip)) is None:
            return True
        event("Warning", "Unhealthy", f"{kind} probe failed: {trouble}")
        await asyncio.sleep(probe.get("periodSeconds", 10))
    return False


async def _keep_ready(probe: Json, spec: Json, process: Process, ip: str, state: State, changed: Callable[[], None], event: Event) -> None:
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    good = bad = 0
    while True:
        trouble = await ask(probe, spec, process, ip)
        good, bad = (good + 1, 0) if trouble is None else (0, bad + 1)
        if trouble is not None:
            event("Warning", "Unhealthy", f"Readiness probe failed: {trouble}")
        ready = state.ready
        if good >= probe.get("successThreshold", 1):
            ready = True
        elif bad >= probe.get("failureThreshold", 3):
            ready = False
        if ready != state.ready:
            state.ready = ready
            changed()
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def _until_dead(probe: Json, spec: Json, process: Process, ip: str, event: Event) -> None:
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    bad = 0
    while bad < probe.get("failureThreshold", 3):
        trouble = await ask(probe, spec, process, ip)
        bad = 0 if trouble is None else bad + 1
        if trouble is not None:
            event("Warning", "Unhealthy", f"Liveness probe failed: {trouble}")
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def ask(probe: Json, spec: Json, process: Process, ip: str) -> str | None:
    """None if the container is fine, else what is wrong."""
    timeout_s = probe.get("timeoutSeconds", 1)
    if "exec" in probe:
        try:
            code, output = await process.run(probe["exec"]["command"], timeout_s)
        except TimeoutError:
            return f"command timed out: {probe['exec']['command']} timed out after {timeout_s}s"
        return None if code == 0 else output
    if "httpGet" in probe:
        return await _http(probe["httpGet"], spec, ip, timeout_s)
    return await _tcp(ip, _port(probe["tcpSocket"]["port"], spec), timeout_s)


async def _http(get: Json, spec: Json, ip: str, timeout_s: float) -> str | None:
    url = f"{get.get('scheme', 'HTTP').lower()}://{get.get('host') or ip}:{_port(get['port'], spec)}{get.get('path', '/')}"
    headers = {header["name"]: header["value"] for header in get.get("httpHeaders") or ()}
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        # A connection of its own each time, as a kubelet does: nothing of a former answer helps the next.
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=headers, ssl=False) as answer:
            return None if 200 <= answer.status < 400 else f"HTTP probe failed with statuscode: {answer.status}"
    except TimeoutError:
        return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    except (aiohttp.ClientError, OSError) as error:
        return f'Get "{url}": {error}'


async def _tcp(ip: str, port: int, timeout_s: float) -> str | None:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(ip, port), timeout_s)
    except (OSError, TimeoutError) as error:
        return f"dial tcp {ip}:{port}: {error or 'i/o timeout'}"
    writer.close()
    return None


def _port(port: int | str, spec: Json) -> int:
    if isinstance(port, int):
        return port
    return next(int(each["containerPort"]) for each in spec.get("ports") or () if each.get("name") == port)
