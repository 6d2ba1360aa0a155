"""One check of a point: what was found, what is allowed, and which numbers it spoils when it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Affects = Literal["tps", "steps", "acceptance", "all"]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    value: float | None
    limit: float | None
    ok: bool
    affects: tuple[Affects, ...]
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "ok": self.ok,
            "affects": list(self.affects),
            "message": self.message,
        }
