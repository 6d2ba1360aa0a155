"""One Ray node on this machine, for the time of a sweep: quiet, private, and gone afterwards.

What Ray does by default and what is done about it here:

* Its processes die with the *thread* that started them (``PR_SET_PDEATHSIG`` is per thread). A pool that is used through
  ``asyncio.to_thread`` would lose its raylet when that thread ends; so Ray is started by a thread that lives until :meth:`stop`.
  (Outside of the main thread Ray leaves our signal handlers alone, too.)
* After a ``kill -9`` of this process some of its processes live on; see :mod:`specsweep.client.reaper`.
* It prints whole log tails of the raylet to the terminal when a worker dies. The pool says it in one line.
* It starts idle workers ahead, collects metrics, kills workers when memory is short, and runs workers at niceness 15. All of
  them disturb a measurement on the same machine (an engine that fills memory and cores is what we measure), so they are off.
* It joins a running Ray of the user where it finds one. The clients measure on a node of their own, and leave others alone.
* It listens on every interface, and whoever reaches it can run code here. So it gets an access token, a new one for every process,
  which Ray's core must be told to read again: it reads its environment once, at whatever import of Ray came first.
* It writes an access token to the home directory, and logs to ``/tmp/ray`` for ever. Token and folder are ours here.

Nothing of the working folder is shipped: there is no ``runtime_env``, hooks that would make one are off, and the workers run this same
environment.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from specsweep.client import reaper

OBJECT_STORE_BYTES = 512 * 1024**2  # traces pass through it; it spills to disk beyond
_LONGEST_TEMP_PATH = 40  # Ray puts unix sockets below it, whose paths end at 107 bytes
_SYSTEM_CONFIG = {
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,
    "memory_monitor_refresh_ms": 0,
    "enable_metrics_collection": False,
    "worker_niceness": 0,
}
QUIET: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.CRITICAL, "runtime_env": {}}
OWN_NODE: dict[str, str | None] = {
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # it prints a stack of Ray's core at a TERM that we handle ourselves
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_JOB_CONFIG_JSON_ENV_VAR": None,  # inside somebody's Ray job: its runtime environment is not ours
    "RAY_RUNTIME_ENV_HOOK": None,  # adds to the runtime environment what a platform likes to ship
}
_PRIVATE: dict[str, str | None] = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_AUTH_TOKEN_PATH": None,
}


class RayNode:
    """A Ray that this process uses through a node of its own. It lives until :meth:`stop`, which ends everything of it."""

    def __init__(self) -> None:
        self._folder = ""
        self._reaper: subprocess.Popen[bytes] | None = None
        self._release = threading.Event()
        self._nodes: list[psutil.Process] = []
        self._joined = False

    def _begin(self, init: Callable[[], None]) -> None:
        if self._joined:
            if self.alive:
                return
            self.stop()
        if (ray := sys.modules.get("ray")) is not None and ray.is_initialized():
            raise RuntimeError("Ray is already running in this process: one ClientPool at a time, close the other one first")
        failure: list[BaseException] = []
        ready, self._release = threading.Event(), threading.Event()
        release = self._release

        def keep() -> None:
            try:
                init()
                _check_that_nothing_is_shipped()
            except BaseException as error:
                failure.append(error)
            ready.set()
            release.wait()

        threading.Thread(target=keep, name="specsweep-ray", daemon=True).start()
        ready.wait()
        self._joined = True
        if failure:
            self.stop()
            raise RuntimeError(f"Ray did not start: {type(failure[0]).__name__}: {failure[0]}") from failure[0]

    @property
    def alive(self) -> bool:
        """Whether the node's processes are there."""
        return self._joined and all(runs(p) for p in self._nodes)

    def stop(self) -> None:
        """Safe to call at any time, and again."""
        if not self._joined:
            return
        self._joined = False
        if (ray := sys.modules.get("ray")) is not None:  # importing it may be what failed
            ray.shutdown()
        self._nodes = []
        self._release.set()
        if self._reaper is not None:
            assert self._reaper.stdin is not None
            self._reaper.stdin.close()
            self._reaper.wait()
            self._reaper = None

    def _make_folder(self) -> None:
        """Ray's folder, and the program that ends what has a file open below it when we end."""
        if not self._folder:
            short = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_TEMP_PATH else "/tmp"
            self._folder = tempfile.mkdtemp(prefix="specsweep-ray-", dir=short)
        # The same one after a restart: Ray makes the folders of its last session again, and they must go with the rest.
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(reaper.__file__)), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


class LocalRay(RayNode):
    """A private Ray of one node. Starts at the first :meth:`start`, and again if it has died."""

    def start(self, num_cpus: int, num_gpus: int = 0) -> None:
        """What the node may hand out. Raises ``RuntimeError`` with Ray's words if it does not come up."""
        self._begin(lambda: self._init(num_cpus, num_gpus))

    def _init(self, num_cpus: int, num_gpus: int) -> None:
        self._make_folder()
        before = {p.pid for p in psutil.Process().children()}
        with environment(OWN_NODE | _PRIVATE), groups_of_their_own():
            import ray

            silence()
            ship_nothing()
            read_token_again()
            ray.init(
                address="local",  # the default is to join a Ray that RAY_ADDRESS or a file names
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=self._folder,
                _system_config=_SYSTEM_CONFIG,
                **QUIET,
            )
        own = [p for p in psutil.Process().children() if p.pid not in before]
        self._nodes = [p for p in own if p.name() in ("raylet", "gcs_server")]


def silence() -> None:
    """After the import of Ray, which sets its log level. The driver also prints every worker death to stdout, whatever
    ``log_to_driver`` says, and has no setting against it."""
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_kwargs: None


def read_token_again() -> None:
    """As Ray's own tools do it. Without it a core that was imported before the token stood there gets no client in."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def ship_nothing() -> None:
    """After the import of Ray, which has looked at its environment by then. Under ``uv run`` it uploads the working folder to every node
    and starts workers with it."""
    from ray._private import ray_constants

    ray_constants.RAY_ENABLE_UV_RUN_RUNTIME_ENV = False


def _check_that_nothing_is_shipped() -> None:
    import ray

    if shipped := dict(ray.get_runtime_context().runtime_env):
        raise RuntimeError(f"Ray would run the clients in a runtime environment that is not ours: {shipped}")


@contextmanager
def groups_of_their_own() -> Iterator[None]:
    """Processes that are started meanwhile lead their own process groups.

    Whoever stops a job signals its whole group (``timeout``, systemd, Slurm). Ray's node would die of that before we have said
    goodbye to it, and its client then waits a minute for a node that is gone. Ray has no setting for it.
    """
    original = subprocess.Popen.__init__

    def in_own_group(self: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("start_new_session"):
            kwargs.setdefault("process_group", 0)
        original(self, *args, **kwargs)

    subprocess.Popen.__init__ = in_own_group  # type: ignore[method-assign]
    try:
        yield
    finally:
        subprocess.Popen.__init__ = original  # type: ignore[method-assign]


def runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def process_runs(pid: int) -> bool:
    """Whether a process of this host is alive; a zombie is not."""
    try:
        return runs(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


@contextmanager
def environment(values: dict[str, str | None]) -> Iterator[None]:
    """``values`` for a time; None: not set."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
