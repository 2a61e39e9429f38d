"""What all parts of a check share while they measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perfgate.conductor.sides.job_turns import SideName
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.flows.check.forecast import Forecast
from perfgate.flows.check.measured import Job, Measured, documents_of
from perfgate.flows.check.steps import checklist_budget
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.judging.gate.look import Look

HistoryOf = Callable[[RunDocument], History]


@dataclass
class CheckContext:
    """A check under way: what it measures goes into ``measured``.

    ``history_of`` gives the regressions that are accepted for a head. The check of the workloads ``refused`` rejects the output
    of both sides, so the check itself is wrong.
    """

    bench: Bench
    job: Job
    checkouts: dict[SideName, Checkout]
    options: CheckOptions
    progress: Progress
    forecast: Forecast
    measured: Measured
    history_of: HistoryOf
    refused: list[str] = field(default_factory=list)

    @property
    def checklist_budget(self) -> float:
        """The seconds for turns of the checklist of a workload."""
        return checklist_budget(self.job.config, self.options)

    def look_at(self, name: str, *, to_come: int = 0, measured: Measured | None = None) -> Look:
        """The evidence on a workload or job, with so many workloads ``to_come``; jobs come after all workloads."""
        if not self.job.earlier:
            to_come += len(self.job.config.selected_jobs(self.options.workloads)) - len(self.measured.jobs)
        documents = documents_of(self.job, measured or self.measured)
        return Look(*documents, self.job.policy, workload=name, to_come=to_come)
