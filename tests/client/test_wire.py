"""The bytes of a stream: however the network cuts them, the same events come out, each with the time of the read that completed it."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsweep.client.recording import read_recording
from specsweep.client.wire import Read, dechunk, header, split_events, split_head, sse_events

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.jsonl.gz"))
CHUNKED = [("Transfer-Encoding", "chunked")]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def one_read_a_byte(data: bytes) -> list[Read]:
    return [(i, data[i : i + 1]) for i in range(len(data))]


def cut(data: bytes, places: list[int]) -> list[Read]:
    """The same bytes in other reads; the time of a read is the index of its last byte."""
    edges = sorted({0, len(data), *(p % (len(data) + 1) for p in places)})
    return [(b - 1, data[a:b]) for a, b in pairwise(edges)]


def recorded_bodies() -> list[tuple[str, bytes, list[tuple[str, str]]]]:
    """One body of every kind in every recording: the first single, the first batch, and all error cases."""
    bodies = []
    for path in RECORDINGS:
        for request in read_recording(path).requests:
            data = b"".join(d for _, d in request.exchange.reads)
            if data and (not request.name.startswith(("single_", "batch_")) or request.name.endswith("_0")):
                bodies.append((f"{path.name}:{request.name}", data, request.exchange.headers))
    return bodies


BODIES = recorded_bodies()


class TestHead:
    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Empty:\r\n\r\nrest"

    def test_status_and_fields(self) -> None:
        head = split_head([(5, self.ANSWER)])
        assert head.status == 200
        assert header(head.headers, "content-TYPE") == "text/event-stream"
        assert header(head.headers, "x-empty") == header(head.headers, "absent") == ""
        assert head.reads == [(5, b"rest")]

    @pytest.mark.parametrize("at", range(1, len(ANSWER)))
    def test_a_cut_anywhere_changes_nothing_but_times(self, at: int) -> None:
        head = split_head([(1, self.ANSWER[:at]), (2, self.ANSWER[at:]), (3, b"more")])
        assert head.status == 200
        assert len(head.headers) == 2
        assert b"".join(d for _, d in head.reads) == b"restmore"
        assert head.reads[-1] == (3, b"more")

    def test_interim_answers_are_skipped(self) -> None:
        head = split_head([(1, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nA: b\r\n\r\n")])
        assert (head.status, head.headers, head.reads) == (503, [("A", "b")], [])

    @pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])
    def test_no_head_is_status_0(self, data: bytes) -> None:
        assert split_head([(1, data)]).status == 0


class TestTransferCoding:
    def test_times_are_those_of_the_completing_read(self) -> None:
        body = dechunk([(1, b"3\r\nab"), (2, b"c\r\n2"), (3, b"\r\nde\r\n0\r\n\r\n")], CHUNKED)
        assert body.pieces == [(1, b"ab"), (2, b"c"), (3, b"de")]
        assert body.terminated
        assert body.error == ""

    def test_extensions_and_trailers(self) -> None:
        body = dechunk([(1, b"3;a=b\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")], CHUNKED)
        assert (body.pieces, body.terminated) == ([(1, b"abc")], True)

    @pytest.mark.parametrize("data", [b"3\r\nabc\r\n", b"3\r\nab", b"3", b""])
    def test_a_connection_that_ends_early_is_not_terminated(self, data: bytes) -> None:
        body = dechunk([(1, data)], CHUNKED)
        assert not body.terminated
        assert body.error == ""

    @pytest.mark.parametrize(
        ("data", "words"), [(b"zz\r\n", "not a chunk size"), (b"2\r\nabc\r\n", "longer"), (b"-1\r\n", "not a chunk size")]
    )
    def test_broken_framing_is_named(self, data: bytes, words: str) -> None:
        assert words in dechunk([(1, data)], CHUNKED).error

    def test_content_length(self) -> None:
        whole = dechunk([(1, b"ab"), (2, b"cde")], [("content-length", "4")])
        assert (whole.pieces, whole.terminated) == ([(1, b"ab"), (2, b"cd")], True)
        assert not dechunk([(1, b"ab")], [("content-length", "4")]).terminated
        assert dechunk([], [("content-length", "0")]).terminated

    def test_a_body_without_framing_is_never_proved_complete(self) -> None:
        assert dechunk([(1, b"ab")], []) == ([(1, b"ab")], False, "")

    @given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
    def test_any_cut_gives_the_same_payload(self, payloads: list[bytes], places: list[int]) -> None:
        data = b"".join(map(chunk, payloads)) + b"0\r\n\r\n"
        body = dechunk(cut(data, places), CHUNKED)
        assert b"".join(d for _, d in body.pieces) == b"".join(payloads)
        assert body.terminated


class TestEvents:
    def events(self, data: bytes) -> list[bytes]:
        return [d for _, d in sse_events([(1, data)])]

    def test_line_ends_space_comments_and_joined_lines(self) -> None:
        assert self.events(b"data: a\n\ndata:b\n\n: keep-alive\n\ndata: c\r\n\r\nid: 7\n\ndata: d\ndata: e\n\n") == [
            b"a",
            b"b",
            b"c",
            b"d\ne",
        ]

    def test_only_one_space_is_taken_off(self) -> None:
        assert self.events(b"data:  x\n\n") == [b" x"]

    def test_an_event_name_or_comment_beside_the_data_does_not_hide_it(self) -> None:
        assert self.events(b"event: delta\ndata: a\n\n:c\ndata: b\nid: 1\n\n") == [b"a", b"b"]

    def test_an_unfinished_event_is_handed_back(self) -> None:
        stream = split_events([(1, b"data: a\n\ndata: {"), (2, b'"b')])
        assert stream.events == [(1, b"a")]
        assert stream.rest == b'data: {"b'

    def test_the_time_is_that_of_the_read_with_the_last_byte(self) -> None:
        assert sse_events([(1, b"data: a"), (2, b"\n"), (3, b"\ndata: b\n\ndata: c\n\n")]) == [(3, b"a"), (3, b"b"), (3, b"c")]

    LINES = st.sampled_from([b"data: a", b"data:b", b"data: {}", b": c", b"event: x", b"", b"data"])

    @given(st.lists(LINES, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.lists(st.integers(0, 10_000), max_size=10))
    def test_any_cut_gives_the_same_events(self, lines: list[bytes], newline: bytes, places: list[int]) -> None:
        data = newline.join(lines) + newline * 2
        slow = split_events(one_read_a_byte(data))
        found = split_events(cut(data, places))
        assert [d for _, d in found.events] == [d for _, d in slow.events]
        assert found.rest == slow.rest


class TestRecordedStreams:
    def test_there_is_a_body_of_every_recording(self) -> None:
        assert {name.split(":")[0] for name, _, _ in BODIES} == {p.name for p in RECORDINGS}

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(BODIES), st.lists(st.integers(0, 200_000), max_size=40))
    def test_cut_anywhere(self, recorded: tuple[str, bytes, list[tuple[str, str]]], places: list[int]) -> None:
        _, data, headers = recorded
        whole = dechunk([(len(data) - 1, data)], headers)
        body = dechunk(cut(data, places), headers)
        assert (body.terminated, body.error) == (whole.terminated, whole.error)
        expected, found = split_events(whole.pieces), split_events(body.pieces)
        assert [d for _, d in found.events] == [d for _, d in expected.events]
        assert found.rest == expected.rest
        times = [t for t, _ in found.events]
        assert times == sorted(times)

    @pytest.mark.parametrize("recorded", BODIES, ids=[b[0] for b in BODIES])
    def test_the_reads_as_they_came_a_byte_at_a_time_and_joined(self, recorded: tuple[str, bytes, list[tuple[str, str]]]) -> None:
        _, data, headers = recorded
        data = data[:20_000]
        by_byte = split_events(dechunk(one_read_a_byte(data), headers).pieces)
        joined = split_events(dechunk([(0, data)], headers).pieces)
        assert [d for _, d in by_byte.events] == [d for _, d in joined.events]
        ends = [t for t, _ in by_byte.events]
        assert ends == sorted(set(ends))  # no two events end with the same byte


def test_recordings_are_whole() -> None:
    for path in RECORDINGS:
        with gzip.open(path, "rt") as lines:
            assert all(json.loads(line)["kind"] in ("meta", "metrics", "request") for line in lines)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_a_large_event_over_many_reads_is_one_event_at_its_last_read(end: bytes) -> None:
    text = b"y" * 3_000_000
    stream = b"data: first" + end + b"data: " + text + end + b"data: last" + end
    reads = [(at, stream[at : at + 1000]) for at in range(0, len(stream), 1000)]
    found = split_events(reads)
    assert [data for _, data in found.events] == [b"first", text, b"last"]
    assert [t for t, _ in found.events] == [0, reads[-1][0], reads[-1][0]]
    assert found.rest == b""


@pytest.mark.parametrize("status", ["2000", "20", "9" * 5000, "-20", "2e2"])
def test_a_status_that_has_not_three_digits_is_no_status(status: str) -> None:
    assert split_head([(1, f"HTTP/1.1 {status} OK\r\n\r\n".encode())]).status == 0


def test_a_length_that_nothing_can_have() -> None:
    body = dechunk([(1, b"x")], [("Content-Length", "9" * 5000)])
    assert not body.terminated
    assert "Content-Length" in body.error
    assert len(body.error) < 200
