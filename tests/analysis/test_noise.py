"""The two failure modes of random prompts, told from ids."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.analysis.noise import OPENING, modes, modes_table, summary, wilson

LANGUAGE = list(range(50))  # tokens that every answer uses


def prompts(n: int) -> dict[str, list[int]]:
    return {f"p{i}": list(range(1000 * (i + 1), 1000 * (i + 1) + 200)) for i in range(n)}


def test_a_stock_reply_is_one_that_other_noise_gets_too() -> None:
    stock = [7, 8, 9] * 4
    answers = {"p0": [*stock, 60], "p1": [*stock, 61, 62], "p2": [*reversed(LANGUAGE)], "p3": [*LANGUAGE]}
    assert modes(answers, prompts(4)) == {"p0": "stock", "p1": "stock", "p2": "other", "p3": "other"}


def test_an_answer_about_its_own_prompt_has_latched_on() -> None:
    drawn = random.Random(1)

    def text(*topic: int) -> list[int]:
        return [drawn.choice(LANGUAGE) for _ in range(40)] + list(topic)

    answers = {"p0": text(1003, 1004, 1005, 1003), "p1": text(2001, 2002), "p2": text(1003, 3001, 3002, 3003), "p3": text(9001, 9002, 9003)}
    found = modes(answers, prompts(4))
    assert found == {"p0": "other", "p1": "other", "p2": "latched", "p3": "other"}, "1003 is in two answers, so it tells nothing of p0"


def test_words_that_stand_in_every_prompt_are_no_topic() -> None:
    everywhere = {name: [*ids, 5001, 5002, 5003] for name, ids in prompts(4).items()}
    answers = {"p0": [*LANGUAGE, 5001, 5002, 5003], **{f"p{i}": LANGUAGE[i:] for i in (1, 2, 3)}}
    assert modes(answers, everywhere)["p0"] == "other"


@given(st.dictionaries(st.sampled_from(["p0", "p1", "p2"]), st.lists(st.integers(0, 30), max_size=40), min_size=1))
def test_every_answer_has_one_mode_and_equal_ones_have_the_same(answers: dict[str, list[int]]) -> None:
    found = modes(answers, prompts(3))
    assert found.keys() == answers.keys()
    again = {name: [1] * OPENING for name in answers}
    assert set(modes(again, prompts(3)).values()) == ({"stock"} if len(answers) > 1 else {"other"})


def test_each_mode_has_its_share_and_its_acceptance_length() -> None:
    told = summary({"a": "stock", "b": "stock", "c": "latched"}, {"a": (10, 30), "b": (10, 40), "c": (10, 18)})
    assert told["stock"] == {"answers": 2, "share": pytest.approx(2 / 3), "al_decode": 3.5}
    assert told["latched"]["al_decode"] == 1.8
    assert told["other"] == {"answers": 0, "share": 0, "al_decode": None}


def test_the_table_of_modes_has_shares_with_intervals_and_leaves_out_points_with_texts() -> None:
    by_mode = {
        "stock": {"answers": 6.0, "al_decode": 3.5},
        "latched": {"answers": 2.0, "al_decode": 2.0},
        "other": {"answers": 0.0, "al_decode": None},
    }
    axes = {"engine": "vllm", "target": "t", "drafter": "eagle3", "draft_length": 3, "batch_size": 4, "workload": "random"}
    noise_point = {"point": {"axes": axes}, "measurement": {"random_answers": {"by_mode": by_mode}}}
    table = modes_table([noise_point, {"point": {"axes": axes}, "measurement": {}}, {"point": {"axes": axes}, "measurement": None}])
    (row,) = table.rows
    assert row.cells[1:] == ("4", "8", "75 [41, 93]", "3.50", "25 [7, 59]", "2.00", "0 [0, 32]", "–")
    assert row.record["stock_share"] == 0.75
    assert row.record["other_al_decode"] is None


def test_wilsons_interval_stays_between_0_and_1_and_holds_the_share() -> None:
    for total in (1, 5, 40):
        for count in range(total + 1):
            low, high = wilson(count, total)
            assert 0.0 <= low <= count / total + 1e-12
            assert count / total - 1e-12 <= high <= 1.0
