"""Post a verdict: the comment and the commit status, or the text in the log if nothing may be posted."""

from __future__ import annotations

from perfgate.document.decision import Verdict
from perfgate.document.message import Message
from perfgate.errors import ForgeError, ForgeHasNoStatusesError
from perfgate.flows.publish.judging import PublishCase
from perfgate.flows.publish.published import Published
from perfgate.flows.publish.request import FailOn, PublishRequest
from perfgate.flows.shared.ci_artifact import status_name
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.comment import Decided, marker, post, state_of
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CiEvent,
    CommitStatus,
    StatusState,
    token_variables,
)
from perfgate.judging.forge.runner import SUMMARY_VARIABLE, append_to, log_lines, summary_path
from perfgate.judging.report.render.comment import render_double, render_turn
from perfgate.locale import sentence

_STATES: dict[str, StatusState] = {"FAIL": "failure", "INCONCLUSIVE": "error"}
# The verdicts that make the status red.
_RED: dict[FailOn, tuple[Verdict, ...]] = {
    "undecided": ("FAIL", "INCONCLUSIVE"),
    "regression": ("FAIL",),
    "never": (),
}


def show(text: str, request: PublishRequest, doors: Doors, event: CiEvent | None) -> None:
    doors.say(log_lines(text, doors.environ))
    summary = summary_path(doors.environ)
    if request.dry_run:
        doors.say(sentence("Nothing was posted: this is a dry run."))
        return
    if summary is not None:
        append_to(summary, text + "\n", SUMMARY_VARIABLE)
    if event is None:
        doors.say(sentence("Nothing was posted: this is not a CI job of a forge that perfgate knows."))
    else:
        names = " or ".join(token_variables(event.forge, request.token_variable))
        doors.say(sentence("Nothing was posted: no token in {names}.", names=names))


def post_published(case: PublishCase, published: Published, request: PublishRequest, doors: Doors) -> None:
    """Post the comment and set the status. If the forge refuses the status, the comment notes it: an older one may remain.

    Raises ForgeError for a refused status, if it was requested or if there is no comment.
    """
    if case.change is None:
        gone = f"No change request has the head {case.event.head_sha[:12]} any more: only the commit status is set."
        doors.say(log_lines(published.text, doors.environ))
        doors.say(
            sentence("A merge queue has no comments: only the commit status is set.") if case.event.base_sha else gone
        )
    elif not _comment(case, case.change, published.text, published, request, doors):
        return
    if (refused := _mark(case, published, request, doors)) is None:
        return
    if case.change is not None:
        note = Message("publish.status-refused", {"name": status_name(request.name)})
        _comment(case, case.change, published.with_note(note), published, request, doors)
    if request.status or case.change is None:
        raise refused


def _comment(
    case: PublishCase, change: ChangeRequest, text: str, published: Published, request: PublishRequest, doors: Doors
) -> bool:
    """Post a text as our comment, unless the comment there is from a newer run; return whether it was posted."""
    event = case.event

    def worded_turn(last: Decided, now: Decided) -> str:
        return render_turn(last, now, event.head_sha, request.language)

    state = state_of(event, published.verdict, published.accepts)
    posted = post(
        case.forge,
        change.number,
        text,
        state,
        marker(request.name),
        sleep=doors.sleep,
        turned=worded_turn,
        double=render_double(request.language),
    )
    if posted == "kept":
        doors.say(
            sentence(
                "The comment on change request {number} is from a newer run; it was left as it is.",
                number=change.number,
            )
        )
        return False
    doors.say(sentence("The comment on change request {number} was {posted}.", number=change.number, posted=posted))
    return True


def _mark(case: PublishCase, published: Published, request: PublishRequest, doors: Doors) -> ForgeError | None:
    """Set the commit status if wanted; return the error if the forge refuses it. Raises ForgeHasNoStatusesError if a status
    was requested on a forge without statuses.

    A token without that permission fails the job only if the status was requested; otherwise the exit code is enough.
    """
    event = case.event
    if not (request.status if request.status is not None else not event.is_check):
        doors.say(sentence("No commit status is set: this pipeline is the check."))
        return None
    if event.is_check and event.built_sha != event.head_sha:
        doors.say(
            sentence(
                "No commit status is set: the head of merged results has no pipeline, so it would begin one of its own."
            )
        )
        return None
    name = status_name(request.name)
    state = _STATES.get(published.verdict, "success") if published.verdict in _RED[request.fail_on] else "success"
    status = CommitStatus(event.head_sha, state, name, published.status, event.job_url)
    try:
        case.forge.set_status(status)
    except ForgeHasNoStatusesError as error:
        if request.status:
            raise
        doors.say(log_lines(sentence("No commit status is set: {error}.", error=error.shown), doors.environ))
        return None
    except ForgeError as error:
        doors.say(log_lines(sentence("The commit status was not set: {error}", error=error.shown), doors.environ))
        return error
    doors.say(
        sentence(
            "The commit status {name} of {head_sha} is {state}.", name=name, head_sha=event.head_sha[:12], state=state
        )
    )
    return None
