"""The inputs of a check, its measurements so far, and both sides' run documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.sides.checklist.checklist import Findings, workload_record
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import MeasuredJob, SideName
from perfgate.conductor.sides.server.server import RATE_SHARE
from perfgate.conductor.workers.bench import Checkout
from perfgate.conductor.workers.seals import Seals
from perfgate.config import Config, WorkloadReference
from perfgate.document.artifact import CheckDocuments
from perfgate.document.coverage import Coverage
from perfgate.document.decision import Policy
from perfgate.document.flame import FlameTree
from perfgate.document.message import Message
from perfgate.document.run import CounterSet, FailedPair, Harness, RunDocument, Session, Side
from perfgate.document.testbed import Testbed
from perfgate.flows.check.coverage import CodeWatch
from perfgate.flows.check.environments import Environments
from perfgate.flows.check.profiles import KeptProfiles
from perfgate.flows.check.rerun import add_to
from perfgate.flows.check.sides import Sides
from perfgate.flows.shared.session import assemble_run
from perfgate.flows.trust.commits import BaseConfig
from perfgate.judging.gate.evidence.place import ShapePlace

# It always runs on both sides: exact counters are compared first.
COUNTING_STEP = 4


class Job(NamedTuple):
    """The inputs of a check, known before it measures.

    ``code`` watches the changed code in trials. ``head_config`` is the head's own, before the base's rules.
    """

    config: Config
    base_config: BaseConfig
    session: Session
    sides: Sides
    out: Path
    earlier: CheckDocuments | None
    environments: Environments
    deadline: float
    seals: Seals
    code: CodeWatch
    head_config: Config | None = None

    @property
    def policy(self) -> Policy:
        return (self.base_config.config or self.config).policy()


@dataclass
class Measured:
    """The measurements so far; the lists grow workload by workload. ``notes`` are added to each side's document,
    ``added_to`` is the earlier job that this one continues, ``loaded`` the packages that each side's workloads loaded,
    ``kept`` the profiles of jobs, and ``coverage`` what the workloads run of the changed code.
    """

    testbeds: tuple[Testbed, Testbed]
    added_to: CheckDocuments | None = None
    harnesses: tuple[list[Harness], list[Harness]] = field(default_factory=lambda: ([], []))
    base: list[Findings] = field(default_factory=list)
    head: list[Findings] = field(default_factory=list)
    pairs: list[PairedMeasurement] = field(default_factory=list)
    flames: dict[ShapePlace, FlameTree] = field(default_factory=dict)
    jobs: list[MeasuredJob] = field(default_factory=list)
    notes: dict[Side, list[Message]] = field(default_factory=lambda: {"base": [], "head": []})
    kept: KeptProfiles = field(default_factory=KeptProfiles)
    loaded: tuple[list[str] | None, list[str] | None] = (None, None)
    coverage: Coverage | None = None


def documents_of(job: Job, measured: Measured) -> tuple[RunDocument, RunDocument]:
    base, head = _without_profiles(job, measured)
    return measured.kept.put_into("base", base), measured.kept.put_into("head", head)


def with_counters(
    measured: Measured,
    checkouts: Mapping[SideName, Checkout],
    reference: WorkloadReference,
    counters: Mapping[SideName, Sequence[CounterSet]],
    too_slow: FailedPair,
) -> Measured:
    """The measurements with the counters of one more workload alone, which is too slow for pairs."""
    found = {
        name: Findings(workload_record(checkouts[name], reference, (COUNTING_STEP,)), counters=list(counted))
        for name, counted in counters.items()
    }
    return replace(
        measured,
        base=[*measured.base, found["base"]],
        head=[*measured.head, found["head"]],
        pairs=[*measured.pairs, PairedMeasurement(failed=[too_slow])],
    )


def _without_profiles(job: Job, measured: Measured) -> tuple[RunDocument, RunDocument]:
    if job.earlier:
        seals = (job.seals.seal_of("base"), job.seals.seal_of("head"))
        return add_to(job.earlier, job.session, measured.pairs, measured.jobs, seals, head_folder=job.out / "head")
    base = assemble_run(
        job.config,
        session=job.session,
        source=job.sides.base_source,
        testbed=measured.testbeds[0],
        findings=measured.base,
        folder=job.out / "base",
        side="base",
        replicates=list(chain.from_iterable(pairs.base for pairs in measured.pairs)),
    )
    parts: list[PairedMeasurement | MeasuredJob] = [*measured.pairs, *measured.jobs]
    head = assemble_run(
        job.config,
        session=job.session,
        source=job.sides.head_source,
        testbed=measured.testbeds[1],
        findings=measured.head,
        folder=job.out / "head",
        side="head",
        replicates=list(chain.from_iterable(pairs.head for pairs in measured.pairs)),
        failed_pairs=list(chain.from_iterable(part.failed for part in parts)),
    )
    records = [one.record for one in measured.jobs]
    environments = [
        environment.record and msgspec.structs.replace(environment.record, loaded=loaded)
        for environment, loaded in zip((job.environments.base, job.environments.head), measured.loaded)
    ]
    searched = [(record.name, record.rate) for record in records if record.rate is not None]
    of_rates = [
        Message("notes.job-rate", {"workload": name, "rate": f"{rate:.3g}", "load": f"{RATE_SHARE * rate:.3g}"})
        for name, rate in searched
    ]
    return (
        msgspec.structs.replace(
            base,
            seal=job.seals.seal_of("base"),
            environment=environments[0],
            harness=measured.harnesses[0],
            jobs=records,
            turns=list(chain.from_iterable(job.base for job in measured.jobs)),
        ),
        msgspec.structs.replace(
            head,
            seal=job.seals.seal_of("head"),
            jobs=records,
            turns=list(chain.from_iterable(job.head for job in measured.jobs)),
            environment=environments[1],
            harness=measured.harnesses[1],
            coverage=measured.coverage,
            warnings=[*job.environments.notes, *of_rates, *head.warnings],
        ),
    )
