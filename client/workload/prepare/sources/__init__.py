"""The sources of the published rows: importing this registers them all. To add one: a function in one of these modules, and a test."""

from __future__ import annotations

from specsweep.client.workload.prepare.sources import code, dialogue, exam, knowledge, long_tasks, roles

__all__ = ["code", "dialogue", "exam", "knowledge", "long_tasks", "roles"]
