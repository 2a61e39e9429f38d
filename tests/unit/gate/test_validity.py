"""Workers' clocks against the conductor's, on blocks of a machine whose CPUs others keep busy."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from perfgate.document.decision import InvalidKind
from perfgate.document.run import RunDocument
from perfgate.document.samples import BlockColumns, ConductorColumns, PackedTimes, WorkerColumns, pack
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.validity import misconduct
from tests.fakes.records import changed
from tests.fakes.wording import worded
from tests.unit.gate.builders import SHAPE, sides

replace = msgspec.structs.replace
MICROSECOND = 1_000
CALLS = 4
# Twelve blocks of a Linear stack on two CPUs that four other processes compete for, in microseconds: seen by the conductor;
# the block; waits of worker and conductor for a CPU; the worker's whole turn, and its waits within it.
BUSY = [
    (43082, 26274, 19303, 11034, 28871, 16517), (56871, 27837, 25745, 16593, 33753, 18570),
    (55242, 29878, 29003, 17152, 34881, 25933), (58887, 35025, 30734, 15150, 40777, 28184),
    (38690, 29079, 29330, 2476, 35841, 29330), (47067, 29612, 28633, 8782, 35311, 24690),
    (57250, 30714, 21609, 30282, 33376, 21609), (98618, 48088, 54498, 38142, 60049, 49756),
    (63133, 43819, 41153, 13259, 46620, 31991), (78308, 57209, 52267, 37891, 75649, 50028),
    (74391, 51791, 54287, 14406, 59593, 42125), (78592, 51449, 44319, 45793, 54849, 44319),
]  # fmt: skip
# The same with the conductor on the worker's CPU, and twelve others there: blocks of 76 calls, the conductor waits longest.
QUEUED = [
    (105345, 72384, 66798, 35311, 73255, 56919), (89898, 38823, 36427, 48266, 39605, 28076),
    (91429, 35089, 39316, 39857, 48018, 24083), (79449, 56226, 48956, 22077, 57084, 44078),
    (88181, 49503, 51607, 32822, 50518, 38721), (97020, 53767, 43320, 40898, 54645, 42107),
    (111172, 50496, 52392, 56291, 51569, 37147), (83282, 73017, 64067, 3733, 76099, 60150),
    (81317, 45286, 45037, 33735, 46151, 34148), (95374, 70047, 66747, 27356, 70943, 54617),
]  # fmt: skip


def loaded(rows: list[tuple[int, ...]], *, calls: int = CALLS, clock: float = 1.0) -> BlockColumns:
    """The blocks as a worker reports them whose clock shows this share of the time."""
    seen, spans, delays, own_delays, took, took_delays = (
        [value * MICROSECOND for value in column] for column in zip(*rows)
    )
    told = [int(span * clock) for span in spans]
    blocks = len(rows)
    wall = pack(np.repeat(np.asarray(told) // calls, calls))
    return BlockColumns(
        quad=[block // 2 for block in range(blocks)],
        sequence=list(range(blocks)),
        calls=[calls] * blocks,
        worker=WorkerColumns(
            start_ns=[0] * blocks,
            end_ns=told,
            involuntary_switches=[0] * blocks,
            minor_faults=[0] * blocks,
            took_ns=[int(turn * clock) for turn in took],
            took_delay_ns=took_delays,
        ),
        times=PackedTimes(wall=wall, cpu=wall),
        conductor=ConductorColumns(seen_ns=seen, run_delay_ns=delays, conductor_delay_ns=own_delays),
    )


def kinds(columns: BlockColumns) -> set[InvalidKind]:
    base, head = sides([1.0])
    return {found.kind for found in misconduct(Evidence(with_columns(base, columns), head))}


def with_columns(run: RunDocument, columns: BlockColumns) -> RunDocument:
    return changed(run, replicates=[replace(member, shapes={SHAPE: columns}) for member in run.pairs.replicates])


@pytest.mark.parametrize(("rows", "calls"), [(BUSY, 4), (QUEUED, 76)])
def test_misconduct__honest_clock_and_waits_for_a_cpu__nothing(rows: Any, calls: int) -> None:
    assert kinds(loaded(rows, calls=calls)) == set()


@pytest.mark.parametrize(("rows", "calls"), [(BUSY, 4), (QUEUED, 76)])
def test_misconduct__half_speed_among_the_same_waits__the_clock(rows: Any, calls: int) -> None:
    assert kinds(loaded(rows, calls=calls, clock=0.5)) == {"worker_clock"}


@pytest.mark.parametrize(
    ("rows", "calls", "waits"), [(QUEUED, 76, True), ([(20_000, 19_000, 0, 0, 19_900, 0)] * 12, CALLS, False)]
)
def test_misconduct__half_speed__waits_for_a_cpu_are_named_if_there_were_any(
    rows: Any, calls: int, waits: bool
) -> None:
    base, head = sides([1.0])
    slow = with_columns(base, loaded(rows, calls=calls, clock=0.5))
    (found, *_) = misconduct(Evidence(slow, head))
    assert ("for a CPU that other processes used" in worded(found.message)) is waits


def test_misconduct__the_kernel_tells_of_no_waits__the_same_time_is_missing() -> None:
    # What nobody explains counts against the worker: who leaves the kernel's word out gains nothing by it.
    blocks = loaded(QUEUED, calls=76)
    observed = replace(blocks.conductor, run_delay_ns=[], conductor_delay_ns=[])
    untold = replace(blocks, conductor=observed, worker=replace(blocks.worker, took_delay_ns=[]))
    assert kinds(untold) == {"worker_clock"}


def test_misconduct__first_call_waits_on_the_queue__nothing() -> None:
    # 20 ms of every block are the unrecorded call, of which the main thread waited 15.
    rows = [(45_000, 24_000, 15_000, 0, 44_800, 15_000)] * 12
    assert kinds(loaded(rows, calls=CALLS)) == set()


@pytest.mark.parametrize(("clock", "found"), [(1.0, set()), (0.75, {"worker_clock"})])
def test_misconduct__short_blocks_whose_first_call_takes_a_millisecond_more__nothing(
    clock: float, found: set[InvalidKind]
) -> None:
    assert kinds(loaded([(6_500, 4_600, 0, 0, 6_300, 0)] * 12, calls=14, clock=clock)) == found


def test_misconduct__busy_worker_and_a_conductor_that_waits_between_its_readings__not_more_cpus() -> None:
    # Threads that wait by spinning go on while the conductor, whose books are not read yet, waits for a CPU.
    rows = [(20_000, 19_000, 0, 10_000, 19_900, 0)] * 12
    blocks = loaded(rows, calls=CALLS)
    spinning = replace(blocks, conductor=replace(blocks.conductor, used_ns=[28_000 * MICROSECOND] * 12))
    assert kinds(spinning) == set()


def test_misconduct__more_cpu_time_than_that__worker_changed() -> None:
    rows = [(20_000, 19_000, 0, 10_000, 19_900, 0)] * 12
    blocks = loaded(rows, calls=CALLS)
    spinning = replace(blocks, conductor=replace(blocks.conductor, used_ns=[36_000 * MICROSECOND] * 12))
    assert kinds(spinning) == {"worker_changed"}
