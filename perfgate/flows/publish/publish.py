"""``perfgate publish``: judge the check of a change again, and post it.

There is one comment and one status.

Only the samples of an artifact are trusted. They are judged by the base's
perfgate.toml, against the base that the forge names.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from perfgate.document.artifact import CheckDocuments
from perfgate.document.decision import (
    ComparedSides,
    DecisionDocument,
    Measurement,
    Procedure,
    SideSummary,
    Verdict,
)
from perfgate.document.history import History
from perfgate.document.message import Message, ReasonedError, quote, reason_of
from perfgate.errors import DocumentError, RepositoryError
from perfgate.flows.publish.artifacts import (
    ReadArtifact,
    measured_change,
    open_keeper,
    read_artifacts,
)
from perfgate.flows.publish.posting import post, record_verdicts
from perfgate.flows.publish.published import JudgedArtifact, Published
from perfgate.flows.publish.trusted import PublishRequest, TrustedInputs
from perfgate.flows.publish.wording import Wording
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.doors import Doors, given_file
from perfgate.flows.shared.store import stored_history
from perfgate.flows.trust.grounds import Grounds, grounds_of_base, required_of
from perfgate.flows.trust.provenance import base_is_proven, refuse_foreign_artifact
from perfgate.git.repository import checked_out, is_behind
from perfgate.judging.forge.forge import ChangeRequest, CiEvent
from perfgate.judging.forge.runner import (
    OUTPUT_VARIABLE,
    append_to,
    output_lines,
    outputs_path,
)
from perfgate.version import __version__


def publish(
    artifact: Path | None, trusted: TrustedInputs, request: PublishRequest, doors: Doors
) -> int:
    """Publish a check, or all checks of a matrix as one, and return the exit code of
    the verdict, judged here.

    ``artifact`` is a check's folder or zip, or a folder with one for each testbed;
    None means the artifacts uploaded by the event's run. Raises ForgeError (exit code
    4) if the forge refuses; the comment and status there may then be from an earlier
    run. An error while judging is posted as INCONCLUSIVE and then raised.
    """
    outputs = None
    if request.outputs:
        outputs = given_file(outputs_path(doors.environ), OUTPUT_VARIABLE, "--outputs")
    artifacts = read_artifacts(artifact, trusted, request.key, request.testbeds)
    trusted = trusted.with_change(measured_change(artifacts))
    keeper = None
    if not request.dry_run:
        keeper = open_keeper(trusted, request.key, doors)
    wording = Wording(request, trusted, keeper)
    published = judge_artifacts(artifacts, wording, doors)
    try:
        if outputs is not None:
            values = {
                "verdict": published.verdict,
                "exit-code": str(published.exit_code),
            }
            append_to(outputs, output_lines(values), OUTPUT_VARIABLE)
        if request.out is not None:
            published.write(request.out)
    finally:
        # Even after an error, an older comment must not be mistaken for the verdict on
        # this head.
        post(published, trusted, request, doors)
    # One workload that was ordered alone does not stand for the whole check.
    if request.record and not request.workload:
        record_verdicts(published, trusted, request.key, doors)
    if published.error is not None:
        raise published.error
    return published.exit_code


def judge_artifacts(
    artifacts: Sequence[ReadArtifact], wording: Wording, doors: Doors
) -> Published:
    """Judge and word each artifact."""
    wording = wording.for_artifacts(artifacts)
    judged = [_judged(artifact, wording, doors) for artifact in artifacts]
    published = Published(judged, wording.context(), wording.budget)
    for each in judged:
        if each.error is not None and each.error is not published.error:
            doors.say_foreign("".join(traceback.format_exception(each.error)))
    return published


def _judged(artifact: ReadArtifact, wording: Wording, doors: Doors) -> JudgedArtifact:
    """Judge, and render the decision.

    The documents are untrusted. Any error that they or the forge cause between reading
    and rendering becomes INCONCLUSIVE, with its own comment and status, so that the
    verdict on an earlier head is not mistaken for this one's. ``publish`` raises the
    error again after posting, so that the job's log has its traceback and the job its
    exit code.
    """
    try:
        decision = judge(artifact, wording.trusted, wording.request.only, doors)
        return wording.word(decision, artifact)
    except Exception as error:  # noqa: BLE001 - raised again by publish
        why = quote(type(error).__name__)
        if isinstance(error, ReasonedError):
            why = reason_of(error)
        why_not = Message("publish.not-judged", {"why": why})
        event = wording.trusted.event
        decision = undecided("INCONCLUSIVE", why_not, Grounds(), event)
        return replace(wording.word(decision, artifact), error=error)


def judge(
    artifact: ReadArtifact, trusted: TrustedInputs, only: Collection[str], doors: Doors
) -> DecisionDocument:
    """Judge the samples of an artifact; ``only`` are the ordered workloads, if not all
    were.

    A missing, damaged or foreign artifact is INCONCLUSIVE. Raises ConfigError if the
    checkout's perfgate.toml has to judge and cannot be read, and ForgeError if the
    forge refuses.
    """
    try:
        target, change = trusted.target, trusted.proposed
        if target is None or change is None or change.base_sha is None:
            grounds = Grounds(trusted.checked_config())
        else:
            # The rules of the commit that the forge names as the base.
            grounds = grounds_of_base(
                trusted.root,
                change,
                change.base_sha,
                target.forge if trusted.change else None,
                target.access,
                environ=trusted.environ,
                measured=artifact.documents is not None,
            )
    except RepositoryError as error:
        why = str(error).replace(str(trusted.root), ".")
        return undecided(
            "INCONCLUSIVE",
            Message("publish.base-config-unreadable", {"why": why}),
            Grounds(),
            trusted.event,
        )
    if grounds.skipped is not None and _is_unmoved(trusted):
        return undecided("SKIPPED", grounds.skipped, grounds, trusted.event)
    try:
        documents = artifact.judged_documents()
        because = _reason_for_base(documents, trusted)
        return _decide(documents, artifact.device, grounds, because, only, doors)
    except DocumentError as error:
        why_not = Message("publish.artifact", {"why": reason_of(error)})
        return undecided("INCONCLUSIVE", why_not, grounds, trusted.event)


def undecided(
    verdict: Verdict, why: Message, grounds: Grounds, event: CiEvent | None
) -> DecisionDocument:
    """The decision without a judgement, e.g. INCONCLUSIVE for a missing, damaged or
    foreign artifact: never a silent green.
    """
    return DecisionDocument(
        perfgate_version=__version__,
        project=event.repository if event else "",
        verdict=verdict,
        reasons=[why],
        sides=ComparedSides(
            base=SideSummary(),
            head=SideSummary(commit=event.head_sha if event else None),
        ),
        measured=Measurement(device="unknown"),
        procedure=Procedure(
            name="none", version=1, seed=0, quantiles=[], policy=grounds.policy
        ),
        warnings=list(grounds.notes),
    )


def _is_unmoved(trusted: TrustedInputs) -> bool:
    """Whether the change still has the head and the target that it had before; the
    commits of a merge queue do not move.
    """
    before = trusted.change
    if trusted.target is None or before is None:
        return trusted.proposed is not None
    now = trusted.target.forge.find_change_request(prefer=before.number)
    return now is not None and (now.number, now.head_sha, now.target) == (
        before.number,
        before.head_sha,
        before.target,
    )


def _reason_for_base(
    documents: CheckDocuments, trusted: TrustedInputs
) -> Message | None:
    """The reason why this commit is the base, None without a forge.

    Raises DocumentError for a foreign artifact, and if the base cannot be proven. A
    head that no longer belongs to a change request may belong to one again, so its base
    is checked against the commit that this job has checked out. If the forge does not
    know the commits, the base must be an ancestor of that commit: it is then on main,
    but its age is not bounded.
    """
    event, target = trusted.event, trusted.target
    if event is None:
        return None
    forge = None
    if target:
        forge = target.forge
    refuse_foreign_artifact(documents, event, trusted.change, forge)
    if forge is None:
        return None
    commit = documents.base.source.commit or ""
    change = trusted.proposed
    if change is None:
        change = ChangeRequest(
            number=0, head_sha=event.head_sha, target=checked_out(trusted.root)
        )
    if base_is_proven(documents, change, forge, trusted.root):
        if trusted.change is None and event.base_sha is not None:
            return Message("publish.base-merge-queue")
        branch: str | Message = Message("publish.checked-out")
        if trusted.change:
            branch = trusted.change.target or Message("publish.target-branch")
        return Message("gate.base-merge-base", {"revision": branch})
    if is_behind(trusted.root, commit):
        return Message("publish.base-checked-out")
    raise DocumentError(
        "it compares with the commit {commit!r}, which cannot be confirmed as the change's base; "
        'check out the target branch with its history first (`fetch-depth: 0`, GIT_DEPTH: "0")',
        commit=commit[:12],
    )


def _decide(
    documents: CheckDocuments,
    device: str | None,
    grounds: Grounds,
    because: Message | None,
    only: Collection[str],
    doors: Doors,
) -> DecisionDocument:
    missing: list[str] = []
    base, head = documents
    config = grounds.config
    if config and device:
        config = structs.replace(config, device=device)
    history = History()
    if config:  # history or acceptances in an artifact are ignored
        history = stored_history(config, head, doors.environ, warn=missing.append)
    for words in missing:
        doors.say(words)  # names the store's location, which belongs in the log only
    required = required_of(
        config, base, doors.environ, only=only, changed=grounds.changed
    )
    notes = list(grounds.notes)
    if missing:
        notes.append(Message("publish.store-unreadable"))
    decision = decide_with_advice(
        base,
        head,
        policy=grounds.policy,
        history=history,
        chosen_because=because,
        required=required,
    )
    return structs.replace(decision, warnings=[*notes, *decision.warnings])
