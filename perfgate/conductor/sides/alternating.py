"""Sides that do not fit on the devices together: a side has processes only while it has
its turn.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from statistics import median

import msgspec
import numpy as np

from perfgate.conductor.sides.side import Side, SidePlan
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.job import CpuTime, JobNumber, TurnResult

# A visit has as many turns as take about as long as its start, within these bounds.
FEWEST_TURNS, MOST_TURNS = 8, 64
_MOST_TRIES = 5


@dataclass
class Visit:
    """How many turns a visit has, the same for both sides.

    The first visit decides it by the time of its start.
    """

    turns: int | None = None

    def settle(self, start_seconds: float, turn_seconds: float) -> int:
        """The number of turns of every visit, by the times of the first start and the
        first turn.
        """
        if self.turns is None:
            worth = math.ceil(start_seconds / max(turn_seconds, 1e-9))
            self.turns = min(MOST_TURNS, max(FEWEST_TURNS, worth))
        return self.turns


class AlternatingSide:
    """A side with visits as turns: it starts ``side``, warms it up, lets it take
    several turns, and ends it.
    """

    plan = SidePlan(turns=2)

    def __init__(self, side: Side, visit: Visit) -> None:
        self._side = side
        self._visit = visit

    @property
    def numbers(self) -> tuple[JobNumber, ...]:
        return self._side.numbers

    @property
    def is_blurred(self) -> bool:
        """Never: a blurred turn of a visit was repeated in it, as often as that is
        worth it.
        """
        return False

    def start(self) -> None:
        """Every turn starts the processes anew."""

    def warm_up(self) -> None:
        """Every turn warms them up."""

    def count(self) -> Mapping[str, int]:
        return self._side.count()

    def stop(self) -> None:
        self._side.stop()

    def profile(self, number: int) -> SideStacks | None:
        try:
            self._side.start()
            self._side.warm_up()
            return self._side.profile(number * MOST_TURNS)
        finally:
            self._side.stop()

    def turn(self, number: int) -> TurnResult:
        try:
            began = time.monotonic()
            self._side.start()
            self._side.warm_up()
            warm = time.monotonic()
            # Turns of different visits have different numbers.
            first_number = number * MOST_TURNS
            results = [self._clear_turn(first_number)]
            turns = self._visit.settle(warm - began, time.monotonic() - warm)
            for index in range(1, turns):
                results.append(self._clear_turn(first_number + index))
            return _together(results)
        finally:
            self._side.stop()

    def _clear_turn(self, number: int) -> TurnResult:
        """A turn with known token arrivals.

        A visit to the other side is too long to repeat both turns, so only this one is
        repeated.
        """
        result = self._side.turn(number)
        for _ in range(1, _MOST_TRIES):
            if not self._side.is_blurred:
                break
            again = self._side.turn(number)
            texts, output = again.texts or result.texts, again.output or result.output
            result = msgspec.structs.replace(again, texts=texts, output=output)
        return result


def _together(results: list[TurnResult]) -> TurnResult:
    """The turns of a visit as one: the geometric means of values that all of them have,
    and all work, output and samples.
    """
    values: dict[str, list[float]] = defaultdict(list)
    work: Counter[str] = Counter()
    counters: Counter[str] = Counter()
    samples = []
    late = []
    resent = 0
    for result in results:
        for name, value in result.values.items():
            values[name].append(value)
        work.update(result.work)
        counters.update(result.counters)
        samples += result.samples
        if result.late is not None:
            late.append(result.late)
        resent += result.resent
    means = {}
    for name, column in values.items():
        if len(column) == len(results):
            means[name] = float(np.exp(np.mean(np.log(column))))
    return TurnResult(
        values=means,
        work=dict(work),
        output=_digest_of_all([result.output for result in results]),
        texts=results[0].texts,
        counts=results[0].counts,
        counters=dict(counters),
        samples=samples,
        late=round(median(late), 4) if late else None,
        cpu=_added([result.cpu for result in results]),
        requests=_digest_of_all([result.requests for result in results]),
        without=results[-1].without,
        resent=resent,
    )


def _digest_of_all(texts: list[str]) -> str:
    """A digest of the texts; empty if all are."""
    if not any(texts):
        return ""
    return sha256("\0".join(texts).encode()).hexdigest()


def _added(times: list[CpuTime | None]) -> CpuTime | None:
    """The sum of CPU times; None, as a whole or of the waiting, if one of them is
    unknown.
    """
    used = seconds = 0.0
    waited: float | None = 0.0
    for time_of_turn in times:
        if time_of_turn is None:
            return None
        used += time_of_turn.used
        seconds += time_of_turn.seconds
        if waited is not None and time_of_turn.waited is not None:
            waited += time_of_turn.waited
        else:
            waited = None
    return CpuTime(used=used, waited=waited, seconds=seconds)
