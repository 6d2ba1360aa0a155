"""What can go wrong while a data set is filled in, by how far it reaches: one row, or a source and all rows that are left of it."""

from __future__ import annotations

from specsweep.client.workload.errors import WorkloadError


class RowError(WorkloadError):
    """One row cannot be made: its source has no such entry, or an entry of another shape. The other rows of the source go on."""


class SourceAway(WorkloadError):
    """A source cannot be had now: gated, offline, timed out, not installed, half a file. The other sources go on; the message says the way out."""
