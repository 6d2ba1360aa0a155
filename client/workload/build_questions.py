"""Builds the qualitative part of the offline data set: questions written by hand, and material of the corpus' sources put into them.

Questions are written down in ``mini_questions/<category>.yaml``, one list a file. A question has

* ``id`` (unique in its category), ``sub_category``, ``difficulty`` (easy, medium or hard; only where :data:`GRADED` says so),
* ``turns``: what the user says, one text a turn. ``{material}`` stands for a passage,
* ``material``: ``{file, at, tokens}`` for a passage of a source, from the text ``at`` on: ``tokens`` o200k tokens and the rest of the
  sentence. Or ``{language, domain, skip, pairs, ask}`` for translated messages of Django: ``{material}`` is then ``pairs`` of them, and
  ``{ask}`` the English of the ``ask`` messages that follow.

Questions of our own are under this project's licence; with material, the licence of the material is named beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from specsweep.client.workload.corpus_sources import Source, whole_lines

OWN_LICENCE = "Apache-2.0"
CATEGORIES = ("coding", "humanities", "math", "multilingual", "qa", "rag", "reasoning", "roleplay", "stem", "summarization", "writing")
GRADED = ("coding", "humanities", "math", "stem")  # the categories whose questions have a difficulty
DIFFICULTIES = ("easy", "medium", "hard")
_FIELDS = {"id", "sub_category", "difficulty", "turns", "material"}
_MESSAGE = re.compile(r'^msgid ((?:".*"\n)+)msgstr ((?:".*"\n)+)', re.MULTILINE)
_PLAIN = re.compile(r"[^%{}<>\n]{25,200}")  # no place-holders, no markup, long enough to be a sentence


class Library:
    """Where material comes from: the sources of the corpus by the end of their name, and Django's message catalogues."""

    def __init__(self, sources: Sequence[Source], catalogues: Path) -> None:
        self._sources = sources
        self._catalogues = catalogues

    def material(self, spec: Mapping[str, Any]) -> tuple[dict[str, str], str, str]:
        """(what to put in by place-holder, source, licence). Raises ``ValueError`` for material that is not there."""
        return self._translations(**spec) if "language" in spec else self._passage(**spec)

    def _passage(self, file: str, at: str, tokens: int) -> tuple[dict[str, str], str, str]:
        found = [s for s in self._sources if file in s.name]
        if len(found) != 1:
            raise ValueError(f"file: {file!r} names {len(found)} sources; name one")
        start = found[0].text.find(at)
        passage = whole_lines(found[0].text, start, tokens) if start >= 0 else None
        if passage is None:
            raise ValueError(f"at: {at!r} is not in {found[0].name}, or fewer than {tokens} tokens follow it")
        return {"{material}": to_the_stop(found[0].text, start, len(passage))}, found[0].name, found[0].licence

    def _translations(self, language: str, domain: str, skip: int, pairs: int, ask: int) -> tuple[dict[str, str], str, str]:
        path = self._catalogues / domain / "locale" / language / "LC_MESSAGES" / "django.po"
        found = list(messages(path.read_text("utf-8")))[skip : skip + pairs + ask]
        if len(found) != pairs + ask:
            raise ValueError(f"{path}: {len(found)} messages after the first {skip}; {pairs + ask} are needed")
        texts = {
            "{material}": "\n\n".join(f"English: {english}\n{language}: {other}" for english, other in found[:pairs]),
            "{ask}": "\n".join(english for english, _ in found[pairs:]),
        }
        return texts, f"Django, {domain}/locale/{language}", "BSD-3-Clause"


def to_the_stop(text: str, start: int, length: int) -> str:
    """``length`` characters of ``text`` and what is missing to the end of a line that ends a sentence, or of a paragraph."""
    stop = re.compile(r"[.!?][\"')]*(?=\n)|(?=\n\n)|\Z").search(text, max(start, start + length - 3))
    return text[start : max(start + length, stop.end() if stop else 0)].rstrip()


def messages(catalogue: str) -> Iterator[tuple[str, str]]:
    """(English, translation) of a gettext catalogue, in order: plain translated sentences only, and none that a translator must check."""
    for entry in catalogue.split("\n\n"):
        match = _MESSAGE.search(entry + "\n")
        if match and "#, fuzzy" not in entry:
            english, other = ("".join(ast.literal_eval(line) for line in text.splitlines()) for text in match.groups())
            if other and _PLAIN.fullmatch(english) and _PLAIN.fullmatch(other + " " * 25):
                yield english, other


def rows(folder: Path, library: Library) -> list[dict[str, Any]]:
    """The rows of every category, in order of :data:`CATEGORIES`. Raises ``ValueError`` naming file and question for anything malformed."""
    out = []
    for category in CATEGORIES:
        path = folder / f"{category}.yaml"
        for question in yaml.safe_load(path.read_text("utf-8")):
            try:
                out.append(row(category, question, library))
            except (ValueError, KeyError, TypeError) as e:
                raise ValueError(f"{path.name}: {question.get('id')}: {e}") from e
    return out


def row(category: str, question: Mapping[str, Any], library: Library) -> dict[str, Any]:
    """One row of the published schema, and its ``licence``. Raises ``ValueError`` for what is malformed or names material in vain."""
    if unknown := question.keys() - _FIELDS:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}; known: {', '.join(sorted(_FIELDS))}")
    difficulty = question.get("difficulty", "")
    if (difficulty in DIFFICULTIES) != (category in GRADED):
        raise ValueError(f"difficulty: {difficulty!r}; {'one of ' + ', '.join(DIFFICULTIES) if category in GRADED else 'none here'}")
    turns, source, licence = [str(turn).strip() for turn in question["turns"]], "specsweep", OWN_LICENCE
    if "material" in question:
        texts, source, of_material = library.material(question["material"])
        licence = f"{OWN_LICENCE} AND {of_material}"
        turns = [_put_in(turn, texts) for turn in turns]
    if left := re.search(r"\{(?:material|ask)\}", "".join(turns)):
        raise ValueError(f"{left.group()} stands for no material")
    return {
        "question_id": f"mini-{category}-{question['id']}",
        "category": category,
        "sub_category": question["sub_category"],
        "turns": turns,
        "source": source,
        "src_id": str(question["id"]),
        "difficulty": difficulty,
        "multiturn": len(turns) > 1,
        "licence": licence,
    }


def _put_in(turn: str, texts: Mapping[str, str]) -> str:
    for name, text in texts.items():
        turn = turn.replace(name, text)
    return turn
