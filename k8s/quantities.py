"""Kubernetes' quantities (``512Mi``, ``1500m``, ``2e3``) as exact numbers, to compare what a spec says twice."""

from __future__ import annotations

import re
from decimal import Decimal

from specsweep.k8s.errors import SpecError

_DECIMAL = {suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)}
_BINARY = {suffix: Decimal(2) ** (10 * power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?\d{1,3}))?")


def quantity(text: str, *, field: str) -> Decimal:
    """The number that ``text`` stands for, in its unit (bytes, cores, pieces). Raises SpecError that names ``field``."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise SpecError(f"{field}={text!r} is not a quantity; write it as Kubernetes does: 16, 500m, 64Gi")
    number = Decimal(match["number"])
    if match["exponent"]:
        return number.scaleb(int(match["exponent"]))
    return number * {**_DECIMAL, **_BINARY}[match["suffix"] or ""]
