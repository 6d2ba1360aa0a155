"""The words after a command that looks after a sweep in a cluster: its name, and what says which cluster."""

from __future__ import annotations

from collections.abc import Sequence

from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube.settings import Settings
from specsweep.orchestrator.run_command import key_of


def is_about_a_cluster(words: Sequence[str]) -> bool:
    """Whether some of ``words`` choose a cluster, as ``cluster=kubernetes`` does."""
    return any(key_of(word).partition(".")[0] == "cluster" for word in words if "=" in word)


def names_and_settings(words: Sequence[str], config_dirs: Sequence[str], command: str) -> tuple[list[str], Settings]:
    """Bare words are names of sweeps (so is ``sweep=NAME``). Raises ConfigError for a setting that has nothing to do with the cluster."""
    from specsweep.orchestrator.config import compose
    from specsweep.orchestrator.kube.access import kubernetes_settings

    sweeps = [word for word in words if "=" not in word]
    overrides = []
    for word in words:
        if "=" not in word:
            continue
        if key_of(word) == "sweep":
            sweeps.append(word.partition("=")[2].strip())
        elif key_of(word).partition(".")[0] == "cluster":
            overrides.append(word)
        else:
            raise ConfigError(f"{word}: not a setting of this command; it takes names of sweeps, cluster=kubernetes and cluster.KEY=…")
    return list(dict.fromkeys(sweeps)), kubernetes_settings(compose(overrides, config_dirs).base, command)


def one_sweep(words: Sequence[str], config_dirs: Sequence[str], command: str) -> tuple[str, Settings]:
    """Raises ConfigError for none or several."""
    sweeps, settings = names_and_settings(words, config_dirs, command)
    if len(sweeps) != 1:
        found = ", ".join(sweeps) or "none"
        raise ConfigError(f"{command} takes one sweep, not {found}: specsweep {command} SWEEP cluster=kubernetes")
    return sweeps[0], settings
