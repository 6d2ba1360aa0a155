"""The process of the engine ``hf``: ``python -m specsweep.orchestrator.engines.hf_server.serve SETTINGS.json PORT``.

Ray Serve holds the replicas, each a process with the model, and gives every request to a free one: one request at a time each
(``max_ongoing_requests=1``), so batch size 1 per forward pass and as many requests in flight as replicas. HTTP is served here, before
Serve's router and not through its proxy: that is one process and one buffer less between a step and its event, and this place sees all
replicas' steps, which the metrics page counts.

The Ray node is private to this process (:mod:`specsweep.client.local_ray` says what that takes), and ends with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aiohttp import web

from specsweep.client.local_ray import LocalRay
from specsweep.orchestrator.engines.hf_server.steps import Sampling, Step
from specsweep.orchestrator.engines.hf_server.wire import Answer, Counters, Refusal, error_body, error_event, read_request

RAY_STARTS = 3
MAX_BODY_BYTES = 64 * 1024**2  # a prompt of 128k ids is 1 MB


class Replica:
    """One process of Ray Serve with the model. Steps are made in one thread of their own, so that the process answers Serve meanwhile."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from specsweep.orchestrator.engines.hf_server.loading import load

        loaded = load(settings)
        self._method, self._vocab_size = loaded.method, loaded.vocab_size
        self._thread = ThreadPoolExecutor(1, "steps")

    def vocab_size(self) -> int:
        return self._vocab_size

    async def generate(self, prompt: list[int], sampling: Sampling) -> AsyncIterator[Step]:
        loop = asyncio.get_running_loop()
        steps = self._method.generate(prompt, sampling)
        while (step := await loop.run_in_executor(self._thread, next, steps, None)) is not None:
            yield step


class Front:
    """The HTTP side: requests to replicas, their steps to events."""

    def __init__(self, replicas: Any, settings: Mapping[str, Any]) -> None:
        self._steps = replicas.options(stream=True).generate.remote  # of a Ray Serve handle
        self._vocab_size = int(replicas.vocab_size.remote().result())
        self._settings = settings
        self._length = int(settings["drafter"]["length"])
        self._counters = Counters(self._length, int(settings["replicas"]))

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/completions", self._complete)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()  # nothing listens here before all replicas are up

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({package: version(package) for package in ("transformers", "torch", "ray")})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self._counters.page(), content_type="text/plain")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        model, limit = str(self._settings["model_name"]), int(self._settings["max_model_len"])
        try:
            prompt, sampling = read_request(await request.read(), model=model, vocab_size=self._vocab_size, max_model_len=limit)
        except Refusal as refusal:
            return web.json_response(error_body(str(refusal), 400), status=400)
        answer = Answer(f"cmpl-{uuid.uuid4().hex}", model, int(time.time()), len(prompt), self._length)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"})
        steps = self._steps(prompt, sampling)
        self._counters.in_flight += 1
        self._counters.request(len(prompt))
        try:
            await response.prepare(request)
            async for step in steps:
                self._counters.step(step)
                await response.write(answer.event(step))
            await response.write(answer.last_event())
        except ConnectionError:  # the client has gone
            steps.cancel()
        except asyncio.CancelledError:
            steps.cancel()
            raise
        except Exception as error:  # whatever a method of a user raises, or a replica's end
            logging.getLogger(__name__).exception("request %s failed", answer.request_id)
            await response.write(error_event(f"{type(error).__name__}: {error}".strip()[:2000]))
        finally:
            self._counters.in_flight -= 1
        return response


def deploy(settings: Mapping[str, Any]) -> Any:
    """Starts the replicas and waits until all are ready. Returns their handle. Raises RuntimeError if one cannot load the model."""
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet = {"log_level": "ERROR", "enable_access_log": False}
    replicas, gpus = int(settings["replicas"]), int(settings["gpus"])
    deployment = serve.deployment(
        name="replica",
        num_replicas=replicas,
        max_ongoing_requests=1,
        ray_actor_options={"num_cpus": 0, "num_gpus": gpus / replicas},
        max_constructor_retry_count=1,
        logging_config=quiet,
    )(Replica)
    serve.start(proxy_location="Disabled", logging_config=quiet)
    try:
        return serve.run(deployment.bind(dict(settings)), name="engine", route_prefix=None, logging_config=quiet)
    except RuntimeError as error:  # which names the deployment that failed, and not why
        reasons = [d.message for app in serve.status().applications.values() for d in app.deployments.values()]
        raise RuntimeError("\n".join([str(error), *reasons])) from None


async def listen(front: Front, port: int) -> None:
    """Serves until this process gets a TERM or INT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(front.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"listening on http://127.0.0.1:{port}", flush=True)
    await stop.wait()


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    try:
        _start_ray(int(settings["gpus"]))
        # Until it listens: there is nothing to save. Set after Ray, which takes the signal to print a stack trace.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        asyncio.run(listen(Front(deploy(settings), settings), int(sys.argv[2])))
    finally:
        os._exit(0 if sys.exc_info()[0] is None else _explained())


def _start_ray(gpus: int) -> None:
    """Again if it fails: Ray gives its own node 30 s and has no setting for it, which is short on a machine whose cores are taken."""
    node = LocalRay()
    for left in reversed(range(RAY_STARTS)):
        try:
            return node.start(num_cpus=max(2, os.cpu_count() or 1), num_gpus=gpus)
        except RuntimeError as error:
            if not left:
                raise
            print(f"{error}; once more", flush=True)


def _explained() -> int:
    """Prints why it ends, last lines last: they are what a user is shown. (Exits without Ray's goodbye, which takes seconds; the reaper ends it.)"""
    sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    return 1


if __name__ == "__main__":
    main()
