"""The committed corpus: what may be in it, and that ramp-up and measurement never share text."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from specsweep.client.workload import buckets
from specsweep.client.workload.build_corpus import SHORT, documents, passages
from specsweep.client.workload.corpus_sources import Source, r_character_vectors

CORPUS = Path(buckets.__file__).parent / "corpus"
TIERS = ("low", "mixed", "high")


def _rows(tier: str) -> list[dict[str, Any]]:
    with gzip.open(CORPUS / f"{tier}.jsonl.gz", "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


@pytest.fixture(scope="module", params=TIERS)
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return _rows(request.param)


def test_enough_documents_of_each_role(rows: list[dict[str, Any]]) -> None:
    assert sum(r["role"] == "main" for r in rows) == SHORT.main >= 64
    assert sum(r["role"] == "ramp" for r in rows) == SHORT.ramp >= 64
    assert len({r["doc_id"] for r in rows}) == len(rows)


def test_ramp_documents_come_from_other_sources(rows: list[dict[str, Any]]) -> None:
    main, ramp = ({r["source"] for r in rows if r["role"] == role} for role in ("main", "ramp"))
    assert not main & ramp


def test_no_two_documents_share_a_passage(rows: list[dict[str, Any]]) -> None:
    assert len({r["text"] for r in rows}) == len(rows)
    for r in rows:
        middle = r["text"][1500:1700]
        assert sum(middle in other["text"] for other in rows) == 1, r["doc_id"]


def test_documents_fill_a_bucket_of_1k(rows: list[dict[str, Any]]) -> None:
    assert min(buckets.count(r["text"]) for r in rows) >= SHORT.tokens >= 1000 + 50


def test_texts_are_what_their_provenance_says(rows: list[dict[str, Any]]) -> None:
    for r in rows:
        assert hashlib.sha256(r["text"].encode()).hexdigest() == r["sha256"]
        assert re.fullmatch(r"[0-9a-f]{64}", r["source_sha256"])
        assert r["licence"] in {"PSF-2.0", "public domain"}
        assert r["offset"] >= 0


def test_no_terms_of_third_parties(rows: list[dict[str, Any]]) -> None:
    terms = r"copyright|all rights reserved|gutenberg|\betext"
    if rows[0]["licence"] != "public domain":  # in a novel, a licence is what one marries with
        terms += "|licen[cs]e"
    forbidden = re.compile(terms, re.IGNORECASE)
    assert [r["doc_id"] for r in rows if forbidden.search(r["text"])] == []


def test_every_source_is_named_in_the_docs_and_the_licence_lies_beside_it() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    for name in ("CPython 3.11", "python3.11-doc", "r-cran-janeaustenr", "brotli", "public domain", "PSF-2.0"):
        assert name in docs
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (CORPUS / "LICENSE-PSF.txt").read_text()


def test_size_of_what_is_committed() -> None:
    assert sum(f.stat().st_size for f in CORPUS.iterdir()) < 5_000_000


def _prose(seed: int, paragraphs: int = 400) -> str:
    return "\n\n".join(f"Paragraph {seed}.{i} tells of {i * 7919 % 1000} ships.\nThey sail." for i in range(paragraphs)) + "\n"


def test_passages_start_at_borders_and_do_not_overlap() -> None:
    text = _prose(0)
    found = list(passages(text, r"(?<=\n\n)(?=P)", 4))
    assert len(found) >= 3
    end = 0
    for at, passage in found:
        assert at >= end
        assert text[at : at + len(passage)] == passage
        assert passage.startswith("Paragraph")
        assert buckets.count(passage) >= SHORT.tokens
        end = at + len(passage)


def test_the_builder_is_deterministic_and_needs_enough_sources() -> None:
    sources = [Source(f"s{i}", "public domain", _prose(i), i % 5 < 2, r"(?<=\n\n)(?=P)") for i in range(100)]
    assert documents("mixed", sources) == documents("mixed", list(reversed(sources)))
    with pytest.raises(ValueError, match=r"mixed: only \d+ main passages in 3 sources; 96 are needed"):
        documents("mixed", sources[2:5])


def test_reading_an_r_database() -> None:
    import zlib

    def vector(lines: list[str]) -> bytes:
        head = b"X\n" + (3).to_bytes(4, "big") + bytes(4) + bytes(4) + (5).to_bytes(4, "big") + b"UTF-8"
        body = (16).to_bytes(4, "big") + len(lines).to_bytes(4, "big")
        body += b"".join(b"\0\4\0\x09" + len(raw := t.encode()).to_bytes(4, "big") + raw for t in lines)
        return len(head + body).to_bytes(4, "big") + zlib.compress(head + body)

    assert list(r_character_vectors(vector(["EMMA", "", "é"]) + vector(["x"]))) == [["EMMA", "", "é"], ["x"]]
