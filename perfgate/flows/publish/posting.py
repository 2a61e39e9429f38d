"""Post a verdict: the comment and the commit status, or the text in the log if nothing may be posted."""

from __future__ import annotations

from dataclasses import dataclass

from perfgate.document.decision import Verdict
from perfgate.document.message import Message
from perfgate.errors import ForgeError, ForgeHasNoStatusesError
from perfgate.flows.publish.published import Published
from perfgate.flows.publish.request import FailOn
from perfgate.flows.publish.trusted import TargetForge, TrustedInputs
from perfgate.flows.shared.ci_artifact import status_name
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.comment import Decided, marker, post, state_of
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CommitStatus,
    StatusState,
    token_variables,
)
from perfgate.judging.forge.runner import SUMMARY_VARIABLE, append_to, log_lines, summary_path
from perfgate.judging.report.render.comment import render_double, render_turn
from perfgate.locale import Language, sentence

_STATES: dict[str, StatusState] = {"FAIL": "failure", "INCONCLUSIVE": "error"}
# The verdicts that make the status red.
_RED: dict[FailOn, tuple[Verdict, ...]] = {
    "undecided": ("FAIL", "INCONCLUSIVE"),
    "regression": ("FAIL",),
    "never": (),
}


def show(text: str, doors: Doors) -> None:
    """Print a text that is not posted, and add it to the summary of the CI job."""
    doors.say(log_lines(text, doors.environ))
    summary = summary_path(doors.environ)
    if summary is not None:
        append_to(summary, text + "\n", SUMMARY_VARIABLE)


def reason_not_posted(trusted: TrustedInputs, token_variable: str | None) -> str:
    """Why nothing is posted in a job without a forge or without a token."""
    if trusted.event is None:
        return sentence("Nothing was posted: this is not a CI job of a forge that perfgate knows.")
    names = " or ".join(token_variables(trusted.event.forge, token_variable))
    return sentence("Nothing was posted: no token in {names}.", names=names)


@dataclass(frozen=True)
class Poster:
    """Posts a verdict as the comment ``name`` and as a commit status.

    ``status`` sets or omits the status; None decides by the kind of pipeline.
    """

    target: TargetForge
    change: ChangeRequest | None
    name: str
    language: Language
    status: bool | None
    fail_on: FailOn
    doors: Doors

    def post(self, published: Published) -> None:
        """Post the comment and set the status. If the forge refuses the status, the comment notes it: an older one may remain.

        Raises ForgeError for a refused status, if it was requested or if there is no comment.
        """
        event, change = self.target.event, self.change
        if change is None:
            gone = f"No change request has the head {event.head_sha[:12]} any more: only the commit status is set."
            self.doors.say(log_lines(published.text, self.doors.environ))
            self.doors.say(
                sentence("A merge queue has no comments: only the commit status is set.") if event.base_sha else gone
            )
        elif not self._comment(change, published.text, published):
            return
        refused = self._mark(published)
        if refused is None:
            return
        if change is not None:
            note = Message("publish.status-refused", {"name": status_name(self.name)})
            self._comment(change, published.with_note(note), published)
        if self.status or change is None:
            raise refused

    def _comment(self, change: ChangeRequest, text: str, published: Published) -> bool:
        """Post a text as our comment, unless the comment there is from a newer run; return whether it was posted."""
        event = self.target.event

        def worded_turn(last: Decided, now: Decided) -> str:
            return render_turn(last, now, event.head_sha, self.language)

        posted = post(
            self.target.forge,
            change.number,
            text,
            state_of(event, published.verdict, published.accepts),
            marker(self.name),
            sleep=self.doors.sleep,
            turned=worded_turn,
            double=render_double(self.language),
        )
        if posted == "kept":
            self.doors.say(
                sentence(
                    "The comment on change request {number} is from a newer run; it was left as it is.",
                    number=change.number,
                )
            )
            return False
        self.doors.say(
            sentence("The comment on change request {number} was {posted}.", number=change.number, posted=posted)
        )
        return True

    def _mark(self, published: Published) -> ForgeError | None:
        """Set the commit status if wanted; return the error if the forge refuses it. Raises ForgeHasNoStatusesError if a status
        was requested on a forge without statuses.

        A token without that permission fails the job only if the status was requested; otherwise the exit code is enough.
        """
        event, say = self.target.event, self.doors.say
        if not (self.status if self.status is not None else not event.is_check):
            say(sentence("No commit status is set: this pipeline is the check."))
            return None
        if event.is_check and event.built_sha != event.head_sha:
            say(
                sentence(
                    "No commit status is set: the head of merged results has no pipeline, so it would begin one of its own."
                )
            )
            return None
        name, verdict = status_name(self.name), published.verdict
        state = _STATES.get(verdict, "success") if verdict in _RED[self.fail_on] else "success"
        status = CommitStatus(event.head_sha, state, name, published.status, event.job_url)
        try:
            self.target.forge.set_status(status)
        except ForgeHasNoStatusesError as error:
            if self.status:
                raise
            say(log_lines(sentence("No commit status is set: {error}.", error=error.shown), self.doors.environ))
            return None
        except ForgeError as error:
            say(log_lines(sentence("The commit status was not set: {error}", error=error.shown), self.doors.environ))
            return error
        say(
            sentence(
                "The commit status {name} of {head_sha} is {state}.",
                name=name,
                head_sha=event.head_sha[:12],
                state=state,
            )
        )
        return None
