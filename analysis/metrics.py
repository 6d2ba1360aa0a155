"""The metric registry: every number that specsweep reports, with its one name, unit and definition.

``measurement.json``, ``--json``, MLflow, the tables and ``docs/metrics.md`` take names and definitions from here, so that one word
never means two things. Each metric may come with ``<name>_ci_low`` and ``<name>_ci_high``; a metric that does not exist for a point
(an acceptance rate without a drafter) is absent, never 0 and never NaN.

``python -m specsweep.analysis.metrics docs/metrics.md`` writes the table of the documentation page anew.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Better = Literal["higher", "lower"] | None

QUANTILES = (0.50, 0.90, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    unit: str  # "" for a dimensionless number
    definition: str
    better: Better
    decimals: int  # for display only; files keep full precision


def quantile_name(stem: str, q: float) -> str:
    """``quantile_name("ttft_ms", 0.95) == "ttft_ms_p95"``."""
    return f"{stem}_p{round(q * 100)}"


def _spread(stem: str, what: str, quantiles: tuple[float, ...] = QUANTILES) -> tuple[Metric, ...]:
    mean = Metric(f"{stem}_mean", "ms", f"{what}: mean", "lower", 2)
    return mean, *(Metric(quantile_name(stem, q), "ms", f"{what}: {round(q * 100)} % quantile", "lower", 2) for q in quantiles)


_TIMED = "requests that were started in the steady window, followed to their end"
_STEP = (
    "time between two steps of one request whose ends both lie in the steady window, TTFT left out; client clock, or the engine's own "
    "where its stream carries it"
)

METRICS: tuple[Metric, ...] = (
    Metric(
        "al_decode",
        "tokens/step",
        "acceptance length as speed sees it: tokens / decode steps, pooled over all steps of the first pass over the prompts; the prefill "
        "step and a last step cut by the cap or by EOS are dropped, steps without a draft count as 1",
        "higher",
        3,
    ),
    Metric(
        "al_decode_request_mean",
        "tokens/step",
        "the same per request, averaged over requests: every request weighs the same, however long",
        "higher",
        3,
    ),
    Metric(
        "al_verify",
        "tokens/step",
        "acceptance length as servers count it: 1 + accepted / verify steps, over steps with at least one draft token, before any cut",
        "higher",
        3,
    ),
    Metric(
        "acceptance_rate", "", "accepted draft tokens / draft tokens that the target verified (never those merely proposed)", "higher", 3
    ),
    Metric(
        "ar_cond",
        "",
        "conditional acceptance rate at draft position i (the step of the series): accepted at i / steps that drafted i and accepted i - 1",
        "higher",
        3,
    ),
    Metric("output_tps", "tokens/s", "tokens of all requests / (last arrival - first send): ramp-up and tail included", "higher", 1),
    Metric("output_tps_steady", "tokens/s", "tokens that arrived in the steady window / its length", "higher", 1),
    Metric("output_tps_per_gpu", "tokens/s", "output_tps / number of GPUs of the engine", "higher", 1),
    Metric("user_tps_mean", "tokens/s", f"tokens after the first chunk / time after it, averaged over {_TIMED}", "higher", 1),
    Metric("user_tps_p50", "tokens/s", "the same: median over requests", "higher", 1),
    Metric("user_tps_pooled", "tokens/s", "the same: sum of tokens / sum of times", "higher", 1),
    *_spread("ttft_ms", f"time from send to the first generated token; {_TIMED}"),
    *_spread("step_ms", _STEP),
    *_spread("step_ms_decode", f"{_STEP}; only gaps that overlap no request's send to first token", (0.50,)),
    Metric("tpot_ms_mean", "ms", "time per output token: sum of time after the first chunk / sum of tokens after it", "lower", 2),
    *_spread("request_latency_ms", f"time from send to the last token; {_TIMED}"),
    Metric("output_tokens_mean", "tokens", "real output tokens per request of the first pass over the prompts", None, 1),
    Metric(
        "share_looping",
        "",
        "share of those answers that ended in a loop: three or more repetitions of a period of up to 32 tokens",
        None,
        3,
    ),
    Metric("share_cut", "", "share of those answers that ended at the output cap", None, 3),
    Metric("client_lag_ms_p50", "ms", "how late the client's event loop woke for a timer: median, worst process", "lower", 3),
    Metric("client_lag_ms_p99", "ms", "the same: 99 % quantile, worst process", "lower", 3),
    Metric("client_cpu_share", "", "CPU time / wall time of the busiest client process", "lower", 3),
)

BY_NAME: Mapping[str, Metric] = {m.name: m for m in METRICS}


def ci_names(name: str) -> tuple[str, str]:
    return f"{name}_ci_low", f"{name}_ci_high"


def base_name(name: str) -> str:
    """The metric that ``name`` belongs to: itself, or without ``_ci_low`` / ``_ci_high``."""
    return name.removesuffix("_ci_low").removesuffix("_ci_high")


def display(name: str, value: float | None) -> str:
    """The value with the metric's decimals; a dash where it is absent. Raises ``KeyError`` for a name that is not registered."""
    metric = BY_NAME[base_name(name)]
    return "–" if value is None else f"{value:,.{metric.decimals}f}"


BEGIN, END = "<!-- begin: made by `python -m specsweep.analysis.metrics docs/metrics.md` -->", "<!-- end -->"


def markdown() -> str:
    """The table of all metrics, as ``docs/metrics.md`` has it between :data:`BEGIN` and :data:`END`."""
    lines = ["| name | unit | better | definition |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.unit or '–'} | {m.better or '–'} | {m.definition} |" for m in METRICS]
    return "\n".join(lines) + "\n"


def rewritten(page: str) -> str:
    """The page with its table made anew. Raises ``ValueError`` if it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n{markdown()}{end}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
