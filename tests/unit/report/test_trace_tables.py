"""The tables of `perfgate trace` in a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from perfgate.document.trace import TopDocument, TopRow, TopTimeline
from perfgate.judging.report.render.trace import render_top

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
