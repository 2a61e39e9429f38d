"""A damaged file of events: what is whole is read, what is not is counted; reading it strictly refuses it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.document.message import Message
from perfgate.errors import DocumentError
from perfgate.judging.report.text.messages import word
from perfgate.locale import speaking

from .job import recorded, steps

EVENTS = [
    {"ph": "X", "cat": "kernel", "name": f"k{n}", "pid": 0, "tid": 7, "ts": 10 * n, "dur": 4, "args": {"device": 0}}
    for n in range(50)
]


def kineto(events: list[str], end: str = "]}") -> str:
    return '{"schemaVersion": 1, "traceEvents": [' + ", ".join(events) + end


def salvaged(path: Path) -> tuple[list[str], Message | None]:
    """Return the names of the spans that were read, and the note on what was not."""
    recording = trace.salvage(path)
    (timeline,) = recording.timelines
    events = timeline.events
    assert recording.path == path
    assert (recording.loss is None) == (not recording.notes)
    return [events.names[name] for name in events.name.tolist()], recording.notes[0] if recording.notes else None


@pytest.mark.parametrize(
    "bad",
    [
        '{"ph": "X", "name": "a "file" with quotes", "ts": 1, "dur": 1, "pid": 0, "tid": 7}',  # as torch 2.13 writes it
        '{"ph": "X", "name": "k", "ts": inf, "dur": 1}',
        '{"ph": "X", "name": "k", "ts": 1, "dur": NaN}',
        '{"ph": "X", "name": "k", "ts": 1, "dur": null}',
        '{"ph": "X", "name": "k", "ts": 1, "dur": -1}',
        '{"ph": "X", "name": "\\x", "ts": 1, "dur": 1}',
        '{"ph": "X", "name": "\\ud800", "ts": 1, "dur": 1}',
        '{"ph": "X", "name": "k", "ts": "soon", "dur": 1}',
        '{"ph": "X ", "name": "k", "ts": 1, "dur": 1}',
    ],
)
def test_salvage__one_event_is_none__the_others_and_its_place(tmp_path: Path, bad: str) -> None:
    texts = [json.dumps(event) for event in EVENTS]
    path = tmp_path / "trace.json"
    path.write_text(kineto([*texts[:20], bad, *texts[20:]]))
    with pytest.raises(DocumentError):
        trace.read(path)
    names, note = salvaged(path)
    assert names == [event["name"] for event in EVENTS]
    assert note is not None
    values = note.values
    assert (values["count"], path.read_text()[values["offset"] :].lstrip(", ").startswith(bad[:10])) == (1, True)
    assert "one piece," in word(note)
    assert "% of the file" in word(note)


@pytest.mark.parametrize(("keep", "packed"), [(0.3, False), (0.77, False), (0.999, False), (0.77, True), (0.999, True)])
def test_salvage__cut_off__all_that_is_whole(tmp_path: Path, keep: float, packed: bool) -> None:
    text = kineto([json.dumps(event) for event in EVENTS]).encode()
    path = tmp_path / ("trace.json.gz" if packed else "trace.json")
    data = gzip.compress(text) if packed else text
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(DocumentError):
        trace.read(path)
    names, _ = salvaged(path)
    assert names == [event["name"] for event in EVENTS][: len(names)]
    assert len(names) >= (1 if packed else int(50 * keep) - 2)


def test_salvage__list_without_its_bracket__said_to_have_no_end(tmp_path: Path) -> None:
    path = tmp_path / "chrome.json"
    path.write_text("[" + ",\n".join(json.dumps({**event, "cat": "x"}) for event in EVENTS) + ",\n")
    names, note = salvaged(path)
    assert len(names) == 50
    assert note is not None
    assert note.code == "notes.cut-off"


def test_salvage__cut_between_two_events__said_without_a_share(tmp_path: Path) -> None:
    text = kineto([json.dumps(event) for event in EVENTS])
    path = tmp_path / "trace.json"
    for end in (text.index('{"ph": "X", "cat": "kernel", "name": "k30"'), text.index('"name": "k30"')):
        path.write_text(text[:end])
        recording = trace.salvage(path)
        assert [note.code for note in recording.notes] == ["notes.cut-off"]
        assert recording.loss is not None
        assert (recording.loss.is_cut, recording.loss.lost, len(recording.timelines[0].events)) == (True, 0, 30)


@pytest.mark.parametrize("rest", ["not json", "{}", kineto([json.dumps(event) for event in EVENTS])])
def test_salvage__text_behind_the_document__its_share_is_lost(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "trace.json"
    document = kineto([json.dumps(event) for event in EVENTS])
    path.write_text(document + "\n" + rest)
    with pytest.raises(DocumentError, match=r"is not JSON|several lists"):
        trace.read(path)
    names, note = salvaged(path)
    assert len(names) == 50
    assert note is not None
    assert (note.code, note.values["size"]) == ("notes.around-the-list", len(rest))


def test_salvage__line_of_a_log_before_the_document__the_events_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("INFO: exported\n" + kineto([json.dumps(event) for event in EVENTS]))
    with pytest.raises(DocumentError, match="is not JSON"):
        trace.read(path)
    names, note = salvaged(path)
    assert len(names) == 50
    assert note is not None
    assert note.code == "notes.around-the-list"


def test_salvage__two_lists_of_events__refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [], ' + kineto([json.dumps(event) for event in EVENTS])[1:])
    with pytest.raises(DocumentError, match="several lists"):
        trace.salvage(path)


def test_salvage__no_numbers_among_arguments_and_in_the_header__everything_is_read(tmp_path: Path) -> None:
    texts = [json.dumps({**event, "args": {"device": 0, "occupancy": float("nan"), "of": "NaN"}}) for event in EVENTS]
    path = tmp_path / "trace.json"
    for end in ("]}", '], "scale": -Infinity}'):
        path.write_text(kineto(texts, end).replace("{", '{"load": NaN, "distributedInfo": {"rank": 3}, ', 1))
        with pytest.raises(DocumentError):
            trace.read(path)
        names, note = salvaged(path)
        assert len(names) == 50
        assert note is not None
        assert (note.code, note.values["count"]) == ("notes.no-json-numbers", 51 + (end != "]}"))
        assert trace.salvage(path).timelines[0].rank == 3


@pytest.mark.parametrize(("place", "behind"), [(-8, 4), (-4, 4), (-8, 8)])
def test_salvage__another_sum_of_a_gzip__everything_is_read_and_said(tmp_path: Path, place: int, behind: int) -> None:
    packed = bytearray(gzip.compress(kineto([json.dumps(event) for event in EVENTS]).encode()))
    for byte in range(behind):
        packed[place + byte if place + byte < 0 else place] ^= 0x11
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed)
    names, note = salvaged(path)
    assert names == [event["name"] for event in EVENTS]
    assert note is not None
    assert note.code == "notes.wrong-checksum"


@pytest.mark.parametrize("place", [-8, -4])
def test_salvage__another_sum_of_the_first_member_of_a_gzip__the_second_is_read(tmp_path: Path, place: int) -> None:
    text = kineto([json.dumps(event) for event in EVENTS]).encode()
    first = bytearray(gzip.compress(text[:2000]))
    first[place] ^= 0x11
    path = tmp_path / "trace.json.gz"
    path.write_bytes(bytes(first) + gzip.compress(text[2000:]))

    names, note = salvaged(path)

    assert names == [event["name"] for event in EVENTS]
    assert note is not None
    assert note.code == "notes.wrong-checksum"


def test_salvage__names_that_are_not_utf8__their_events_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(kineto([json.dumps(event) for event in EVENTS]).encode().replace(b'"k7"', b'"k\xff7"'))

    names, note = salvaged(path)

    assert names[7] == "k\ufffd7"
    assert len(names) == 50
    assert note is not None
    assert (note.code, note.values["count"]) == ("notes.no-json-numbers", 1)


def test_salvage__last_bracket_is_missing__said_to_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto([json.dumps(event) for event in EVENTS], end="]"))

    names, note = salvaged(path)

    assert len(names) == 50
    assert note is not None
    assert note.code == "notes.cut-off"


def test_salvage__whole_file__as_read_without_a_note(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto([json.dumps(event) for event in EVENTS]))
    assert salvaged(path) == ([event["name"] for event in EVENTS], None)


def test_salvage__no_event_is_whole__refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(kineto(['{"ph": "X", "name": "k", "ts": inf']))
    with pytest.raises(DocumentError):
        trace.salvage(path)


def test_read__asynchronous_spans_and_counters__said_to_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    more = [{"ph": "b", "id": 1, "ts": 1}, {"ph": "e", "id": 1, "ts": 2}, {"ph": "C", "ts": 1}]
    path.write_text(kineto([json.dumps(event) for event in [*EVENTS, *more]]))
    (note,) = trace.read(path).notes
    assert "1 begins of asynchronous spans (b), 1 ends of asynchronous spans (e), 1 counters (C) are not read" in word(
        note
    )


@pytest.mark.parametrize(
    ("name", "content", "chinese"),
    [
        ("a.json", '{"schemaVersion": 1, "traceEvents": [', "事件列表没有结尾，文件被截断；请重新采集 trace"),
        ("a.json", '{"traceEvents": [{"ph": "X", "name": "a", "ts": "x"}]}', "（'a'）：时间 'x' 不是数字；请重新采集"),
        ("trace_view.json", '[{"ph": "X", "name": "a", "ts": 1, "dur": -2}]', "其时长 -2 为负数；请重新"),
        (
            "kernel_details.csv",
            "Name,Accelerator Core,Duration(us)\na,b,-5\n",
            "第 2 行，'duration(us)' 列：'-5' 为负数；该表已损坏",
        ),
        ("a.zip", "PK", "不是可读的 zip 文件"),
    ],
)
def test_read__damaged__its_error_in_chinese(tmp_path: Path, name: str, content: str, chinese: str) -> None:
    (tmp_path / name).write_text(content)
    with speaking("zh"), pytest.raises(DocumentError) as caught:
        trace.read(tmp_path / name)
    assert chinese in caught.value.shown
    assert str(tmp_path) in str(caught.value)
    assert str(caught.value).isascii()


def test_salvage__lost_event_with_a_time_of_centuries__no_span_is_said(tmp_path: Path) -> None:
    texts = [json.dumps(event) for event in EVENTS]
    path = tmp_path / "trace.json"
    path.write_text(
        kineto([*texts[:20], '{"ph": "X", "name": "k", "ts": 9999999999999999999, "dur": -1}', *texts[20:]])
    )
    recording = trace.salvage(path)
    assert [note.code for note in recording.notes] == ["notes.salvaged"]


def test_salvage__more_behind_compressed_content__all_events_and_said(tmp_path: Path) -> None:
    text = recorded(tmp_path / "whole.json", steps(3)).read_bytes()
    path = tmp_path / "more.json.gz"
    path.write_bytes(gzip.compress(text) + b"</html>")

    recording = trace.salvage(path)

    assert len(recording.timelines[0].events) == len(steps(3))
    assert [note.code for note in recording.notes] == ["notes.more-behind"]
    with pytest.raises(DocumentError, match=r"more\.json\.gz"):
        trace.read(path)
    path.write_bytes(gzip.compress(text) + bytes(512))
    assert trace.salvage(path).notes == ()
