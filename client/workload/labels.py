"""Which prompts of a data set are wanted, by the labels that they carry. One rule for a run's workload and for the commands over data sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from specsweep.client.workload.errors import WorkloadError

LABELS = ("category", "sub_category", "difficulty")
_T = TypeVar("_T")


def having(found: Sequence[_T], wanted: Mapping[str, Collection[str]], *, of: str, field: str = "") -> list[_T]:
    """Those that have one of the wanted values of every label, in order; a label without values asks for nothing.

    ``of``: the data set as the user named it. ``field``: what stands before a label where the user wrote it (``workload.``). Raises
    :class:`WorkloadError` for a value that nothing has, with those that there are, and if nothing has all that is wanted.
    """
    asked = {name: values for name, values in wanted.items() if values}
    for name, values in asked.items():
        known = {getattr(one, name) for one in found}
        for value in values:
            if value not in known:
                there = ", ".join(sorted(filter(None, known))) or "none"
                raise WorkloadError(f"{field}{name}={value!r} is not in {of}; it has {there}")
    kept = [one for one in found if all(getattr(one, name) in values for name, values in asked.items())]
    if not kept:
        words = ", ".join(f"{field}{name}={'|'.join(values)}" for name, values in asked.items())
        raise WorkloadError(f"no prompt of {of} has {f'all of {words}' if words else 'anything: it is empty'}")
    return kept
