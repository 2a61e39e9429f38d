"""Post a verdict: the comment and the commit status, or the text in the log if the job
may not post; keep it for the trend.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfgate.document.decision import Verdict
from perfgate.document.history import GateRecord
from perfgate.document.message import Message
from perfgate.errors import ConfigError, ForgeError, ForgeHasNoStatusesError, StoreError
from perfgate.flows.publish.published import Published
from perfgate.flows.publish.trusted import (
    FailOn,
    PublishRequest,
    TargetForge,
    TrustedInputs,
)
from perfgate.flows.shared.ci_artifact import status_name
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store
from perfgate.judging.forge import comment
from perfgate.judging.forge.comment import Decided, marker, state_of
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CommitStatus,
    StatusState,
    token_variables,
)
from perfgate.judging.report.render.comment import render_double, render_turn
from perfgate.judging.trend.machines import twin_effect
from perfgate.locale import sentence

_STATES: dict[str, StatusState] = {"FAIL": "failure", "INCONCLUSIVE": "error"}
# The verdicts that make the status red.
_RED: dict[FailOn, tuple[Verdict, ...]] = {
    "undecided": ("FAIL", "INCONCLUSIVE"),
    "regression": ("FAIL",),
    "never": (),
}


def post(
    published: Published, trusted: TrustedInputs, request: PublishRequest, doors: Doors
) -> None:
    """Post the verdict where the job may; the log has the text of a comment that is not
    posted.

    Raises ForgeError if the forge refuses.
    """
    target, change = trusted.target, trusted.change
    if request.dry_run or target is None or change is None:
        doors.say_foreign(published.text)
    if request.dry_run:
        doors.say(sentence("Nothing was posted: this is a dry run."))
    elif target is not None:
        _Poster(target, change, request, doors).post(published)
    else:
        doors.summarise(published.text)
        if trusted.event is None:
            why = sentence(
                "Nothing was posted: this is not a CI job of a forge that perfgate knows."
            )
        else:
            names = " or ".join(token_variables(trusted.event.forge))
            why = sentence("Nothing was posted: no token in {names}.", names=names)
        doors.say(why)


def record_verdicts(
    published: Published, trusted: TrustedInputs, key: str, doors: Doors
) -> None:
    """Store the verdict of every testbed under the gate's key, from which the trend
    judges the gate; a skipped change does not count.

    A store that refuses is reported in the log: the verdict stands without it.
    """
    target, change = trusted.target, trusted.change
    if target is None:
        return
    event = target.event
    records: list[GateRecord] = []
    for artifact in published.artifacts:
        decision = artifact.decision
        if decision.verdict == "SKIPPED":
            continue
        records.append(
            GateRecord(
                gate=key,
                commit=event.head_sha,
                testbed=artifact.testbed,
                change=change.number if change else 0,
                verdict=decision.verdict,
                judged_at=doors.now(),
                link=event.job.report_url or event.job.job_url or "",
                twins=twin_effect(decision),
            )
        )
    if not records:
        return
    try:
        config = trusted.checked_config()
        if config is None:
            return
        open_project_store(config, doors.environ).append(config.project, records)
    except (ConfigError, StoreError) as error:
        doors.say(
            sentence(
                "The verdict was not kept for `perfgate trend`: {error}",
                error=error.shown,
            )
        )
    else:
        doors.say(sentence("The verdict was kept for `perfgate trend`."))


@dataclass(frozen=True)
class _Poster:
    """Posts a verdict as the comment and the commit status of the request's name."""

    target: TargetForge
    change: ChangeRequest | None
    request: PublishRequest
    doors: Doors

    def post(self, published: Published) -> None:
        """Post the comment and set the status.

        If the forge refuses the status, the comment notes it: an older one may remain.

        Raises ForgeError for a refused status, if it was requested or if there is no
        comment.
        """
        change, event = self.change, self.target.event
        if change is None and event.base_sha:
            self.doors.say(
                sentence(
                    "A merge queue has no comments: only the commit status is set."
                )
            )
        elif change is None:
            self.doors.say(
                sentence(
                    "No change request has the head {head} any more: only the commit status is set.",
                    head=event.head_sha[:12],
                )
            )
        elif not self._comment(change, published.text, published):
            return
        refused = self._set_status(published)
        if refused is None:
            return
        if change is not None:
            note = Message(
                "publish.status-refused", {"name": status_name(self.request.name)}
            )
            self._comment(change, published.with_note(note), published)
        if self.request.status or change is None:
            raise refused

    def _comment(self, change: ChangeRequest, text: str, published: Published) -> bool:
        """Post a text as our comment, unless the comment there is from a newer run;
        return whether it was posted.
        """
        event, language = self.target.event, self.request.language

        def worded_turn(last: Decided, now: Decided) -> str:
            return render_turn(last, now, event.head_sha, language)

        posted = comment.post(
            self.target.forge,
            change.number,
            text,
            state_of(event, published.verdict, published.accepts),
            marker(self.request.name),
            sleep=self.doors.sleep,
            turned=worded_turn,
            double=render_double(language),
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
            sentence(
                "The comment on change request {number} was {posted}.",
                number=change.number,
                posted=posted,
            )
        )
        return True

    def _set_status(self, published: Published) -> ForgeError | None:
        """Set the commit status if wanted; return the error if the forge refuses it.

        A token without that permission fails the job only if the status was requested;
        otherwise the exit code is enough. Raises ForgeHasNoStatusesError if a status
        was requested on a forge without statuses.
        """
        event = self.target.event
        say = self.doors.say
        is_set = self.request.status
        if is_set is None:
            is_set = not event.is_check
        if not is_set:
            say(sentence("No commit status is set: this pipeline is the check."))
            return None
        if event.is_check and event.built_sha != event.head_sha:
            say(
                sentence(
                    "No commit status is set: the head of merged results has no pipeline, so it would start a separate one."
                )
            )
            return None
        name = status_name(self.request.name)
        state: StatusState = "success"
        if published.verdict in _RED[self.request.fail_on]:
            state = _STATES.get(published.verdict, state)
        status = CommitStatus(
            event.head_sha, state, name, published.status, event.job.job_url
        )
        try:
            self.target.forge.set_status(status)
        except ForgeHasNoStatusesError as error:
            if self.request.status:
                raise
            self.doors.say_foreign(
                sentence("No commit status is set: {error}.", error=error.shown)
            )
            return None
        except ForgeError as error:
            self.doors.say_foreign(
                sentence("The commit status was not set: {error}", error=error.shown)
            )
            return error
        head = event.head_sha[:12]
        say(
            sentence(
                "The commit status {name} of {head_sha} is {state}.",
                name=name,
                head_sha=head,
                state=state,
            )
        )
        return None
