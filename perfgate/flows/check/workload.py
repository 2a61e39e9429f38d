"""Measure one workload of a check: counts first, then pairs and stretches until they decide, then the checklist in turns."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.sides.checklist.recount import (
    Recount,
    confirmed,
    count_operators,
)
from perfgate.conductor.sides.checklist.turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import NAMES, SideName
from perfgate.config import WorkloadReference
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, FailedPair
from perfgate.flows.check.checklist import ChecklistOfCheck
from perfgate.flows.check.measured import (
    CheckContext,
    Measured,
    documents_of,
    with_counters,
)
from perfgate.flows.check.pairs import PairsOfWorkload
from perfgate.flows.check.steps import check_steps, steps_of_slow_calls
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.session import now
from perfgate.flows.shared.store import stored_history
from perfgate.judging.gate.evidence.index import of_workload
from perfgate.judging.report.render.terminal import early_lines


@dataclass
class WorkloadMeasurement:
    """Measures a workload of a check; ``to_come`` workloads follow.

    Pairs would be ``too_slow``: then only the steps that count or have a rule are measured.
    """

    check: CheckContext
    reference: WorkloadReference
    to_come: int
    too_slow: FailedPair | None

    def measure(self) -> bool:
        """Measure the workload.

        False, without pairs, if its check rejects the output of both sides, if counters settle the verdict and the cost is
        not asked for, or if pairs would be too slow.
        """
        check, name, too_slow = self.check, self.reference.name, self.too_slow
        job, measured = check.job, check.measured
        sides = [
            ChecklistSide(side, checkout, job.out / side)
            for side, checkout in check.checkouts.items()
        ]
        turns = ChecklistTurns(
            check.bench,
            self.reference,
            sides,
            begins=self._begin_side,
            deadline=job.deadline,
            leave_out_waits=True,
        )
        check.forecast.begin("checklist", name)
        counted_first: Mapping[SideName, Sequence[CounterSet]] = {}
        steps = check_steps(job)
        pairs_of_workload = PairedMeasurement()
        if too_slow is not None:
            steps = steps_of_slow_calls(job.policy)
            pairs_of_workload.failed.append(too_slow)
            # Where only loading is slow, another process would take longer than all calls of the checklist.
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
        if _is_refused(sides[0].found) and _is_refused(sides[1].found):
            check.refused.append(name)
            return False
        # Variation between processes is not caused by the change.
        recount.confirm(
            lambda: check.look_at(name).differing_counts(), deadline=job.deadline
        )
        if too_slow or (not check.options.cost and self._is_settled()):
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

    def _begin_side(self, side: SideName) -> None:
        """Code of this side runs now; on an accelerator the other side's too, which is built or loads meanwhile."""
        self.check.job.seals.begin(
            *(NAMES if self.check.bench.is_accelerated else (side,))
        )

    def _count_slow_calls(
        self, too_slow: FailedPair
    ) -> Mapping[SideName, Sequence[CounterSet]]:
        """Count the operators of slow calls on both sides before anything else, and show what two processes say regressed.

        The whole checklist takes dozens of calls, this look three, and three more if something regressed.
        """
        check, reference = self.check, self.reference
        counted = {name: self._count_operators(name) for name in NAMES}
        if not all(counted.values()):
            return {}
        measured = with_counters(
            check.measured, check.checkouts, reference, counted, too_slow
        )
        if check.look_at(reference.name, measured=measured).differing_counts():
            both = {
                name: confirmed(first, self._count_operators(name))
                for name, first in counted.items()
            }
            measured = with_counters(
                check.measured, check.checkouts, reference, both, too_slow
            )
            self._show_regressions(measured)
        return counted

    def _count_operators(self, name: SideName) -> list[CounterSet]:
        self._begin_side(name)
        return count_operators(
            self.check.bench, self.check.checkouts[name], self.reference
        )

    def _is_settled(self) -> bool:
        """Whether counters alone fail the gate; if so, the document says that no pairs were measured."""
        name = self.reference.name
        settled = self.check.look_at(name).is_settled_by_counters()
        if settled:
            self.check.measured.head[-1].warnings.append(
                Message("notes.cost-not-measured", {"workload": name})
            )
        return settled

    def _show_regressions(self, measured: Measured | None = None) -> None:
        """Show regressed counts with their line and remedy right away, long before the pairs measure their cost.

        ``measured`` are the counts of calls too slow for pairs, by default all so far. A regression that is accepted for the
        commit is left to the verdict, which names the person.
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
