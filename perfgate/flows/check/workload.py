"""Measure one workload of a check.

Counts come first, then pairs and long stretches of calls until they decide or the
time is spent, then the checklist in turns.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfgate.conductor.sides.checklist.checklist import Findings, workload_record
from perfgate.conductor.sides.checklist.recount import (
    Recount,
    confirmed,
    count_operators,
)
from perfgate.conductor.sides.checklist.turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.plan import aa_pairs_of
from perfgate.conductor.sides.function.stretches import measure_stretches
from perfgate.conductor.sides.function.warm import WarmWorkers, resident_workers
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.sides.job_turns import NAMES
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.config import WorkloadReference
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, FailedPair, Side
from perfgate.flows.check.checklist import (
    COUNTING_STEP,
    ChecklistOfCheck,
    check_steps,
    steps_of_slow_calls,
)
from perfgate.flows.check.measured import (
    CheckContext,
    Measured,
    documents_of,
)
from perfgate.flows.check.rerun import next_round, pairs_of, quads_of_stretches
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.session import now
from perfgate.flows.shared.store import stored_history
from perfgate.judging.gate.compare.rule import looks_left
from perfgate.judging.gate.evidence.index import of_workload
from perfgate.judging.gate.evidence.stretches import LOOKS as STRETCH_LOOKS
from perfgate.judging.gate.look import Look, interim_interval
from perfgate.judging.report.render.terminal import early_lines


@dataclass
class WorkloadMeasurement:
    """Measures a workload of a check; ``to_come`` workloads follow.

    Pairs would be ``too_slow``: then only the steps that count or have a rule are
    measured.
    """

    check: CheckContext
    reference: WorkloadReference
    to_come: int
    too_slow: FailedPair | None

    def measure(self) -> bool:
        """Measure the workload.

        False, without pairs, if it hangs on a side, if its check rejects the output of
        both sides, if counters settle the verdict and the cost is not asked for, or if
        pairs would be too slow.
        """
        check = self.check
        name = self.reference.name
        too_slow = self.too_slow
        job, measured = check.job, check.measured
        sides = [
            ChecklistSide(side, checkout, job.out / side)
            for side, checkout in check.checkouts.items()
        ]
        turns = ChecklistTurns(
            check.bench,
            self.reference,
            sides,
            begins=check.begin_side,
            deadline=job.deadline,
            leave_out_waits=True,
        )
        check.forecast.begin("checklist", name)
        counted_first: Mapping[Side, Sequence[CounterSet]] = {}
        steps = check_steps(job)
        pairs_of_workload = PairedMeasurement()
        if too_slow is not None:
            steps = steps_of_slow_calls(job.policy)
            pairs_of_workload.failed.append(too_slow)
            # Where only loading is slow, another process would take longer than all
            # calls of the checklist.
            if too_slow.error.has_slow_calls:
                counted_first = self._count_slow_calls(too_slow)
        recount = Recount(
            check.bench,
            turns,
            draws=check.bench.servers.draws,
            counted_first=counted_first,
        )
        turns.first(steps.deciding, steps.informing, exact_only=steps.exact_only)
        measured.pairs.append(pairs_of_workload)
        measured.base.append(sides[0].found)
        measured.head.append(sides[1].found)
        if any(side.found.hangs for side in sides):
            return False
        if _is_refused(sides[0].found) and _is_refused(sides[1].found):
            check.refused.append(name)
            return False
        # Variation between processes is not caused by the change.
        recount.confirm(
            lambda: check.look_at(name).differing_counts(), deadline=job.deadline
        )
        if too_slow:
            return False
        if not check.options.cost and check.look_at(name).is_settled_by_counters():
            note = Message("notes.cost-not-measured", {"workload": name})
            measured.head[-1].warnings.append(note)
            return False
        checklist = ChecklistOfCheck(check, turns, steps)
        checklist.settle_gating_numbers()
        self._show_regressions()
        batch = sides[1].found.workload.batch
        sizes = None
        if steps.sizes_in_pairs:
            sizes = BatchSizes(check.bench, name, batch)
        # The results folder has room for traces; the system's temporary folder may not.
        with tempfile.TemporaryDirectory(dir=job.out, prefix=".traces-") as traces:
            pairs = PairsOfWorkload(check, self.reference, self.to_come)
            pairs.measure(traces=Path(traces), sizes=sizes, recount=recount)
            recount.count_base(deadline=job.deadline)
            checklist.add_steps_of_pairs(sizes)
            checklist.compare()
        return True

    def _count_slow_calls(
        self, too_slow: FailedPair
    ) -> Mapping[Side, Sequence[CounterSet]]:
        """Count the operators of slow calls on both sides before anything else, and
        show what two processes say regressed.

        The whole checklist takes dozens of calls, this look three, and three more if
        something regressed.
        """
        check, name = self.check, self.reference.name
        counted = {side: self._count_operators(side) for side in NAMES}
        if not all(counted.values()):
            return {}
        measured = self._with_counters(counted, too_slow)
        if check.look_at(name, measured=measured).differing_counts():
            both = {
                side: confirmed(first, self._count_operators(side))
                for side, first in counted.items()
            }
            self._show_regressions(self._with_counters(both, too_slow))
        return counted

    def _with_counters(
        self,
        counters: Mapping[Side, Sequence[CounterSet]],
        too_slow: FailedPair,
    ) -> Measured:
        """The measurements with the counters of this workload alone."""
        measured = self.check.measured
        findings: dict[Side, Findings] = {}
        for side, checkout in self.check.checkouts.items():
            record = workload_record(checkout, self.reference, (COUNTING_STEP,))
            findings[side] = Findings(record, counters=list(counters[side]))
        return replace(
            measured,
            base=[*measured.base, findings["base"]],
            head=[*measured.head, findings["head"]],
            pairs=[*measured.pairs, PairedMeasurement(failed=[too_slow])],
        )

    def _count_operators(self, name: Side) -> list[CounterSet]:
        self.check.begin_side(name)
        return count_operators(
            self.check.bench, self.check.checkouts[name], self.reference
        )

    def _show_regressions(self, measured: Measured | None = None) -> None:
        """Show regressed counts with their line and remedy right away, long before the
        pairs measure their cost.

        ``measured`` are the counts of calls too slow for pairs, by default all so far.
        A regression that is accepted for the commit is left to the verdict, which names
        the person.
        """
        check, name = self.check, self.reference.name
        look = check.look_at(name, measured=measured)
        if not look.regressed() or check.job.session.command == "upgrade":
            return
        so_far = check.job._replace(
            session=msgspec.structs.replace(check.job.session, finished_at=now())
        )
        base, head = (
            of_workload(run, name)
            for run in documents_of(so_far, measured or check.measured)
        )
        history = stored_history(
            check.job.config_in_clone, head, os.environ, warn=check.progress.status
        )
        decision = decide_with_advice(
            base, head, policy=check.job.policy, history=history
        )
        if decision.verdict == "FAIL":
            lines = early_lines(
                decision,
                name,
                certain=look.fails_for_certain(),
                has_pairs=measured is None,
                language=check.options.language,
            )
            check.progress.note("\n".join(lines))


def _is_refused(findings: Findings) -> bool:
    """Whether the workload's own check rejects the output of a side."""
    return any(result.status == "failed" for result in findings.correctness)


@dataclass
class PairsOfWorkload:
    """Measures the pairs of a workload that loads on both sides; ``to_come`` workloads
    follow.

    They follow the plan of the pairs that they ``continue`` and take the seconds of
    ``budget``, by default the configured budget.
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
        self._residents = None
        if bench.is_accelerated:
            self._residents = resident_workers(bench, self.reference, Observer())

    def measure(
        self,
        *,
        traces: Path | None = None,
        sizes: BatchSizes | None = None,
        recount: Recount | None = None,
    ) -> None:
        """Measure pairs until they decide or the looks are used up, and then the
        stretches.

        The pairs also take the rounds of ``sizes``, and ``recount`` counts base between
        two of them.
        """
        check = self.check
        name = self.reference.name
        pairs = self._pairs
        if not self._may_decide():
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
        check = self.check
        name = self.reference.name
        pairs = self._pairs
        earlier = check.measured.earlier
        looks = check.job.policy.looks
        decided = check.options.decided
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
            # Base differs from base: if another memory layout removes the difference it
            # was luck, else it is the machine.
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
        # The pairs up to the first look with that number, including pairs of base
        # against base.
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
        """Measure long stretches of calls, until mean and stalls are decided or do not
        look worse.
        """
        check = self.check
        name = self.reference.name
        quads = 0
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

    def _may_decide(self) -> bool:
        """Whether pairs may decide.

        The workload loaded on both sides, on one testbed, and an earlier job left it
        open.
        """
        check, measured = self.check, self.check.measured
        earlier = measured.earlier
        if earlier:
            look = Look(
                *earlier,
                check.job.policy,
                workload=self.reference.name,
                start_luck=check.start_luck,
            )
            if not look.rerun_would_help():
                return False
            records = [*earlier.base.workloads, *earlier.head.workloads]
        else:
            records = [measured.base[-1].workload, measured.head[-1].workload]
        if any(
            record.name == self.reference.name and record.error for record in records
        ):
            return False
        before, after = measured.testbeds
        return (
            check.job.session.command == "upgrade"
            or before.fingerprint == after.fingerprint
        )
