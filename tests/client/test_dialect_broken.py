"""What every dialect says of a stream that is broken in itself: the cause, not what is missing because of it."""

from __future__ import annotations

import pytest
from dialect_samples import answer

from specsweep.client.dialects import DIALECTS, dialect


@pytest.mark.parametrize("name", DIALECTS)
def test_an_event_that_is_not_json_is_the_cause(name: str) -> None:
    turn = dialect(name).read(answer("{not json}", "[DONE]"), draft_length=None, n_prompt=None)
    assert (turn.outcome, turn.error_kind) == ("failed", "protocol")
    assert "not JSON" in turn.error
    assert "{not json}" in turn.error
