"""The words after a command that reads results: sweep names and ``store=DIR``, which names the same folder as it does to `run`.

Imports nothing heavy, so `status` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import folder
from specsweep.orchestrator.store import Store
from specsweep.orchestrator.typed_paths import typed_path

DEFAULT_STORE = "results"
METAVAR = "SWEEP store=DIR"


def names_and_store(words: Sequence[str], *, must_exist: bool = True) -> tuple[list[str], Store]:
    """Bare words are sweep names (so is ``sweep=NAME``). Raises ``ConfigError`` for another setting and for a folder that is not there."""
    names = [w for w in words if "=" not in w]
    settings = dict(w.split("=", 1) for w in words if "=" in w)
    for key, value in settings.items():
        if key not in ("store", "sweep"):
            raise ConfigError(f"{key}={value}: not a setting of this command; it takes sweep names and store=DIR")
    if "sweep" in settings:
        names.append(typed_path("sweep", settings["sweep"]) or "")
    root = folder("store", _resolved(typed_path("store", settings.get("store", DEFAULT_STORE))))
    if must_exist and not root.is_dir():
        raise ConfigError(f"store={root}: no such folder; say where the results live with store=DIR")
    return list(dict.fromkeys(names)), Store(root)


def _resolved(path: str | None) -> str | None:
    """Interpolations (``${oc.env:SCRATCH}/results``) as a run resolves them."""
    if path is None or "${" not in path:
        return path
    from specsweep.orchestrator.settings import resolved_keys

    return str(resolved_keys({"store": path}, ("store",))["store"])


def sweeps_or_all(words: Sequence[str]) -> tuple[list[str], dict[str, str], Store]:
    """The named sweeps, or all of the store that can be read, and of the others the reason by name.

    Raises ``ConfigError`` if the store holds none, and for a sweep that was named and cannot be read.
    """
    names, store = names_and_store(words)
    if names:
        for name in names:
            store.sweep_plan(name)
        return names, {}, store
    readable, unreadable = _all(store)
    return readable, unreadable, store


def one_sweep(words: Sequence[str], command: str) -> tuple[str, Store]:
    """The sweep that is named, or the only one of the store. Raises ``ConfigError`` for several, and as :func:`only_sweep`."""
    names, store = names_and_store(words)
    if len(names) > 1:
        raise ConfigError(f"{command} takes one sweep, not {len(names)}: {', '.join(names)}")
    return names[0] if names else only_sweep(store), store


def only_sweep(store: Store) -> str:
    """The sweep of a store that holds one that can be read. Raises ``ConfigError`` naming them if it holds none or several."""
    readable, unreadable = _all(store)
    if len(readable) == 1:
        for reason in unreadable.values():
            print(f"specsweep: left out: {reason}", file=sys.stderr)
        return readable[0]
    if not readable:
        raise ConfigError("; ".join(unreadable.values()))
    raise ConfigError(f"store={store.root} holds {len(readable)} sweeps; name one: {', '.join(readable)}")


def _all(store: Store) -> tuple[list[str], dict[str, str]]:
    """One plan that is broken, or was written by another version, must not hide the sweeps beside it."""
    readable, unreadable = [], {}
    for name in store.sweeps():
        try:
            store.sweep_plan(name)
            readable.append(name)
        except ConfigError as error:
            unreadable[name] = error.message
    if not readable and not unreadable:
        raise ConfigError(f"store={store.root} holds no sweep; measure one with `specsweep run`")
    return readable, unreadable
