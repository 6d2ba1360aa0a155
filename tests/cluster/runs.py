"""The containers of one pod: each is pulled, configured, run, probed and, if its pod says so, run again.

Where a kubelet waits, this waits, and says so in the container's state: a missing image or Secret may come, and then it goes on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.container import Launch, Process, StartError, start
from cluster.environment import ConfigError, bytes_of, expanded, variables
from cluster.images import Image, PullError, digest
from cluster.probes import probe_for_ever
from cluster.rest import Json
from cluster.status import State, now, restarts
from cluster.volumes import Volume, binds

if TYPE_CHECKING:
    from cluster.pod import PodWorker

MESSAGE_BYTES, MESSAGE_LINES = 2048, 80  # of a log that becomes the termination message
START_ERROR = 128


@dataclass(frozen=True, slots=True)
class Run:
    """A container that runs."""

    state: State
    container: Json
    process: Process
    since: str


class Runs:
    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker
        self._running: dict[str, Run] = {}
        self._logs: dict[str, list[Path]] = {}

    def log(self, container: str, *, previous: bool) -> Path | None:
        logs = self._logs.get(container) or []
        return logs[-2] if previous and len(logs) > 1 else logs[-1] if logs and not previous else None

    def runs(self, container: str) -> bool:
        return container in self._running

    def pid(self, container: str) -> int | None:
        run = self._running.get(container)
        return run.process.pid if run is not None else None

    async def keep(self, state: State, container: Json, volumes: Mapping[str, Volume], *, policy: str) -> int:
        """Runs it to its last end. Returns the exit code of that."""
        while True:
            image = await self._pulled(state, container)
            launch = await self._configured(state, container, image, volumes)
            code = await self._ran(state, container, launch)
            if not restarts(policy, code):
                return code
            state.last = state.current
            state.restarts += 1
            wait = f"back-off {self._worker.place.pace.restart_s:.0f}s restarting failed container={state.name}"
            self._event("Warning", "BackOff", f"Back-off restarting failed container {state.name}", state.name)
            self._waits(state, "CrashLoopBackOff", wait)
            await asyncio.sleep(self._worker.place.pace.restart_s)

    async def stop(self, grace_s: float, hurry: asyncio.Event) -> None:
        """Ends all that run: with the grace period, or as soon as ``hurry`` is set. Their states say how they ended."""
        found = list(self._running.values())
        if not found:
            return
        for run in found:
            self._event("Normal", "Killing", f"Stopping container {run.state.name}", run.state.name)
        stopping: asyncio.Future[Any] = asyncio.gather(*(run.process.stop(grace_s) for run in found))
        hurrying: asyncio.Future[Any] = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        await asyncio.gather(*(run.process.stop(0) for run in found))
        await stopping
        for run in found:
            await self._over(run)

    async def _pulled(self, state: State, container: Json) -> Image:
        name, policy = container["image"], container.get("imagePullPolicy")
        while True:
            self._event("Normal", "Pulling", f'Pulling image "{name}"', state.name)
            try:
                image = self._worker.place.images.pull(name, may_pull=policy != "Never")
            except PullError as error:
                if error.reason != "ErrImagePull":
                    self._event(
                        "Warning", "InspectFailed" if error.reason == "InvalidImageName" else error.reason, error.message, state.name
                    )
                    self._event("Warning", "Failed", f"Error: {error.reason}", state.name)
                    self._waits(state, error.reason, error.message)
                else:
                    self._event("Warning", "Failed", f'Failed to pull image "{name}": {error.message}', state.name)
                    self._event("Warning", "Failed", "Error: ErrImagePull", state.name)
                    self._waits(state, "ErrImagePull", error.message)
                    await asyncio.sleep(self._worker.place.pace.pull_s)
                    self._event("Normal", "BackOff", f'Back-off pulling image "{name}"', state.name)
                    self._waits(state, "ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: {error.message}')
                await asyncio.sleep(self._worker.place.pace.pull_s)
                continue
            self._event("Normal", "Pulled", f'Successfully pulled image "{name}"', state.name)
            state.image_id = digest(name)
            return image

    async def _configured(self, state: State, container: Json, image: Image, volumes: Mapping[str, Volume]) -> Launch:
        while True:
            try:
                return await self._launch(state, container, image, volumes)
            except ConfigError as error:
                self._event("Warning", "Failed", f"Error: {error}", state.name)
                self._waits(state, "CreateContainerConfigError", str(error))
                await asyncio.sleep(self._worker.place.pace.config_s)

    async def _launch(self, state: State, container: Json, image: Image, volumes: Mapping[str, Volume]) -> Launch:
        worker = self._worker
        pod = {**worker.pod, "status": {**(worker.pod.get("status") or {}), "podIP": worker.ip}}
        security = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
        user = security.get("runAsUser", image.user)
        if security.get("runAsNonRoot") and not user:
            raise ConfigError("container has runAsNonRoot and image will run as root")
        address, port = worker.place.api
        given = {"HOSTNAME": worker.key[1], "KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": str(port)}
        env = await variables(container, pod, worker.fetch, {**image.env, **given})
        argv = [expanded(part, env) for part in (*(container.get("command") or image.entrypoint), *(container.get("args") or ()))]
        if not argv:
            raise ConfigError("no command specified")
        memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        logs = self._logs.setdefault(state.name, [])
        folder = worker.folder / "containers" / state.name
        folder.mkdir(parents=True, exist_ok=True)
        logs.append(folder / f"{len(logs)}.log")
        return Launch(
            argv=argv,
            env=env,
            binds=binds(container, volumes),
            hosts=worker.hosts,
            network=worker.place.network.path(worker.uid),
            folder=folder / f"root-{len(logs)}",
            log=logs[-1],
            memory=bytes_of(memory) if memory else None,
            user=user,
            group=security.get("runAsGroup"),
            drop_all="ALL" in ((security.get("capabilities") or {}).get("drop") or ()),
            working_dir=container.get("workingDir") or "/",
            read_only_root=bool(security.get("readOnlyRootFilesystem")),
            hostname=pod["spec"].get("hostname") or worker.key[1],
            ahead_s=worker.ahead_s,
        )

    async def _ran(self, state: State, container: Json, launch: Launch) -> int:
        identity = uuid.uuid4().hex
        state.container_id = f"process://{identity}"
        starting = asyncio.ensure_future(start(launch, identity[:16]))
        since = now()
        try:
            process = await asyncio.shield(starting)
        except StartError as error:
            self._event("Warning", "Failed", f"Error: {error}", state.name)
            state.current = _terminated(START_ERROR, "StartError", since, state.container_id, str(error))
            self._worker.changed()
            return START_ERROR
        except asyncio.CancelledError:
            with suppress(StartError):
                self._running[state.name] = Run(state, container, await starting, since)
            raise
        run = self._running[state.name] = Run(state, container, process, since)
        self._event("Normal", "Created", f"Container created: {state.name}", state.name)
        self._event("Normal", "Started", f"Container started: {state.name}", state.name)
        state.current, state.started, state.ready = {"running": {"startedAt": since}}, False, False
        self._worker.changed()
        probing = asyncio.create_task(self._probed(state, container, process))
        try:
            await process.wait()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
        return await self._over(run)

    async def _probed(self, state: State, container: Json, process: Process) -> None:
        def event(kind: str, reason: str, message: str) -> None:
            self._event(kind, reason, message, state.name)

        await probe_for_ever(container, process, self._worker.ip, state, self._worker.changed, event)
        await process.stop(self._worker.pod["spec"].get("terminationGracePeriodSeconds") or 0)

    async def _over(self, run: Run) -> int:
        state = run.state
        code, out_of_memory = await run.process.wait()
        if self._running.pop(state.name, None) is None:  # told already
            return code
        reason = "OOMKilled" if out_of_memory else "Completed" if code == 0 else "Error"
        words = ""
        if code and run.container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            words = _end_of(self._logs[state.name][-1])
        state.current = _terminated(code, reason, run.since, state.container_id, words)
        state.started = state.ready = False
        self._worker.changed()
        return code

    def _waits(self, state: State, reason: str, message: str) -> None:
        state.current = {"waiting": {"reason": reason, "message": message}}
        self._worker.changed()

    def _event(self, kind: str, reason: str, message: str, container: str) -> None:
        self._worker.event(kind, reason, message, container)


def _terminated(code: int, reason: str, since: str, container_id: str, message: str) -> Json:
    words = {"message": message} if message else {}
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": since,
            "finishedAt": now(),
            "containerID": container_id,
            **words,
        }
    }


def _end_of(log: Path) -> str:
    text = log.read_bytes()[-MESSAGE_BYTES:].decode(errors="replace")
    return "\n".join(text.splitlines()[-MESSAGE_LINES:])
