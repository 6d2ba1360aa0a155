"""Figures 11 and 12 of the paper: which experts a prefill takes, of real prompts and of random tokens.

A capture is complete for its tokens, so numbers of it are exact; how far they would be others for other prompts is asked of its passes: intervals leave
out one pass at a time, and with fewer than three nothing is decided. The share of unused experts means something only where there were
tokens enough: a capture that would leave experts unused under perfectly uniform routing decides nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from specsweep.analysis.attempts import Estimate
from specsweep.analysis.reproduce.claims import Claim, Evidence, Experiment, Outcome, Verdict, ordering
from specsweep.analysis.reproduce.collected import extra
from specsweep.analysis.reproduce.judging import against, difference
from specsweep.analysis.routing import Array, Routing, by_expert, evenness, routed_layers, summarise, unique_experts
from specsweep.analysis.stats import MIN_CLUSTERS, t_quantile
from specsweep.analysis.tabular import Column, Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER_LAYER, PAPER_LAYERS = 17, 36  # of GPT-OSS 120B
BUSIEST = 0.1  # of the experts, whose share of the tokens tells favourites
UNUSED = 0.2  # of the experts, in some layer, by random tokens: the paper says 20 to 30 %
UNIFORM_UNUSED = 0.01  # share that uniform routing may leave unused before a capture is too small to tell
_NEEDS = "needs a routing capture of real prompts and one of random tokens"


@dataclass(frozen=True, slots=True)
class Capture:
    """``random``: its prompts were random tokens."""

    name: str
    random: bool
    routing: Routing
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Captures:
    captures: tuple[Capture, ...]

    def of(self, *, random: bool) -> Capture | None:
        return next((c for c in self.captures if c.random == random), None)


def one_layer(evidence: Evidence) -> Outcome:
    """Figure 11. Extras: ``captures``."""
    found = extra(evidence, "captures", Captures) or Captures(())
    pair = _pair(found)
    even = [_over_passes(c, _evenness) for c in pair]
    busy = [_over_passes(c, busiest_share) for c in pair]
    claims = (
        Claim(
            "real-more-even",
            "Real prompts use the experts of a layer more evenly than random tokens do",
            "Figure 11",
            _decided(*even) if pair else "not decidable",
            f"evenness (1: uniform) {against(*even)}" if pair else _NEEDS,
        ),
        Claim(
            "favoured-experts",
            f"Random tokens have favoured experts: the busiest {BUSIEST:.0%} of them take more of the tokens than with real prompts",
            "Figure 11",
            _decided(busy[1], busy[0]) if pair else "not decidable",
            f"their share {against(busy[1], busy[0])}" if pair else _NEEDS,
        ),
    )
    figures = {"fig11_experts": partial(_experts_figure, found.captures)} if found.captures else {}
    return Outcome((_table(found.captures, "fig11"),), claims=claims, figures=figures, notes=_notes(found))


def by_layer(evidence: Evidence) -> Outcome:
    """Figure 12. Extras: ``captures``."""
    found = extra(evidence, "captures", Captures) or Captures(())
    random, pair = found.of(random=True), _pair(found)
    more = _fewer(*pair) if pair else None
    claims = (
        Claim(
            "random-fewer-experts",
            "Random tokens use fewer experts than real prompts, on average over the layers",
            "Figure 12",
            "not decidable" if more is None or more.low is None or more.high is None else _sign(more.low, more.high),
            f"experts of a layer that only real prompts use: {difference(more)}" if more else _NEEDS,
        ),
        _unused_claim(random) if random else Claim("random-unused", _UNUSED_TEXT, "Figure 12", "not decidable", _NEEDS),
    )
    figures = {"fig12_layers": partial(_layers_figure, found.captures)} if found.captures else {}
    return Outcome((_table(found.captures, "fig12"),), claims=claims, figures=figures, notes=_notes(found))


_UNUSED_TEXT = "Random tokens leave 20 to 30 % of the experts unused in some layers"


def layer_shown(routing: Routing) -> int:
    """The layer with experts that stands where the paper's does: about the middle of the model."""
    layers = routed_layers(by_expert(routing))
    return int(layers[min(round(PAPER_LAYER * len(layers) / PAPER_LAYERS), len(layers) - 1)])


def busiest_share(loads: Array) -> float:
    """Share of the tokens that the busiest tenth of the experts take, at least one of them."""
    count = max(1, round(BUSIEST * len(loads)))
    return float(np.sort(loads)[-count:].sum() / loads.sum())


def shares(capture: Capture, layer: int) -> Mapping[str, Array]:
    """Share of the tokens by expert, for each of the selected experts in the router's order; one series where that is not told."""
    slots = capture.routing.by_slot
    if slots is None:
        whole = by_expert(capture.routing)[:, layer].sum(axis=0, dtype=np.int64)
        return {"any of the selected": whole / max(int(whole.sum()), 1)}
    return {f"selected expert {n}": of_slot[layer] / max(int(of_slot[layer].sum()), 1) for n, of_slot in enumerate(slots, 1)}


def _pair(found: Captures) -> tuple[Capture, Capture] | tuple[()]:
    """Real and random, if there are both."""
    real, random = found.of(random=False), found.of(random=True)
    return (real, random) if real and random else ()


def _evenness(loads: Array) -> float:
    return float(evenness(loads))


def _over_passes(capture: Capture, statistic: Callable[[Array], float]) -> Estimate | None:
    """Of the whole of the layer shown, with a jackknife over the passes that route there."""
    counts = by_expert(capture.routing)[:, layer_shown(capture.routing)].astype(np.int64)
    counts = counts[counts.any(axis=1)]
    total, n = counts.sum(axis=0), len(counts)
    value = statistic(total)
    if n < MIN_CLUSTERS:
        return Estimate(value, clusters=n)
    without = np.array([statistic(total - one) for one in counts])
    reach = float(t_quantile(np.asarray(n - 1.0), 0.95)) * float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))
    return Estimate(value, value - reach, value + reach, method="jackknife over passes", clusters=n)


def _decided(larger: Estimate | None, smaller: Estimate | None) -> Verdict:
    """As :func:`ordering`, but two captures without intervals are two points, and decide nothing."""
    known = larger is not None and smaller is not None and larger.has_interval and smaller.has_interval
    return ordering(larger, smaller) if known else "not decidable"


def _fewer(real: Capture, random: Capture) -> Estimate | None:
    """Unique experts of real minus random, mean over the layers that both have, with Student's t over layers."""
    used = [
        dict(zip(routed_layers(c).tolist(), _whole_unique(c).tolist(), strict=True))
        for c in (by_expert(real.routing), by_expert(random.routing))
    ]
    layers = [layer for layer in used[0] if layer in used[1]]
    values = np.array([used[0][layer] - used[1][layer] for layer in layers], dtype=np.float64)
    if len(values) < MIN_CLUSTERS:
        return None
    reach = float(t_quantile(np.asarray(len(values) - 1.0), 0.95)) * float(values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(
        float(values.mean()), float(values.mean()) - reach, float(values.mean()) + reach, method="t over layers", clusters=len(values)
    )


def _whole_unique(counts: Array) -> Array:
    return np.asarray(unique_experts(counts.sum(axis=0, dtype=np.int64)[np.newaxis])[0][routed_layers(counts)])


def _sign(low: float, high: float) -> Verdict:
    return "holds" if low > 0 else "failed" if high < 0 else "not decidable"


def _unused_claim(random: Capture) -> Claim:
    counts = by_expert(random.routing)
    experts = counts.shape[2]
    unused = 1 - _whole_unique(counts) / experts
    choices = counts.sum(axis=(0, 2), dtype=np.int64).max()  # of one layer: tokens times experts a token
    by_chance = float((1 - 1 / experts) ** int(choices))
    worst = int(routed_layers(counts)[unused.argmax()])
    words = f"most unused in layer {worst}: {unused.max():.1%} of {experts}; uniform routing of as many tokens would leave {by_chance:.1%}"
    verdict: Verdict = "not decidable" if by_chance > UNIFORM_UNUSED else "holds" if unused.max() >= UNUSED else "failed"
    return Claim("random-unused", _UNUSED_TEXT, "Figure 12", verdict, words)


def _notes(found: Captures) -> tuple[str, ...]:
    notes = []
    if any(c.routing.by_slot is None for c in found.captures):
        notes.append(
            "Recorders of passes count tokens by expert, not which expert came first: one series in place of one for each selected expert."
        )
    if any(c.routing.by_slot is not None for c in found.captures):
        notes.append("Captures from answers have a request for a pass, and no token of a rejected draft.")
    return tuple(notes)


def _table(captures: Sequence[Capture], name: str) -> Table:
    rows = []
    for c in captures:
        numbers = summarise(c.routing)
        layer = layer_shown(c.routing)
        shown = next(of for of in numbers["by_layer"] if of["layer"] == layer)
        record: dict[str, Any] = {"capture": c.name, "random": c.random, "simulated": c.simulated, "layer": layer}
        record |= {k: v for k, v in numbers.items() if not isinstance(v, dict | list)} | {
            f"layer_{k}": v for k, v in shown.items() if k != "layer"
        }
        cells = (
            c.name,
            "–" if numbers["tokens"] is None else f"{numbers['tokens']:,}",
            f"{numbers['layers']} × {numbers['experts']}",
            f"{(1 - numbers['whole_unused_share_mean']) * numbers['experts']:.1f}",
            f"{100 * numbers['whole_unused_share_max']:.1f} %",
            str(layer),
            f"{shown['whole_evenness']:.3f}",
            f"{shown['whole_variation']:.2f}",
            f"{shown['whole_imbalance']:.2f}",
        )
        rows.append(Row(cells, record))
    headers = (
        "capture",
        "tokens",
        "layers × experts",
        "experts used",
        "unused, worst layer",
        "layer",
        "evenness",
        "variation",
        "max / mean load",
    )
    columns = tuple(Column(h.replace(" ", "_"), h, right=n > 0) for n, h in enumerate(headers))
    notes = (
        "Evenness: entropy of the loads over that of uniform ones. Variation: standard deviation over mean of the loads. Both and the load of that layer.",
    )
    return Table(name, "Use of experts, all tokens of a capture together", columns, tuple(rows), notes)


def _experts_figure(captures: Sequence[Capture]) -> Figure:
    from specsweep.analysis.figures import PALETTE, house_style

    with house_style():
        figure, axes = _panels(len(captures), "Share of the tokens by expert", 2.4)
        for ax, c in zip(axes, captures, strict=True):
            layer = layer_shown(c.routing)
            series = shares(c, layer)
            for n, (name, values) in enumerate(series.items()):
                width = 0.9 / len(series)
                at = np.arange(len(values)) + (n - (len(series) - 1) / 2) * width
                ax.bar(at, 100 * values, width=width, color=PALETTE[n % len(PALETTE)], label=name)
            uniform = 100 / len(next(iter(series.values())))
            ax.axhline(uniform, color="#555555", linewidth=0.9, linestyle="--", label="uniform")
            ax.set_title(f"{c.name}, layer {layer}" + (" (SIMULATED)" if c.simulated else ""))
            ax.set_ylabel("tokens (%)")
            ax.set_xlim(-0.7, len(values) - 0.3)
            ax.grid(False, axis="x")
        axes[-1].set_xlabel("expert")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=min(len(labels), 5), frameon=False, fontsize=8.5)
    return figure


def _layers_figure(captures: Sequence[Capture]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    from specsweep.analysis.figures import MARKERS, PALETTE, house_style

    with house_style():
        figure, (ax,) = _panels(1, "Experts that at least one token used, by layer", 3.4)
        for n, c in enumerate(captures):
            counts = by_expert(c.routing)
            label = c.name + (" (SIMULATED)" if c.simulated else "")
            style = {"color": PALETTE[n % len(PALETTE)], "marker": MARKERS[n % len(MARKERS)]}
            ax.plot(routed_layers(counts), _whole_unique(counts), label=label, markersize=4, linewidth=1.2, **style)  # type: ignore[arg-type]
        ax.axhline(
            max(by_expert(c.routing).shape[2] for c in captures), color="#555555", linewidth=0.9, linestyle="--", label="all experts"
        )
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("layer")
        ax.set_ylabel("distinct experts")
        figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=8.5)
    return figure


def _panels(count: int, title: str, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, height * count + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(count, 1, squeeze=False).flat)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color="#222222")
    return figure, axes


EXPERIMENTS = (
    Experiment("fig11", "Use of experts in one layer", "fig11", one_layer, ("captures",)),
    Experiment("fig12", "Experts used by layer", "fig12", by_layer, ("captures",)),
)
