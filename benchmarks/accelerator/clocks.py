"""Resident base and head take turns on a card: how much do six clocks differ between
quads, and from start to start?

A quad is A B B A or B A A B. The effect of a quad by a clock is the logarithm of head
over base. Sides that are equal show the spread of a quad within a start, and the luck
of a start; a planted kernel and a planted loop show which clock sees them.
"""

from __future__ import annotations

import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SIDE = Path(__file__).with_name("side.py")
CLOCKS = ("wall", "p50", "host", "span", "piped", "kernels")
# One quad in so many also has its kernels profiled.
PROFILED_QUADS = 4
END_SECONDS = 5.0
# A start that its time cuts short has at least so many quads.
LEAST_QUADS = 3
# Of a normal distribution, over the median absolute deviation.
_SD_OF_MAD = 1.4826


class Series(NamedTuple):
    """The model, what was planted into head, how many starts, and how many quads each."""

    model: str
    plant: str
    starts: int
    quads: int

    @property
    def name(self) -> str:
        return f"{self.model} {self.plant or 'equal'}"


def measure(series: Series, device: str, seconds: float) -> dict[str, Any]:
    """Run the quads of a series that fit into some seconds; the summary with the raw
    effects of every quad.

    Raises TimeoutError if not a single quad fits.
    """
    quads: list[dict[str, Any]] = []
    loads: list[float] = []
    calls: list[float] = []
    ends = time.monotonic() + seconds
    for start in range(series.starts):
        began = time.monotonic()
        # The starts share the time that is left.
        start_ends = began + (ends - began) / (series.starts - start)
        try:
            with _resident(series, device, ends) as sides:
                ready = [side.answer() for side in sides]
                loads.append(time.monotonic() - began)
                calls.append(ready[0]["call"])
                block_calls = max(one["calls"] for one in ready)
                for number in range(series.quads):
                    if number >= LEAST_QUADS and time.monotonic() > start_ends:
                        break
                    quad = _quad(
                        sides,
                        block_calls,
                        leads=(start + number) % 2,
                        profiles=number % PROFILED_QUADS == 0,
                    )
                    quads.append({"start": start, **quad})
        except TimeoutError:
            if not quads:
                raise
            break
    return {
        "name": series.name,
        "load_seconds": statistics.median(loads),
        "call_seconds": statistics.median(calls),
        "quad_seconds": statistics.median(quad["seconds"] for quad in quads),
        "clocks": {
            clock: found
            for clock in CLOCKS
            if (found := _summary(clock, quads)) is not None
        },
        "same_work": all(quad.get("same_work", True) for quad in quads),
        "quads": quads,
    }


class Side:
    """A process of side.py.

    Its other output goes into ``log``, which is shown if it ends too soon.

    It must answer before ``ends``, by the monotonic clock.
    """

    def __init__(self, command: list[str], log: Path, ends: float) -> None:
        self._log = log
        self._ends = ends
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
            )

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def ask(self, order: str, calls: int = 0) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps([order, calls]), file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select(
            [self._process.stdout], [], [], max(0.0, self._ends - time.monotonic())
        )[0]:
            raise TimeoutError("a side of the clocks gave no answer in its time")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"a side of the clocks ended:\n{self._log.read_text()[-2000:]}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def _resident(series: Series, device: str, ends: float) -> Iterator[list[Side]]:
    """Both sides, which load at the same time."""
    command = [
        sys.executable,
        str(SIDE),
        "--device",
        device,
        "--model",
        series.model,
        "--plant",
    ]
    with (
        tempfile.TemporaryDirectory(prefix="perfgate-clocks-") as folder,
        ExitStack() as stack,
    ):
        yield [
            stack.enter_context(Side([*command, plant], Path(folder, name), ends))
            for name, plant in (("base", ""), ("head", series.plant))
        ]


def _quad(
    sides: list[Side], calls: int, *, leads: int, profiles: bool
) -> dict[str, Any]:
    order = (leads, 1 - leads, 1 - leads, leads)
    began = time.perf_counter()
    blocks: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for index in order:
        blocks[index].append(sides[index].ask("block", calls))
    quad: dict[str, Any] = {"seconds": time.perf_counter() - began}
    for clock in blocks[0][0]:
        quad[clock] = statistics.fmean(
            math.log(head[clock] / base[clock]) for base, head in zip(*blocks)
        )
    if profiles:
        work: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
        for index in order:
            work[index].append(sides[index].ask("kernels"))
        quad["same_work"] = len({one["work"] for side in work for one in side}) == 1
        if all(one["kernels"] > 0 for side in work for one in side):
            quad["kernels"] = statistics.fmean(
                math.log(head["kernels"] / base["kernels"]) for base, head in zip(*work)
            )
    return quad


def _summary(clock: str, quads: list[dict[str, Any]]) -> dict[str, float | None] | None:
    """The mean effect of the starts, the spread of a quad within a start, and that of
    the starts' medians; as shares.
    """
    by_start: dict[int, list[float]] = {}
    for quad in quads:
        if clock in quad:
            by_start.setdefault(quad["start"], []).append(quad[clock])
    if not by_start:
        return None
    medians = [statistics.median(effects) for effects in by_start.values()]
    spreads = [_robust_sd(effects) for effects in by_start.values() if len(effects) > 2]
    return {
        "effect": math.expm1(statistics.fmean(medians)),
        "quad": statistics.median(spreads) if spreads else None,
        "start": statistics.stdev(medians) if len(medians) > 1 else None,
    }


def _robust_sd(values: list[float]) -> float:
    middle = statistics.median(values)
    return _SD_OF_MAD * statistics.median(abs(value - middle) for value in values)
