"""The words after a command that reads results: sweep names and ``store=DIR``. Imports nothing heavy, so `status` answers at once."""

from __future__ import annotations

from collections.abc import Sequence

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.fields import folder
from specsweep.orchestrator.store import Store

DEFAULT_STORE = "results"
METAVAR = "SWEEP store=DIR"


def names_and_store(words: Sequence[str]) -> tuple[list[str], Store]:
    """Bare words are sweep names (so is ``sweep=NAME``). Raises ``ConfigError`` for another setting and for a folder that is not there."""
    names = [w for w in words if "=" not in w]
    settings = dict(w.split("=", 1) for w in words if "=" in w)
    for key, value in settings.items():
        if key not in ("store", "sweep"):
            raise ConfigError(f"{key}={value}: not a setting of this command; it takes sweep names and store=DIR")
    if "sweep" in settings:
        names.append(settings["sweep"])
    root = folder("store", settings.get("store", DEFAULT_STORE))
    if not root.is_dir():
        raise ConfigError(f"store={root}: no such folder; say where the results live with store=DIR")
    return names, Store(root)


def sweeps_or_all(words: Sequence[str]) -> tuple[list[str], Store]:
    """The named sweeps, or all of the store. Raises ``ConfigError`` if it holds none."""
    names, store = names_and_store(words)
    known = store.sweeps()
    if not known and not names:
        raise ConfigError(f"store={store.root} holds no sweep; measure one with `specsweep run`")
    return names or known, store


def only_sweep(store: Store) -> str:
    """The sweep of a store that holds one. Raises ``ConfigError`` naming them if it holds none or several."""
    known = store.sweeps()
    if len(known) == 1:
        return known[0]
    if not known:
        raise ConfigError(f"store={store.root} holds no sweep; measure one with `specsweep run`")
    raise ConfigError(f"store={store.root} holds {len(known)} sweeps; name one: {', '.join(known)}")
