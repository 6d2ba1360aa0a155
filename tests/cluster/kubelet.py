"""The nodes of a cluster, all of them: one watch on pods, one heartbeat, and one event loop in a thread of its own.

The thread is for the tests' sake: a test may block, or end its own loop, and the cluster goes on as a cluster would. What a test does to
the nodes (add, lose, evict, cut off) it does from its own thread, and returns when it is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from cluster.control_plane import ControlPlane
from cluster.disks import Disks
from cluster.events import Events
from cluster.images import Images
from cluster.network import Network
from cluster.node import Node, NodeSpec
from cluster.place import Pace, Place
from cluster.rest import Rest
from cluster.service_names import ServiceNames

T = TypeVar("T")
HEARTBEAT_S = 2.0
CALL_S = 60.0  # a hang guard


class Kubelet:
    """Use as a context manager. Afterwards no process, namespace or mount of a pod is left."""

    def __init__(self, plane: ControlPlane, network: Network, folder: Path, *, pace: Pace | None = None) -> None:
        self.images = Images()
        self._plane = plane
        self._network = network
        self._folder = folder
        self._pace = pace or Pace()
        self._nodes: dict[str, Node] = {}
        self._pair = plane.authority.serving("kubelet", [network.host])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="kubelet")
        self._up = threading.Event()
        self._down = asyncio.Event()
        self._faults: list[BaseException] = []
        self._place: Place | None = None

    def __enter__(self) -> Kubelet:
        self._thread.start()
        self._up.wait(CALL_S)
        self.check()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raises what ended it, if it ended by a fault of its own."""
        if self._faults:
            raise RuntimeError(f"the kubelet had a fault: {self._faults[0]!r}") from self._faults[0]

    def add(self, *specs: NodeSpec) -> None:
        """Returns when the nodes are registered; the scheduler takes them a moment later."""
        self._do(self._add(specs))

    def remove_all(self) -> None:
        """Every node leaves the cluster, whatever runs on it."""
        self._do(self._remove_all())

    def lose(self, node: str) -> None:
        self._do(self._nodes[node].lose())

    def come_back(self, node: str) -> None:
        self._do(self._nodes[node].come_back())

    def evict(self, namespace: str, pod: str, message: str = "The node was low on resource: memory.") -> None:
        self._do(self._evict(namespace, pod, message))

    def set_link(self, namespace: str, pod: str, *, up: bool) -> None:
        """Cuts a pod off from everybody, or ends that."""
        self._network.set_link(self._uid(namespace, pod), up=up)

    def set_way(self, namespace: str, pod: str, other: str, *, up: bool) -> None:
        """Takes a pod's way to another one, and to nobody else, or ends that."""
        self._network.set_way(self._uid(namespace, pod), self._uid(namespace, other), up=up)

    def _uid(self, namespace: str, pod: str) -> str:
        return next(uid for node in self._nodes.values() if (uid := node.uid_of(namespace, pod)) is not None)

    def pid(self, namespace: str, pod: str) -> int:
        """Of the first process of a pod's container "main", as this machine sees it: a test may kill, stop or starve it."""
        found = (pid for node in self._nodes.values() if (pid := node.pid_of(namespace, pod)) is not None)
        return next(found)

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        self.check()
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(CALL_S)

    async def _add(self, specs: tuple[NodeSpec, ...]) -> None:
        assert self._place is not None
        for spec in specs:
            node = self._nodes[spec.name] = Node(spec, self._place, self._network.host, self._pair)
            await node.register()

    async def _remove_all(self) -> None:
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(node.leave() for node in nodes.values()))

    async def _evict(self, namespace: str, pod: str, message: str) -> None:
        node = next(node for node in self._nodes.values() if node.uid_of(namespace, pod) is not None)
        node.evict(namespace, pod, message)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            self._faults.append(error)
        finally:
            self._up.set()
            self._loop.close()

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            rest = await stack.enter_async_context(Rest(self._plane.credentials("kubelet")))
            events = await stack.enter_async_context(Events(rest))
            names, disks = ServiceNames(), Disks()
            api = (self._plane.address, self._plane.port)
            self._place = Place(rest, self._network, self.images, names, disks, events, self._folder, api, self._faults, self._pace)
            background = [
                asyncio.create_task(work) for work in (self._follow_pods(rest), self._beat(), names.follow(rest), disks.follow(rest))
            ]
            down: asyncio.Task[Any] = asyncio.create_task(self._down.wait())
            self._up.set()
            try:
                await asyncio.wait({*background, down}, return_when=asyncio.FIRST_COMPLETED)
                for task in background:
                    if task.done():
                        task.result()
            finally:
                for each in (*background, down):
                    each.cancel()
                await asyncio.gather(*background, down, return_exceptions=True)
                await asyncio.gather(*(node.lose() for node in self._nodes.values()))

    async def _follow_pods(self, rest: Rest) -> None:
        async for kind, pod in rest.follow("/api/v1/pods"):
            node = self._nodes.get(pod["spec"].get("nodeName", ""))
            if node is not None:
                await node.see(kind, pod)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await asyncio.gather(*(node.beat() for node in self._nodes.values()))
