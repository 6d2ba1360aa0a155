"""The tree that is drawn in the module's docstring is the tree that exists."""

from __future__ import annotations

import inspect
import re

from specsweep.k8s import errors


def test_the_drawing_is_the_tree() -> None:
    drawn: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^(?P<indent> {4}[│ ]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?:  |$)", line):
            depth = line.index(match["name"])
            above = [(d, n) for d, n in above if d < depth]
            drawn[match["name"]] = above[-1][1] if above else None
            above.append((depth, match["name"]))
    classes = {name: cls for name, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert drawn == {name: None if name == "KubernetesError" else cls.__base__.__name__ for name, cls in classes.items()}
