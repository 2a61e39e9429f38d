"""Judge an artifact again, trusting only its samples: by the base's perfgate.toml, against the base that the forge names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.document.artifact import CheckDocuments, read_check
from perfgate.document.decision import DecisionDocument, Procedure, SideSummary, Verdict
from perfgate.document.message import Message, reason_of
from perfgate.errors import DocumentError, RepositoryError
from perfgate.flows.publish.request import PublishRequest
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import git_access
from perfgate.flows.trust.grounds import Grounds, grounds_at_hand, grounds_of_base, history_of, required_of
from perfgate.flows.trust.provenance import base_is_proven, refuse_foreign_artifact
from perfgate.git.repository import checked_out, is_behind
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Forge
from perfgate.judging.store.store import GitAccess
from perfgate.version import __version__


class PublishCase(NamedTuple):
    """The forge and the event of this job. ``change`` is the change request, if it still has the event's head.

    ``hears_orders`` returns whether the project's CI obeys ``/perfgate`` comments.
    """

    event: CiEvent
    forge: Forge
    change: ChangeRequest | None
    access: GitAccess
    hears_orders: Callable[[], bool]


class ReadArtifact(NamedTuple):
    """The documents of an artifact, or the error of reading it, which judging raises.

    In a matrix, ``testbed`` is the name of the runner that measured, and ``device`` the kind of its device by perfgate.toml.
    ``source`` is the folder or zip that was read, for the other files that it holds.
    """

    documents: CheckDocuments | None = None
    refusal: Exception | None = None
    testbed: str = ""
    device: str | None = None
    source: Path | bytes | None = None

    def judged_documents(self) -> CheckDocuments:
        if self.documents is None:
            raise self.refusal or DocumentError("there is none")
        return self.documents


def read_artifact(artifact: Callable[[], Path | bytes]) -> ReadArtifact:
    try:
        source = artifact()
        return ReadArtifact(read_check(source), source=source)
    except Exception as error:  # noqa: BLE001 - raised by the judging function
        return ReadArtifact(refusal=error)


def open_case(
    event: CiEvent, token: str, forge: Forge, artifacts: Iterable[ReadArtifact], hears_orders: Callable[[], bool]
) -> PublishCase:
    # If several change requests have this exact head, the artifact may choose among them, but never another one.
    contexts = (artifact.documents.head.session.ci for artifact in artifacts if artifact.documents)
    ci = next(contexts, None)
    change = forge.find_change_request(prefer=ci.change_request if ci else None)
    if change is not None and change.head_sha != event.head_sha:
        change = None
    return PublishCase(event, forge, change, git_access(event, token), hears_orders)


def judge_without_forge(artifact: ReadArtifact, request: PublishRequest, doors: Doors) -> DecisionDocument:
    """Judge without posting: by the perfgate.toml in the place's folder, without asking the forge."""
    grounds = grounds_at_hand(request.root, doors.environ)
    try:
        documents = artifact.judged_documents()
        if request.event is not None:
            refuse_foreign_artifact(documents, request.event, None, None)
        return _decide(request, artifact.device, documents, grounds, doors, None)
    except DocumentError as error:
        return undecided("INCONCLUSIVE", _artifact(error), grounds, request.event)


def judge(artifact: ReadArtifact, case: PublishCase, request: PublishRequest, doors: Doors) -> DecisionDocument:
    try:
        grounds = _grounds(request.root, doors, case, measured=artifact.documents is not None)
    except RepositoryError as error:
        why = str(error).replace(str(request.root), ".")
        return undecided("INCONCLUSIVE", Message("publish.base-config-unreadable", {"why": why}), Grounds(), case.event)
    if grounds.skipped is not None and _is_the_same_change(case):
        return undecided("SKIPPED", grounds.skipped, grounds, case.event)
    try:
        documents = artifact.judged_documents()
        refuse_foreign_artifact(documents, case.event, case.change, case.forge)
        because = _reason_for_base(documents, case, request.root)
        return _decide(request, artifact.device, documents, grounds, doors, because)
    except DocumentError as error:
        return undecided("INCONCLUSIVE", _artifact(error), grounds, case.event)


def _is_the_same_change(case: PublishCase) -> bool:
    before = case.change
    if before is None:
        # The commits of a merge queue do not move.
        return case.event.base_sha is not None
    now = case.forge.find_change_request(prefer=before.number)
    return now is not None and (now.number, now.head_sha, now.target) == (before.number, before.head_sha, before.target)


def _grounds(root: Path, doors: Doors, case: PublishCase, *, measured: bool) -> Grounds:
    change = case.change or _queued(case.event)
    if change is None or change.base_sha is None:
        return grounds_at_hand(root, doors.environ)
    forge = case.forge if case.change else None
    return grounds_of_base(root, change, change.base_sha, forge, case.access, environ=doors.environ, measured=measured)


def _reason_for_base(documents: CheckDocuments, case: PublishCase, root: Path) -> Message:
    """The reason why this commit is the base. Raises DocumentError if nothing proves that it is the right one.

    A head that no longer belongs to a change request may belong to one again, so its base is checked against the commit that
    this job has checked out. If the forge knows nothing about the commits, the base must be an ancestor of that commit: it is
    then on main, but its age is not bounded.
    """
    commit = documents.base.source.commit or ""
    change = case.change or _queued(case.event)
    if change is None:
        change = ChangeRequest(number=0, head_sha=case.event.head_sha, target=checked_out(root))
    if base_is_proven(documents, change, case.forge, root):
        if case.change is None and case.event.base_sha is not None:
            return Message("publish.base-merge-queue")
        target: str | Message = Message("publish.checked-out")
        if case.change:
            target = case.change.target or Message("publish.target-branch")
        return Message("gate.base-merge-base", {"revision": target})
    if is_behind(root, commit):
        return Message("publish.base-checked-out")
    raise DocumentError(
        "it compares with the commit {commit!r}, which cannot be confirmed as the change's base; "
        'check out the target branch with its history first (`fetch-depth: 0`, GIT_DEPTH: "0")',
        commit=commit[:12],
    )


def _queued(event: CiEvent) -> ChangeRequest | None:
    if event.base_sha is None:
        return None
    return ChangeRequest(number=0, head_sha=event.head_sha, base_sha=event.base_sha)


def _decide(
    request: PublishRequest,
    device: str | None,
    documents: CheckDocuments,
    grounds: Grounds,
    doors: Doors,
    because: Message | None,
) -> DecisionDocument:
    missing: list[str] = []
    base, head = documents
    config = grounds.config
    if config and device:
        config = msgspec.structs.replace(config, device=device)
    history = history_of(config, head, doors.environ, warn=missing.append)
    for words in missing:
        doors.say(words)  # names the store's location, which belongs in the log only
    required = required_of(config, base, doors.environ, only=request.only, changed=grounds.changed)
    notes = list(grounds.notes)
    if missing:
        notes.append(Message("publish.store-unreadable"))
    decision = decide_with_advice(
        base, head, policy=grounds.policy, history=history, chosen_because=because, required=required
    )
    return msgspec.structs.replace(decision, warnings=[*notes, *decision.warnings])


def undecided(verdict: Verdict, why: Message, grounds: Grounds, event: CiEvent | None) -> DecisionDocument:
    """The decision without a judgement, e.g. INCONCLUSIVE for a missing, damaged or foreign artifact: never a silent green."""
    return DecisionDocument(
        perfgate_version=__version__,
        project=event.repository if event else "",
        verdict=verdict,
        reasons=[why],
        base=SideSummary(),
        head=SideSummary(commit=event.head_sha if event else None),
        device="unknown",
        policy=grounds.policy,
        procedure=Procedure(name="none", version=1, seed=0, quantiles=[]),
        warnings=list(grounds.notes),
    )


def _artifact(error: DocumentError) -> Message:
    return Message("publish.artifact", {"why": reason_of(error)})
