"""The Prometheus text format as engines write it: through the Python client library (labels sorted, floats), or by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Series = tuple[str, str, str, Sequence[tuple[Mapping[str, str], float]]]  # name, type, help, samples


def python_number(value: float) -> str:
    """A float as ``prometheus_client`` prints it: from 10**6 on with an exponent."""
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > 6 and "e" not in text:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text


def python_page(series: Iterable[Series], created_s: float | None) -> str:
    """``created_s``: when the counters began, for the ``_created`` series beside each; None: the server writes none."""
    lines: list[str] = []
    for name, kind, text, samples in series:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {python_number(value)}" for labels, value in samples]
        if created_s is not None and kind == "counter":
            created = name.removesuffix("_total") + "_created"
            lines += [f"# HELP {created} {text}", f"# TYPE {created} gauge"]
            lines += [f"{created}{_labels(labels)} {python_number(created_s)}" for labels, _ in samples]
    return "\n".join(lines) + "\n"


def plain_page(series: Iterable[Series]) -> str:
    """Integers as such, other numbers with six digits: a C++ stream's default."""
    lines: list[str] = []
    for name, kind, text, samples in series:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {value if isinstance(value, int) else format(value, 'g')}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels.items())) + "}" if labels else ""
