"""Which pairs of a workload profile their operators, subroutines and traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfgate.catalogue.names import PYTHON_TIMES
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.profiles import (
    LateOperators,
    record_traces,
    with_profile,
)
from perfgate.conductor.sides.function.workload import WorkloadSides
from perfgate.conductor.workers.checkout import Checkout
from perfgate.document.budget import judges_subroutines
from perfgate.document.samples import Replicate

# Profiling costs half as much time again as a short pair; this many pairs name an operator that lost 10 %.
PROFILED_PAIRS = 12
# Of the pairs that profile their operators: enough that no single pair makes the flame graph, and 0.2 s each.
TRACED_PAIRS = 4


class PairProfiles:
    """The profiles of a workload's pairs: some profile their operators once ``needs_names`` is true."""

    def __init__(
        self, sides: WorkloadSides, needs_names: Callable[[], bool], traces: Path | None
    ) -> None:
        self._sides = sides
        self._needs_names = needs_names
        self._traces = traces
        self._late = LateOperators(sides.bench)
        self._has_names_to_find = False
        self._pairs = 0

    def check(self) -> None:
        """Ask whether names are needed, unless they are."""
        self._has_names_to_find = self._has_names_to_find or self._needs_names()

    def profile(
        self,
        members: tuple[Member, Member],
        replicates: tuple[Replicate, Replicate],
        checkouts: Sequence[Checkout],
    ) -> tuple[Replicate, Replicate]:
        """Profile a pair, if that is due; returns its replicates with what is known now."""
        bench, measured = self._sides.bench, self._sides.measured
        say, timeout, clock = (
            bench.say,
            bench.config.measure.step_timeout,
            self._sides.observer.monotonic,
        )
        # A trace that is analysed later is the only source of the time of kernels.
        is_late = members[0].analysed_late
        tolerance = bench.config.gate.tolerance
        has_enough = self._pairs >= PROFILED_PAIRS and not judges_subroutines(tolerance)
        if has_enough or not (self._has_names_to_find or is_late):
            return replicates
        workers = members[0].worker, members[1].worker
        if judges_subroutines(tolerance, PYTHON_TIMES):
            replicates = with_profile(
                "subroutines",
                workers,
                replicates,
                timeout=timeout,
                say=say,
                clock=clock,
            )
        traces = self._traces if self._pairs < TRACED_PAIRS else None
        self._pairs += 1
        if is_late:
            self._late.record(
                workers, replicates, checkouts, timeout=timeout, traces=traces
            )
            return replicates
        replicates = with_profile(
            "operators", workers, replicates, timeout=timeout, say=say, clock=clock
        )
        if traces is not None:
            head_first = len(measured.traces) // len(replicates[0].shapes) % 2 == 1
            measured.traces += record_traces(
                workers,
                replicates,
                folder=traces,
                head_first=head_first,
                timeout=timeout,
                say=say,
            )
        return replicates

    def analyse_late(self) -> None:
        """Run the analyses deferred to a look, or to the end of the last pair: a look must know the time of kernels."""
        measured = self._sides.measured
        measured.traces += self._late.put_into(measured.base, measured.head)
