"""What a decision repeats of its documents besides rows: both sides, how they were
measured, failures, notes, and steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from perfgate.catalogue.lookup import CARDS, MESSAGES, RULES, is_known
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.decision import (
    ComparedSides,
    Comparing,
    Failure,
    Measurement,
    PackageDifference,
    SideSummary,
    StepSummary,
    TestbedDifference,
)
from perfgate.document.files import content_sha256
from perfgate.document.message import QUOTE, Message, MessageValue
from perfgate.document.run import (
    FROM_PROFILE,
    Artifact,
    ErrorDetail,
    RunDocument,
    Side,
    Source,
)
from perfgate.document.testbed import IDENTITY
from perfgate.errors import DocumentError
from perfgate.judging.gate.evidence.blocks import power_cap, waited_share
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.values import rounded_if_known
from perfgate.version import __version__

LEFT_OUT = "left_out"


class DecisionHeader(NamedTuple):
    """The parts of a decision that repeat its documents."""

    project: str
    seed: int
    sides: ComparedSides
    measured: Measurement
    steps: list[StepSummary]
    warnings: list[Message]


def header_of_head(head: RunDocument) -> DecisionHeader:
    """The header of a decision about the head alone."""
    ci = head.session.ci
    side = replace(side_of(head.source), sha256=content_sha256(head))
    if side.commit and ci is not None and ci.head_sha != side.commit:
        side = replace(side, reviewed=ci.head_sha)
    measured = Measurement(
        device=head.testbed.comparable.get("device.name", head.testbed.device_kind),
        machine=head.testbed.observed.get(IDENTITY)
        or head.testbed.observed.get("host", ""),
        coverage=head.source.coverage,
        links=_kept_files(head, "head"),
        recorded=head.session.command == FROM_PROFILE,
        in_ci=ci is not None,
        duration=_duration_of(head),
    )
    sides = ComparedSides(base=SideSummary(), head=side)
    return DecisionHeader(
        head.project,
        head.session.seed,
        sides,
        measured,
        summarize_steps(head),
        head.warnings,
    )


def header_of_unmeasured(
    base: RunDocument, head: RunDocument, chosen_because: Message | None
) -> DecisionHeader:
    """The header of a decision on a change that was not measured."""
    header = header_of_head(head)
    side = replace(side_of(base.source, chosen_because), sha256=content_sha256(base))
    return header._replace(
        sides=replace(header.sides, base=side), warnings=notes_of_sides(base, head)
    )


def header_of(evidence: Evidence, chosen_because: Message | None) -> DecisionHeader:
    """The header of a decision about both sides.

    Raises DocumentError if a document calls itself an upgrade report and its sides are
    of two commits: such a report cannot fail, so a change must not be able to hide in
    one.
    """
    base, head = evidence.runs
    header = header_of_unmeasured(base, head, chosen_because)
    comparing: Comparing = "code"
    if head.session.command == "upgrade":
        comparing = "stack"
        commit = base.source.commit
        if commit is None or commit != head.source.commit or head.source.dirty:
            raise DocumentError(
                "an upgrade report has the same commit on both sides, and these are of two; use perfgate check"
            )
    sides = replace(
        header.sides,
        comparing=comparing,
        testbed_differences=_testbed_differences(base, head),
        package_differences=_package_differences(base, head),
    )
    rounds = [len(head.session.earlier)]
    pairs = dict.fromkeys((workload.name for workload in head.workloads), 0)
    for replicate in head.pairs.replicates:
        rounds.append(replicate.round)
        if replicate.arm == "ab" and replicate.workload in pairs:
            pairs[replicate.workload] += 1
    measured = replace(
        header.measured,
        links=_kept_files(base, "base") + header.measured.links,
        # Of the workload that has most.
        pairs=max(pairs.values(), default=0),
        rounds=1 + max(rounds),
        waited=_waited(evidence),
        power_cap=power_cap(base.pairs.replicates, head.pairs.replicates),
        unmoved=sorted(evidence.unmoved),
        recorded=evidence.recorded,
    )
    return header._replace(sides=sides, measured=measured)


def check_session(base: RunDocument, head: RunDocument) -> None:
    """Raise DocumentError if the two were not measured as the two sides of one session."""
    if base.pairs.replicates and base.session.id != head.session.id:
        raise DocumentError(
            "the pairs of these two runs come from different sessions ({base}, {head}), so they were not measured "
            "side by side; judge the two run.json of one check folder",
            base=base.session.id,
            head=head.session.id,
        )


def uncounted(evidence: Evidence) -> list[Message]:
    """The reasons that a recording has no counts, by side."""
    reasons = []
    for side, index in (("head", evidence.head), ("base", evidence.base)):
        for note in index.run.warnings:
            if note.code == "notes.nothing-counted":
                reasons.append(Message("verdict.about", {"place": side, "what": note}))
    return reasons


def side_of(source: Source, chosen_because: Message | None = None) -> SideSummary:
    side = msgspec.convert(source, SideSummary, from_attributes=True)
    return replace(side, chosen_because=chosen_because)


def _testbed_differences(
    base: RunDocument, head: RunDocument
) -> list[TestbedDifference]:
    before = base.testbed.fingerprint
    after = head.testbed.fingerprint
    if before == after:
        return []
    fields = _differing(base.testbed.comparable, head.testbed.comparable)
    return fields or [TestbedDifference(field="fingerprint", base=before, head=after)]


def _package_differences(
    base: RunDocument, head: RunDocument
) -> list[PackageDifference]:
    before = base.testbed.environment
    after = head.testbed.environment
    if before is None or after is None:
        return []
    lists_loaded = before.loaded is not None and after.loaded is not None
    loaded = {*(before.loaded or ()), *(after.loaded or ())}
    packages = []
    for package in _differing(before.packages, after.packages):
        is_loaded = not lists_loaded or package.field in loaded
        packages.append(
            PackageDifference(
                field=package.field,
                base=package.base,
                head=package.head,
                loaded=is_loaded,
            )
        )
    return packages


def _waited(evidence: Evidence) -> float | None:
    """The share of the measured time in which workers, or else threads of jobs, waited
    for a CPU.
    """
    blocks = []
    for run in evidence.runs:
        for replicate in run.pairs.replicates:
            blocks += [columns for _, columns in replicate.lanes]
    waited = waited_share(blocks)
    if waited is None:
        shares = []
        for job in evidence.jobs.values():
            shares += [demand.waited for demand in job.cpu_demands]
        waited = max(shares, default=None)
    return rounded_if_known(waited)


def _differing(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[TestbedDifference]:
    """The fields with differing values."""
    differences = []
    for name in sorted(before.keys() | after.keys()):
        difference = TestbedDifference(
            field=name, base=before.get(name), head=after.get(name)
        )
        if difference.base != difference.head:
            differences.append(difference)
    return differences


def failures_of(run: RunDocument, side: Side, deciding: Set[int]) -> list[Failure]:
    """The failures of a run, except of steps that only inform: the checklist shows
    those failures.
    """
    failures: list[tuple[str, str, ErrorDetail]] = []
    failed_to_load = set()
    for workload in run.workloads:
        if workload.error:
            failed_to_load.add(workload.name)
            failures.append((workload.name, "load", workload.error))
    for step in run.checklist.steps:
        if (
            step.status == "error"
            and step.number in deciding
            and step.workload not in failed_to_load
        ):
            error = step.error or ErrorDetail(
                kind="exception", message=step.reason or Message("gate.step-failed")
            )
            failures.append((step.workload, step.slug, error))
    for check in run.checklist.correctness:
        if check.status == "error":
            message = check.message or Message("gate.check-could-not-run")
            error = ErrorDetail(kind="exception", message=message)
            failures.append((check.workload, "correctness", error))
    return [
        Failure(side=side, workload=workload_name, what=what, error=error)
        for workload_name, what, error in failures
    ]


def failures_of_both(evidence: Evidence, deciding: Set[int]) -> list[Failure]:
    """The failures of both sides, then the pairs, stretches and turns of jobs that
    failed.
    """
    base, head = evidence.runs
    failures = [
        *failures_of(base, "base", deciding),
        *failures_of(head, "head", deciding),
    ]
    for failed in head.pairs.failed:
        what = f"pair {failed.pair}"
        if failed.side:
            what = "turns"
        elif failed.arm == "stretch":
            what = f"stretch {failed.pair}"
        failures.append(
            Failure(
                side=failed.side or "pair",
                workload=failed.workload,
                what=what,
                error=failed.error,
            )
        )
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


def _kept_files(run: RunDocument, side: Side) -> list[Artifact]:
    """The kept files of a side, by their paths in the check folder."""
    return [replace(file, path=f"{side}/{file.path}") for file in run.artifacts]


def _duration_of(head: RunDocument) -> float:
    # "Z" is read only from Python 3.11 on.
    try:
        started = datetime.fromisoformat(head.session.started_at.replace("Z", "+00:00"))
        finished = datetime.fromisoformat(
            head.session.finished_at.replace("Z", "+00:00")
        )
        return round((finished - started).total_seconds(), 3)
    except (
        TypeError,
        ValueError,
    ) as error:  # TypeError: one of the two has a time zone
        raise DocumentError(
            "the session's times are not ISO 8601 with a time zone: {error}",
            error=error,
        ) from error


# --- the steps of the head's checklist


def summarize_steps(head: RunDocument) -> list[StepSummary]:
    """The steps of every workload with a checklist; step 20 is the decision itself."""
    steps = [
        msgspec.convert(step, StepSummary, from_attributes=True)
        for step in head.checklist.steps
    ]
    measured: dict[str, set[int]] = defaultdict(set)
    for step in head.checklist.steps:
        measured[step.workload].add(step.number)
    chosen: dict[str, set[int]] = defaultdict(set)
    for record in head.workloads:
        chosen[record.name].update(record.steps)
    for workload, numbers in measured.items():
        for number in sorted(CARDS.keys() - numbers - {GATE_STEP}):
            code = "gate.step-without-result"
            if head.session.command == FROM_PROFILE:
                code = "gate.step-not-recorded"
            elif chosen[workload] and number not in chosen[workload]:
                code = "gate.step-not-asked"
            left_out = StepSummary(
                number=number,
                slug=CARDS[number].slug,
                workload=workload,
                status=LEFT_OUT,
                reason=Message(code),
            )
            steps.append(left_out)
    return steps


# --- names that this perfgate does not know, because a newer one wrote them: they are
# listed, and never judged

MAX_NAMES = 20


def unknown_note(evidence: Evidence) -> list[Message]:
    """A note with the names that are not known; none if all are.

    A change request that upgrades perfgate is measured by the new version and judged by
    the base's version.
    """
    base, head = evidence.runs
    names = sorted({*_names(base), *_names(head)})
    if not names:
        return []
    listed = names[:MAX_NAMES]
    if len(names) > MAX_NAMES:
        listed.append(f"+{len(names) - MAX_NAMES}")
    values: dict[str, MessageValue] = {
        "ours": __version__,
        "theirs": head.perfgate_version,
        "names": listed,
    }
    return [Message("gate.not-judged-by-this-version", values)]


def _names(run: RunDocument) -> Iterator[str]:
    metrics: list[str] = []
    for counters in run.checklist.counters:
        metrics += [*counters.values, *counters.steady, *counters.unstable]
    for job in run.jobs.records:
        metrics += [number.metric for number in job.numbers]
    yield from (name for name in metrics if not is_known(name))
    # Steps beyond the gate's own cards come from other packages. Their values are
    # shown, and never compared.
    own = [step for step in run.checklist.steps if step.number <= max(CARDS)]
    for step in own:
        if step.number not in CARDS:
            yield f"step {step.number}"
        for finding in step.findings:
            # A finding with its own message needs no rule of ours.
            if finding.message is None and finding.rule not in RULES:
                yield finding.rule
    for code in _codes(msgspec.to_builtins([run.warnings, own])):
        if code not in MESSAGES:
            yield code


def _codes(value: Any) -> Iterator[str]:
    """The codes of all messages below a value."""
    if isinstance(value, dict):
        if (
            value.keys() == {"code", "values"}
            and isinstance(value["code"], str)
            and value["code"] != QUOTE
        ):
            yield value["code"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _codes(part)
