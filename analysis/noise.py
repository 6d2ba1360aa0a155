"""What a target makes of prompts of random tokens, by a rule that needs no reading.

SPEED-Bench names two ways in which noise misleads a benchmark. The target answers with a *stock reply* ("it seems that you pasted …"),
nearly the same for every prompt, which a drafter guesses far too well; or it *latches on to a topic*, some word that it found in the
noise, and writes an ordinary text. Both are told from answers and prompts as token ids:

* stock: the first :data:`OPENING` tokens are those of the answer to another prompt, too;
* latched: not stock, and at least :data:`WORDS` different tokens of the answer that no other answer has stand in its own prompt, at least
  :data:`TIMES` as many as stand in the other prompts on average. Tokens that other answers use as well are the language, not the topic.

What is neither is ``other``. With one prompt nothing can be told from another, and all is ``other``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from specsweep.analysis.attempts import Attempt, axes_of, panel_label, series_label
from specsweep.analysis.tabular import Column, Row, Table

RULE = "noise-1"  # of which version the modes are: raise it when anything here tells an answer otherwise
OPENING = 12
WORDS = 3
TIMES = 3.0
Mode = Literal["stock", "latched", "other"]
MODES: tuple[Mode, ...] = ("stock", "latched", "other")


def modes(answers: Mapping[str, Sequence[int]], prompts: Mapping[str, Collection[int]]) -> dict[str, Mode]:
    """The mode of each answer, by prompt id. ``prompts``: the ids of each prompt's own text, without the chat template.

    Raises ``KeyError`` for an answer whose prompt is not there.
    """
    openings = Counter(tuple(ids[:OPENING]) for ids in answers.values() if len(ids) >= OPENING)
    used_by = Counter(token for ids in answers.values() for token in set(ids))
    texts = {name: frozenset(prompts[name]) for name in answers}

    def mode(name: str, ids: Sequence[int]) -> Mode:
        if openings[tuple(ids[:OPENING])] > 1:
            return "stock"
        own = {token for token in ids if used_by[token] == 1}
        found = len(own & texts[name])
        elsewhere = [len(own & text) for other, text in texts.items() if other != name]
        latched = bool(elsewhere) and found >= WORDS and found >= TIMES * float(np.mean(elsewhere))
        return "latched" if latched else "other"

    return {name: mode(name, ids) for name, ids in answers.items()}


def summary(found: Mapping[str, Mode], per_prompt: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, float | None]]:
    """Of each mode the share of answers and their acceptance length. ``per_prompt``: (steps, tokens of them) of each prompt."""
    result: dict[str, dict[str, float | None]] = {}
    for mode in MODES:
        names = [name for name, of_name in found.items() if of_name == mode]
        sums = [per_prompt[name] for name in names if name in per_prompt]
        steps, tokens = sum(s for s, _ in sums), sum(t for _, t in sums)
        result[mode] = {
            "answers": float(len(names)),
            "share": len(names) / len(found) if found else None,
            "al_decode": tokens / steps if steps else None,
        }
    return result


def findings(attempts: Iterable[Attempt]) -> list[str]:
    """A sentence for each point whose prompts were noise: how many answers are of which mode, and what each does to acceptance."""
    found = []
    for attempt in attempts:
        told = ((attempt.get("measurement") or {}).get("random_answers") or {}).get("by_mode") or {}
        words = [
            f"{row['share']:.0%} {name}" + (f" (AL {row['al_decode']:.2f})" if row.get("al_decode") else "")
            for mode, name in (("stock", "stock replies"), ("latched", "about a topic found in the noise"), ("other", "other"))
            if (row := told.get(mode) or {}).get("answers")
        ]
        if words:
            axes = axes_of(attempt)
            found.append(
                f"Random prompts, {series_label(axes)} on {panel_label(axes)} at BS {axes.get('batch_size')}: {', '.join(words)} of the answers."
            )
    return found


def modes_table(attempts: Iterable[Attempt]) -> Table:
    """One row a point whose prompts were noise: how many of the answers are of which mode, with a 95 % interval (Wilson's), and their AL."""
    rows = []
    for attempt in attempts:
        told = ((attempt.get("measurement") or {}).get("random_answers") or {}).get("by_mode") or {}
        total = sum(int((told.get(mode) or {}).get("answers") or 0) for mode in MODES)
        if not total:
            continue
        axes = axes_of(attempt)
        cells = [f"{series_label(axes)} · {panel_label(axes)}", str(axes.get("batch_size")), str(total)]
        record: dict[str, Any] = {**axes, "answers": total}
        for mode in MODES:
            row = told.get(mode) or {}
            count = int(row.get("answers") or 0)
            low, high = wilson(count, total)
            al = row.get("al_decode")
            cells += [f"{100 * count / total:.0f} [{100 * low:.0f}, {100 * high:.0f}]", "–" if al is None else f"{al:.2f}"]
            record |= {f"{mode}_share": count / total, f"{mode}_share_ci_low": low, f"{mode}_share_ci_high": high, f"{mode}_al_decode": al}
        rows.append(Row(tuple(cells), record))
    names = {"stock": "stock replies", "latched": "topic found in the noise", "other": "other"}
    columns = [Column("point", "point", wraps=24), Column("batch_size", "BS", right=True), Column("answers", "answers", right=True)]
    for mode in MODES:
        columns += [Column(f"{mode}_share", f"{names[mode]} (%)", right=True), Column(f"{mode}_al_decode", "AL", right=True)]
    return Table("random_answers", "What targets made of random tokens", tuple(columns), tuple(rows), (f"Rule {RULE}.",))


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share of independent answers."""
    z = 1.959964
    share, around = count / total, z * z / total
    middle = (share + around / 2) / (1 + around)
    reach = z * math.sqrt(share * (1 - share) / total + around / (4 * total)) / (1 + around)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
