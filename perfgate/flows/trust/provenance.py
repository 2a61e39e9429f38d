"""Check that an artifact belongs to this event, and that this job may store a run.

An artifact must be of the same repository, run and head, and have the right base for
the change. The event and the forge are trusted, the artifact is not. It cannot be
proven that the samples were not forged: code in the measured process can do that;
isolation of the measuring job limits it.

Runs of change requests are never stored, because their code controls its own
measurements: a job may store a run if it runs for the repository's own main branch
and has measured this commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from perfgate.config import Config
from perfgate.document.artifact import BASE, HEAD, CheckDocuments
from perfgate.document.message import Message, ReasonError
from perfgate.document.run import FROM_PROFILE, CiContext, RunDocument, Session, Side
from perfgate.document.testbed import fingerprint
from perfgate.errors import (
    DocumentError,
    ForgeGoneError,
    InconclusiveError,
    RepositoryError,
    UsageError,
)
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import Repository, fetched_tip, merge_base
from perfgate.judging.forge.detect import BRANCH_VARIABLE, Trigger, detect, read_trigger
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Forge
from perfgate.locale import Activity


def refuse_foreign_artifact(
    documents: CheckDocuments,
    event: CiEvent,
    change: ChangeRequest | None,
    forge: Forge | None,
) -> None:
    """Raise DocumentError unless both documents were measured for this event, in one
    session, and do not contradict it.
    """
    for name, run in ((BASE, documents.base), (HEAD, documents.head)):
        if run.session.command == "upgrade":
            raise DocumentError(
                "this is an upgrade report, which judges no change; publish the folder of a perfgate check"
            )
        if run.session.command == FROM_PROFILE:
            raise DocumentError(
                "{name} was made from a recording, and publish takes only what its own pipeline measured",
                name=name,
            )
        ci = _context(run.session, name)
        refuse_other_pipeline(name, ci, event)
        if ci.change_request is not None and change is not None:
            refuse_different(name, "change request", ci.change_request, change.number)
        for session in run.session.earlier:
            _refuse_foreign_head(_context(session, name), name, event)
    base, head = documents
    refuse_contradictions(base, BASE, "base")
    refuse_contradictions(head, HEAD, "head")
    if base.session != head.session:
        raise DocumentError(
            "{base} and {head} are not of one check", base=BASE, head=HEAD
        )
    if head.source.dirty or base.source.dirty:
        raise DocumentError(
            "a side was measured with uncommitted changes, which are in no commit"
        )
    _refuse_other_commit(documents, event, change, forge)


def base_is_proven(
    documents: CheckDocuments, change: ChangeRequest, forge: Forge, root: Path
) -> bool:
    """Whether the base is on the target branch, and not older than the commit at which
    the change branched off.

    This keeps a change from choosing an old slow commit, or its own commit, as its
    base. False if neither the forge nor the clone knows. Raises DocumentError for any
    other base.
    """
    commit = documents.base.source.commit or ""
    if change.base_sha is not None and commit == change.base_sha:
        return True
    if change.target is None:
        return False
    # A developer who may push, but not to this branch, can create a tag of the same
    # name.
    target = fetched_tip(root, change.target) or change.target
    fork = common_ancestor(forge, root, target, change.head_sha)
    if fork is None or commit == fork:
        return fork is not None
    lowest = common_ancestor(forge, root, fork, commit)
    highest = common_ancestor(forge, root, commit, target)
    if lowest is None or highest is None:
        return False
    if (lowest, highest) != (fork, commit):
        raise ReasonError(
            Message(
                "publish.base-not-on-target",
                {
                    "base": BASE,
                    "commit": commit[:12],
                    "target": repr(change.target),
                    "fork": fork[:12],
                },
            )
        )
    return True


def common_ancestor(forge: Forge, root: Path, first: str, second: str) -> str | None:
    """The merge base of two commits; None if neither the forge nor the clone knows.

    Raises DocumentError if there is none.
    """
    try:
        return forge.merge_base(first, second) or merge_base(root, first, second)
    except ForgeGoneError:
        raise DocumentError(
            "{first!r} and {second!r} are not both in the repository, or have no common ancestor",
            first=first[:40],
            second=second[:40],
        ) from None


def refuse_other_pipeline(name: str, ci: CiContext, event: CiEvent) -> None:
    """Raise DocumentError unless a document was measured by the event's own pipeline,
    for its head.
    """
    _refuse_foreign_head(ci, name, event)
    refuse_different(name, "run id", ci.run_id, event.job.run_id)
    # If only this job is run again, it finds the artifact of an earlier attempt.
    if ci.run_attempt > event.job.run_attempt:
        raise DocumentError(
            "{name} is of attempt {attempt}, but this job of attempt {ours}",
            name=name,
            attempt=ci.run_attempt,
            ours=event.job.run_attempt,
        )


def _refuse_foreign_head(ci: CiContext, name: str, event: CiEvent) -> None:
    refuse_different(name, "forge", ci.forge, event.forge)
    refuse_different(name, "repository", ci.repository, event.repository)
    refuse_different(name, "head commit", ci.head_sha, event.head_sha)


def refuse_different(name: str, field: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise ReasonError(
            Message(
                "publish.artifact-of-other",
                {
                    "name": name,
                    "what": field,
                    "found": repr(actual),
                    "wanted": repr(expected),
                },
            )
        )


def _context(session: Session, name: str) -> CiContext:
    if session.ci is None:
        raise ReasonError(Message("publish.not-from-ci", {"name": name}))
    return session.ci


def refuse_contradictions(run: RunDocument, name: str, side: Side | None) -> None:
    """Refuse a document that contradicts itself: perfgate never writes one."""
    refuse_different(name, "side", run.side, side)
    if run.testbed.fingerprint != fingerprint(run.testbed.comparable):
        raise DocumentError(
            "the testbed's fingerprint in {name} does not match its fields", name=name
        )
    workloads = [workload.name for workload in run.workloads]
    member = attrgetter("workload", "round", "pair", "arm", "member")
    members = list(map(member, run.pairs.replicates))
    _refuse_repeated(workloads, Activity("workload"), name)
    _refuse_repeated(members, Activity("member of a pair"), name)
    unknown = sorted(
        {replicate.workload for replicate in run.pairs.replicates} - set(workloads)
    )
    if unknown:
        raise DocumentError(
            "{name} has samples of the workload {workload!r}, which it does not list",
            name=name,
            workload=unknown[0],
        )


def _refuse_repeated(entries: Sequence[object], noun: str, name: str) -> None:
    for entry, count in Counter(entries).items():
        if count > 1:
            raise DocumentError(
                "{name} has the {noun} {repeated!r} twice",
                name=name,
                noun=noun,
                repeated=entry,
            )


def _refuse_other_commit(
    documents: CheckDocuments,
    event: CiEvent,
    change: ChangeRequest | None,
    forge: Forge | None,
) -> None:
    """Raise DocumentError unless the measured commit is the head itself, or the forge's
    merge of it into the base.

    The forge makes a new merge whenever the target branch moves, so an older merge is
    recognized by its parents.
    """
    for name, run in ((BASE, documents.base), (HEAD, documents.head)):
        if not COMMIT_ID.fullmatch(run.source.commit or ""):
            raise DocumentError(
                "{name} has {commit!r} in place of a commit",
                name=name,
                commit=run.source.commit,
            )
    commit = documents.head.source.commit
    commits = {event.head_sha, event.built_sha}
    if change is not None and change.head_sha == event.head_sha:
        commits.add(change.merge_sha)
    if commit is not None and commit in commits:
        return
    if commit is not None and change is not None and forge is not None:
        merge = [documents.base.source.commit, change.head_sha]
        with suppress(ForgeGoneError):
            if forge.parents(commit) == merge:
                return
    raise DocumentError(
        "{head} measured the commit {commit!r}, but this job runs for {wanted!r}",
        head=HEAD,
        commit=commit,
        wanted=event.head_sha,
    )


KINDS = ("push", "schedule")


def trusted_event(config: Config, environ: Mapping[str, str]) -> CiEvent | None:
    """The event of this job, None outside CI.

    Raises UsageError if the event may not write to the store.
    """
    event, trigger = detect(environ), read_trigger(environ)
    if event is None or trigger is None:
        return None
    if event.change_request is not None or not trigger.own or trigger.kind not in KINDS:
        raise UsageError(
            "this job runs for {event}; only runs of the main branch are kept, measured by a push to it or on a "
            "schedule",
            event=_words(event, trigger),
        )
    main = main_branch(config, trigger)
    if trigger.branch != main:
        hint = ""
        if environ.get("PERFGATE_FORGE"):
            hint = Activity(
                ", and {variable} to the branch of this job", variable=BRANCH_VARIABLE
            )
        raise UsageError(
            "this job runs for {branch!r}, and runs of {main!r} are kept; if that is the wrong branch, set "
            'main_branch = "…" under [store] in perfgate.toml{hint}',
            branch=trigger.branch or Activity("no branch"),
            main=main,
            hint=hint,
        )
    return event


def refuse_change_request(environ: Mapping[str, str]) -> None:
    """Raise UsageError in a CI job of a change request or of a fork, which may not
    write to the store.
    """
    event, trigger = detect(environ), read_trigger(environ)
    if event is None or trigger is None:
        return
    if not trigger.own or trigger.kind.startswith(("pull_request", "change request")):
        raise UsageError(
            "this job runs for {event}, and nothing of a change is written to the store",
            event=_words(event, trigger),
        )


def main_branch(config: Config, trigger: Trigger) -> str:
    """The branch with stored runs: from perfgate.toml, else the forge's default branch,
    else the clone's main branch.

    Raises UsageError if none of them is known.
    """
    branch = config.store.main_branch or trigger.default_branch
    try:
        return (branch or Repository(config.root).main_branch()).removeprefix("origin/")
    except RepositoryError as error:
        raise UsageError(
            'the main branch is unknown ({error}); set main_branch = "…" under [store] in perfgate.toml',
            error=error,
        ) from None


def refuse_off_main(
    config: Config, environ: Mapping[str, str], event: CiEvent, forge: Forge | None
) -> None:
    """Raise UsageError in a job that follows another job, unless the forge confirms
    that the commit is on the main branch.

    In such a job a tag looks like a branch of the same name, so the forge is asked
    about commits, which are unambiguous.
    """
    trigger = read_trigger(environ)
    if trigger is None or trigger.tip is None:
        return
    main = main_branch(config, trigger)
    if forge is None:
        raise UsageError(
            "checking that {commit} lies on {main} needs the job's token; pass it on",
            commit=event.head_sha[:12],
            main=main,
        )
    tip = trigger.tip if main == trigger.default_branch else f"refs/heads/{main}"
    try:
        on_main = forge.merge_base(tip, event.head_sha) == event.head_sha
    except ForgeGoneError:
        on_main = False
    if not on_main:
        raise UsageError(
            "{commit} does not lie on {main}; only runs of the main branch are kept",
            commit=event.head_sha[:12],
            main=main,
        )


def refuse_foreign(run: RunDocument, event: CiEvent) -> None:
    """Raise InconclusiveError unless a run was measured by this event's own pipeline,
    on its commit, as recorded.
    """
    name, ci = "run.json", run.session.ci
    try:
        if ci is None or run.session.command != "run":
            raise DocumentError(
                "{name} was not measured by `perfgate run` in CI", name=name
            )
        refuse_other_pipeline(name, ci, event)
        refuse_different(name, "measured commit", run.source.commit, event.head_sha)
        refuse_different(name, "change request", ci.change_request, None)
        refuse_contradictions(run, name, None)
    except DocumentError as error:
        raise InconclusiveError(
            "artifact: {error}; nothing is kept", error=error
        ) from error


def _words(event: CiEvent, trigger: Trigger) -> str:
    if event.change_request is not None:
        return Activity("change request {number}", number=event.change_request)
    if not trigger.own:
        return Activity("{kind!r} of another repository", kind=trigger.kind)
    if trigger.kind:
        return repr(trigger.kind)
    return Activity("an event without a name")
