"""Which data set a prompt comes from, by its ``source`` column, and under which licence that one is.

The column holds whatever the builder of a data set wrote there: a name, a name on the hub, the address of one file. As in the official
preparation a source is known by its name inside that text. Licences are those that SPEED-Bench's data card and the sources' own pages
name; for all others it says that they must be looked up, because a guess here would be advice about somebody's rights.
"""

from __future__ import annotations

import re
from typing import NamedTuple

UNKNOWN_LICENCE = "not known here: look at the source"


class Source(NamedTuple):
    name: str
    marks: tuple[str, ...]  # in the source text, of which only letters and digits count
    licence: str = ""


# In order: a longer name before one that is part of it, what a collection was made of before the collection.
SOURCES = (
    Source("MT-Bench-101", ("mtbench101",)),
    Source("MT-Bench", ("mtbench",), "Apache-2.0"),
    Source("WMT14", ("wmt14",)),
    Source("GSM8K", ("gsm8k",)),
    Source("Natural Questions", ("naturalquestions",)),
    Source("CNN/Daily Mail", ("cnndailymail",)),
    Source("SpecBench", ("specbench",), "Apache-2.0"),
    Source("HumanEvalPack", ("humanevalpack",), "MIT"),
    Source("WritingBench", ("writingbench",), "Apache-2.0"),
    Source("Creative Writing v3", ("creativewriting", "eqbench"), "MIT"),
    Source("MMATH", ("mmath",), "MIT"),
    Source("MCIF", ("mcif",), "CC BY 4.0"),
    Source("Humanity's Last Exam", ("caishle", "humanityslastexam"), "gated: accept the terms of cais/hle"),
    Source("LiveCodeBench", ("livecodebench",)),
    Source("CodeContests", ("codecontests",)),
    Source("MMLU-Pro", ("mmlupro",)),
    Source("OPUS-100", ("opus100",)),
    Source("ChatRAG-Bench", ("chatragbench",)),
    Source("RoleBench", ("rolebench",)),
    Source("CoSER", ("coser",), "public-domain books only"),
    Source("BAMBOO", ("bamboo",), "MIT"),
    Source("Project Gutenberg", ("gutenberg",)),
    Source("Ada-LEval", ("adaleval",)),
    Source("Long Code Arena", ("longcodearena", "lcaproject"), "MIT or Apache-2.0 repositories only"),
    Source("RepoBench", ("repobench",), "MIT or Apache-2.0 repositories only"),
    # Of the committed data set; what stands around the material is ours, under the licence of this project.
    Source(
        "public-domain literature", ("janeausten", "lewiscarroll", "johnmilton", "williamshakespeare", "pypibrotlisdist"), "public domain"
    ),
    Source("Python documentation", ("debianpython311doc",), "PSF-2.0"),
    Source("CPython", ("cpython",), "PSF-2.0"),
    Source("Django", ("django",), "BSD-3-Clause"),
    Source("specsweep", ("specsweep",), "Apache-2.0"),
)


def source_name(source: str) -> str:
    """The name of the data set that ``source`` speaks of; the text itself if it is none of :data:`SOURCES`, ``(none)`` if it is empty."""
    return next((known.name for known in _matching(source)), source or "(none)")


def licence(source: str) -> str:
    """The licence named for that data set, or for the collection that it was taken from; else :data:`UNKNOWN_LICENCE`."""
    return next((known.licence for known in _matching(source) if known.licence), UNKNOWN_LICENCE)


def _matching(source: str) -> list[Source]:
    """In the order of :data:`SOURCES`. A name that is only there as part of a longer one that matched is not meant."""
    letters = re.sub(r"[^a-z0-9]", "", source.lower())
    found = []
    for known in SOURCES:
        if mark := next((mark for mark in known.marks if mark in letters), None):
            found.append(known)
            letters = letters.replace(mark, " ")
    return found
