from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsweep.client.dialects import dialect
from specsweep.client.prometheus import by_label, by_position, parse, total
from specsweep.client.recording import read_recording
from specsweep.client.trace import EngineCounters

RECORDINGS = Path(__file__).parents[1] / "recordings"


def test_samples_labels_and_a_last_line_without_newline() -> None:
    page = parse('# HELP a b\n# TYPE a counter\na_total 3\nb{x="1",y="q\\"u\\\\o\\n,}"} 2.5e3 1700000000\n\nc{} +Inf\nd NaN\ne{z="",} 7')
    assert page["a_total", frozenset()] == 3
    assert page["b", frozenset({("x", "1"), ("y", 'q"u\\o\n,}')})] == 2500
    assert page["c", frozenset()] == math.inf
    assert math.isnan(page["d", frozenset()])
    assert page["e", frozenset({("z", "")})] == 7


@pytest.mark.parametrize("line", ["nonsense", "a{b=1} 2", 'a{b="c} 1', "a one", "{} 1", "a{"])
def test_a_bad_line_costs_only_itself(line: str) -> None:
    assert parse(f"x 1\n{line}\ny 2") == {("x", frozenset()): 1, ("y", frozenset()): 2}


@given(st.dictionaries(st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True), st.text(max_size=8).filter(lambda s: "\r" not in s), max_size=3))
def test_labels_survive_escaping(labels: dict[str, str]) -> None:
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    quoted = ",".join(f'{k}="{v.translate(escapes)}"' for k, v in labels.items())
    assert parse(f"m{{{quoted}}} 1") == {("m", frozenset(labels.items())): 1}


def test_sums_over_engines_and_positions_with_gaps() -> None:
    page = parse(
        'n{engine="0"} 1\nn{engine="1"} 2\nn_created{engine="0"} 99\np{position="0",engine="0"} 5\np{position="2",engine="1"} 3\nq NaN'
    )
    assert total(page, "n") == 3
    assert total(page, "q") is total(page, "none") is None
    assert by_label(page, "n", "engine") == {"0": 1, "1": 2}
    assert by_position(page, "p") == (5, 0, 3)
    assert by_position(page, "none") == ()


def page_of(file: str, name: str) -> str:
    return dict(read_recording(RECORDINGS / file).metrics)[name]


def test_llama_server_counts() -> None:
    counters = dialect("llamacpp").counters(page_of("llamacpp-draft3.jsonl.gz", "after_batch"))
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (376, 1103, 224)
    assert counters.accepted_per_pos == (162, 48, 14)
    assert (counters.prompt_tokens, counters.generation_tokens, counters.cached_prompt_tokens) == (2351, 620, 0)
    assert counters.preemptions is None  # llama-server has no preemptions to count
    assert (counters.running, counters.waiting) == (0, 0)


def test_vllm_counts() -> None:
    counters = dialect("vllm").counters(page_of("vllm-ngram3.jsonl.gz", "after_batch"))
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (157, 467, 295)
    assert counters.accepted_per_pos == (117, 99, 79)
    assert (counters.prompt_tokens, counters.generation_tokens, counters.preemptions) == (2351, 620, 0)


def test_vllm_sums_data_parallel_engines() -> None:
    text = "\n".join(f'vllm:generation_tokens_total{{engine="{i}",model_name="m"}} {n}' for i, n in enumerate((10, 32)))
    assert dialect("vllm").counters(text).generation_tokens == 42


def test_a_baseline_does_not_count_drafts_at_all() -> None:
    counters = dialect("vllm").counters(page_of("vllm-none.jsonl.gz", "after_batch"))
    assert counters.drafts is None
    assert counters.accepted_per_pos == ()


def test_a_page_that_is_no_page_counts_nothing() -> None:
    for name in ("llamacpp", "vllm", "openai_chat"):
        assert dialect(name).counters("<html>404</html>") == EngineCounters()


def test_values_and_positions_that_no_counter_can_have() -> None:
    page = parse('n 1e308\nn{a="1"} 1e308\nn{a="2"} 1e308\nn{a="3"} 5\n')
    assert total(page, "n") == 5
    positions = parse('n{position="0"} 3\nn{position="1"} 2\nn{position="999999999999"} 1\n' + 'n{position="' + "9" * 5000 + '"} 1\n')
    assert by_position(positions, "n") == (3, 2)
