from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from specsweep.analysis import metrics
from specsweep.analysis.compare import Word
from specsweep.analysis.pareto import State
from specsweep.analysis.speedup import Verdict
from specsweep.analysis.tables import STATE_WORDS

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_documentation_has_the_registry() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert page == metrics.rewritten(page), "run: python -m specsweep.analysis.metrics docs/metrics.md"


def test_only_the_table_of_the_page_is_made_anew() -> None:
    page = f"# Title\n{metrics.BEGIN}\nold\n{metrics.END}\n## Speedup\n"
    assert metrics.rewritten(page) == f"# Title\n{metrics.BEGIN}\n{metrics.markdown()}{metrics.END}\n## Speedup\n"
    with pytest.raises(ValueError, match="begin"):
        metrics.rewritten("# Title\n")


def test_the_page_defines_every_word_of_the_tables() -> None:
    page = DOCS.read_text(encoding="utf-8")
    words = {*get_args(Verdict), *get_args(State), *get_args(Word), *filter(None, STATE_WORDS.values())}
    assert not [w for w in words if w not in page]


def test_names_are_unique_and_plain() -> None:
    names = [m.name for m in metrics.METRICS]
    assert len(names) == len(set(names)) == len(metrics.BY_NAME)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", n) for n in names)


def test_times_name_their_unit() -> None:
    for m in metrics.METRICS:
        assert ("_ms" in m.name) == (m.unit == "ms"), m.name


def test_the_contract_names_exist() -> None:
    wanted = (
        "al_decode al_verify ar_cond output_tps output_tps_steady user_tps_mean ttft_ms_p50 step_ms_mean step_ms_p50 step_ms_decode_mean "
        "step_ms_decode_p50 request_latency_ms_p50 output_tokens_mean output_tps_per_gpu"
    )
    assert set(wanted.split()) <= set(metrics.BY_NAME)


def test_display_uses_the_decimals_of_the_metric() -> None:
    assert metrics.display("al_decode", 2.41261) == "2.413"
    assert metrics.display("output_tps_ci_low", 1234.56) == "1,234.6"
    assert metrics.display("al_decode", None) == "–"
    with pytest.raises(KeyError):
        metrics.display("itl_ms", 1.0)


def test_interval_names_lead_back_to_their_metric() -> None:
    low, high = metrics.ci_names("ttft_ms_p95")
    assert metrics.base_name(low) == metrics.base_name(high) == metrics.base_name("ttft_ms_p95") == "ttft_ms_p95"
