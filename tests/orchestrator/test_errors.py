"""The tree that is drawn in the module's docstring is the tree that exists, with its exit codes."""

import inspect
import re

from specsweep.orchestrator import errors


def test_none_is_forgotten_in_the_drawing() -> None:
    drawn = dict(re.findall(r"(\w+(?:Error|Retryable|Terminal))(?: +exit (\d+))?", errors.__doc__ or ""))
    classes = {name: cls for name, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert set(drawn) == set(classes)
    for name, code in drawn.items():
        if code:
            assert classes[name].exit_code == int(code), name


def test_every_error_is_in_the_one_tree() -> None:
    for _, cls in inspect.getmembers(errors, inspect.isclass):
        assert issubclass(cls, errors.SpecsweepError)
