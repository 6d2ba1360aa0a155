"""The process of an embedded llama.cpp server: ``python -m … SETTINGS.json PORT [HOST]``.

A process of its own, so that an engine that dies takes nothing with it and its CPU time is not the orchestrator's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def parameters(settings: dict[str, Any], port: int, host: str) -> Any:
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = settings["model"]
    p.hostnames = [host]
    p.port = port
    p.n_parallel = settings["n_parallel"]
    p.n_ctx = settings["n_ctx"]
    p.kv_unified = False
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = settings["threads"]
    p.endpoint_metrics = p.endpoint_slots = True
    p.cache_prompt = p.cache_idle_slots = p.ui = False
    p.cache_ram_mib = 0
    p.n_threads_http = settings["n_parallel"] + 4  # every stream holds one of its threads; two more answer /health and /metrics
    kind = xllamacpp.common_speculative_type
    drafter = settings["drafter"]
    if drafter["type"] == "ngram_simple":
        p.speculative.types = [kind.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        p.speculative.ngram_simple.size_n = drafter["size_n"]
        p.speculative.ngram_simple.size_m = drafter["size_m"]
    elif drafter["type"].startswith("draft_"):
        p.speculative.types = [getattr(kind, f"COMMON_SPECULATIVE_TYPE_{drafter['type'].upper()}")]
        if "path" in drafter:
            p.speculative.draft.mparams.path = drafter["path"]
        p.speculative.draft.n_max = drafter["n_max"]
        p.speculative.draft.n_min = drafter["n_min"]
        p.speculative.draft.p_min = drafter["p_min"]
    else:
        p.speculative.types = [kind.COMMON_SPECULATIVE_TYPE_NONE]
    for dotted, value in settings["args"].items():
        _set(p, dotted, value)
    return p


def _set(p: Any, dotted: str, value: Any) -> None:
    *path, last = dotted.split(".")
    for name in path:
        p = getattr(p, name)
    if not hasattr(p, last):
        raise SystemExit(f"engine.args: llama.cpp's CommonParams has no {dotted!r}")
    setattr(p, last, value)


def main() -> None:
    settings, port = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    host = sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1"
    import xllamacpp

    server = xllamacpp.Server(parameters(settings, port, host))
    print(f"listening on {server.listening_address}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # nothing to save, and the server's own shutdown waits for open streams
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
