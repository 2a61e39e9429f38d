"""How long the flame graph page takes to open, zoom and search, in a headless Chromium:
100, 20,000 and 100,000 frames.

    PYTHONPATH=. python benchmarks/flame/page.py [FRAMES ...]

A frame is a node of the merged tree. Times are from the page's own clock, from
navigation to the drawing, from a click to the drawing, and from a search to its result,
the median of seven; the machine's load is in them.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from perfgate.document.flame import FLAME_KINDS, FlameCosts, FlameTree, side_by_side
from perfgate.judging.report.render.flame import render_flame
from tests.browser import Page, browser_page

SIZES = (100, 20_000, 100_000)
REPEATS = 7
_LEVELS = 40


def grown(size: int, seed: int) -> FlameTree:
    """Return a tree of so many frames with stacks of some forty calls, times and names
    drawn by chance.
    """
    draw = random.Random(seed)
    names = [f"package/module_{number}.py: function_{number}" for number in range(400)]
    names += [f"aten::operator_{number}" for number in range(100)]
    parent, depth = [-1], [0]
    while len(parent) < size:
        # Three of four calls go on from the one before.
        above = len(parent) - 1 if draw.random() < 0.75 else draw.randrange(len(parent))
        if depth[above] < _LEVELS:
            parent.append(above)
            depth.append(depth[above] + 1)
    kinds = [FLAME_KINDS.index("thread")] + [FLAME_KINDS.index("python")] * (size - 1)
    name = [draw.randrange(len(names)) for _ in range(size)]
    own = [draw.randrange(1, 50_000) for _ in range(size)]
    return FlameTree(
        label="generated", unit="call", texts=names, requests=[], parent=parent, kind=kinds, name=name,
        place=[-1] * size, shape=[-1] * size, more_shapes=[0] * size,
        head=FlameCosts(units=10, node=list(range(size)), request=[-1] * size, own=own, count=[10] * size),
    )  # fmt: skip


def main() -> None:
    print("frames      file    open ms    zoom ms  search ms")
    for size in [int(word) for word in sys.argv[1:]] or SIZES:
        tree = grown(size, 1)
        page = render_flame([side_by_side(tree, tree)], language="en")
        times = measure(page)
        print(
            f"{size:6d} {len(page) / 1024:6.0f} KB "
            + " ".join(f"{time:10.0f}" for time in times)
        )


def measure(page: str) -> tuple[float, float, float]:
    """Return the milliseconds of opening, zooming and searching."""
    with (
        tempfile.TemporaryDirectory() as folder,
        browser_page(Path(folder) / "profile") as browser,
    ):
        file = Path(folder) / "flame.html"
        file.write_text(page)
        return (
            _median(lambda: _open(browser, file)),
            _median(lambda: _zoom(browser)),
            _median(lambda: _search(browser)),
        )


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(REPEATS))


def _open(browser: Page, file: Path) -> float:
    browser.open(file)
    return float(browser.ask("performance.now()"))


def _zoom(browser: Page) -> float:
    """Zoom to the second row and back, and return half of that."""
    return float(browser.ask(
        "new Promise((done) => { const canvas = document.getElementById('canvas'), box = canvas.getBoundingClientRect();"
        "const began = performance.now();"
        "canvas.dispatchEvent(new MouseEvent('click', { clientX: box.left + box.width * 0.3, clientY: box.top + 5 * 18 + 4 }));"
        "document.getElementById('reset').click();"
        "requestAnimationFrame(() => done((performance.now() - began) / 2)); })"
    ))  # fmt: skip


def _search(browser: Page) -> float:
    return float(browser.ask(
        "new Promise((done) => { const input = document.getElementById('search'), began = performance.now();"
        "input.value = input.value === 'operator_7' ? 'function_1' : 'operator_7'; input.dispatchEvent(new Event('input'));"
        "requestAnimationFrame(() => done(performance.now() - began)); })"
    ))  # fmt: skip


if __name__ == "__main__":
    main()
