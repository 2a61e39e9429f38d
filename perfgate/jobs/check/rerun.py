"""A job that is run again adds its pairs to those of the earlier one, instead of rolling the dice anew.

What the first job decided stays in the data, so nobody gets another verdict by running it again until it pleases; the later
pairs count as evidence that stays true for any number of reruns (judging/gate/rule.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.sides.pairs import PairedMeasurement
from perfgate.document.files import read_run
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
        return 1 + max((replicate.round for replicate in self.head.replicates), default=0)

    def pairs_of(self, workload: str) -> int:
        return sum(replicate.workload == workload and replicate.arm == "ab" for replicate in self.head.replicates)


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


def add_pairs(
    earlier: Earlier, session: Session, measured: list[PairedMeasurement], *, head_folder: Path
) -> tuple[RunDocument, RunDocument]:
    """Both documents as the later session leaves them; the logs in ``head_folder`` are its own."""
    base = msgspec.structs.replace(
        earlier.base,
        session=session,
        earlier_sessions=[*earlier.base.earlier_sessions, earlier.base.session],
        replicates=earlier.base.replicates + [replicate for pairs in measured for replicate in pairs.base],
    )
    head = msgspec.structs.replace(
        earlier.head,
        session=session,
        earlier_sessions=[*earlier.head.earlier_sessions, earlier.head.session],
        replicates=earlier.head.replicates + [replicate for pairs in measured for replicate in pairs.head],
        failed_pairs=earlier.head.failed_pairs + [failed for pairs in measured for failed in pairs.failed],
        artifacts=[artifact for artifact in earlier.head.artifacts if artifact.kind != "log"]
        + log_artifacts(head_folder),
    )
    return base, head
