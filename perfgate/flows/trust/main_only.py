"""Whether this CI job may store a run: it must run for the repository's own main branch and have measured this commit.

Runs of change requests are never stored, because their code controls its own measurements.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.config import Config
from perfgate.document.run import RunDocument
from perfgate.errors import (
    DocumentError,
    ForgeGoneError,
    InconclusiveError,
    RepositoryError,
    UsageError,
)
from perfgate.flows.trust.provenance import (
    refuse_contradictions,
    refuse_different,
    refuse_other_pipeline,
)
from perfgate.git.repository import Repository
from perfgate.judging.forge.detect import BRANCH_VARIABLE, Trigger, detect, read_trigger
from perfgate.judging.forge.forge import CiEvent, Forge
from perfgate.locale import Activity

KINDS = ("push", "schedule")


def trusted_event(config: Config, environ: Mapping[str, str]) -> CiEvent | None:
    """The event of this job, None outside CI. Raises UsageError if the event may not write to the store."""
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
    """Raise UsageError in a CI job of a change request or of a fork, which may not write to the store."""
    event, trigger = detect(environ), read_trigger(environ)
    if event is None or trigger is None:
        return
    if not trigger.own or trigger.kind.startswith(("pull_request", "change request")):
        raise UsageError(
            "this job runs for {event}, and nothing of a change is written to the store",
            event=_words(event, trigger),
        )


def main_branch(config: Config, trigger: Trigger) -> str:
    """The branch with stored runs: from perfgate.toml, else the forge's default branch, else the clone's main branch.

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
    """Raise UsageError in a job that follows another job, unless the forge confirms that the commit is on the main branch.

    In such a job a tag looks like a branch of the same name, so the forge is asked about commits, which are unambiguous.
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
    """Raise InconclusiveError unless a run was measured by this event's own pipeline, on its commit, as recorded."""
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
