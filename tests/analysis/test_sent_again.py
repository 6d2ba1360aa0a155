"""Requests that were sent again are counted, and are in no latency and no rate of users."""

from __future__ import annotations

from fake_engine import FakeEngine, FakePrompt, run

from specsweep.analysis.measure import PointFacts, measure
from specsweep.client.trace import from_table, to_table

PROMPTS = [FakePrompt(f"p{i}", (0.8, 0.6, 0.5), answer=100 + 7 * i) for i in range(16)]
FACTS = PointFacts(batch_size=4, draft_length=3, drafter="draft_model", max_batch=4)


def test_a_request_that_was_sent_again_leaves_latencies_and_stays_in_acceptance() -> None:
    trace = run(FakeEngine(batch_size=4), PROMPTS)
    plain = measure(trace, FACTS)
    main = [r for r in trace.requests if r.phase == "main"]
    main[5].retried = ["HTTP 503", "HTTP 503"]
    again = measure(from_table(to_table(trace)), FACTS)
    assert (again["counts"]["sent_again"], again["counts"]["retries"]) == (1, 2)
    assert again["counts"]["timed"] == plain["counts"]["timed"] - 1
    assert again["metrics"]["al_decode"] == plain["metrics"]["al_decode"]
    (check,) = (c for c in again["checks"] if c["name"] == "sent_again")
    assert check["value"] == 1 / len(main)
    assert not check["ok"]
    assert "HTTP 503" in check["message"]
    assert again["validity"]["acceptance"] == plain["validity"]["acceptance"]


def test_nothing_is_said_where_nothing_was_sent_again() -> None:
    found = measure(run(FakeEngine(batch_size=4), PROMPTS), FACTS)
    assert (found["counts"]["sent_again"], found["counts"]["retries"]) == (0, 0)
    assert "sent_again" not in {c["name"] for c in found["checks"]}
