"""The page of many ranks: what it says, and what its script draws in a browser."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.timeline import DrawnRanks
from perfgate.flows.trace.ranks import Ranks, ranks_document
from perfgate.flows.trace.ranks_page import drawn_ranks
from perfgate.judging.report.render.timeline import render_ranks_page
from perfgate.trace.analysis.rank_table import reduce_timeline
from perfgate.trace.analysis.ranks import arrivals
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Collective, Kernel, ProfilerStep, RankLink, Timeline
from tests.browser import Page
from tests.fakes.training import Training

MS = 1_000_000


def drawn(*, collective: str = "hcom_allReduce__17_0_1") -> DrawnRanks:
    """Three ranks: rank 2 computes 20 ms where the others compute 10, and comes late."""
    tables = []
    for rank in range(3):
        computing = (20 if rank == 2 else 10) * MS
        timeline = Timeline(
            rank,
            0,
            EventTableBuilder().table(),
            kernels=[Kernel("GroupedMatmul", "GroupedMatmul", "AI_CORE", 1000 * MS, computing)],
            steps=(ProfilerStep(5, 0, 30 * MS, computing, 30 * MS - computing, 30 * MS - computing, 0, 0, 0),),
            collectives=(
                Collective(collective, "collective", "17", 5, 1000 * MS + computing, 30 * MS - computing, MS, MS, MS),
            ),
            rank_links=tuple(
                RankLink("allreduce", "collective", "17", 5, rank, other, "HCCS", 4e6, 2 * MS, 2e9)
                for other in range(3)
            ),
        )
        tables.append(reduce_timeline(timeline, "folder"))
    arrived = arrivals(tables)
    return drawn_ranks(Ranks(tables, arrived, ranks_document("job", tables, arrived, left_out=(), repeated=())), ())


def test_drawn_ranks__every_map__its_numbers() -> None:
    maps = {(one.kind, one.link): one for one in drawn().maps}
    assert set(maps) == {("computing", ""), ("exposed", ""), ("late", ""), ("bandwidth", "HCCS")}
    assert maps["computing", ""].values == [[0.01], [0.01], [0.02]]
    assert maps["late", ""].values == [[0.0], [0.0], [0.01]]
    assert maps["bandwidth", "HCCS"].values[0] == [None, 2e9, 2e9]


def test_page__opened__answer_cells_and_timelines(browser: Page, tmp_path: Path) -> None:
    file = tmp_path / "ranks.html"
    file.write_text(render_ranks_page(drawn(), language="en"))
    browser.open(file)
    text = browser.ask("document.querySelector('main').innerText")
    assert "rank 2 delays the others by 10.0 ms a step, 50.0 % of the job: its device computes longer" in text
    titles = browser.ask("[...document.getElementById('which').options].map((one) => one.textContent)")
    assert titles[-1] == "bandwidth of HCCS from each rank to each other"
    browser.ask("document.getElementById('map').focus()")
    for _ in range(3):
        browser.key("ArrowDown")
    assert browser.ask("document.getElementById('cell').textContent") == "rank 2, step 5: 20 ms"
    browser.ask("const which = document.getElementById('which'); which.value = 2; which.onchange()")
    browser.key("ArrowUp")
    assert browser.ask("document.getElementById('cell').textContent") == "rank 0, collective 1 hcom_allReduce_: 0 s"
    assert not browser.ask("document.getElementById('graph').hidden")
    assert browser.ask("document.getElementById('selected').textContent") == "30 ms shown"


def test_page__more_ranks_than_pixels__one_screen_with_the_slow_rank_in_sight_and_fifty_rows(
    browser: Page, tmp_path: Path
) -> None:
    training = Training(ranks=1000, steps=2, layers=1, extra=lambda rank, step, layer: 9 * MS if rank == 713 else 0.0)
    tables = [reduce_timeline(timeline, f"rank{timeline.rank}") for timeline in training.timelines()]
    arrived = arrivals(tables)
    found = Ranks(tables, arrived, ranks_document("job", tables, arrived, left_out=(), repeated=()))
    file = tmp_path / "ranks.html"
    file.write_text(render_ranks_page(drawn_ranks(found, ()), language="en"))
    browser.open(file)
    assert browser.ask("document.getElementById('map').clientHeight") <= 620
    table = "[...document.querySelectorAll('table')].find((one) => one.tHead.rows[0].cells[0].textContent === 'rank')"
    rows = browser.ask(f"[...{table}.tBodies[0].rows].map((row) => row.cells[0].textContent)")
    assert (len(rows), rows[0]) == (50, "rank 713")
    # Noise of one percent is as pale as nothing; the rank that takes nearly twice as long is strong.
    reds = browser.ask("""(() => {
      const map = document.getElementById("map"), { width, height } = map;
      const data = map.getContext("2d").getImageData(0, 20, width, height - 20).data;
      const strong = (y) => Array.from({ length: width }, (_, x) => 4 * (y * width + x))
        .some((at) => data[at] > 190 && data[at + 2] < 80);
      return Array.from({ length: height - 20 }, (_, y) => strong(y)).filter(Boolean).length;
    })()""")
    assert 1 <= reds <= 2
