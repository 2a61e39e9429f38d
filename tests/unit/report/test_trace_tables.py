"""The tables of `perfgate trace` in a terminal of 80 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from perfgate.document.message import Message
from perfgate.document.trace import (
    LeftOutRecording,
    RanksDocument,
    RecordingGaps,
    RepeatedRank,
    StepDocument,
    StepRow,
    StepTimeline,
    TopDocument,
    TopRow,
    TopTimeline,
)
from perfgate.judging.report.render.trace import render_ranks, render_steps, render_top

KERNEL = (
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*, int, float const*)"
)


def test_render_top__long_name_of_a_kernel__one_line_without_return_type_and_arguments() -> None:
    row = TopRow(name=KERNEL, kind="compute", count=162, total=0.0807, share=0.134)
    timeline = TopTimeline(path="x.json", rank=None, device=0, side="device", base=0.602, rows_in_all=1, rows=[row])
    stream = io.StringIO()
    render_top(TopDocument(format="kineto", by="name", timelines=[timeline]), Console(file=stream, width=80))
    *_, last = stream.getvalue().rstrip().splitlines()
    assert last.split() == ["cudnn::detail::dgrad_engine<…>", "compute", "162", "80.7", "ms", "13.4", "%"]


@pytest.mark.parametrize("width", [30, 40])
def test_render_steps__terminal_too_narrow_for_the_table__a_line_for_each_number(width: int) -> None:
    times = dict.fromkeys(("communication", "exposed_communication", "exposed_copies", "preparing", "free"), 2.5e-4)
    step = StepRow(number=0, start=0.0, length=1.5e-3, computing=3.2e-4, phase=None, requests=None, fused=None, **times)
    timeline = StepTimeline(path="x.json", rank=None, device=0, origin_ns=0, steps_in_all=1, steps=[step], phases=[])
    stream = io.StringIO()
    document = StepDocument(format="kineto", slowest_rank=None, timelines=[timeline])
    render_steps(document, Console(file=stream, width=width))
    text = stream.getvalue()
    assert "length 1.50 ms\n" in text
    assert "compute 320 µs\n" in text
    assert max(map(len, text.splitlines())) <= width


def rendered_gaps(gaps: RecordingGaps, *notes: Message, width: int) -> str:
    """A comparison of ranks that shows nothing but what it lacks."""
    document = RanksDocument(
        path="job",
        slow_ranks=[],
        slow_links=[],
        links=0,
        collectives=0,
        skew=None,
        skews=[],
        ranks=[],
        gaps=gaps,
        notes=list(notes),
    )
    stream = io.StringIO()
    render_ranks(document, Console(file=stream, width=width), shown=5)
    return stream.getvalue()


def test_render_ranks__two_recordings_of_one_rank__names_the_recording_that_is_compared() -> None:
    gaps = RecordingGaps(repeated=[RepeatedRank(rank=0, chosen="a.json", others=["b.json"])])
    text = rendered_gaps(gaps, width=200)
    assert "rank 0 has 2 recordings" in text
    assert "only a.json is compared, not b.json" in text


@pytest.mark.parametrize("width", [40, 80])
def test_render_ranks__files_with_long_paths__names_and_reasons_are_whole(width: int) -> None:
    folder = "/".join(20 * ["folder-of-the-job"])
    note = Message("verdict.about", {"place": f"{folder}/c.json", "what": "events were lost; record it again"})
    gaps = RecordingGaps(
        left_out=[LeftOutRecording(path="d.json", reason=f"{folder}/d.json: is damaged; record it again")],
        repeated=[RepeatedRank(rank=0, chosen=f"{folder}/a.json", others=[f"{folder}/b.json"])],
    )
    text = "".join(rendered_gaps(gaps, note, width=width).split())
    for words in (
        "/a.jsoniscompared",
        "/b.json",
        "/c.json:eventswerelost;recorditagain",
        "/d.json:isdamaged;recorditagain",
    ):
        assert words in text
    assert "…" not in text
