"""`specsweep data spectrum SWEEP`: the prompts of a measured sweep in one order, from the least predictable answer to the most.

Two measurements give such an order, acceptance lengths and the target's log-probabilities; where a sweep has both, they are held against each
other, and both against its workloads. Prompts keep their ids, so the order can be used to draw a tier of one's own: the file holds one line a prompt.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from specsweep.analysis.agreement import Agreement, Tier, agreement, as_json, tiers
from specsweep.analysis.attempts import cells
from specsweep.analysis.report import Report
from specsweep.analysis.similarity import write_figure
from specsweep.analysis.spectrum import AL, NATS, Place, spectrum, spectrum_figure, surprisal_spectrum
from specsweep.orchestrator.cli.output import add_json, emit_json, print_table
from specsweep.orchestrator.cli.report import report_of
from specsweep.orchestrator.cli.selection import METAVAR, one_sweep
from specsweep.orchestrator.durable import make_dirs, replace_file
from specsweep.orchestrator.errors import EXIT_OK, ConfigError

ENDS = 8  # prompts that are shown of each end
ORDERS = {"al": AL, "logprobs": NATS}
# By order: the head of its values in a table, their name in files, and what is counted.
_WORDS = {AL: ("AL", "al_decode_shrunk", "steps"), NATS: ("nats/token", "nats_per_token_shrunk", "tokens")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar=METAVAR, help="the sweep's name (may be left out if the store has one) and where results live"
    )
    parser.add_argument(
        "--by",
        choices=tuple(ORDERS),
        help="order by acceptance length, or by the target's own log-probabilities (points with capture=logprobs); the first that there is if unset",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all prompts to this CSV file")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="write the spectrum as PNG and SVG here")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    name, store = one_sweep(args.words, "data spectrum")
    report = report_of(store.sweep(name))
    orders = _orders(report, name, args.by)
    by, found = next(iter(orders.items()))
    title = f"{name}: {len(found)} prompts by {by}"
    written: list[Path] = []
    if args.out is not None:
        make_dirs(args.out.parent)
        replace_file(args.out, _csv(orders))
        written.append(args.out)
    if args.figures is not None:
        written += write_figure(spectrum_figure(found, title, by=by, simulated=report.simulated), args.figures, "spectrum")
    agreed = agreement(*orders.values()) if len(orders) == 2 else []
    placed = tiers(report.attempts, orders)
    if args.json:
        others = _others(orders)
        emit_json(
            {
                "sweep": name,
                "simulated": report.simulated,
                "by": by,
                "prompts": [_record(p, by, others.get(p.prompt_id, {})) for p in found],
                "agreement": [as_json(a) for a in agreed],
                "tiers": [as_json(t) for t in placed],
                "files": [str(path) for path in written],
            }
        )
        return EXIT_OK
    _print_prompts(orders, f"{'SIMULATED – ' if report.simulated else ''}{title}")
    _print_tiers(placed, tuple(orders))
    for found_agreement in agreed:
        print(_line(found_agreement))
    if len(orders) == 2 and not agreed:
        print("The two orders cannot be held against each other: they share too few prompts, or one of them puts all in the same place.")
    if args.out is None and len(found) > 2 * ENDS:
        print("\n--out FILE writes them all")
    if written:
        print("\n" + "\n".join(f"wrote {path}" for path in written))
    return EXIT_OK


def _orders(report: Report, name: str, by: str | None) -> dict[str, list[Place]]:
    """What can put the prompts in order, that which was asked for first. Raises ConfigError where there is nothing."""
    made = {AL: spectrum(cells(report.attempts)), NATS: surprisal_spectrum(report.attempts)}
    found = {word: places for word, places in made.items() if places}
    if by is not None and ORDERS[by] not in found:
        lack = "no point with a drafter has valid acceptance" if by == "al" else "no point has capture=logprobs"
        raise ConfigError(f"sweep {name}: --by {by}: {lack}, which is what prompts would be put in order by")
    if not found:
        raise ConfigError(
            f"sweep {name}: no point with a drafter has valid acceptance yet, which is what prompts are put in order by; nor has any "
            "capture=logprobs, which needs no drafter"
        )
    return dict(sorted(found.items(), key=lambda item: by is not None and item[0] != ORDERS[by]))


def _others(orders: Mapping[str, Sequence[Place]]) -> dict[str, dict[str, Place]]:
    """By prompt: its places in the orders after the first."""
    made: dict[str, dict[str, Place]] = {}
    for word, places in list(orders.items())[1:]:
        for place in places:
            made.setdefault(place.prompt_id, {})[word] = place
    return made


def _print_prompts(orders: Mapping[str, Sequence[Place]], title: str) -> None:
    (by, found), *rest = orders.items()
    others = _others(orders)
    head = ["place", "prompt", "category", _WORDS[by][0], _WORDS[by][2]]
    for word, _ in rest:
        head += [f"by {word}", _WORDS[word][0]]
    rows = []
    for p in found if len(found) <= 2 * ENDS else [*found[:ENDS], None, *found[-ENDS:]]:
        if p is None:
            rows.append(["…"] * len(head))
            continue
        row = [f"{p.place:.3f}", p.prompt_id, p.category, _values(p), str(p.count)]
        for word, _ in rest:
            other = others.get(p.prompt_id, {}).get(word)
            row += ["–", "–"] if other is None else [f"{other.place:.3f}", _values(other)]
        rows.append(row)
    print_table(f"{title} (0: least predictable, 1: most)", head, rows, right=(0, *range(3, len(head))))


def _print_tiers(found: Sequence[Tier], by: Sequence[str]) -> None:
    if len(found) < 2:
        return
    rows = []
    for tier in found:
        nats = tier.nats
        bounds = "" if nats is None or nats.low is None or nats.high is None else f" [{nats.low:.3f}, {nats.high:.3f}]"
        places = [f"{tier.places[word]:.3f}" if word in tier.places else "–" for word in by]
        rows.append([tier.workload, str(tier.prompts), "–" if nats is None else f"{nats.value:.3f}{bounds}", *places])
    print()
    print_table(
        "Workloads", ["workload", "prompts", "nats per token", *(f"median place by {word}" for word in by)], rows, right=(1, 2, 3, 4)
    )


def _line(found: Agreement) -> str:
    bounds = "" if found.low is None or found.high is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.name} of the two orders: {found.value:.2f}{bounds}, {found.prompts} prompts"


def _values(place: Place) -> str:
    low, high = (f"{value:.2f}" for value in (min(place.values.values()), max(place.values.values())))
    return low if low == high else f"{low} to {high}"


def _record(place: Place, by: str, others: Mapping[str, Place]) -> dict[str, object]:
    record: dict[str, object] = {"prompt_id": place.prompt_id, "category": place.category, "place": place.place, "place_sd": place.spread}
    record |= {_WORDS[by][2]: place.count, _WORDS[by][1]: dict(place.values)}
    for word, other in others.items():
        record |= {
            f"place_by_{word.replace(' ', '_')}": other.place,
            _WORDS[word][2]: other.count,
            _WORDS[word][1]: dict(other.values),
        }
    return record


def _csv(orders: Mapping[str, Sequence[Place]]) -> str:
    """One line a prompt of the first order; what the others say of it in columns of their own, empty where they do not know it."""
    (by, found), *rest = orders.items()
    others = _others(orders)
    series = {word: list(dict.fromkeys(name for p in places for name in p.values)) for word, places in orders.items()}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["prompt_id", "category", "place", "place_sd", _WORDS[by][2], *(f"{_WORDS[by][1]}[{name}]" for name in series[by])]
    for word, _ in rest:
        head += [f"place_by_{word.replace(' ', '_')}", _WORDS[word][2], *(f"{_WORDS[word][1]}[{name}]" for name in series[word])]
    writer.writerow(head)
    for p in found:
        row: list[object] = [p.prompt_id, p.category, p.place, p.spread, p.count, *(p.values.get(name, "") for name in series[by])]
        for word, _ in rest:
            other = others.get(p.prompt_id, {}).get(word)
            row += [""] * (2 + len(series[word])) if other is None else [
                other.place, other.count, *(other.values.get(name, "") for name in series[word])
            ]  # fmt: skip
        writer.writerow(row)
    return out.getvalue()
