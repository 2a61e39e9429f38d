"""Operators and subroutines of a pair: both workers profile a few calls at a time, in turns, after their timed blocks."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.conductor.workers.worker import Say, Worker, WorkerError
from perfgate.document.run import BlockColumns, Replicate
from perfgate.errors import MeasuringError
from perfgate.protocol import OperatorsReply, OperatorsRequest, Profiled, ProfileRequest

# What narrows the spread of an operator is the number of its calls in all pairs, so the pairs share the cost: a quarter of a
# second of CPU time each for a call of 3 to 5 ms. Turns are short to keep both sides in one state of the machine.
QUADS = 4
TURN_SECONDS = 0.010
FEWEST_CALLS = 2
MOST_CALLS = 10
# Where traces are analysed later, a side has one turn for each shape, as long as all the short ones together: torch_npu takes
# 0.06 s to record, but 1.2 s of CPU time and as much per process again to analyse (24 recordings: 18 s in one go on two
# cores, 3 s of it to start; 108 s one by one).
LATE_CALLS = (5, 20)
# The analysis of a long recording takes minutes (msprof).
ANALYSIS_SECONDS = 300.0
ANALYSIS_SECONDS_EACH = 20.0


class PairTrace(NamedTuple):
    """The recordings of both members of one pair for one shape, each of one turn."""

    pair: int
    shape: str
    base: Path
    head: Path


def trace_name(replicate: Replicate, shape: int, member: int) -> str:
    """Return the name, without a suffix, of a member's recording of a shape, which has this number."""
    return f"{replicate.workload}-{replicate.pair}-{shape}-{'head' if member else 'base'}"


def with_operators(
    workers: tuple[Worker, Worker], replicates: tuple[Replicate, Replicate], *, timeout: float, say: Say
) -> tuple[Replicate, Replicate]:
    """Return both members of a pair with their operators.

    Operators only inform: a worker that fails here costs the pair its operators and nothing else, so what it measured
    before must have been collected.
    """
    first, second = replicates
    try:
        before, after = _take_turns(workers, first, timeout, subroutines=False)
    except WorkerError as error:
        say(f"{first.workload}: no operators from pair {first.pair}: {error}")
        return replicates
    return (
        msgspec.structs.replace(first, operators=before.shapes),
        msgspec.structs.replace(second, operators=after.shapes),
    )


def with_subroutines(
    workers: tuple[Worker, Worker], replicates: tuple[Replicate, Replicate], *, timeout: float, say: Say
) -> tuple[Replicate, Replicate]:
    """Return both members of a pair with their modules and functions; a failure costs them alone."""
    first, second = replicates
    try:
        before, after = _take_turns(workers, first, timeout, subroutines=True)
    except WorkerError as error:
        say(f"{first.workload}: no modules and functions from pair {first.pair}: {error}")
        return replicates
    return (
        msgspec.structs.replace(first, subroutines=before.subroutines),
        msgspec.structs.replace(second, subroutines=after.subroutines),
    )


class _Key(NamedTuple):
    """Which replicate."""

    workload: str
    pair: int
    member: str


class _Left(NamedTuple):
    """A recording that waits for its analysis, whose it is, and the file without a suffix as which it is kept, if it is."""

    whose: _Key
    shape: str
    python: Path | None
    recording: str
    keep: str | None = None


class LateOperators:
    """The operators of pairs on a device whose traces are analysed later: all of them, after the last pair."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._left: list[_Left] = []
        self._traces: list[PairTrace] = []

    def record(
        self,
        workers: tuple[Worker, Worker],
        replicates: tuple[Replicate, Replicate],
        checkouts: Sequence[Checkout],
        *,
        timeout: float,
        traces: Path | None = None,
    ) -> None:
        """Let both workers record one turn of each shape, first or second by lot; ``traces`` is where the recordings are kept.

        As with ``with_operators``, a worker that fails here costs the pair its operators and nothing else.
        """
        first, _ = replicates
        lot = random.Random(first.layout_seed)
        left = []
        try:
            for number, (shape, blocks) in enumerate(first.shapes.items()):
                for index in (1, 0) if lot.random() < 0.5 else (0, 1):
                    keep = None if traces is None else str(traces / trace_name(first, number, index))
                    python = checkouts[index].python
                    folder = str(self._bench.recordings(python))
                    request = ProfileRequest(shape=shape, calls=_calls_of_late_turn(blocks), folder=folder)
                    profiled = workers[index].ask(
                        request, Profiled, timeout=timeout, doing=f"profiling {first.workload}"
                    )
                    if profiled.recording is not None:
                        left.append(_Left(_key(replicates[index]), shape, python, profiled.recording, keep))
        except WorkerError as error:
            self._bench.say(f"{first.workload}: no operators from pair {first.pair}: {error}")
            return
        self._left += left

    def put_into(self, *sides: list[Replicate]) -> list[PairTrace]:
        """Analyse what was recorded and give the replicates their operators, in place; on failure they stay without.

        Returns the traces that were to be kept.
        """
        found = self._analysed()
        for replicates in sides:
            for index, replicate in enumerate(replicates):
                if shapes := found.get(_key(replicate)):
                    replicates[index] = msgspec.structs.replace(replicate, operators=shapes)
        return self._traces

    def _analysed(self) -> dict[_Key, dict[str, dict[str, float]]]:
        found: dict[_Key, dict[str, dict[str, float]]] = defaultdict(dict)
        files: dict[tuple[_Key, str], Path] = {}
        for python in dict.fromkeys(left.python for left in self._left):
            of_python = [left for left in self._left if left.python == python]
            timeout = ANALYSIS_SECONDS + ANALYSIS_SECONDS_EACH * len(of_python)
            kept = {left.recording: left.keep for left in of_python if left.keep is not None}
            try:
                analysed = self._bench.analyse(
                    python, [left.recording for left in of_python], timeout=timeout, kept=kept
                )
            except MeasuringError as error:
                self._bench.say(f"no operators from the pairs: {error}")
                continue
            for left in of_python:
                if left.recording in analysed.recordings:
                    found[left.whose][left.shape] = analysed.recordings[left.recording]
            files |= {(left.whose, left.shape): Path(analysed.kept[left.recording])
                      for left in of_python if left.recording in analysed.kept}  # fmt: skip
        self._traces = [
            PairTrace(whose.pair, shape, base=files[whose, shape], head=files[other, shape])
            for whose, shape in files
            if whose.member == "first" and ((other := whose._replace(member="second")), shape) in files
        ]
        return found


def _key(replicate: Replicate) -> _Key:
    return _Key(replicate.workload, replicate.pair, replicate.member)


def _take_turns(
    workers: tuple[Worker, Worker], first: Replicate, timeout: float, *, subroutines: bool
) -> tuple[OperatorsReply, OperatorsReply]:
    """Let them take turns, A B B A or B A A B by lot, the shapes one after another within each, and return what they saw."""
    lot = random.Random(first.layout_seed)
    doing = f"profiling {first.workload}"
    for _ in range(QUADS):
        order = (1, 0, 0, 1) if lot.random() < 0.5 else (0, 1, 1, 0)
        for shape, blocks in first.shapes.items():
            request = ProfileRequest(shape=shape, calls=_calls_of_turn(blocks), subroutines=subroutines)
            for index in order:
                workers[index].ask(request, Profiled, timeout=timeout, doing=doing)
    before, after = (worker.ask(OperatorsRequest(), OperatorsReply, timeout=timeout, doing=doing) for worker in workers)
    return before, after


def _calls_of_turn(blocks: BlockColumns) -> int:
    """Return how many calls make a turn."""
    return max(FEWEST_CALLS, min(MOST_CALLS, round(TURN_SECONDS / call_seconds(blocks))))


def _calls_of_late_turn(blocks: BlockColumns) -> int:
    fewest, most = LATE_CALLS
    return max(fewest, min(most, round(2 * QUADS * TURN_SECONDS / call_seconds(blocks))))


def call_seconds(blocks: BlockColumns) -> float:
    """Return the seconds of a call; a block is a call longer than its samples say."""
    return min(blocks.seen_ns) / 1e9 / (blocks.calls[0] + 1)
