"""A check that is run again adds its pairs and turns to those of the earlier one, instead of rolling the dice anew.

What the first job decided stays in the data, so nobody gets another verdict by running it again until it pleases; the later
pairs count as evidence that stays true for any number of reruns (judging/gate/rule.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.sides.pairs import PairedMeasurement
from perfgate.conductor.sides.turns import MeasuredJob, TurnsBefore
from perfgate.document.files import read_run
from perfgate.document.job import JobRecord
from perfgate.document.run import RunDocument, Session
from perfgate.document.testbed import Testbed
from perfgate.errors import UsageError
from perfgate.jobs.shared.session import log_artifacts

MOST_ROUNDS = 20


class Earlier(NamedTuple):
    """The two run documents of the job so far."""

    base: RunDocument
    head: RunDocument

    @property
    def next_round(self) -> int:
        return 1 + max([len(self.head.earlier_sessions), *(replicate.round for replicate in self.head.replicates)])

    def pairs_of(self, workload: str) -> int:
        return sum(replicate.workload == workload and replicate.arm == "ab" for replicate in self.head.replicates)

    def record_of(self, job: str) -> JobRecord | None:
        return next((record for record in self.head.jobs if record.name == job), None)

    def turns_of(self, job: str) -> TurnsBefore:
        """How many quads and starts of a job both sides have, whole or in part."""
        turns = [turn for run in (self.base, self.head) for turn in run.turns if turn.workload == job]
        return TurnsBefore(
            quads=1 + max((turn.quad for turn in turns), default=-1),
            starts=1 + max((turn.start for turn in turns), default=-1),
        )


def find_earlier(out: Path, *, base_commit: str, head_commit: str) -> Earlier | None:
    """The job to add to, None where the folder holds none.

    Raises UsageError when it is of other commits or has been added to too often, and DocumentError when it is damaged.
    """
    paths = [out / side / "run.json" for side in ("base", "head")]
    if not all(path.exists() for path in paths):
        return None
    earlier = Earlier(read_run(paths[0]), read_run(paths[1]))
    for side, document, commit in (("base", earlier.base, base_commit), ("head", earlier.head, head_commit)):
        if document.source.commit != commit:
            raise UsageError(
                f"{out} holds pairs of {side} {(document.source.commit or 'without a commit')[:12]}, and {side} is "
                f"{commit[:12]} now; measure it anew without --append, or into another --out"
            )
    if earlier.next_round > MOST_ROUNDS:
        raise UsageError(f"{out} was added to {MOST_ROUNDS} times; what is undecided now needs a quieter machine")
    return earlier


def refuse_other_testbed(earlier: Earlier, testbed: Testbed) -> None:
    """Raise UsageError when this machine is not the one that measured the earlier pairs."""
    before, now = earlier.head.testbed.comparable, testbed.comparable
    differing = sorted(field for field in before.keys() | now.keys() if before.get(field) != now.get(field))
    if differing:
        field = differing[0]
        raise UsageError(
            f"the earlier pairs were measured on another testbed: {field} was {before.get(field, 'absent')} and is "
            f"{now.get(field, 'absent')} here; measure anew without --append"
        )


def refuse_other_job(earlier: Earlier, record: JobRecord) -> JobRecord:
    """The record of the earlier turns of a job. Raise UsageError where there is none, or its settings were others."""
    before = earlier.record_of(record.name)
    if before is None or before.sha256 != record.sha256:
        what = "there are none" if before is None else "its settings were others"
        raise UsageError(
            f"no turns can be added to the earlier ones of {record.name}: {what}; measure anew without --append"
        )
    return before


def add_to(
    earlier: Earlier,
    session: Session,
    measured: list[PairedMeasurement],
    jobs: list[MeasuredJob],
    *,
    head_folder: Path,
) -> tuple[RunDocument, RunDocument]:
    """Both documents as the later session leaves them; the logs in ``head_folder`` are its own."""
    base = msgspec.structs.replace(
        earlier.base,
        session=session,
        earlier_sessions=[*earlier.base.earlier_sessions, earlier.base.session],
        replicates=earlier.base.replicates + [replicate for pairs in measured for replicate in pairs.base],
        turns=earlier.base.turns + [turn for job in jobs for turn in job.base],
    )
    head = msgspec.structs.replace(
        earlier.head,
        session=session,
        earlier_sessions=[*earlier.head.earlier_sessions, earlier.head.session],
        replicates=earlier.head.replicates + [replicate for pairs in measured for replicate in pairs.head],
        turns=earlier.head.turns + [turn for job in jobs for turn in job.head],
        failed_pairs=[
            *earlier.head.failed_pairs,
            *(failed for pairs in measured for failed in pairs.failed),
            *(failed for job in jobs for failed in job.failed),
        ],
        artifacts=[artifact for artifact in earlier.head.artifacts if artifact.kind != "log"]
        + log_artifacts(head_folder),
    )
    return base, head
