"""A check that is run again adds its pairs and turns to the earlier results, instead of
rolling the dice again.

The data of the first job is kept, so repeated runs cannot be used to fish for a better
verdict; the later pairs count as evidence that stays valid for any number of reruns
(judging/gate/compare/rule.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.engine import Reach
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import MeasuredJob
from perfgate.conductor.sides.kinds import record_of
from perfgate.document.artifact import CheckDocuments
from perfgate.document.files import read_run
from perfgate.document.run import RunDocument, Session
from perfgate.document.seal import Seal
from perfgate.document.testbed import Testbed
from perfgate.errors import EXIT_MEASURING, DocumentError
from perfgate.flows.check.change import Change
from perfgate.flows.shared.options import exit_code
from perfgate.flows.shared.session import log_artifacts
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.judging.gate.paths import measured_nothing
from perfgate.locale import Activity, sentence
from perfgate.version import __version__

MOST_ROUNDS = 20


def find_earlier(
    folder: Path, change: Change, say: Callable[[str], None]
) -> CheckDocuments | None:
    """The newest result in a folder that can be added to; if there is none, report the
    reason and return None.

    Its documents come from a job that ran the change's code, as does this job, so they
    are read as hostile input.
    """
    why: str = Activity("it left no pair of run documents")
    try:
        earlier = _newest_in(folder)
    except (DocumentError, OSError) as error:
        earlier, why = None, str(error)
    if earlier:
        misfit = _misfit(earlier, change)
        if not misfit:
            return earlier
        why = Activity("it {misfit}", misfit=misfit)
    say_measured_again(say, why)
    return None


def say_measured_again(say: Callable[[str], None], why: str) -> None:
    say(
        sentence(
            "the earlier attempt cannot be extended, so everything will be measured again: {why}",
            why=why,
        )
    )


def _newest_in(folder: Path) -> CheckDocuments | None:
    """The documents of the newest attempt that measured anything; the folder itself may
    be one.
    """

    def number(attempt: Path) -> tuple[int, str]:
        """The number at the end of an artifact's name."""
        digits = re.search(r"[0-9]{1,9}$", attempt.name)
        if digits:
            return int(digits[0]), attempt.name
        return -1, attempt.name

    attempts = [path for path in folder.iterdir() if path.is_dir()]
    for attempt in (*sorted(attempts, key=number, reverse=True), folder):
        base, head = attempt / "base" / "run.json", attempt / "head" / "run.json"
        if base.exists() and head.exists():
            documents = CheckDocuments(read_run(base), read_run(head))
            if not measured_nothing(RunIndex(documents.head)):
                return documents
    return None


def _misfit(earlier: CheckDocuments, change: Change) -> str | None:
    """The reason why an earlier result cannot be added to."""
    head = earlier.head
    config = change.config
    selected = change.options.workloads
    commits = (
        ("base", earlier.base, change.sides.base.commit),
        ("head", head, change.sides.head),
    )
    for side, document, commit in commits:
        before = document.source.commit or "without a commit"
        if before != commit:
            return Activity(
                "holds pairs of {side} {before}, and {side} is {commit} now",
                side=side,
                before=before[:12],
                commit=commit[:12],
            )
    if next_round(earlier) > MOST_ROUNDS:
        return Activity(
            "was extended {count} times; metrics that are still undecided need a quieter machine",
            count=MOST_ROUNDS,
        )
    jobs = {job.name: record_of(job).sha256 for job in config.selected_jobs(selected)}
    names = [workload.name for workload in config.selected(selected)]
    if head.perfgate_version != __version__:
        return Activity("was measured with another version of perfgate")
    if head.session.seed != config.measure.seed:
        return Activity("was measured with another seed")
    if [workload.name for workload in head.workloads] != names:
        return Activity("was measured with other workloads")
    if {record.name: record.sha256 for record in head.jobs.records} != jobs:
        return Activity("was measured with other jobs")
    if EXIT_MEASURING in map(exit_code, earlier):
        return Activity("could not measure a part")
    return None


def next_round(earlier: CheckDocuments) -> int:
    rounds = [replicate.round for replicate in earlier.head.pairs.replicates]
    return 1 + max([len(earlier.head.session.earlier), *rounds])


def pairs_of(earlier: CheckDocuments, workload: str) -> int:
    return sum(
        replicate.workload == workload and replicate.arm == "ab"
        for replicate in earlier.head.pairs.replicates
    )


def quads_of_stretches(earlier: CheckDocuments, workload: str) -> int:
    """The quads of a workload's stretches, of the shape with most."""
    quads = defaultdict[str, set[tuple[int, int]]](set)
    for replicate in earlier.head.pairs.replicates:
        if (replicate.workload, replicate.arm) == (workload, "stretch"):
            for shape, blocks in replicate.shapes.items():
                quads[shape].update((replicate.pair, quad) for quad in blocks.quad)
    return max(map(len, quads.values()), default=0)


def turns_of(earlier: CheckDocuments, job: str) -> Reach:
    """The number of quads and starts of a job that both sides have, complete or
    partial.
    """
    reach = Reach()
    for turn in (*earlier.base.jobs.turns, *earlier.head.jobs.turns):
        if turn.workload == job:
            reach = Reach(
                quads=max(reach.quads, turn.quad + 1),
                starts=max(reach.starts, turn.start + 1),
            )
    return reach


def other_testbed(earlier: CheckDocuments, testbed: Testbed) -> str | None:
    """The difference between this machine and the machine of the earlier pairs; None if
    they are comparable.
    """
    before, now = earlier.head.testbed.comparable, testbed.comparable
    for field in sorted(before.keys() | now.keys()):
        if before.get(field) != now.get(field):
            return Activity(
                "the earlier pairs were measured on another testbed: {field} was {before} and is {now} here",
                field=field,
                before=before.get(field, "absent"),
                now=now.get(field, "absent"),
            )
    return None


def add_to(
    earlier: CheckDocuments,
    session: Session,
    measured: list[PairedMeasurement],
    jobs: list[MeasuredJob],
    seals: tuple[Seal, Seal],
    *,
    head_folder: Path,
) -> tuple[RunDocument, RunDocument]:
    """Both documents with the later session added; the logs in ``head_folder`` belong
    to that session.

    A seal that was broken or missing in an earlier session stays so.
    """
    base = _with_session(earlier.base, session, seals[0])
    head = _with_session(earlier.head, session, seals[1])
    failed = list(head.pairs.failed)
    for pairs in measured:
        base.pairs.replicates.extend(pairs.base)
        head.pairs.replicates.extend(pairs.head)
        failed += pairs.failed
    for job in jobs:
        base.jobs.turns.extend(job.base)
        head.jobs.turns.extend(job.head)
        failed += job.failed
    artifacts = [artifact for artifact in head.artifacts if artifact.kind != "log"]
    artifacts += log_artifacts(head_folder)
    head_pairs = replace(head.pairs, failed=failed)
    return base, replace(head, pairs=head_pairs, artifacts=artifacts)


def _with_session(run: RunDocument, session: Session, seal: Seal | None) -> RunDocument:
    """The document of an earlier session with a later one; its lists are copies, to
    which results are added.
    """
    before = run.source.seal
    if before is None or before.broken:
        seal = before
    last = replace(run.session, earlier=[])
    return replace(
        run,
        source=replace(run.source, seal=seal),
        session=replace(session, earlier=[*run.session.earlier, last]),
        pairs=replace(run.pairs, replicates=list(run.pairs.replicates)),
        jobs=replace(run.jobs, turns=list(run.jobs.turns)),
    )
