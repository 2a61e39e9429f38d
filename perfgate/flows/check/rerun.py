"""A check that is run again adds its pairs and turns to those of the earlier one, instead of rolling the dice again.

The data of the first job is kept, so repeated runs cannot be used to fish for a better verdict; the later pairs count as
evidence that stays valid for any number of reruns (judging/gate/compare/rule.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from perfgate.conductor.engine.outlook import Reach
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.conductor.sides.job_turns import MeasuredJob
from perfgate.conductor.sides.kinds import record_of
from perfgate.config import Config
from perfgate.document.artifact import CheckDocuments
from perfgate.document.files import read_run
from perfgate.document.job import JobRecord
from perfgate.document.run import RunDocument, Session
from perfgate.document.seal import Seal
from perfgate.document.testbed import Testbed
from perfgate.errors import EXIT_MEASURING, DocumentError, UsageError
from perfgate.flows.check.sides import Sides
from perfgate.flows.shared.options import exit_code
from perfgate.flows.shared.session import log_artifacts
from perfgate.judging.gate.unmeasured import measured_nothing
from perfgate.locale import sentence
from perfgate.version import __version__

MOST_ROUNDS = 20


def find_earlier(out: Path, *, base_commit: str, head_commit: str) -> CheckDocuments | None:
    """The job to add to, None if the folder holds none.

    Raises UsageError if it belongs to other commits or has been added to too often, and DocumentError if it is damaged.
    """
    earlier = _read(out)
    if earlier and (why := _misfit(earlier, base_commit, head_commit)):
        raise UsageError(
            "{out} {why}; measure it anew without --append, or into another --out",
            out=out,
            why=why,
        )
    return earlier


def find_attempt(
    folder: Path, sides: Sides, config: Config, workloads: tuple[str, ...], *, say: Callable[[str], None]
) -> CheckDocuments | None:
    """The newest attempt in a folder that can be added to; if there is none, report the reason and return None.

    Its documents come from a job that ran the change's code, as does this job, so they are read as hostile input.
    """
    try:
        attempts = [folder, *sorted((path for path in folder.iterdir() if path.is_dir()), key=_attempt)]
        earlier = next(filter(None, map(_read, reversed(attempts))), None)
    except (DocumentError, OSError) as error:
        earlier, why = None, str(error)
    else:
        why = "it left no pair of run documents"
    if earlier:
        misfit = _misfit(earlier, sides.base.commit, sides.head) or _other_settings(earlier, config, workloads)
        if not misfit:
            return earlier
        why = f"it {misfit}"
    say(sentence("the earlier attempt cannot be extended, so everything will be measured again: {why}", why=why))
    return None


def _read(folder: Path) -> CheckDocuments | None:
    paths = [folder / side / "run.json" for side in ("base", "head")]
    if not all(path.exists() for path in paths):
        return None
    documents = CheckDocuments(read_run(paths[0]), read_run(paths[1]))
    return None if measured_nothing(documents.head) else documents


def _attempt(folder: Path) -> tuple[int, str]:
    """The number at the end of an artifact's name."""
    number = re.search(r"[0-9]{1,9}$", folder.name)
    return (int(number[0]) if number else -1, folder.name)


def _misfit(earlier: CheckDocuments, base_commit: str, head_commit: str) -> str | None:
    for side, document, commit in (("base", earlier.base, base_commit), ("head", earlier.head, head_commit)):
        if document.source.commit != commit:
            before = (document.source.commit or "without a commit")[:12]
            return f"holds pairs of {side} {before}, and {side} is {commit[:12]} now"
    if next_round(earlier) > MOST_ROUNDS:
        return f"was added to {MOST_ROUNDS} times; what is undecided now needs a quieter machine"
    return None


def _other_settings(earlier: CheckDocuments, config: Config, workloads: tuple[str, ...]) -> str | None:
    jobs = {job.name: record_of(job).sha256 for job in config.selected_jobs(workloads)}
    pairs = [
        ("perfgate", earlier.head.perfgate_version, __version__),
        ("seed", earlier.head.session.seed, config.measure.seed),
        ("workloads", [one.name for one in earlier.head.workloads], [one.name for one in config.selected(workloads)]),
        ("jobs", {record.name: record.sha256 for record in earlier.head.jobs}, jobs),
    ]
    differing = [name for name, before, now in pairs if before != now]
    if differing:
        return f"was measured with other {differing[0] if differing[0] != 'perfgate' else 'versions of perfgate'}"
    if any(exit_code(run) == EXIT_MEASURING for run in earlier):
        return "could not measure a part"
    return None


def next_round(earlier: CheckDocuments) -> int:
    head = earlier.head
    return 1 + max([len(head.earlier_sessions), *(replicate.round for replicate in head.replicates)])


def pairs_of(earlier: CheckDocuments, workload: str) -> int:
    return sum(replicate.workload == workload and replicate.arm == "ab" for replicate in earlier.head.replicates)


def quads_of_stretches(earlier: CheckDocuments, workload: str) -> int:
    """The quads of a workload's stretches, of the shape with most."""
    quads: dict[str, set[tuple[int, int]]] = {}
    for replicate in earlier.head.replicates:
        if (replicate.workload, replicate.arm) == (workload, "stretch"):
            for shape, blocks in replicate.shapes.items():
                quads.setdefault(shape, set()).update((replicate.pair, quad) for quad in blocks.quad)
    return max((len(of_shape) for of_shape in quads.values()), default=0)


def turns_of(earlier: CheckDocuments, job: str) -> Reach:
    """The number of quads and starts of a job that both sides have, complete or partial."""
    turns = [turn for run in earlier for turn in run.turns if turn.workload == job]
    return Reach(
        quads=1 + max((turn.quad for turn in turns), default=-1),
        starts=1 + max((turn.start for turn in turns), default=-1),
    )


def other_testbed(earlier: CheckDocuments, testbed: Testbed) -> str | None:
    """The difference between this machine and the one that measured the earlier pairs; None if they are comparable."""
    before, now = earlier.head.testbed.comparable, testbed.comparable
    differing = sorted(field for field in before.keys() | now.keys() if before.get(field) != now.get(field))
    if not differing:
        return None
    field = differing[0]
    return (
        f"the earlier pairs were measured on another testbed: {field} was {before.get(field, 'absent')} and is "
        f"{now.get(field, 'absent')} here"
    )


def refuse_other_job(earlier: CheckDocuments, record: JobRecord) -> JobRecord:
    """The record of the earlier turns of a job. Raises UsageError if there is none, or if its settings differ."""
    before = next((one for one in earlier.head.jobs if one.name == record.name), None)
    if before is None or before.sha256 != record.sha256:
        what = "there are none" if before is None else "its settings were others"
        raise UsageError(
            "no turns can be added to the earlier ones of {name}: {what}; measure anew without --append",
            name=record.name,
            what=what,
        )
    return before


def add_to(
    earlier: CheckDocuments,
    session: Session,
    measured: list[PairedMeasurement],
    jobs: list[MeasuredJob],
    seals: tuple[Seal, Seal],
    *,
    head_folder: Path,
) -> tuple[RunDocument, RunDocument]:
    """Both documents with the later session added; the logs in ``head_folder`` belong to that session.

    A seal that was broken or missing in an earlier session stays so.
    """
    base = _with_session(earlier.base, session, seals[0])
    head = _with_session(earlier.head, session, seals[1])
    failed = list(head.failed_pairs)
    for pairs in measured:
        base.replicates.extend(pairs.base)
        head.replicates.extend(pairs.head)
        failed += pairs.failed
    for job in jobs:
        base.turns.extend(job.base)
        head.turns.extend(job.head)
        failed += job.failed
    kept = [artifact for artifact in head.artifacts if artifact.kind != "log"]
    return base, msgspec.structs.replace(head, failed_pairs=failed, artifacts=[*kept, *log_artifacts(head_folder)])


def _with_session(run: RunDocument, session: Session, seal: Seal) -> RunDocument:
    """The document of an earlier session with a later one, and lists of its own for what that adds."""
    return msgspec.structs.replace(
        run,
        seal=_seal_of_both(run.seal, seal),
        session=session,
        earlier_sessions=[*run.earlier_sessions, run.session],
        replicates=list(run.replicates),
        turns=list(run.turns),
    )


def _seal_of_both(earlier: Seal | None, later: Seal) -> Seal | None:
    return earlier if earlier is None or earlier.broken else later
