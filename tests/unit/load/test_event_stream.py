"""The parser of server-sent events: the format's own examples, its bounds, and any bytes in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate.conductor.load.event_stream import LONGEST_EVENT, LONGEST_LINE, EventStream, EventStreamError


def parse(*pieces: bytes) -> tuple[list[str], str]:
    """The events, and the text of the error that ended them."""
    events: list[str] = []
    stream = EventStream()
    try:
        for piece in pieces:
            for event in stream.feed(piece):
                events.append(event)  # noqa: PERF402 - those before an error are wanted
        stream.end()
    except EventStreamError as error:
        return events, str(error)
    return events, ""


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: one\n\ndata: two\n\n", ["one", "two"]),
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", ["YHOO\n+2\n10"]),
        (b": a comment\n\nevent: add\nid: 3\nretry: 10\ndata:no space\r\n\r\n", ["no space"]),
        (b"data: one\r\rdata:  two spaces\r\r", ["one", " two spaces"]),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", ["after a byte order mark"]),
        (b"data\n\ndata\ndata\n\ndatum: x\n\n", ["", "\n"]),
        (b"data: a:b\n\n\n\n", ["a:b"]),
        (b"", []),
    ],
)
def test_feed__format__events_of_the_living_standard(body: bytes, events: list[str]) -> None:
    assert parse(body) == (events, "")
    assert parse(*(bytes([byte]) for byte in body)) == (events, "")


@pytest.mark.parametrize("body", [b"data: one\n\ndata: tw", b"data: one\n\ndata: two\n", b"data: one\n\nd"])
def test_end__within_an_event__cut_off(body: bytes) -> None:
    assert parse(body) == (["one"], "the event stream ended within an event: it was cut off")


def test_feed__not_utf_8__an_error_after_the_events_before_it() -> None:
    events, error = parse(b"data: one\n\ndata: \xff\n\n")
    assert events == ["one"]
    assert error.startswith("the event stream is not UTF-8")


def test_feed__line_and_event_without_end__refused_at_their_bounds() -> None:
    assert parse(b"data: " + b"x" * LONGEST_LINE) == (
        [],
        f"a line of the event stream is longer than {LONGEST_LINE} bytes",
    )
    line = b"data: " + b"x" * 1000 + b"\n"
    lines = LONGEST_EVENT // 1001 + 1
    assert parse(line * lines) == ([], f"an event of the stream is longer than {LONGEST_EVENT} bytes")
    assert parse(line * (lines - 1) + b"\n")[1] == ""


_PARTS = st.sampled_from(
    [
        b"data",
        b":",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"data: {}\n\n",
        b"\xef\xbb\xbf",
        b"\xe4\xbd\xa0",
        b"\xff",
        b"x",
    ]
)
_BODIES = st.lists(st.one_of(_PARTS, st.binary(max_size=4)), max_size=40).map(b"".join)


@given(_BODIES, st.lists(st.integers(min_value=0, max_value=160), max_size=12))
def test_feed__any_bytes_in_any_pieces__same_events_and_same_error_of_its_own(body: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    pieces = [body[begin:end] for begin, end in pairwise(edges)]
    whole = parse(body)
    assert parse(*pieces) == whole
    assert parse(*(bytes([byte]) for byte in body)) == whole
