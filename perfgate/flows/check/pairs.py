"""The pairs of a workload in a check, and the long stretches of calls after them, until they decide or the time is spent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.conductor.sides.checklist.recount import Recount
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.plan import aa_pairs_of
from perfgate.conductor.sides.function.stretches import measure_stretches
from perfgate.conductor.sides.function.warm import WarmWorkers, resident_workers
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.config import WorkloadReference
from perfgate.document.message import Message
from perfgate.flows.check.measured import CheckContext
from perfgate.flows.check.rerun import next_round, pairs_of, quads_of_stretches
from perfgate.judging.gate.compare.rule import looks_left
from perfgate.judging.gate.evidence.stretches import LOOKS as STRETCH_LOOKS
from perfgate.judging.gate.look import Look, interim_interval


@dataclass
class PairsOfWorkload:
    """Measures the pairs of a workload that loads on both sides; ``to_come`` workloads follow.

    They follow the plan of the pairs that they ``continue`` and take the seconds of ``budget``, by default the configured
    budget.
    """

    check: CheckContext
    reference: WorkloadReference
    to_come: int = 0
    continues: PairedMeasurement | None = None
    budget: float | None = None
    _pairs: PairedMeasurement = field(init=False)
    _residents: WarmWorkers | None = field(init=False)

    def __post_init__(self) -> None:
        bench = self.check.bench
        self._pairs = self.check.measured.pairs[-1]
        self._residents = (
            resident_workers(bench, self.reference, Observer())
            if bench.is_accelerated
            else None
        )

    def measure(
        self,
        *,
        traces: Path | None = None,
        sizes: BatchSizes | None = None,
        recount: Recount | None = None,
    ) -> None:
        """Measure pairs until they decide or the looks are used up, and then the stretches.

        The pairs also take the rounds of ``sizes``, and ``recount`` counts base between two of them.
        """
        check, name, pairs = self.check, self.reference.name, self._pairs
        if not self._can_be_compared() or not self._would_help():
            return

        def before_pair() -> None:
            check.forecast.show(interim_interval(pairs.base, pairs.head, name))
            check.job.seals.check_if_due()
            if recount is not None:
                recount.count_base_if_drawn()

        check.job.seals.begin("base", "head")
        check.forecast.begin("pairs", name)
        with (
            check.bench.watching(check.measured.testbeds[1]) as watcher,
            ExitStack() as stack,
        ):
            stack.callback(self._end_residents)

            def is_decided() -> bool:
                watcher.put_into(pairs.base, pairs.head)
                return self._is_decided()

            self._measure_pairs(before_pair, is_decided, traces, sizes)
            if check.options.decided is None and pairs.head and self.continues is None:
                self._measure_stretches()
            watcher.end()
            watcher.put_into(pairs.base, pairs.head)
        if pairs.given_up:
            note = Message(
                "notes.aa-repeated", {"workload": name, "pairs": pairs.given_up}
            )
            check.measured.head[-1].warnings.append(note)

    def _measure_pairs(
        self,
        before_pair: Callable[[], None],
        is_decided: Callable[[], bool],
        traces: Path | None,
        sizes: BatchSizes | None,
    ) -> None:
        """Measure pairs, in another memory layout if base differs from base."""
        check, name, pairs = self.check, self.reference.name, self._pairs
        earlier, looks, decided = (
            check.measured.earlier,
            check.job.policy.looks,
            check.options.decided,
        )
        budget = self.budget
        if budget is None:
            budget = check.job.config.gate.budget
        budget_ends = time.monotonic() + budget
        begun = first_draw = 0
        if self.continues:
            begun, first_draw = self.continues.begun, self.continues.draw
        if earlier:
            looks = looks_left(looks, pairs_of(earlier, name))
        sides = self._sides(before_pair)
        for draw in itertools.count(first_draw):
            measure_pairs(
                sides,
                looks=looks,
                is_decided=is_decided,
                pairs_needed=lambda: check.forecast.needed,
                needs_names=lambda: (
                    decided is None and check.look_at(name).names_would_help()
                ),
                budget_ends=budget_ends,
                draw=draw,
                first=begun,
                traces=traces,
                sizes=sizes,
            )
            # Base differs from base: if another memory layout removes the difference it was luck, else it is the machine.
            is_unlucky = check.look_at(name).base_differs and not (
                earlier or self.continues
            )
            if not is_unlucky or time.monotonic() > min(
                budget_ends, check.job.deadline
            ):
                return
            pairs.give_up()
            self._end_residents()
            check.bench.servers.redraw(hash_seed=draw + 1)

    def _is_decided(self) -> bool:
        """Whether the pairs so far decide; the forecast is told how many are needed."""
        check = self.check
        looks, decided = check.job.policy.looks, check.options.decided
        look = check.look_at(self.reference.name, to_come=self.to_come)
        needed = look.pairs_needed()
        # The pairs up to the first look with that number, including pairs of base against base.
        check.forecast.needed = None
        for planned in looks:
            if needed is not None and planned >= needed:
                aa_pairs = aa_pairs_of(
                    check.job.config.gate, resident=check.bench.is_accelerated
                )
                check.forecast.needed = planned + aa_pairs
                break
        if decided:
            return decided(look.comparisons, looks)
        return not look.more_pairs_would_help()

    def _measure_stretches(self) -> None:
        """Measure long stretches of calls, until mean and stalls are decided or do not look worse."""
        check, name, quads = self.check, self.reference.name, 0
        if check.measured.earlier:
            quads = quads_of_stretches(check.measured.earlier, name)
        measure_stretches(
            self._sides(check.job.seals.check_if_due),
            looks=STRETCH_LOOKS,
            is_decided=lambda: (
                not check.look_at(name, to_come=self.to_come).more_calls_would_help()
            ),
            quads=quads,
        )

    def _sides(self, before_start: Callable[[], None]) -> WorkloadSides:
        check, earlier = self.check, self.check.measured.earlier
        return WorkloadSides(
            check.bench,
            self.reference,
            check.checkouts["base"],
            check.checkouts["head"],
            self._pairs,
            round_number=next_round(earlier) if earlier else 0,
            deadline=check.job.deadline,
            before_start=before_start,
            residents=self._residents,
        )

    def _end_residents(self) -> None:
        if self._residents is not None:
            self._residents.close()

    def _would_help(self) -> bool:
        """Whether pairs may still decide what an earlier job left open."""
        check, earlier = self.check, self.check.measured.earlier
        if earlier is None:
            return True
        look = Look(
            earlier.base,
            earlier.head,
            check.job.policy,
            workload=self.reference.name,
            start_luck=check.start_luck,
        )
        return look.rerun_would_help()

    def _can_be_compared(self) -> bool:
        """Whether the workload loaded on both sides, on one testbed; otherwise pairs would be a waste of time."""
        measured = self.check.measured
        earlier = measured.earlier
        if earlier:
            records = [*earlier.base.workloads, *earlier.head.workloads]
        else:
            records = [measured.base[-1].workload, measured.head[-1].workload]
        if any(
            record.name == self.reference.name and record.error for record in records
        ):
            return False
        before, after = measured.testbeds
        return (
            self.check.job.session.command == "upgrade"
            or before.fingerprint == after.fingerprint
        )
