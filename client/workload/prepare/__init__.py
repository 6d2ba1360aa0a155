"""Fills in the published SPEED-Bench data set from its sources, once, so that a run needs no network and sends whole prompts."""

from __future__ import annotations

from specsweep.client.workload.prepare.driver import Missing, Prepared, named_sources, prepare
from specsweep.client.workload.prepare.errors import RowError, SourceAway
from specsweep.client.workload.prepare.folder import FolderFiles
from specsweep.client.workload.prepare.hub import HubFiles
from specsweep.client.workload.prepare.published import CONFIGS, target_tokens

__all__ = [
    "CONFIGS",
    "FolderFiles",
    "HubFiles",
    "Missing",
    "Prepared",
    "RowError",
    "SourceAway",
    "named_sources",
    "prepare",
    "target_tokens",
]
