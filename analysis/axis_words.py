"""Values of axes as people read them. A leaf that imports nothing: plans and progress lines use it where no numbers are at hand."""

from __future__ import annotations

from collections.abc import Mapping


def format_axis(value: object, name: str = "") -> str:
    """``name``: of the axis, where one of its values is a word."""
    if value is None:
        return "–"
    if name == "isl" and value == 0:
        return "natural"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Mapping):
        return _model_words(value) or str(value)
    return str(value)


def _model_words(model: Mapping[str, object]) -> str:
    """A model by what tells it from others of a sweep: its repository, or the end of its path. "" for another mapping."""
    place = next((str(model[key]) for key in ("repo", "path", "file") if model.get(key)), "") if "source" in model else ""
    return place.rstrip("/").rpartition("/")[2]


def capture_words(axes: Mapping[str, object]) -> str:
    """What a point with these axes captures instead of being timed; "" for a timed one."""
    found = str(axes.get("capture") or "none")
    return "" if found == "none" else {"logprobs": "log-probability capture"}.get(found, f"{found} capture")
