"""``perfgate command``: execute an order in a comment, if its author may push.

An order measures, bisects, or accepts a regression. With ``--answer`` the result of an
ordered bisection is posted as a comment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from perfgate.config import load_config
from perfgate.document.bisection import BISECTION_FILE, BisectionDocument, CommitChange
from perfgate.document.strict_json import parse_json
from perfgate.errors import DocumentError, ForgeHasNoArtifactsError, UsageError
from perfgate.flows.publish.publish import publish
from perfgate.flows.publish.starting import start_measuring, tell_workflow
from perfgate.flows.publish.trusted import PublishRequest, read_trusted_inputs
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY
from perfgate.flows.shared.doors import Doors
from perfgate.flows.trust.acceptance import (
    UnknownCauseError,
    UnknownMetricError,
    is_past,
    metrics_of_causes,
    refuse_unknown_metric,
    store_acceptances,
)
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import commit_named, is_behind
from perfgate.judging.forge.comment import CommentState, find_own, marker, read_state
from perfgate.judging.forge.detect import PLACE_VARIABLE, detect, read_comment
from perfgate.judging.forge.forge import CiEvent, Forge, token_variables
from perfgate.judging.forge.orders import (
    AcceptOrder,
    BisectOrder,
    CommentEvent,
    CommentForge,
    CommentPlace,
    OrderDateError,
    OrderedChange,
    OrderError,
    RunOrder,
    read_order,
    takes_orders,
)
from perfgate.judging.report.render.bisection import render_bisection_answer
from perfgate.judging.report.render.comment import OrderAnswer, render_answer
from perfgate.locale import Language, sentence

# Of a bisection, which is untrusted.
_MOST_BYTES = 4 * 1024 * 1024
# An order that cannot be parsed is answered too, once its author is known to be allowed
# to give orders.
_Order = RunOrder | BisectOrder | AcceptOrder | OrderError


def run_command(
    root: Path, doors: Doors, *, key: str = DEFAULT_KEY, language: Language = "en"
) -> None:
    """Execute or refuse the order in the comment; authors without push access are
    answered only in the log.

    ``root`` is the project's folder in a checkout of the default branch; ``key``
    distinguishes several gates of one repository. Raises UsageError if this job runs
    for no comment or has no token, ForgeError and StoreError if forge or store refuse.
    """
    place, event = read_comment(doors.environ), detect(doors.environ)
    if place is None or event is None:
        raise UsageError(
            "this job was not started by a new comment; run it on `issue_comment: created` on GitHub and Gitea, on GitLab by "
            "a webhook of comment events that calls a pipeline trigger, and elsewhere with the comment's number in {variable}",
            variable=PLACE_VARIABLE,
        )
    comment = _comment_at(place, event, doors)
    order: _Order | None = None
    if comment is not None:
        try:
            order = read_order(comment.body)
        except OrderError as error:
            order = error
    if comment is None or order is None or comment.bot or comment.edited:
        doors.say(
            sentence(
                "Nothing was asked: the comment is no order, or a bot wrote it, or it was edited."
            )
        )
        return
    job = _OrderJob(
        root, key, language, comment, event, connect_to_answer(event, doors), doors
    )
    answer = (
        job.answer_on_issue(order) if comment.on_issue else job.answer_on_change(order)
    )
    if answer is None:
        return
    job.forge.add_comment(comment.number, render_answer(answer, language) + "\n")
    values = {"number": comment.number, "outcome": answer.outcome}
    if comment.on_issue:
        doors.say(sentence("Issue {number} was answered: {outcome}.", **values))
    else:
        doors.say(
            sentence("Change request {number} was answered: {outcome}.", **values)
        )


@dataclass(frozen=True)
class _OrderJob:
    """The job that a comment with an order started.

    Its answers are None if the log has the reason.
    """

    root: Path
    key: str
    language: Language
    comment: CommentEvent
    event: CiEvent
    forge: Forge
    doors: Doors

    def answer_on_change(self, order: _Order) -> OrderAnswer | None:
        """Execute or refuse the order in a comment on a change request."""
        orders = takes_orders(self.forge)
        change, author = orders.ordered_change(self.comment.number), self.comment.author
        if not change.is_open or not orders.may_push(author):
            self._say_not_done(
                sentence(
                    "{author} may not push, or change request {number} is closed.",
                    author=author,
                    number=change.number,
                )
            )
            return None
        if isinstance(order, AcceptOrder) and order.blocks and self.key != DEFAULT_KEY:
            self.doors.say(
                sentence(
                    "Nothing was done: the numbers of causes refer to another gate's comment."
                )
            )
            return None
        refusal = _refusal(order, change, self.comment)
        if refusal is not None:
            return refusal
        assert not isinstance(order, OrderError), (
            "an order that cannot be parsed is refused"
        )
        if not isinstance(order, AcceptOrder):
            return start_measuring(
                order, change, self.event, self.forge, self.key, self.doors
            )
        if order.blocks:
            order, refusal = _with_metrics(order, self._state(change), change)
        return refusal or self._accept(order, change)

    def answer_on_issue(self, order: _Order) -> OrderAnswer | None:
        """Execute the only order that an issue takes, such as the weekly report: bisect
        main between two of its commits.

        The commits are of the checked-out default branch, so of reviewed code alone.
        """
        if not isinstance(order, BisectOrder) or order.between is None:
            self.doors.say(
                sentence(
                    "Nothing was done: on an issue only `bisect [METRIC] GOOD..BAD` is an order."
                )
            )
            return None
        if not takes_orders(self.forge).may_push(self.comment.author):
            self._say_not_done(
                sentence("{author} may not push.", author=self.comment.author)
            )
            return None
        if unknown := _unknown_metric(order):
            return unknown
        good, bad = (commit_named(self.root, commit) for commit in order.between)
        if not (
            good
            and bad
            and good != bad
            and is_behind(self.root, good, bad)
            and is_behind(self.root, bad)
        ):
            return OrderAnswer(
                "not_of_main", named=order.between[0], head=order.between[1]
            )
        commits = OrderedChange(
            self.comment.number, bad, good, is_open=True, from_fork=False, author=None
        )
        return tell_workflow(order, commits, self.event, self.doors.environ)

    def _say_not_done(self, why: str) -> None:
        self.doors.say(sentence("Nothing was done."))
        self.doors.say_foreign(why)

    def _accept(self, order: AcceptOrder, change: OrderedChange) -> OrderAnswer:
        """Store an acceptance, and judge the check in our comment again if it belongs
        to this commit.
        """
        doors = self.doors
        store_acceptances(
            load_config(self.root, environ=doors.environ),
            doors.environ,
            commit=change.head_sha,
            metrics=order.metrics,
            reason=order.reason,
            accepted_by=self.comment.author,
            until=order.until,
        )
        accepted = OrderAnswer(
            "accepted",
            head=change.head_sha[:12],
            metrics=order.metrics,
            until=str(order.until or ""),
        )
        state = self._state(change)
        if state is None or state.head != change.head_sha:
            return replace(accepted, outcome="waiting")
        try:
            self.forge.artifacts()
        except ForgeHasNoArtifactsError:
            # Without the check behind our comment, it cannot be judged again here.
            return replace(accepted, outcome="republish")
        trusted = read_trusted_inputs(
            self.root, _event_of(state, self.event, change), doors, posts=True
        )
        publish(
            None, trusted, PublishRequest(key=self.key, language=self.language), doors
        )
        state = self._state(change)
        if state is None:
            return accepted
        return replace(accepted, verdict=state.verdict)

    def _state(self, change: OrderedChange) -> CommentState | None:
        """The state in our comment on the change."""
        ours = find_own(self.forge.comments(change.number), marker(self.key))
        if ours:
            return read_state(ours[0].body)
        return None


def _comment_at(
    place: CommentEvent | CommentPlace, event: CiEvent, doors: Doors
) -> CommentEvent | None:
    """The comment as the forge has it; None if it was deleted."""
    if isinstance(place, CommentEvent):
        return place
    forge = connect_to_answer(event, doors)
    if isinstance(forge, CommentForge):
        return forge.ordered_comment(place)
    return None


def connect_to_answer(event: CiEvent, doors: Doors) -> Forge:
    """The forge, with the job's token. Raises UsageError without one."""
    forge = doors.connect(event)
    if forge is None:
        names = ", ".join(token_variables(event.forge))
        raise UsageError(
            "none of {names} holds a token; comments cannot be checked or answered without one",
            names=names,
        )
    return forge


def _refusal(
    order: _Order, change: OrderedChange, comment: CommentEvent
) -> OrderAnswer | None:
    """The answer that refuses an order of an author with push access; None if it is to
    be executed.

    The owner of a fork can push between the review and the order, so the order must
    name the reviewed commit.
    """
    if (
        change.from_fork
        and change.author is not None
        and change.author.lower() == comment.author.lower()
    ):
        return OrderAnswer("own_fork")
    if isinstance(order, OrderDateError):
        return OrderAnswer("no_date", named=order.named)
    if isinstance(order, OrderError):
        return OrderAnswer("unclear")
    if order.head is not None and order.head != change.head_sha:
        return OrderAnswer("moved", head=change.head_sha, named=order.head)
    if change.from_fork and order.head is None:
        return OrderAnswer("unnamed", head=change.head_sha)
    if isinstance(order, BisectOrder) and order.between is not None:
        return OrderAnswer("unclear")
    if isinstance(order, AcceptOrder) and is_past(order.until):
        return OrderAnswer("past", until=str(order.until))
    if isinstance(order, RunOrder):
        return None
    return _unknown_metric(order)


def _unknown_metric(order: AcceptOrder | BisectOrder) -> OrderAnswer | None:
    metrics: Sequence[str] = ()
    if isinstance(order, AcceptOrder):
        metrics = order.metrics
    elif order.metric:
        metrics = [order.metric]
    for metric in metrics:
        try:
            refuse_unknown_metric(metric)
        except UnknownMetricError as error:
            return OrderAnswer("no_metric", metrics=(metric,), close=error.close)
    return None


def _with_metrics(
    order: AcceptOrder, state: CommentState | None, change: OrderedChange
) -> tuple[AcceptOrder, OrderAnswer | None]:
    """The order with the metrics of its numbered causes in our comment on this exact
    head, or the answer that refuses it.
    """
    if state is None:
        return order, OrderAnswer("no_numbers")
    if state.head != change.head_sha:
        return order, OrderAnswer(
            "outdated", head=change.head_sha[:12], named=state.head[:12]
        )
    try:
        metrics = metrics_of_causes(order.blocks, state.accepts)
        return replace(order, metrics=metrics), None
    except UnknownCauseError as error:
        return order, OrderAnswer("no_block", head=state.head[:12], block=error.number)


def _event_of(state: CommentState, event: CiEvent, change: OrderedChange) -> CiEvent:
    """The event of the job that measured."""
    project_url = f"{event.host.server_url}/{event.repository}"
    job_url, artifact_url = f"{project_url}/-/pipelines/{state.run}", None
    if event.forge != "gitlab":
        run_url = f"{project_url}/actions/runs/{state.run}"
        job_url = f"{run_url}/attempts/{state.attempt}"
        artifact_url = f"{run_url}#artifacts"
    return replace(
        event,
        job=replace(
            event.job,
            run_id=str(state.run),
            run_attempt=state.attempt,
            job_url=job_url,
            artifact_url=artifact_url,
        ),
        head_sha=change.head_sha,
        built_sha=None,
        change_request=change.number,
    )


def answer_bisection(folder: Path, language: Language, doors: Doors) -> None:
    """Answer with the bisection in ``folder``, or with its absence. It is untrusted and
    never becomes a verdict.

    Raises UsageError outside a CI job for a change request, DocumentError if the
    bisection is not one of this change, after a comment that it is missing, and
    ForgeError if the forge refuses.
    """
    event = detect(doors.environ)
    if event is None or event.change_request is None:
        raise UsageError(
            "this job has no change request to answer on; run it in the workflow that obeys comments"
        )
    forge = connect_to_answer(event, doors)
    document, wrong = None, None
    try:
        document = _read(folder / BISECTION_FILE, event.head_sha)
    except DocumentError as error:
        wrong = error
    text = render_bisection_answer(document, event.job.job_url, language)
    forge.add_comment(event.change_request, text + "\n")
    doors.say_foreign(text)
    if wrong is not None:
        raise wrong


def _read(path: Path, head: str) -> BisectionDocument | None:
    """The bisection of the commits up to ``head``; None if there is none. Raises
    DocumentError for any other.
    """
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        document = msgspec.convert(
            parse_json(data, name=BISECTION_FILE, max_bytes=_MOST_BYTES),
            BisectionDocument,
        )
    except msgspec.ValidationError as error:
        raise DocumentError(
            "{name} is not a bisection: {error}", name=BISECTION_FILE, error=error
        ) from error
    if document.searched.commit != head or not _is_sound(document):
        raise DocumentError(
            "{name} is not the bisection of the commits up to {head}",
            name=BISECTION_FILE,
            head=head[:12],
        )
    return document


def _is_sound(document: BisectionDocument) -> bool:
    """Whether its positions are valid, and its outcome is complete."""
    changes = document.searched.changes
    if not changes or not document.tried:
        return False
    if document.outcome == "found" and (
        not document.culprits or not all(document.culprits)
    ):
        return False
    commits = [document.searched.good or ""]
    for change in changes:
        if not isinstance(change, CommitChange):
            return False
        commits += [change.commit, change.before]
    positions = set(document.suspects).union(*document.culprits)
    for trial in document.tried:
        positions.update(trial.changes)
    are_commits = all(COMMIT_ID.fullmatch(commit) for commit in commits)
    return are_commits and positions <= set(range(len(changes)))
