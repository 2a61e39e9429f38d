"""The compiled scanner and decoding: the same columns of the same file, whatever it holds."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.errors import DocumentError
from perfgate.trace.model.events import nanoseconds
from perfgate.trace.scanner import library, scan
from perfgate.trace.scanner.decoding import decode_events
from perfgate.trace.scanner.scanned import ScannedEvents, ScannedFile
from tests.samples import recorded

KEYS = {"correlation": True, "External id": True, "Input Dims": False, "name": False, "request_id": False, "": False}
needs_library = pytest.mark.skipif(library.load() is None, reason="the scanner is not built (python hatch_build.py)")

_words = st.text(max_size=8) | st.sampled_from(["aten::add", "[memory]", 'é\\"', "\u0000", "ProfilerStep#3"])
_times = (
    st.integers(-5, 1 << 62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["1736408883704801.250", "12", " 7 ", "", "x", 1e3, 0.0005, 2.0015, 4611686018427387.904])
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)
_events = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "B", "E", "M", "i", "s", "f", "C", "", "XX", "é", "\n"]),
        "cat": st.none() | _words,
        "name": st.none() | _words,
        "pid": st.integers(0, 9) | _words,
        "tid": st.integers(0, 9) | _words,
        "ts": _times,
        "dur": _times,
        "id": st.integers(-1, 1 << 65) | _words,
        "args": st.none() | st.dictionaries(st.sampled_from([*KEYS, "other"]), _values, max_size=4),
        "other": _values,
    },
)


def seen(file: ScannedFile) -> list[tuple[object, ...]]:
    """What readers see of each event: words, not their numbers, and the times or why there are none."""
    rows = [row for events in (file.complete, file.others, file.read_arrows()) for row in _rows(events)]
    assert sorted(row[0] for row in rows) == list(range(len(rows)))
    assert {row[1] for row in _rows(file.complete)} <= {ord("X")}
    return sorted(rows, key=lambda row: row[0])


def _rows(events: ScannedEvents) -> list[tuple[Any, ...]]:
    texts = events.of

    def words(column: np.ndarray) -> list[str | None]:
        return [texts.words[code] if code >= 0 else None for code in column.tolist()]

    def times(name: str) -> list[object]:
        column = zip(events.event.tolist(), getattr(events, name).tolist())
        return [_time(texts.odd[event, name]) if (event, name) in texts.odd else time for event, time in column]

    flows = [number if number >= -1 else "text" for number in events.flow().tolist()]
    arguments = {key: events.argument(key) for key in KEYS}
    return list(
        zip(
            events.event.tolist(),
            events.phase.tolist(),
            *(words(column) for column in (events.category, events.name, *events.process_and_thread())),
            times("start"),
            times("duration"),
            flows,
            *(arguments[key].tolist() if is_number else words(arguments[key]) for key, is_number in KEYS.items()),
        )
    )


def _time(text: bytes) -> object:
    try:
        return nanoseconds(text)
    except ValueError as error:
        return str(error)


def both(path: Path, *, window: int = 1 << 20) -> None:
    """Read a file both ways; where decoding refuses it, the scanner must leave it alone."""
    try:
        slow = decode_events(path, KEYS, advice=None)
    except DocumentError:
        with pytest.raises((scan.UndecidedError, DocumentError)):
            scan.WindowedScan(path, KEYS, "", window=window, arrows=False).file()
        return
    try:
        fast = scan.WindowedScan(path, KEYS, "record it again", window=window, arrows=False).file()
    except scan.UndecidedError:
        if b'"ph": "\\' in path.read_bytes() or _has_arguments_twice(path):
            return  # a phase that has to be decoded, or two values of which decoding knows which counts
        # It is read the slower way for a text of arguments that is none, where decoding does not look.
        with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
            msgspec.json.decode(b"[%b]" % b",".join(text for text in slow.texts.texts if text.startswith(b'"')))
        return
    assert seen(fast) == seen(slow)
    assert fast.around == slow.around


def _has_arguments_twice(path: Path) -> bool:
    repeated = []

    def note(pairs: list[tuple[str, object]]) -> dict[str, object]:
        repeated.append([key for key, _ in pairs].count("args") > 1)
        return dict(pairs)

    with contextlib.suppress(ValueError):  # json is stricter than what is asked of arguments
        json.loads(path.read_bytes().decode("utf-8", "replace"), object_pairs_hook=note)
    return any(repeated)


@pytest.mark.recordings
@needs_library
def test_scan__every_recorded_sample__as_decoded() -> None:
    files = [path for pattern in ("*.json", "*.json.gz") for path in recorded().rglob(pattern) if path.is_file()]
    assert len(files) > 20
    for path in files:
        both(path)


_generated = given(
    events=st.lists(_events, max_size=6), indent=st.none() | st.integers(0, 2), window=st.integers(1, 300)
)


@needs_library
@_generated
@settings(max_examples=150, deadline=None)
def test_scan__whatever_an_event_may_hold__as_decoded(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, object]], indent: int | None, window: int
) -> None:
    check_generated(tmp_path_factory.getbasetemp(), events, indent, window)


@pytest.mark.slow
@needs_library
@_generated
@settings(max_examples=1_500, deadline=None)
def test_scan__five_thousand_generated_files__as_decoded(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, object]], indent: int | None, window: int
) -> None:
    check_generated(tmp_path_factory.getbasetemp(), events, indent, window)


def check_generated(folder: Path, events: list[dict[str, object]], indent: int | None, window: int) -> None:
    path = folder / "generated.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "end": 1}, indent=indent))
    both(path, window=window)


# One begins another, and some are none.
_alike = st.sampled_from(
    [
        "1",
        "12",
        "1.5",
        "-1",
        "1e3",
        "10",
        '"1"',
        '"12"',
        '"1\\u0032"',
        "null",
        "true",
        "[1]",
        "[1, 2]",
        "[1 , 2]",
        "{}",
        '{"a": 1}',
        '""',
    ]
)
_none = st.sampled_from(["01", "1.", "tru", "[1,]", "[1", '"1', "nul", "-", "1x", "{1}"])
_keys = st.sampled_from(
    ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args", "correlation", "Input Dims", "x"]
)


@st.composite
def _alike_events(draw: st.DrawFn) -> str:
    """Many events with few keys, orders and values, as a profiler writes them; in some files a value that is none."""
    names = draw(st.lists(st.lists(_keys, min_size=1, max_size=7, unique=True), min_size=1, max_size=3))
    colon, comma = draw(st.sampled_from([":", ": ", " :\t"])), draw(st.sampled_from([",", ", ", "\n  , "]))

    def member(name: str) -> str:
        if name in ("ph", "cat", "name"):
            return draw(
                st.sampled_from(
                    {"ph": ['"X"', '"s"', '"M"'], "cat": ['"k"', '"kk"', "null"]}.get(name, ['"a"', '"ab"'])
                )
            )
        if name == "args":
            inner = draw(st.lists(st.sampled_from(["correlation", "Input Dims", "x"]), max_size=4))
            return "{" + comma.join(f'"{key}"{colon}{draw(_alike)}' for key in inner) + "}"
        return draw(_alike)

    events = [
        [f'"{name}"{colon}{member(name)}' for name in draw(st.sampled_from(names))]
        for _ in range(draw(st.integers(5, 40)))
    ]
    if draw(st.booleans()):
        place = draw(st.sampled_from(events))
        place[draw(st.integers(0, len(place) - 1))] = f'"x"{colon}{draw(_none)}'
    return "[" + comma.join("{" + comma.join(event) + "}" for event in events) + "]"


@pytest.mark.slow
@needs_library
@given(text=_alike_events(), window=st.sampled_from([100, 400, 1 << 20]))
@settings(max_examples=200, deadline=None)
def test_scan__many_events_of_few_forms__as_decoded(
    tmp_path_factory: pytest.TempPathFactory, text: str, window: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "alike.json"
    path.write_text(text)
    both(path, window=window)


_PLAIN = json.dumps(
    [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"k\\u00e9{n}",
            "pid": 0,
            "tid": "7",
            "ts": 10.25 + n,
            "dur": 2,
            "args": {"correlation": n, "Input Dims": [[1, n]], "x": {"y": [True, None, -1.5e-3]}},
        }
        for n in range(4)
    ]
).encode()
_PIECES = [
    b"",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"nan",
    b"-",
    b"1e",
    b"\x00",
    b"\xff",
    b"\\u12",
    b" ",
    b"null",
    b"0",
]


@needs_library
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_scan__damaged__left_alone_or_as_decoded(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    check_damaged(tmp_path_factory.getbasetemp(), data)


@pytest.mark.slow
@needs_library
@given(data=st.data())
@settings(max_examples=1_500, deadline=None)
def test_scan__five_thousand_damaged_files__left_alone_or_as_decoded(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    check_damaged(tmp_path_factory.getbasetemp(), data)


def check_damaged(folder: Path, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(_PLAIN)))
    end = data.draw(st.integers(at, min(len(_PLAIN), at + 4)))
    path = folder / "damaged.json"
    path.write_bytes(_PLAIN[:at] + data.draw(st.sampled_from(_PIECES)) + _PLAIN[end:])
    both(path, window=data.draw(st.sampled_from([1, 7, 64, 1 << 20])))


@needs_library
@pytest.mark.parametrize("packed", [True, False])
def test_scan__many_windows__the_order_of_the_file_also_where_a_text_looks_like_a_border(
    tmp_path: Path, packed: bool
) -> None:
    events = [
        {
            "ph": "X",
            "name": f"a{n}",
            "pid": n % 3,
            "tid": 1,
            "ts": n,
            "dur": 1,
            "args": {"note": '}, {"ph": "X"' * (n % 5)},
        }
        for n in range(400)
    ]
    path = tmp_path / ("trace.json.gz" if packed else "trace.json")
    text = json.dumps({"traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    for window in (500, 2_000, 1 << 20):
        both(path, window=window)
        windowed = scan.WindowedScan(path, KEYS, "", window=window, arrows=False)
        names = [row[3] for row in seen(windowed.file())]
        assert names == [event["name"] for event in events]


@needs_library
@pytest.mark.parametrize("window", [1 << 10, 1 << 16, 1 << 17])
def test_scan__an_event_larger_than_a_window__read_whole(tmp_path: Path, window: int) -> None:
    events = [{"ph": "X", "name": "a" * size, "pid": 1, "tid": 1, "ts": 1, "dur": 1} for size in (5, 300_000, 7)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    both(path, window=window)
    names = [row[3] for row in seen(scan.WindowedScan(path, KEYS, "", window=window, arrows=False).file())]
    assert list(map(len, names)) == [5, 300_000, 7]


@needs_library
def test_scan__damage_in_a_later_window__is_the_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 20_000).tolist()
    events = [{"ph": "X", "name": str(number), "pid": 1, "tid": 1, "ts": 1, "dur": 1} for number in numbers]
    packed = bytearray(gzip.compress(json.dumps(events).encode()))
    packed[len(packed) // 2] ^= 0x55
    path.write_bytes(packed)
    with pytest.raises((DocumentError, scan.UndecidedError)):
        scan.WindowedScan(path, KEYS, "", window=1 << 14, arrows=False).file()


@needs_library
def test_scan__a_value_that_goes_on_where_the_last_ended__read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    dims = ["[1]", "[1]", "[1], [2]", "[1]"]
    events = [
        f'{{"ph": "X", "cat": "c", "name": "n", "pid": 1, "tid": {tid}, "ts": 1, "dur": {dur}, '
        f'"args": {{"correlation": {tid}, "Input Dims": [{shape}]}}, "end": "of a line long enough to look ahead"}}'
        for tid, dur, shape in zip((1, 1, 12, 1), (2, 2, 2.5, 2), dims)
    ]
    path.write_text(f"[{', '.join(events)}]")
    found = scan.WindowedScan(path, KEYS, "", arrows=False).file().complete
    threads = found.process_and_thread()[1].tolist()
    assert [found.of.words[code] for code in threads] == ["1", "1", "12", "1"]
    assert found.duration.tolist() == [2000, 2000, 2500, 2000]
    assert found.argument("correlation").tolist() == [1, 1, 12, 1]
    assert [found.of.words[code] for code in found.argument("Input Dims").tolist()] == [f"[{shape}]" for shape in dims]


@needs_library
def test_scan__values_that_stay_for_long_and_then_change__read_as_they_stand(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X",
            "cat": "kernel" if number % 3 else "cpu_op",
            "name": f"k{number % 5}",
            "pid": number // 1000,
            "tid": 7 if number % 3 else 50,
            "ts": number,
            "dur": 1 + number // 500,
            "args": {
                "External id": number,
                "device": 0,
                "correlation": number // 700,
                "Input Dims": [[1 + number // 900, 2]],
                **({} if number % 1100 else {"name": None}),
            },
        }
        for number in range(3_000)
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    both(path)
    found = scan.WindowedScan(path, KEYS, "", arrows=False).file().complete
    assert found.argument("correlation").tolist() == [number // 700 for number in range(3_000)]
    assert found.duration.tolist() == [1000 * (1 + number // 500) for number in range(3_000)]


@needs_library
def test_numbers__one_that_takes_eight_bytes__all_take_eight(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for largest, kind in ((2**31 - 1, np.int32), (2**31, np.int64)):
        events = [{"ph": "X", "ts": 1, "args": {"correlation": number}} for number in (7, largest)] + [
            {"ph": "X", "ts": 1}
        ]
        path.write_text(json.dumps(events))
        numbers = scan.WindowedScan(path, KEYS, "", arrows=False).file().complete.numbers("correlation")
        assert (numbers.tolist(), numbers.dtype) == ([7, largest, -1], kind)


@needs_library
def test_nanoseconds__more_than_three_decimals__half_to_even(tmp_path: Path) -> None:
    texts = [
        "1.0005",
        "1.0015",
        "1.00150",
        "1.001500001",
        "1.0025",
        "0.9995",
        "7.12345678901234567890",
        "4611686018427386.9",
        "1",
    ]
    path = tmp_path / "trace.json"
    events = ",".join(f'{{"ph": "X", "ts": {text}, "dur": {text}}}' for text in texts)
    path.write_text(f"[{events}]")
    both(path)
    found = scan.WindowedScan(path, KEYS, "", arrows=False).file()
    assert found.complete.start.tolist() == [1000, 1002, 1002, 1002, 1002, 1000, 7123, 4611686018427386900, 1000]
