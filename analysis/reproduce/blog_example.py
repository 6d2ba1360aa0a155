"""The example output of the announcement: its numbers from each other, without a run.

It prints a histogram of the tokens a step, and with it nearly everything can be had again: the rates, exactly; the pooled AL (Equation 1); throughput per
GPU. One number cannot, and no arithmetic may pretend that it could: the average AL of 2.4511 is a mean over categories, and a
histogram over all steps has lost which step was of which. It follows from the eleven category values.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NoReturn

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce import printed
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, NumberCheck, Outcome, Verdict
from specsweep.analysis.tabular import Column, Row, Table

GPUS = 8
ARITHMETIC = 1e-12  # what double precision may be off
FOUR_DECIMALS = 5e-5
_SOURCE = "announcement"
Histogram = Mapping[int, int]  # tokens of a step → steps


def pooled_al(histogram: Histogram) -> float:
    """Tokens over steps. Raises ``ValueError`` for a histogram without steps."""
    steps = sum(histogram.values())
    if not steps or min(histogram) < 1 or min(histogram.values()) < 0:
        raise ValueError(f"a histogram of tokens a step needs steps of 1 token or more, not {dict(histogram)}")
    return sum(size * count for size, count in histogram.items()) / steps


def survival(histogram: Histogram) -> dict[int, float]:
    """Share of the steps with at least so many tokens, for 1 … the largest step."""
    steps = sum(histogram.values())
    return {size: sum(count for other, count in histogram.items() if other >= size) / steps for size in range(1, max(histogram) + 1)}


def conditional_rates(histogram: Histogram) -> dict[int, float]:
    """Of the steps with at least one token less, the share with at least so many; that of the first token is 1."""
    reached = survival(histogram)
    return {size: share / reached[size - 1] if size > 1 else 1.0 for size, share in reached.items()}


def macro_al(histogram: Histogram) -> NoReturn:
    """Refused: raises ``ValueError`` saying why and what it follows from."""
    raise ValueError(
        f"the mean over categories cannot be computed from a histogram of {sum(histogram.values()):,} steps: it does not say which step is of which "
        "category; average the acceptance lengths of the categories"
    )


def recomputed(_: Evidence) -> Outcome:
    """Needs nothing but the print."""
    example = printed.blog_example()
    given: Mapping[str, Any] = example["printed"]
    histogram = {int(size): int(count) for size, count in given["acceptance_length_histogram"].items()}
    of_categories = fmean(given["category_al"].values())
    checks = [
        NumberCheck(
            f"conditional acceptance rate, token {size}",
            float(given["conditional_acceptance_rate"][str(size)]),
            Estimate(rate),
            ARITHMETIC,
            "arithmetic",
        )
        for size, rate in conditional_rates(histogram).items()
    ]
    tokens = sum(size * count for size, count in histogram.items())
    turns = tokens / given["output_tokens_per_turn"]["mean"]
    shown = _seconds(example["setup"]["wall_clock_shown"])
    checks += [
        NumberCheck("Output TPS per GPU", given["output_tps_per_gpu"], Estimate(given["output_tps"] / GPUS), 1e-9, "arithmetic"),
        NumberCheck(
            "average AL, from the categories", given["overall_average_al"], Estimate(of_categories), FOUR_DECIMALS, "rounding of the print"
        ),
        NumberCheck("wall time (s), tokens over Output TPS", shown, Estimate(tokens / given["output_tps"]), 1.0, "shown in whole seconds"),
        NumberCheck(
            "turns, tokens over their mean: a whole number", float(round(turns)), Estimate(turns), 0.01, "the mean has four decimals"
        ),
    ]
    reached = survival(histogram)
    equation = sum(reached.values())
    pooled = pooled_al(histogram)
    average = given["overall_average_al"]
    other: Verdict = "holds" if abs(of_categories - average) <= FOUR_DECIMALS < abs(pooled - average) else "failed"
    same: Verdict = "holds" if abs(equation - pooled) <= ARITHMETIC * 10 else "failed"
    ttft, step = given["ttft_s"], given["generation_step_time_s"]
    prefill: Verdict = "holds" if ttft["max"] == step["max"] and step["min"] == 0.0 else "failed"
    claims = (
        Claim(
            "equation-1",
            "AL = 1 + the sum over positions of the products of conditional rates is the pooled AL",
            _SOURCE,
            same,
            f"{equation:.4f} and {pooled:.4f}",
        ),
        Claim(
            "average-of-categories",
            "The printed average AL is the mean of its categories, and not what its histogram gives",
            _SOURCE,
            other,
            f"printed {average}, categories {of_categories:.4f}, histogram {pooled:.4f}; {_refusal(histogram)}",
        ),
        Claim(
            "ttft-in-steps",
            "The official step times hold the time to first token: both have the same largest value",
            _SOURCE,
            prefill,
            f"largest TTFT {ttft['max']} s, largest step {step['max']} s, smallest step {step['min']} s",
        ),
    )
    return Outcome((_table(given, pooled, histogram),), tuple(checks), claims)


def _refusal(histogram: Histogram) -> str:
    try:
        macro_al(histogram)
    except ValueError as error:
        return str(error)


def _seconds(shown: str) -> float:
    minutes, _, seconds = shown.partition(":")
    return 60.0 * int(minutes) + int(seconds)


def _table(given: Mapping[str, Any], pooled: float, histogram: Histogram) -> Table:
    ours = {
        "pooled AL": pooled,
        "average AL (of the categories)": fmean(given["category_al"].values()),
        "Output TPS per GPU": given["output_tps"] / GPUS,
    }
    paper = {"average AL (of the categories)": given["overall_average_al"], "Output TPS per GPU": given["output_tps_per_gpu"]}
    ours |= {f"conditional acceptance rate, token {size}": rate for size, rate in conditional_rates(histogram).items()}
    paper |= {f"conditional acceptance rate, token {size}": float(rate) for size, rate in given["conditional_acceptance_rate"].items()}
    rows = [
        Row(
            (name, f"{paper[name]:.4f}" if name in paper else "not printed", f"{value:.4f}"),
            {"number": name, "printed": paper.get(name), "recomputed": value},
        )
        for name, value in ours.items()
    ]
    columns = (Column("number", "number"), Column("printed", "printed", right=True), Column("recomputed", "recomputed", right=True))
    return Table("blog", "The announcement's example, from its own histogram and categories", columns, tuple(rows))


EXPERIMENTS = (Experiment("blog", "The announcement's example output", "", recomputed),)
