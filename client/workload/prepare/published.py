"""The published data set: its configs, their token targets, and the table of one."""

from __future__ import annotations

import re

from specsweep.client.workload.errors import WorkloadError
from specsweep.client.workload.prepare.tables import Table

NAME = "nvidia/SPEED-Bench"
QUALITATIVE = "qualitative"
CONFIGS = (QUALITATIVE, "throughput_1k", "throughput_2k", "throughput_8k", "throughput_16k", "throughput_32k")


def published(config: str, revision: str) -> Table:
    """Raises :class:`WorkloadError` for a config that the data set does not have."""
    if config not in CONFIGS:
        raise WorkloadError(f"config {config!r}: {NAME} has {', '.join(CONFIGS)}; `all` takes them all")
    return Table(NAME, (f"{config}/test-*.parquet",), revision)


def target_tokens(config: str) -> int | None:
    """Prompt length of a config in ``o200k_base`` tokens, 1k = 1000; ``None`` for the qualitative split."""
    named = re.fullmatch(r"throughput_(\d+)k", config)
    return int(named[1]) * 1000 if named else None
