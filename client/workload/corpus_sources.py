"""The texts that the committed corpus is made of: where each file's text starts, what licence it has, where a passage may start in it.

Only files that mention no copyright and no licence of their own are taken from code and documentation, so that one licence covers each
tier; of literature only the work itself is taken, never what an edition says of itself. A file belongs to the ramp-up or to the
measurement for good (a hash of its name decides), however it is cut: no ramp-up prompt shares text with a measured one.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from specsweep.client.workload.buckets import count

_OWN_TERMS = re.compile(r"copyright|licen[cs]e|gutenberg|etext|all rights reserved", re.IGNORECASE)
_SKIPPED = ("/test/", "/tests/", "/site-packages/", "/lib2to3/", "/encodings/", "/pydoc_data/", "/idlelib/idle_test/", "/turtledemo/")
_RAMP_NOVELS = ("NORTHANGER ABBEY", "Persuasion")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of text before it is cut into passages."""

    name: str
    licence: str
    text: str
    ramp: bool
    border: str  # a regular expression; a passage starts where it matches


def code(stdlib: Path) -> Iterator[Source]:
    version = "{}.{}.{}".format(*sys.version_info[:3])
    for path in sorted(stdlib.rglob("*.py")):
        name = f"CPython {version}, Lib/{path.relative_to(stdlib).as_posix()}"
        if not any(part in "/" + path.relative_to(stdlib).as_posix() for part in _SKIPPED):
            yield from _checked(name, "PSF-2.0", path, r"^(?:def|class) ")


def documentation(sources: Path) -> Iterator[Source]:
    for path in sorted(sources.rglob("*.rst.txt")):
        name = f"Debian python3.11-doc, _sources/{path.relative_to(sources).as_posix()}"
        if not name.startswith("Debian python3.11-doc, _sources/whatsnew"):
            yield from _checked(name, "PSF-2.0", path, r"(?<=\n\n)(?=[A-Z])")


def fiction(austen: Path, testdata: Path) -> Iterator[Source]:
    border = r"(?<=\n\n)(?=\S)"
    for novel in r_character_vectors(austen.read_bytes()):
        title = novel[0].strip()
        text = "\n".join(novel[10:])  # the title page is not prose
        yield Source(f"Jane Austen, {title.title()} (Debian r-cran-janeaustenr)", "public domain", text, title in _RAMP_NOVELS, border)
    text = (testdata / "alice29.txt").read_text("latin-1").replace("\r\n", "\n")
    text = text[text.index("  Alice was beginning") :]
    yield Source("Lewis Carroll, Alice's Adventures in Wonderland (PyPI brotli, sdist)", "public domain", text, False, r"(?<=\n\n)(?=  \S)")


def plays_and_verse(testdata: Path) -> Iterator[Source]:
    """A play and an epic out of brotli's test data; for long documents only."""
    play = _plain(testdata / "asyoulik.txt")
    name = "William Shakespeare, As You Like It (PyPI brotli, sdist)"
    yield Source(name, "public domain", play[play.index("SCENE I\tOrchard") :], True, r"(?<=\n\n)(?=[A-Z]{2})")
    epic = _plain(testdata / "plrabn12.txt")
    epic = epic[epic.index("Of Man's first disobedience") : epic.index("[The End]")]  # what lies before is an editor's
    yield Source("John Milton, Paradise Lost (PyPI brotli, sdist)", "public domain", epic, False, r"(?<=\.\n)(?=[A-Z])")


def _plain(path: Path) -> str:
    return "\n".join(line.rstrip() for line in path.read_text("latin-1").splitlines())


def _checked(name: str, licence: str, path: Path, border: str) -> Iterator[Source]:
    text = "\n".join(line.rstrip() for line in path.read_text("utf-8", errors="strict").splitlines())
    if not _OWN_TERMS.search(text) and text.isascii():
        yield Source(name, licence, text, int(sha256(name), 16) % 5 < 2, border)


def r_character_vectors(rdb: bytes) -> Iterator[list[str]]:
    """The character vectors of an R lazy-load database (zlib chunks of XDR serialisation, format 3), one a chunk."""
    at = 0
    while at < len(rdb):
        inflate = zlib.decompressobj()
        chunk = inflate.decompress(rdb[at + 4 :])
        at = len(rdb) - len(inflate.unused_data)
        place = 14 + 4 + int.from_bytes(chunk[14:18], "big")  # 'X\n', three versions, length and name of the encoding
        kind, length = int.from_bytes(chunk[place : place + 4], "big"), int.from_bytes(chunk[place + 4 : place + 8], "big")
        if kind & 0xFF != 16:
            raise ValueError(f"not a character vector: R type {kind & 0xFF}")
        place += 8
        lines = []
        for _ in range(length):
            size = int.from_bytes(chunk[place + 4 : place + 8], "big")
            lines.append(chunk[place + 8 : place + 8 + size].decode("utf-8"))
            place += 8 + size
        yield lines


def joined(sources: Iterable[Source], tokens: int, comment: str) -> Iterator[Source]:
    """Sources of at least ``tokens`` o200k tokens: files that are long enough by themselves, and neighbours of one folder joined in order.

    Neighbours have the same role, measured or ramp-up. A line names each file where it begins; ``comment`` is what makes such a line a
    comment. What is left over at the end of a folder is dropped.
    """

    def place(source: Source) -> tuple[str, bool]:
        return source.name.rpartition("/")[0], source.ramp

    for _, members in groupby(sorted(sources, key=lambda s: (place(s), s.name)), key=place):
        group: list[Source] = []
        for source in members:
            if count(source.text) >= tokens:
                yield source
                continue
            group.append(source)
            text = "\n\n\n".join(f"{comment} ---- {_path(s)} ----\n\n{s.text}" for s in group)
            if count(text) >= tokens:
                name = ", ".join([group[0].name, *(_path(s) for s in group[1:])])
                yield Source(name, source.licence, text, source.ramp, r"\A")
                group = []


def _path(source: Source) -> str:
    return source.name.partition(", ")[2]


def whole_lines(text: str, start: int, tokens: int) -> str | None:
    """Whole lines of ``text`` from ``start`` on, at least ``tokens`` o200k tokens of them; None if the text ends before."""
    size = tokens * 3
    while start + size <= len(text) + tokens:
        stop = text.find("\n", min(start + size, len(text)))
        passage = text[start : stop if stop >= 0 else len(text)].rstrip()
        if count(passage) >= tokens:
            return passage
        size += 200
    return None


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
