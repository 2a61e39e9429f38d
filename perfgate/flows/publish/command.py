"""``perfgate command``: execute an order in a comment, if its author may push: measure, bisect, or accept a regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perfgate.config import load_config
from perfgate.errors import ForgeHasNoArtifactsError, UsageError
from perfgate.flows.publish.job import publish
from perfgate.flows.publish.request import PublishRequest
from perfgate.flows.publish.starting import start_measuring, tell_workflow
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
from perfgate.judging.forge.runner import log_lines
from perfgate.judging.report.render.comment import OrderAnswer, render_answer
from perfgate.locale import sentence

# An order that cannot be parsed is answered too, once its author is known to be allowed to give orders.
_Order = RunOrder | BisectOrder | AcceptOrder | OrderError


def run_command(request: PublishRequest, doors: Doors) -> None:
    """Execute or refuse the order in the comment; authors without push access are answered only in the log.

    Raises UsageError if this job runs for no comment or has no token, ForgeError and StoreError if forge or store refuse.
    """
    place, event = read_comment(doors.environ), detect(doors.environ)
    if place is None or event is None:
        raise UsageError(
            "this job was not started by a new comment; run it on `issue_comment: created` on GitHub and Gitea, on GitLab by "
            "a webhook of comment events that calls a pipeline trigger, and elsewhere with the comment's number in {variable}",
            variable=PLACE_VARIABLE,
        )
    comment = _comment_at(place, event, doors)
    order = _order_in(comment) if comment else None
    if comment is None or order is None or comment.bot or comment.edited:
        doors.say(sentence("Nothing was asked: the comment is no order, or a bot wrote it, or it was edited."))
        return
    forge = connect_to_answer(event, doors)
    orders = takes_orders(forge)
    if comment.on_issue:
        _on_issue(order, comment, event, forge, request, doors)
        return
    change = orders.ordered_change(comment.number)
    if not change.is_open or not orders.may_push(comment.author):
        why = sentence(
            "{author} may not push, or change request {number} is closed.", author=comment.author, number=change.number
        )
        doors.say("\n".join([sentence("Nothing was done."), log_lines(why, doors.environ)]))
        return
    if isinstance(order, AcceptOrder) and order.blocks and request.key != DEFAULT_KEY:
        doors.say(sentence("Nothing was done: the numbers of causes refer to another gate's comment."))
        return
    answer = _execute(order, comment, change, event, forge, request, doors)
    forge.add_comment(change.number, render_answer(answer, request.language) + "\n")
    doors.say(
        sentence("Change request {number} was answered: {outcome}.", number=change.number, outcome=answer.outcome)
    )


def _execute(
    order: _Order,
    comment: CommentEvent,
    change: OrderedChange,
    event: CiEvent,
    forge: Forge,
    request: PublishRequest,
    doors: Doors,
) -> OrderAnswer:
    """Execute an order of an author with push access, or refuse it; return the answer to it."""
    refusal = _refusal(order, change, comment)
    if refusal is not None:
        return refusal
    assert not isinstance(order, OrderError), "an order that cannot be parsed is refused"
    if not isinstance(order, AcceptOrder):
        return start_measuring(order, change, event, forge, request.key, doors)
    if order.blocks:
        order, refusal = _with_metrics(order, _state(forge, change.number, request.key), change)
        if refusal is not None:
            return refusal
    return _accept(order, comment, change, event, forge, request, doors)


def _on_issue(
    order: _Order, comment: CommentEvent, event: CiEvent, forge: Forge, request: PublishRequest, doors: Doors
) -> None:
    """Execute the one order that an issue takes, such as the weekly report: bisect main between two of its commits."""
    if not isinstance(order, BisectOrder) or order.between is None:
        doors.say(sentence("Nothing was done: on an issue only `bisect [METRIC] GOOD..BAD` is an order."))
        return
    if not takes_orders(forge).may_push(comment.author):
        why = sentence("{author} may not push.", author=comment.author)
        doors.say("\n".join([sentence("Nothing was done."), log_lines(why, doors.environ)]))
        return
    answer = _bisect_main(order, order.between, comment.number, event, request.root, doors.environ)
    forge.add_comment(comment.number, render_answer(answer, request.language) + "\n")
    doors.say(sentence("Issue {number} was answered: {outcome}.", number=comment.number, outcome=answer.outcome))


def _bisect_main(
    order: BisectOrder,
    between: tuple[str, str],
    number: int,
    event: CiEvent,
    root: Path,
    environ: Mapping[str, str],
) -> OrderAnswer:
    """Start the bisection of two commits of the checked-out default branch, so of reviewed code alone."""
    if unknown := _unknown_metric(order):
        return unknown
    good, bad = (commit_named(root, commit) for commit in between)
    if not (good and bad and good != bad and is_behind(root, good, bad) and is_behind(root, bad)):
        return OrderAnswer("not_of_main", named=between[0], head=between[1])
    commits = OrderedChange(number, bad, good, is_open=True, from_fork=False, author=None)
    return tell_workflow(order, commits, event, environ)


def _order_in(comment: CommentEvent) -> _Order | None:
    try:
        return read_order(comment.body)
    except OrderError as error:
        return error


def _comment_at(place: CommentEvent | CommentPlace, event: CiEvent, doors: Doors) -> CommentEvent | None:
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
            "none of {names} holds a token; comments cannot be checked or answered without one", names=names
        )
    return forge


def _refusal(order: _Order, change: OrderedChange, comment: CommentEvent) -> OrderAnswer | None:
    """The answer that refuses an order of an author with push access; None if it is to be executed.

    The owner of a fork can push between the review and the order, so the order must name the reviewed commit.
    """
    if change.from_fork and change.author is not None and change.author.lower() == comment.author.lower():
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
    try:
        for metric in order.metrics if isinstance(order, AcceptOrder) else filter(None, (order.metric,)):
            refuse_unknown_metric(metric)
    except UnknownMetricError as error:
        return OrderAnswer("no_metric", metrics=(metric,), close=error.close)
    return None


def _with_metrics(
    order: AcceptOrder, state: CommentState | None, change: OrderedChange
) -> tuple[AcceptOrder, OrderAnswer | None]:
    """The order with the metrics of its numbered causes in our comment on this exact head, or the answer that refuses it."""
    if state is None:
        return order, OrderAnswer("no_numbers")
    if state.head != change.head_sha:
        return order, OrderAnswer("outdated", head=change.head_sha[:12], named=state.head[:12])
    try:
        return replace(order, metrics=metrics_of_causes(order.blocks, state.accepts)), None
    except UnknownCauseError as error:
        return order, OrderAnswer("no_block", head=state.head[:12], block=error.number)


def _accept(
    order: AcceptOrder,
    comment: CommentEvent,
    change: OrderedChange,
    event: CiEvent,
    forge: Forge,
    request: PublishRequest,
    doors: Doors,
) -> OrderAnswer:
    """Store an acceptance, and judge the check in our comment again if it belongs to this commit."""
    store_acceptances(
        load_config(request.root, environ=doors.environ),
        doors.environ,
        commit=change.head_sha,
        metrics=order.metrics,
        reason=order.reason,
        accepted_by=comment.author,
        until=order.until,
    )
    head, until = change.head_sha[:12], str(order.until or "")
    state = _state(forge, change.number, request.key)
    if state is None or state.head != change.head_sha:
        return OrderAnswer("waiting", head=head, metrics=order.metrics, until=until)
    if not _has_artifacts(forge):
        return OrderAnswer("republish", head=head, metrics=order.metrics, until=until)
    publish(None, replace(request, event=_event_of(state, event, change)), doors)
    state = _state(forge, change.number, request.key)
    verdict = None
    if state:
        verdict = state.verdict
    return OrderAnswer("accepted", head=head, metrics=order.metrics, verdict=verdict, until=until)


def _has_artifacts(forge: Forge) -> bool:
    """Whether the forge itself has the check behind our comment, so that it can be judged again here."""
    try:
        forge.artifacts()
    except ForgeHasNoArtifactsError:
        return False
    return True


def _state(forge: Forge, number: int, key: str) -> CommentState | None:
    ours = find_own(forge.comments(number), marker(key))
    if ours:
        return read_state(ours[0].body)
    return None


def _event_of(state: CommentState, event: CiEvent, change: OrderedChange) -> CiEvent:
    """The event of the job that measured."""
    project_url = f"{event.server_url}/{event.repository}"
    if event.forge == "gitlab":
        job_url, artifact_url = f"{project_url}/-/pipelines/{state.run}", None
    else:
        run_url = f"{project_url}/actions/runs/{state.run}"
        job_url, artifact_url = f"{run_url}/attempts/{state.attempt}", f"{run_url}#artifacts"
    return replace(
        event,
        run_id=str(state.run),
        run_attempt=state.attempt,
        head_sha=change.head_sha,
        built_sha=None,
        change_request=change.number,
        job_url=job_url,
        artifact_url=artifact_url,
    )
