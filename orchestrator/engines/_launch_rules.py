"""Rules of launchers: what an engine cannot do, and what it does otherwise than the numbers would say, each a function that gives the
reason or None. An attached server breaks none of them: whoever started it has found out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]
Rules = tuple[tuple[str, Callable[[Config], str | None]], ...]


def apply(rules: Rules, config: Config) -> list[tuple[str, str]]:
    """(rule, reason) for every rule that this point breaks."""
    if config["cluster"]["kind"] == "attach":
        return []
    return [(rule, reason) for rule, check in rules if (reason := check(config)) is not None]


def topk(config: Config) -> int:
    """Branches of the draft at each position; 1 is a chain."""
    return int(config["drafter"].get("topk") or 1)


def gpus(config: Config) -> int:
    return int(config["target"].get("gpus") or 0)


def expert_parallel_divides(config: Config) -> str | None:
    target = config["target"]
    tensor, expert = int(target.get("tensor_parallel") or 1), int(target.get("expert_parallel") or 1)
    return None if tensor % expert == 0 else f"target.expert_parallel={expert} does not divide target.tensor_parallel={tensor}"
