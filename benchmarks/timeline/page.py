"""How long the timeline page takes to open, zoom and total, in a headless Chromium:
10,000, 100,000 and a million spans.

    PYTHONPATH=. python benchmarks/timeline/page.py [SPANS ...]

A frame is one drawing after a turn of the wheel. The times are from the page's own
clock, the median and the slowest of sixty while it zooms in and out again. The
machine's load is in them.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from perfgate.judging.report.render.timeline import render_timeline
from perfgate.trace.model.events import EventTable, EventTableBuilder
from perfgate.trace.pages.timeline import drawn_timeline
from tests.browser import browser_page

SIZES = (10_000, 100_000, 1_000_000)
_FRAMES = """
new Promise((done) => {
  const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect(), times = [];
  const turn = () => {
    const began = performance.now();
    const place = { clientX: box.left + box.width * 0.37, clientY: box.top + 60 };
    canvas.dispatchEvent(new WheelEvent("wheel", { ...place, deltaY: times.length < 30 ? -120 : 120, cancelable: true }));
    times.push(performance.now() - began);
    if (times.length < 60) requestAnimationFrame(turn); else done(times);
  };
  requestAnimationFrame(turn);
})
"""


def main() -> None:
    print("    spans      file    open ms   frame ms    slowest  search ms")
    for size in [int(word) for word in sys.argv[1:]] or SIZES:
        page = render_timeline(
            [drawn_timeline(grown(size), "generated")], language="en"
        )
        with (
            tempfile.TemporaryDirectory() as folder,
            browser_page(Path(folder) / "profile") as browser,
        ):
            file = Path(folder) / "timeline.html"
            file.write_text(page)
            browser.open(file)
            opened = float(browser.ask("performance.now()"))
            frames = sorted(browser.ask(_FRAMES))
            searched = float(
                browser.ask(
                    "(() => { const box = document.getElementById('search'), began = performance.now();"
                    "box.value = 'kernel_7'; box.dispatchEvent(new Event('input')); return performance.now() - began; })()"
                )
            )
        numbers = (opened, frames[len(frames) // 2], frames[-1], searched)
        print(
            f"{size:9,d} {len(page) / 1024:6.0f} KB "
            + " ".join(f"{number:10.1f}" for number in numbers)
        )


def grown(size: int) -> EventTable:
    """Operators four deep on a thread, each of which launches kernels on two streams;
    times and names drawn by chance.
    """
    draw = random.Random(3)
    builder = EventTableBuilder()
    time = 0
    busy = [0, 0]
    while len(builder) < size:
        length = draw.randrange(8_000, 60_000)
        for depth in range(4):
            name = f"aten::operator_{draw.randrange(100)}"
            builder.add(
                time + depth * 500,
                length - depth * 1000,
                track=("python", "main"),
                name=name,
                kind="host_op",
                correlation=-1,
            )
        number = len(builder)
        builder.add(
            time + 3000,
            2000,
            track=("python", "main"),
            name="launch",
            kind="runtime",
            correlation=number,
        )
        stream = draw.randrange(2)
        start = max(busy[stream], time + 4000)
        busy[stream] = start + draw.randrange(1_000, 40_000)
        builder.add(
            start, busy[stream] - start, track=("device 0", f"stream {stream}"), name=f"kernel_{draw.randrange(300)}",
            kind="compute", correlation=number, shape=f"[[{draw.randrange(64)}, 4096]]",
        )  # fmt: skip
        time += length + draw.randrange(200, 4_000)
    return builder.table()


if __name__ == "__main__":
    main()
