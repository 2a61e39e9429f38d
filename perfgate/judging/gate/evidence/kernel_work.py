"""The table of work, from the kernels of a recorded step."""

from __future__ import annotations

from perfgate.document.alignment import Work
from perfgate.document.run import KernelTimes, KernelWork

KERNELS_TIME = "kernels.time"
MATRIX_TIME = "kernels.mac_time"
VECTOR_TIME = "kernels.vec_time"


class KernelSums:
    """The seconds of the kernels of a step: in all, and in which a unit of the cores computed, by operator and inputs."""

    def __init__(self, times: KernelTimes) -> None:
        self.times = times
        # As the recording adds them up; None if it does not count a unit.
        self.totals = {MATRIX_TIME: times.mac, VECTOR_TIME: times.vec}
        self._rows: list[Work] = []
        for kernel in times.rows:
            self._rows += _work_of(kernel)

    def of(self, aspect: str) -> dict[str, float]:
        """The seconds of an aspect, by operator and inputs."""
        return {_name(row): row.amount for row in self._rows if row.aspect == aspect}

    def counts(self, unit: str) -> bool:
        """Whether the time of a unit was counted."""
        return self.totals[unit] is not None or bool(self.of(unit))


def _work_of(kernel: KernelWork) -> list[Work]:
    amounts = {KERNELS_TIME: kernel.seconds, MATRIX_TIME: kernel.mac, VECTOR_TIME: kernel.vec}
    rows = []
    for aspect, seconds in amounts.items():
        if seconds is not None:
            rows.append(Work(kernel.op, seconds, kernel.count, inputs=kernel.inputs or None, aspect=aspect))
    return rows


def _name(row: Work) -> str:
    return f"{row.operator} [{row.inputs}]" if row.inputs else row.operator
