"""Judge an artifact again, trusting only its samples: by the base's perfgate.toml, against the base that the forge names."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

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
from perfgate.document.message import Message, reason_of
from perfgate.errors import DocumentError, RepositoryError
from perfgate.flows.publish.artifacts import ReadArtifact
from perfgate.flows.publish.trusted import TrustedInputs
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import stored_history
from perfgate.flows.trust.grounds import Grounds, grounds_of_base, required_of
from perfgate.flows.trust.provenance import base_is_proven, refuse_foreign_artifact
from perfgate.git.repository import checked_out, is_behind
from perfgate.judging.forge.forge import ChangeRequest, CiEvent
from perfgate.version import __version__


def judge(
    artifact: ReadArtifact, trusted: TrustedInputs, only: Collection[str], doors: Doors
) -> DecisionDocument:
    """Judge the samples of an artifact; ``only`` are the ordered workloads, if not all were.

    A missing, damaged or foreign artifact is INCONCLUSIVE. Raises ConfigError if the checkout's perfgate.toml has to judge and
    cannot be read, and ForgeError if the forge refuses.
    """
    try:
        grounds = _grounds(trusted, measured=artifact.documents is not None)
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
    """The decision without a judgement, e.g. INCONCLUSIVE for a missing, damaged or foreign artifact: never a silent green."""
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


def _grounds(trusted: TrustedInputs, *, measured: bool) -> Grounds:
    """The rules of the commit that the forge names as the base; if it names none, the rules of the checkout."""
    target, change = trusted.target, trusted.proposed
    if target is None or change is None or change.base_sha is None:
        return Grounds(trusted.checked_config())
    forge = target.forge if trusted.change else None
    return grounds_of_base(
        trusted.root,
        change,
        change.base_sha,
        forge,
        target.access,
        environ=trusted.environ,
        measured=measured,
    )


def _is_unmoved(trusted: TrustedInputs) -> bool:
    """Whether the change still has the head and the target that it had before; the commits of a merge queue do not move."""
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

    Raises DocumentError for a foreign artifact, and if the base cannot be proven. A head that no longer belongs to a change
    request may belong to one again, so its base is checked against the commit that this job has checked out. If the forge
    does not know the commits, the base must be an ancestor of that commit: it is then on main, but its age is not bounded.
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
        config = msgspec.structs.replace(config, device=device)
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
    return msgspec.structs.replace(decision, warnings=[*notes, *decision.warnings])
