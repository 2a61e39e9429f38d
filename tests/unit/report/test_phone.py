"""Pages on a phone: none is wider than the screen, and rows of long names do not become columns of letters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perfgate.document.served import ServedJob, ServedRecording
from perfgate.judging.report.render.flame import render_flame
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.served import render_index
from perfgate.judging.report.render.timeline import render_ranks_page, render_timeline
from perfgate.trace.model.events import NO_CORRELATION
from perfgate.trace.pages.timeline import drawn_timeline
from tests.browser import Page
from tests.fakes.documents import make_decision, make_run
from tests.unit.report.test_flame import make_tree
from tests.unit.report.test_ranks_page import drawn
from tests.unit.report.test_site import SHOWN, example_page
from tests.unit.report.test_timeline import HOST, STREAM, events

WIDTH = 390
LONG = "void_at_native_vectorized_elementwise_kernel_4_at_native_FillFunctor_float_std_array_char_pointer_1ul" * 2

SERVED = [ServedRecording(name=f"{LONG}/{LONG}{at}", kind="recording", size=123, modified=1.7e9) for at in range(8)]
SERVED_JOB = ServedJob(name=LONG, recordings=8, size=1, modified=1.7e9)
OPERATORS = [(0, "host_op", f"{LONG}{at}", 100) for at in range(60)]


def timeline() -> str:
    rows: Any = [(at * 100, 50, STREAM if at % 2 else HOST, f"{LONG}{at}", "compute" if at % 2 else "python", NO_CORRELATION)
            for at in range(60)]  # fmt: skip
    return render_timeline([drawn_timeline(events(*rows), f"rank 0 of {LONG}")], language="en")


PAGES: dict[str, Callable[[], str]] = {
    "flame": lambda: render_flame([make_tree((-1, "thread", "thread 1", 0), *OPERATORS)], language="en"),
    "timeline": timeline,
    "ranks": lambda: render_ranks_page(drawn(collective=LONG), language="en"),
    "served": lambda: render_index(SERVED, [SERVED_JOB], "en", folder="", contains="", home="/"),
    "report": lambda: render_html(make_decision(), make_run("base"), make_run("head", slowdown=0.07), language="en"),
    **{f"site-{name}": partial(example_page, address, LONG) for name, address in SHOWN.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_page__phone__not_wider_and_rows_not_higher_than_a_screen(browser: Page, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(PAGES[name](), encoding="utf-8")
    browser.call("Emulation.setDeviceMetricsOverride", width=WIDTH, height=844, deviceScaleFactor=1, mobile=True)
    browser.open(file)
    assert browser.ask("document.documentElement.scrollWidth") <= WIDTH
    highest = "Math.max(0, ...[...document.querySelectorAll('tbody tr')].map((row) => row.offsetHeight))"
    assert browser.ask(highest) < 250
