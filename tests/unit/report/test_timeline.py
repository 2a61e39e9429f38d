"""The timeline page: what is packed is what the events say, and what its script makes of it in a browser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate import trace
from perfgate.document.timeline import SPAN_KINDS, DrawnTimeline
from perfgate.judging.report.render.timeline import render_timeline
from perfgate.trace import loops
from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTable, EventTableBuilder
from perfgate.trace.model.readings import Readings
from perfgate.trace.pages.timeline import drawn_timeline, packed
from tests.browser import Page

HOST, STREAM = ("python", "main"), ("device 0", "stream 7")


def events(*rows: tuple[int, int, tuple[str, str], str, EventKind, int]) -> EventTable:
    builder = EventTableBuilder()
    for start, duration, track, name, kind, correlation in rows:
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation, shape="[[8, 4]]")
    return builder.table()


# The device is idle from 1,700 to 2,600, because the second kernel was launched late.
EVENTS = events(
    (1_000_000_000, 3000, HOST, "aten::linear", "host_op", NO_CORRELATION),
    (1_000_000_100, 300, HOST, "launch", "runtime", 1),
    (1_000_002_200, 300, HOST, "launch", "runtime", 2),
    (1_000_000_700, 1000, STREAM, "gemm", "compute", 1),
    (1_000_002_600, 1000, STREAM, "<b>relu</b>", "compute", 2),
)


def unpacked(column: bytes) -> list[int]:
    values, value, scale = [], 0, 1
    for byte in gzip.decompress(column):
        value += (byte & 127) * scale
        scale *= 128
        if byte < 128:
            values.append(value)
            value, scale = 0, 1
    return values


def spans(timeline: DrawnTimeline) -> list[tuple[str, str, int, int, str]]:
    """Track, name, start, duration and kind of every span."""
    starts, durations, names = unpacked(timeline.start), unpacked(timeline.duration), unpacked(timeline.name)
    kinds = gzip.decompress(timeline.kind)
    rows, place = [], 0
    for track in timeline.tracks:
        at = 0
        for span in range(place, place + track.spans):
            at += starts[span]
            kind = SPAN_KINDS[kinds[span]]
            rows.append((track.name or track.side, timeline.texts[names[span]], at, durations[span], kind))
        place += track.spans
    assert place == len(starts)
    return rows


@given(st.lists(st.integers(0, (1 << 62) - 1)))
def test_packed__any_numbers__come_back(numbers: list[int]) -> None:
    assert unpacked(packed(np.array(numbers, dtype=np.int64))) == numbers


def test_drawn_timeline__device_and_host__gaps_first_then_the_device_and_who_launched() -> None:
    timeline = drawn_timeline(EVENTS, "rank 0")
    assert spans(timeline) == [
        ("gaps", "host", 1700, 900, "gap"),
        ("device 0 / stream 7", "gemm", 700, 1000, "compute"),
        ("device 0 / stream 7", "<b>relu</b>", 2600, 1000, "compute"),
        ("python / main", "aten::linear", 0, 3000, "host_op"),
        ("python / main", "launch", 100, 300, "runtime"),
        ("python / main", "launch", 2200, 300, "runtime"),
    ]
    assert unpacked(timeline.launch) == [0, 5, 6, 0, 0, 0]
    assert timeline.length == 3600
    assert [timeline.texts[shape - 1] if shape else None for shape in unpacked(timeline.shape)] == [None] + [
        "[[8, 4]]"
    ] * 5


def test_drawn_timeline__spans_that_begin_together__the_longer_first() -> None:
    timeline = drawn_timeline(
        events((5, 1, HOST, "inner", "host_op", NO_CORRELATION), (5, 9, HOST, "outer", "host_op", NO_CORRELATION)),
        "all",
    )
    assert [row[1] for row in spans(timeline)] == ["outer", "inner"]


def test_drawn_timeline__no_events__nothing() -> None:
    timeline = drawn_timeline(events(), "all")
    assert (timeline.tracks, unpacked(timeline.start), timeline.length) == ([], [], 0)


def test_drawn_timeline__readings__from_the_first_event_to_the_last_each_change_once() -> None:
    times = np.array([-5, 100, 900, 1000, 4000]) + 1_000_000_000
    drawn = drawn_timeline(EVENTS, "rank 0", readings={"load": Readings(times, np.array([1.0, 2, 2, 3, 9]), "%")})
    (counter,) = drawn.counters
    assert (counter.name, counter.unit, counter.readings) == ("load", "%", 3)
    assert unpacked(counter.time) == [0, 100, 900]
    assert np.frombuffer(gzip.decompress(counter.value)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("numbers", [[], [0, 127, 128, (1 << 62) - 1]])
def test_packed__without_the_library__the_same(numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "load", lambda: None)
    assert unpacked(packed(np.array(numbers, dtype=np.int64))) == numbers


def opened(browser: Page, folder: Path, *timelines: DrawnTimeline) -> None:
    file = folder / "timeline.html"
    file.write_text(render_timeline(timelines or [drawn_timeline(EVENTS, "rank 0")], language="en"), encoding="utf-8")
    browser.requests.clear()
    browser.errors.clear()
    browser.call("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(file)


def text(browser: Page, element: str) -> str:
    return str(browser.ask(f"document.getElementById('{element}').innerText"))


def drag(browser: Page, left: float, right: float, y: float) -> None:
    """Drag between two shares of the canvas's width."""
    box = browser.ask("JSON.stringify(document.getElementById('canvas').getBoundingClientRect())")
    at = json.loads(box)
    for kind, share in (("mouseMoved", left), ("mousePressed", left), ("mouseMoved", right), ("mouseReleased", right)):
        browser.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=at["x"] + share * at["width"],
            y=at["y"] + y,
            button="left",
            buttons=0 if kind == "mouseReleased" else 1,
            clickCount=1,
        )


def point(browser: Page, share: float, y: float) -> None:
    """Move the mouse to a share of the canvas's width."""
    at = json.loads(browser.ask("JSON.stringify(document.getElementById('canvas').getBoundingClientRect())"))
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"] + share * at["width"], y=at["y"] + y)


def test_page__opened__totals_of_everything_and_the_busy_time(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    assert text(browser, "selected") == "3.6 µs shown"
    assert text(browser, "totals") == "5 spans; the device was busy for 2 µs (55.6 %) of it"
    rows = text(browser, "rows").splitlines()
    # The device first, then the host by what its spans took without those inside.
    assert [row.split("\t") for row in rows] == [
        ["gemm", "kernel", "1", "1 µs", "27.8 %"],
        ["<b>relu</b>", "kernel", "1", "1 µs", "27.8 %"],
        ["aten::linear", "operator", "1", "2.4 µs", "66.7 %"],
        ["launch", "runtime call", "2", "600 ns", "16.7 %"],
    ]
    assert browser.requests == [(tmp_path / "timeline.html").as_uri()]
    assert browser.errors == []


def test_page__ruler_dragged__totals_of_the_selection_with_the_parts_of_spans_in_it(
    browser: Page, tmp_path: Path
) -> None:
    opened(browser, tmp_path)
    drag(browser, 0.25, 0.5, 8)  # from 900 ns to 1,800 ns: 800 ns of the first kernel
    assert text(browser, "selected").endswith("selected")
    first = text(browser, "totals")
    assert first.startswith("2 spans; the device was busy for 8"), first
    browser.ask("document.getElementById('pane').focus()")
    browser.key("Escape")
    assert text(browser, "selected") == "3.6 µs shown"


def test_page__wheel__zooms_at_the_pointer(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    box = json.loads(browser.ask("JSON.stringify(document.getElementById('canvas').getBoundingClientRect())"))
    for _ in range(4):
        browser.call(
            "Input.dispatchMouseEvent",
            type="mouseWheel",
            x=box["x"] + box["width"] / 4,
            y=box["y"] + 60,
            deltaX=0,
            deltaY=-300,
        )
    browser.ask("new Promise((done) => setTimeout(done, 400))")
    shown = float(text(browser, "selected").split()[0])
    assert shown < 1000  # nanoseconds, around the first kernel
    assert "gemm" in text(browser, "rows")
    assert "relu" not in text(browser, "rows")


def test_page__search__counted_and_the_next_match_shown(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    browser.ask("document.getElementById('search').value = 'RELU'")
    browser.ask("document.getElementById('search').dispatchEvent(new Event('input'))")
    assert text(browser, "matched") == "1 spans match: 1 µs"
    browser.ask("document.getElementById('pane').focus()")
    browser.key("Enter")
    said = text(browser, "said")
    assert said.startswith("<b>relu</b>; kernel; starts at 2.6 µs, lasts 1 µs")
    assert said.endswith("launched by launch, 400 ns before")


def test_page__click_on_a_gap__says_its_cause(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    drag(browser, 0.6, 0.6, 22 + 18 + 8)
    assert text(browser, "said").endswith("the host launched the next work only after the gap began")


def test_page__gap_chosen__leads_to_what_the_host_did_then(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    assert browser.ask("document.getElementById('meanwhile').hidden")
    drag(browser, 0.6, 0.6, 22 + 18 + 8)
    # Of the 900 ns of the gap the launch fills a third, the operator around it all.
    assert text(browser, "meanwhile") == "the host then: aten::linear"
    browser.ask("document.getElementById('pane').focus()")
    browser.key("g")
    assert text(browser, "said").startswith("aten::linear; operator; starts at 0 ns, lasts 3 µs")
    assert browser.ask("document.getElementById('meanwhile').hidden")


def test_page__keys_of_perfetto__zoom_at_the_pointer_and_move(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    drag(browser, 0.25, 0.25, 22 + 18 + 8)  # leaves the pointer at 900 ns
    browser.ask("document.getElementById('pane').focus()")

    def view() -> tuple[float, float]:
        """Times at the left and the right edge, in nanoseconds: a selection of all that is shown tells them."""
        browser.ask("new Promise((done) => setTimeout(done, 200))")
        shown = text(browser, "selected").split()
        return float(shown[0]) * {"ns": 1, "µs": 1000}[shown[1]], browser.ask(
            "document.getElementById('rows').innerText"
        ).count("relu")

    browser.key("w")
    assert view() == (pytest.approx(2160), 0)  # from 360 to 2,520 ns: at the pointer, before the second kernel
    browser.key("d")
    browser.key("D")
    assert view() == (pytest.approx(2160), 1)
    browser.key("S")
    assert view() == (pytest.approx(3600), 1)


def test_page__saved_for_perfetto__the_same_spans(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path)
    saved = browser.ask(
        "new Promise((done) => { URL.createObjectURL = (blob) => { blob.text().then(done); return 'about:blank#'; };"
        "HTMLAnchorElement.prototype.click = () => {}; document.getElementById('save').click(); })"
    )
    file = tmp_path / "timeline.json"
    file.write_text(saved)
    (timeline,) = trace.read(file).timelines
    table = timeline.events
    rows = zip(table.name.tolist(), table.start.tolist(), table.duration.tolist())
    assert sorted((table.names[name], start, duration) for name, start, duration in rows) == sorted(
        row[1:4] for row in spans(drawn_timeline(EVENTS, "rank 0"))
    )


@pytest.mark.parametrize("seed", range(3))
def test_page__spans_of_all_lengths_without_a_gap__no_pixel_of_their_row_is_left_out(
    browser: Page, tmp_path: Path, seed: int
) -> None:
    # A long span that begins in the pixel of a short one is the case that a row of equal spans does not have.
    durations = (10 ** np.random.default_rng(seed).uniform(0, 7, 400)).astype(int) + 1
    ends = np.cumsum(durations)
    rows = [(int(end - wide), int(wide), STREAM, "gemm", "compute", 1) for end, wide in zip(ends, durations)]
    opened(browser, tmp_path, drawn_timeline(events(*rows), "device 0"))
    painted = browser.ask("""(() => {
      const canvas = document.querySelector("canvas"), { width, height } = canvas;
      const alpha = canvas.getContext("2d").getImageData(0, 40, width, height - 40).data;
      const rows = Array.from({ length: height - 40 }, (_, y) =>
        Array.from({ length: width }, (_, x) => alpha[4 * (y * width + x) + 3] > 0).filter(Boolean).length);
      return Math.max(...rows) / width;
    })()""")
    assert painted == 1.0


# Of the 3,600 ns that are shown: nothing until 900, 40 % until 1,800, 80 % until 2,700, 20 % from there on.
READINGS = {
    "NPU utilization": Readings(np.array([900, 1800, 2700]) + 1_000_000_000, np.array([40.0, 80, 20]), "%"),
    "memory read": Readings(np.array([0, 1800]) + 1_000_000_000, np.array([0.0, 1.5e12]), "B/s"),
}
# The device's rows end here, after the ruler, two titles, a gap and a row of kernels.
COUNTERS_AT = 22 + 18 + 16 + 18 + 16


def test_page__counters__painted_as_high_as_their_values(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, drawn_timeline(EVENTS, "rank 0", readings=READINGS))
    top = COUNTERS_AT + 18
    heights = browser.ask(f"""(() => {{
      const canvas = document.querySelector("canvas"), {{ width }} = canvas;
      const alpha = canvas.getContext("2d").getImageData(0, {top}, width, 30).data;
      const painted = (x, y) => alpha[4 * (y * width + x) + 3] > 0, rows = Array.from({{ length: 30 }}, (_, y) => y);
      return [0.1, 0.4, 0.6, 0.9].map((share) => rows.filter((y) => painted(Math.round(share * width), y)).length);
    }})()""")
    assert heights[0] == 0  # no reading yet: absent is not zero
    assert heights[2] > heights[1] > heights[3] > 0
    assert heights[1] == pytest.approx(heights[2] / 2, abs=2)
    rows = [row.split("\t") for row in text(browser, "counters").splitlines()]
    assert rows == [
        ["NPU utilization", "20 %", "46.67 %", "80 %", "3"],
        ["memory read", "0 B/s", "750 GB/s", "1.5 TB/s", "2"],
    ]
    assert browser.errors == []


def test_page__counter_under_the_pointer_and_by_keys__its_value_with_its_unit(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, drawn_timeline(EVENTS, "rank 0", readings=READINGS))
    point(browser, 0.6, COUNTERS_AT + 18 + 10)
    assert text(browser, "tip").splitlines() == ["NPU utilization", "80 % from 1.8 µs on"]
    drag(browser, 0.6, 0.6, COUNTERS_AT + 18 + 10)
    assert text(browser, "said") == "NPU utilization; counter; 80 % from 1.8 µs on; 20 % to 80 % in all"
    point(browser, 0.1, COUNTERS_AT + 18 + 10)
    assert text(browser, "tip").splitlines()[1].startswith("no reading yet at 360 ns")
    browser.ask("document.getElementById('pane').focus()")
    browser.key("Escape")
    browser.key("c")
    browser.key(".")
    assert text(browser, "said").startswith("NPU utilization; counter; 20 % from 2.7 µs on")
    browser.key("c")
    browser.key(",")
    assert text(browser, "said").startswith("memory read; counter; 0 B/s from 0 ns on")


def test_page__counters_saved_for_perfetto__the_same_readings(browser: Page, tmp_path: Path) -> None:
    opened(browser, tmp_path, drawn_timeline(EVENTS, "rank 0", readings=READINGS))
    saved = browser.ask(
        "new Promise((done) => { URL.createObjectURL = (blob) => { blob.text().then(done); return 'about:blank#'; };"
        "HTMLAnchorElement.prototype.click = () => {}; document.getElementById('save').click(); })"
    )
    file = tmp_path / "timeline.json"
    file.write_text(saved)
    (timeline,) = trace.read(file).timelines
    assert {name: (own.value.tolist(), own.unit) for name, own in timeline.readings.items()} == {
        name: (own.value.tolist(), own.unit) for name, own in READINGS.items()
    }
