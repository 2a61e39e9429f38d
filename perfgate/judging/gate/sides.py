"""The two sides of a decision: commits, testbeds, failures, notes, files, and the steps of the head's checklist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from datetime import datetime

import msgspec
from msgspec.structs import replace

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.decision import Failure, PackageDifference, SideSummary, StepSummary, TestbedDifference
from perfgate.document.message import Message
from perfgate.document.run import FROM_PROFILE, Artifact, ErrorDetail, RunDocument, Side, Source
from perfgate.document.testbed import Environment
from perfgate.errors import DocumentError

LEFT_OUT = "left_out"


def side_of(source: Source, chosen_because: Message | None = None, *, sha256: str | None = None) -> SideSummary:
    """One side of a decision; ``sha256`` is the hash of the run document's content, if it was measured."""
    side = msgspec.convert(source, SideSummary, from_attributes=True)
    return replace(side, chosen_because=chosen_because, sha256=sha256)


def testbed_differences(base: RunDocument, head: RunDocument) -> list[TestbedDifference]:
    before = base.testbed.fingerprint
    after = head.testbed.fingerprint
    if before == after:
        return []
    fields = _differing(base.testbed.comparable, head.testbed.comparable)
    return fields or [TestbedDifference(field="fingerprint", base=before, head=after)]


def package_differences(base: Environment | None, head: Environment | None) -> list[PackageDifference]:
    if base is None or head is None:
        return []
    is_known = base.loaded is not None and head.loaded is not None
    loaded = {*(base.loaded or ()), *(head.loaded or ())}
    packages = []
    for package in _differing(base.packages, head.packages):
        is_loaded = not is_known or package.field in loaded
        packages.append(PackageDifference(field=package.field, base=package.base, head=package.head, loaded=is_loaded))
    return packages


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[TestbedDifference]:
    """The fields with differing values."""
    differences = []
    for name in sorted(before.keys() | after.keys()):
        difference = TestbedDifference(field=name, base=before.get(name), head=after.get(name))
        if difference.base != difference.head:
            differences.append(difference)
    return differences


def failures_of(run: RunDocument, side: Side, deciding: Set[int]) -> list[Failure]:
    """The failures of a run, except of steps that only inform: the checklist shows those failures."""
    failures = []
    failed_to_load = set()
    for workload in run.workloads:
        if workload.error:
            failed_to_load.add(workload.name)
            failures.append(Failure(side=side, workload=workload.name, what="load", error=workload.error))
    for step in run.checklist.steps:
        if step.status == "error" and step.number in deciding and step.workload not in failed_to_load:
            why = step.reason or Message("gate.step-failed")
            error = step.error or ErrorDetail(kind="exception", message=why)
            failures.append(Failure(side=side, workload=step.workload, what=step.slug, error=error))
    for check in run.checklist.correctness:
        if check.status == "error":
            reason = check.message or Message("gate.check-could-not-run")
            error = ErrorDetail(kind="exception", message=reason)
            failures.append(Failure(side=side, workload=check.workload, what="correctness", error=error))
    return failures


def failures_of_both(base: RunDocument, head: RunDocument, deciding: Set[int]) -> list[Failure]:
    """The failures of both sides, then the pairs, stretches and turns of jobs that failed."""
    failures = [*failures_of(base, "base", deciding), *failures_of(head, "head", deciding)]
    for failed in head.pairs.failed:
        what = f"pair {failed.pair}"
        if failed.side:
            what = "turns"
        elif failed.arm == "stretch":
            what = f"stretch {failed.pair}"
        failures.append(Failure(side=failed.side or "pair", workload=failed.workload, what=what, error=failed.error))
    return failures


def notes_of_sides(base: RunDocument, head: RunDocument) -> list[Message]:
    common = []
    alone = []
    for note in base.warnings:
        if note in head.warnings:
            common.append(Message("notes.both-sides", {"note": note}))
        else:
            alone.append(Message("notes.base", {"note": note}))
    for note in head.warnings:
        if note not in base.warnings:
            alone.append(Message("notes.head", {"note": note}))
    return common + alone


def kept_files(run: RunDocument, side: Side) -> list[Artifact]:
    """The kept files of a side, by their paths in the check folder."""
    return [replace(file, path=f"{side}/{file.path}") for file in run.artifacts]


def duration_of(head: RunDocument) -> float:
    # "Z" is read only from Python 3.11 on.
    try:
        started = datetime.fromisoformat(head.session.started_at.replace("Z", "+00:00"))
        finished = datetime.fromisoformat(head.session.finished_at.replace("Z", "+00:00"))
        return round((finished - started).total_seconds(), 3)
    except (TypeError, ValueError) as error:  # TypeError: one of the two has a time zone
        raise DocumentError("the session's times are not ISO 8601 with a time zone: {error}", error=error) from error


# --- the steps of the head's checklist


def summarize_steps(head: RunDocument) -> list[StepSummary]:
    """The steps of every workload with a checklist; step 20 is the decision itself."""
    steps = [msgspec.convert(step, StepSummary, from_attributes=True) for step in head.checklist.steps]
    measured: dict[str, set[int]] = defaultdict(set)
    for step in head.checklist.steps:
        measured[step.workload].add(step.number)
    chosen: dict[str, set[int]] = defaultdict(set)
    for record in head.workloads:
        chosen[record.name].update(record.steps)
    for workload, numbers in measured.items():
        for number in sorted(CARDS.keys() - numbers - {GATE_STEP}):
            is_chosen = number in chosen[workload] or not chosen[workload]
            steps.append(_left_out(head, workload, number, is_chosen=is_chosen))
    return steps


def _left_out(head: RunDocument, workload: str, number: int, *, is_chosen: bool) -> StepSummary:
    code = "gate.step-without-result"
    if head.session.command == FROM_PROFILE:
        code = "gate.step-not-recorded"
    elif not is_chosen:
        code = "gate.step-not-asked"
    slug = CARDS[number].slug
    return StepSummary(number=number, slug=slug, workload=workload, status=LEFT_OUT, reason=Message(code))
