"""A check under way: its inputs, what it has measured so far, and both sides' run
documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import NAMES, MeasuredJob
from perfgate.conductor.sides.server.server import RATE_SHARE
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.seals import Seals
from perfgate.config import Config, WorkloadReference
from perfgate.document.artifact import CheckDocuments
from perfgate.document.coverage import Coverage
from perfgate.document.decision import Policy
from perfgate.document.flame import FlameTree
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.document.run import (
    FailedPair,
    Harness,
    JobResults,
    MeasuredPairs,
    RunDocument,
    Session,
    Side,
)
from perfgate.document.samples import Replicate
from perfgate.document.shape import ShapePlace
from perfgate.document.testbed import Testbed
from perfgate.flows.check.change import Change
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import Environments
from perfgate.flows.check.forecast import Forecast
from perfgate.flows.check.recordings import KeptProfiles
from perfgate.flows.check.rerun import add_to
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.session import assemble_run
from perfgate.job_settings import JobReference
from perfgate.judging.gate.evidence.effect import StartLuck
from perfgate.judging.gate.look import Look


class Job(NamedTuple):
    """The inputs of a check, known before it measures.

    ``config`` is the head's with the rules of the base, and ``head_config`` the head's
    own. ``code`` watches the changed code in trials.
    """

    options: CheckOptions
    change: Change
    config: Config
    head_config: Config
    session: Session
    environments: Environments
    checkouts: Mapping[Side, Checkout]
    deadline: float
    seals: Seals
    code: CodeWatch

    @property
    def out(self) -> Path:
        """The folder of the results."""
        return self.options.out

    @property
    def workloads(self) -> Sequence[WorkloadReference]:
        """The selected workloads."""
        return self.config.selected(self.options.workloads)

    @property
    def jobs(self) -> Sequence[JobReference]:
        """The selected jobs."""
        return self.config.selected_jobs(self.options.workloads)

    @property
    def policy(self) -> Policy:
        return self.change.rules.policy()

    @property
    def config_in_clone(self) -> Config:
        """The configuration, which locates the store from the clone: the worktree that
        it was read from is removed.
        """
        return replace(self.config, root=self.change.directory)


@dataclass
class Measured:
    """The measurements so far; the lists grow workload by workload.

    ``notes`` are added to each side's document, ``earlier`` is the result that this
    check adds to, ``loaded`` the packages that each side's workloads loaded, ``kept``
    the profiles of jobs, and ``coverage`` what the workloads run of the changed code.
    """

    testbeds: tuple[Testbed, Testbed]
    earlier: CheckDocuments | None = None
    harnesses: tuple[list[Harness], list[Harness]] = field(
        default_factory=lambda: ([], [])
    )
    base: list[Findings] = field(default_factory=list)
    head: list[Findings] = field(default_factory=list)
    pairs: list[PairedMeasurement] = field(default_factory=list)
    flames: dict[ShapePlace, FlameTree] = field(default_factory=dict)
    jobs: list[MeasuredJob] = field(default_factory=list)
    notes: dict[Side, list[Message]] = field(
        default_factory=lambda: {"base": [], "head": []}
    )
    kept: KeptProfiles = field(default_factory=KeptProfiles)
    loaded: tuple[list[str] | None, list[str] | None] = (None, None)
    coverage: Coverage | None = None


@dataclass
class CheckContext:
    """What all parts of a check share while they measure; what they measure goes into
    ``measured``.

    The workloads' own check rejects the output of both sides in the workloads
    ``refused``, so that check itself is wrong. ``start_luck`` is that of main's stored
    runs.
    """

    bench: Bench
    job: Job
    progress: Progress
    forecast: Forecast
    measured: Measured
    refused: list[str] = field(default_factory=list)
    start_luck: StartLuck = field(default_factory=dict)

    @property
    def options(self) -> CheckOptions:
        return self.job.options

    @property
    def checkouts(self) -> Mapping[Side, Checkout]:
        return self.job.checkouts

    @property
    def checklist_budget(self) -> float:
        """The seconds for turns of the checklist of a workload."""
        return self.options.checklist_seconds(self.job.config.gate)

    def begin_side(self, side: Side) -> None:
        """Code of this side runs now: what changes is its doing. On an accelerator the
        other side's may run too, which is built or loads meanwhile.
        """
        sides = NAMES if self.bench.is_accelerated else (side,)
        self.job.seals.begin(*sides)

    def look_at(
        self, name: str, *, to_come: int = 0, measured: Measured | None = None
    ) -> Look:
        """The evidence on a workload or job, with ``to_come`` workloads still
        unmeasured; jobs come after all workloads.
        """
        if not self.measured.earlier:
            to_come += len(self.job.jobs) - len(self.measured.jobs)
        documents = documents_of(self.job, measured or self.measured)
        return Look(
            *documents,
            self.job.policy,
            workload=name,
            to_come=to_come,
            start_luck=self.start_luck,
        )


def documents_of(job: Job, measured: Measured) -> tuple[RunDocument, RunDocument]:
    if measured.earlier:
        seals = (job.seals.seal_of("base"), job.seals.seal_of("head"))
        base, head = add_to(
            measured.earlier,
            job.session,
            measured.pairs,
            measured.jobs,
            seals,
            head_folder=job.out / "head",
        )
    else:
        base, head = _document(job, measured, "base"), _document(job, measured, "head")
        # Head's document alone has what concerns both sides.
        rates: list[Message] = []
        failed: list[FailedPair] = []
        for pairs in measured.pairs:
            failed += pairs.failed
        for job_turns in measured.jobs:
            failed += job_turns.failed
            record = job_turns.record
            if record.rate is not None:
                rates.append(
                    Message(
                        "notes.job-rate",
                        {
                            "workload": record.name,
                            "rate": record.rate,
                            "load": RATE_SHARE * record.rate,
                        },
                    )
                )
        head = replace(
            head,
            pairs=replace(head.pairs, failed=failed),
            source=replace(head.source, coverage=measured.coverage),
            warnings=[*job.environments.notes, *rates, *head.warnings],
        )
    return measured.kept.put_into("base", base), measured.kept.put_into("head", head)


def _document(job: Job, measured: Measured, side: Side) -> RunDocument:
    """The run document of a side: what both sides have."""
    sides = job.change.sides
    replicates: list[Replicate] = []
    turns: list[Turn] = []
    if side == "base":
        position = 0
        source = sides.base_source
        findings = measured.base
        for pairs in measured.pairs:
            replicates += pairs.base
        for job_turns in measured.jobs:
            turns += job_turns.base
    else:
        position = 1
        source = sides.head_source
        findings = measured.head
        for pairs in measured.pairs:
            replicates += pairs.head
        for job_turns in measured.jobs:
            turns += job_turns.head
    environment = job.environments.of_side(side).record
    if environment:
        environment = replace(environment, loaded=measured.loaded[position])
    document = assemble_run(
        job.config,
        session=job.session,
        source=replace(
            source, seal=job.seals.seal_of(side), harness=measured.harnesses[position]
        ),
        testbed=replace(measured.testbeds[position], environment=environment),
        findings=findings,
        folder=job.out / side,
        side=side,
        pairs=MeasuredPairs(replicates=replicates),
    )
    records = [measurement.record for measurement in measured.jobs]
    return replace(document, jobs=JobResults(records=records, turns=turns))
