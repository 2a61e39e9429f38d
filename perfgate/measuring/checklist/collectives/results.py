"""What the reports of all ranks say together: a collective takes as long as its slowest rank, and waits for the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfgate.measuring.checklist.collectives.job import OPERATIONS, Operation, RankReport
from perfgate.stats.robust import TransferLine, transfer_line

# A rank that is last in so many of the meetings is so by more than chance: of 20 and two ranks 18 or more have 0.04 %.
_MOSTLY = 0.9
_FEWEST_SIZES = 3

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SizeTimes:
    """One size in bytes: nanoseconds of each repetition on the rank that took longest."""

    size: int
    nanoseconds: Ints

    @property
    def seconds(self) -> float:
        """The median time."""
        return float(np.median(self.nanoseconds)) / 1e9


@dataclass(frozen=True)
class OperationTimes:
    """One operation over ``ranks`` ranks, by rising size; ``wrong`` are the sizes at which a rank got wrong numbers."""

    operation: Operation
    ranks: int
    sizes: tuple[SizeTimes, ...]
    wrong: tuple[int, ...]

    def bus_bandwidth(self, size: SizeTimes) -> float:
        """Bytes a second over the busiest link, comparable between operations and numbers of ranks."""
        return size.size / size.seconds * bus_factor(self.operation, self.ranks)

    def best(self) -> SizeTimes:
        """The size with the highest bandwidth."""
        return max(self.sizes, key=self.bus_bandwidth)

    def line(self) -> TransferLine | None:
        """What a size costs; None for fewer than three sizes."""
        if len(self.sizes) < _FEWEST_SIZES:
            return None
        bytes_sent = np.array([float(times.size) for times in self.sizes])
        return transfer_line(bytes_sent, np.array([times.seconds for times in self.sizes]))


@dataclass(frozen=True)
class Skew:
    """How far apart ranks come that did the same work: median seconds from the first to the last, and of the work itself.

    ``last`` is the rank that comes last nearly always, None where none does.
    """

    seconds: float
    work_seconds: float
    rounds: int
    last: int | None


def bus_factor(operation: Operation, ranks: int) -> float:
    """What turns bytes over time into the load of a link (nccl-tests, doc/PERFORMANCE.md).

    The size is that of the whole: of an all-gather what comes out, of a reduce-scatter what goes in.
    """
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def operation_times(reports: Sequence[RankReport]) -> list[OperationTimes]:
    """The operations that the backend has; the ranks' repetitions are matched by their order."""
    operations = []
    for operation in OPERATIONS:
        by_rank = [[sample for sample in report.timed if sample.operation == operation] for report in reports]
        by_size = list(zip(*by_rank))
        if by_size:
            sizes = (
                SizeTimes(ranks[0].size, np.max([rank.nanoseconds for rank in ranks], axis=0)) for ranks in by_size
            )
            wrong = (ranks[0].size for ranks in by_size if not all(rank.right for rank in ranks))
            operations.append(OperationTimes(operation, len(reports), tuple(sizes), tuple(wrong)))
    return operations


def skew(reports: Sequence[RankReport]) -> Skew:
    """How far apart the ranks come, round by round."""
    arrived = np.array([[meeting.arrived_ns for meeting in report.meetings] for report in reports])
    worked = np.array([[meeting.worked_ns for meeting in report.meetings] for report in reports])
    rounds = arrived.shape[1]
    times_last = np.bincount(arrived.argmax(axis=0), minlength=len(reports))
    last = int(times_last.argmax())
    return Skew(
        seconds=float(np.median(np.ptp(arrived, axis=0))) / 1e9,
        work_seconds=float(np.median(worked)) / 1e9,
        rounds=rounds,
        last=reports[last].rank if times_last[last] >= _MOSTLY * rounds else None,
    )
