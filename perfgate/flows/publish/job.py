"""The privileged half of CI: judge an artifact again, trusting only its samples, post the comment, and set the status."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perfgate.document.artifact import CheckDocuments, read_check
from perfgate.document.decision import DecisionDocument, Procedure, SideSummary, Verdict
from perfgate.document.files import write_decision, write_text_atomically
from perfgate.document.message import Message, ReasonedError, ReasonError, quote, reason_of
from perfgate.errors import (
    EXIT_BUG,
    DocumentError,
    ForgeError,
    ForgeHasNoStatusesError,
    PerfgateError,
    RepositoryError,
    UsageError,
)
from perfgate.flows.publish.evidence import evidence_pages
from perfgate.flows.shared.artifact import DEFAULT_KEY, fetch_artifact
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import git_access
from perfgate.flows.trust.grounds import Grounds, grounds_at_hand, grounds_of_base, history_of, required_of
from perfgate.flows.trust.provenance import base_is_proven, refuse_foreign_artifact
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import checked_out, is_behind, prefix_of
from perfgate.judging.forge.comment import TEXT_BUDGET, Decided, PostTexts, can_hold, marker, post, state_of
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CiEvent,
    CommitStatus,
    Forge,
    StatusState,
    connect,
    find_token,
    line_address,
    token_variables,
)
from perfgate.judging.forge.orders import OrderForge, accept_order, numbered_order
from perfgate.judging.forge.runner import (
    OUTPUT_VARIABLE,
    SUMMARY_VARIABLE,
    append_to,
    log_lines,
    output_lines,
    outputs_path,
    summary_path,
)
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.ci import parse_location, status_line
from perfgate.judging.report.render.comment import (
    CommentContext,
    accepting_metrics,
    render_comment,
    render_double,
    render_turn,
)
from perfgate.judging.report.render.html import render_html
from perfgate.judging.store.store import GitAccess
from perfgate.locale import Language
from perfgate.version import __version__

# Conclusions of a measuring job that did not finish. GitHub cancels a job that exceeds its `timeout-minutes`.
CANCELLED = ("cancelled", "timed_out")
_YAML_COMMENT = re.compile(r"(?:^|\s)#.*")
# perfgate's reusable workflow, or the command in a hand-written job.
_OBEYS = re.compile(r"/workflows/trusted\.ya?ml\b|\bperfgate command\b")
_STATES: dict[str, StatusState] = {"FAIL": "failure", "INCONCLUSIVE": "error"}
FailOn = Literal["undecided", "regression", "never"]
# The verdicts that make the status red.
_RED: dict[FailOn, tuple[Verdict, ...]] = {
    "undecided": ("FAIL", "INCONCLUSIVE"),
    "regression": ("FAIL",),
    "never": (),
}


@dataclass(frozen=True)
class PublishRequest:
    """The options of ``perfgate publish``.

    ``key`` distinguishes several gates of one repository; ``token_variable`` names the environment variable of the token
    if it is not one of the forge's own. ``event`` overrides the event detected from the environment. ``workload`` is the
    only workload measured, if one was ordered alone; its comment and status must not replace those of the whole check.
    ``status`` sets or omits the commit status; None decides by the kind of pipeline. ``fail_on`` selects the verdicts that
    make the status red. ``out`` is the folder for decision, comment and report as judged here; with ``outputs`` the verdict
    becomes an output of the CI step.
    """

    key: str = DEFAULT_KEY
    dry_run: bool = False
    token_variable: str | None = None
    language: Language = "en"
    event: CiEvent | None = None
    workload: str | None = None
    status: bool | None = None
    fail_on: FailOn = "undecided"
    out: Path | None = None
    outputs: bool = False

    @property
    def name(self) -> str:
        return f"{self.key}/{self.workload}" if self.workload else self.key


class _Case(NamedTuple):
    """The forge and the event of this job. ``change`` is the change request, if it still has the event's head.

    ``hears_orders`` returns whether the project's CI obeys ``/perfgate`` comments.
    """

    event: CiEvent
    forge: Forge
    change: ChangeRequest | None
    access: GitAccess
    hears_orders: Callable[[], bool]


def publish(root: Path, artifact: Path | None, request: PublishRequest, doors: Doors) -> int:
    """Publish a check and return the exit code of its verdict, judged here.

    ``root`` is the folder with perfgate.toml in a checkout of the base or of the default branch, never of the change.
    ``artifact`` is a check's folder or zip; None means the artifact uploaded by the event's run.
    Raises ForgeError (exit code 4) if the forge refuses; the comment and status there may then be from an earlier run. An
    error while judging is posted as INCONCLUSIVE and then raised.
    """
    if request.outputs and outputs_path(doors.environ) is None:
        raise UsageError(
            f"--outputs needs the file that GitHub's runner names in {OUTPUT_VARIABLE}, which is not set here"
        )
    event = request.event or detect(doors.environ)
    token = find_token(event.forge, doors.environ, request.token_variable) if event else None
    case, at = None, _Place(request, event, root)
    only = (request.workload,) if request.workload else ()
    if event is None or token is None or (request.dry_run and artifact):
        if artifact is None:
            raise UsageError("an artifact is downloaded in a CI job that has a token; give a folder or zip here")
        documents, refusal = _read(lambda: artifact)
        published = _judged(
            lambda: judge_without_forge(root, only, documents, refusal, doors, event), documents, case, at
        )
    else:
        forge = connect(event, token, sleep=doors.sleep, clock=doors.clock)
        documents, refusal = _documents(artifact, request.key, forge, event)
        case = opened = _open_case(event, token, forge, documents, lambda: obeys_comments(forge, root, doors.environ))
        published = _judged(lambda: _judge(root, only, doors, opened, documents, refusal), documents, case, at)
    try:
        _write_results(request, published, doors)
    finally:
        # Even after an error, an older comment must not be mistaken for the verdict on this head.
        if case is None or request.dry_run:
            _show(published.text, request, doors, event)
        else:
            _post(case, published, request, doors)
    if published.error is not None:
        raise published.error
    return published.exit_code


@dataclass(frozen=True)
class _Published:
    """The published form of a decision: the comment, and the report page if there were documents to judge.

    ``accepts`` are the metrics of each cause numbered in the comment. ``error`` is the exception that made judging fail.
    """

    decision: DecisionDocument
    context: CommentContext
    text: str
    page: str | None = None
    accepts: list[list[str]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def exit_code(self) -> int:
        if self.error is None:
            return exit_code(self.decision)
        return self.error.exit_code if isinstance(self.error, PerfgateError) else EXIT_BUG

    def with_note(self, note: Message) -> str:
        """The comment with an additional note."""
        noted = msgspec.structs.replace(self.decision, warnings=[note, *self.decision.warnings])
        return render_comment(noted, self.context, budget=TEXT_BUDGET)


class _Place(NamedTuple):
    """The request and the event to publish for; ``root`` is the folder with perfgate.toml."""

    request: PublishRequest
    event: CiEvent | None
    root: Path


def _judged(
    judge: Callable[[], DecisionDocument], documents: CheckDocuments | None, case: _Case | None, at: _Place
) -> _Published:
    """Judge, and render the decision.

    The documents are untrusted. Any error that they or the forge cause between reading and rendering becomes INCONCLUSIVE,
    with its own comment and status, so that the verdict on an earlier head is not mistaken for this one's. ``publish`` raises
    the error again after posting, so that the job's log has its traceback and the job its exit code.
    """
    try:
        return _worded(judge(), documents, case, at)
    except Exception as error:  # noqa: BLE001 - raised again by publish
        why = reason_of(error) if isinstance(error, ReasonedError) else quote(type(error).__name__)
        decision = _undecided("INCONCLUSIVE", Message("publish.not-judged", {"why": why}), Grounds(), at.event)
        return replace(_worded(decision, None, None, at), error=error)


def _worded(decision: DecisionDocument, documents: CheckDocuments | None, case: _Case | None, at: _Place) -> _Published:
    request = at.request
    context = _context(at, decision)
    if case is not None and decision.links:
        pages = evidence_pages(case.forge, case.event, request.key, decision.links)
        context = replace(context, pages=pages)
    # Without a procedure nothing was judged, so there is nothing to accept.
    accepts: list[list[str]] = []
    if case is not None and decision.procedure.name != "none" and case.hears_orders():
        accepts = accepting_metrics(decision)
        # Numbers only work in the one comment that `perfgate command` reads.
        is_numbered = request.name == DEFAULT_KEY and can_hold(accepts)
        accepts = accepts if is_numbered else []
        context = replace(context, accept_order=partial(_numbered_order if is_numbered else _named_order, case))
    page = None
    if request.out is not None and documents is not None and decision.procedure.name != "none":
        page = render_html(decision, documents.base, documents.head, request.language)
    return _Published(decision, context, render_comment(decision, context, budget=TEXT_BUDGET), page, accepts)


def _numbered_order(case: _Case, number: int, metrics: Sequence[str]) -> str:  # noqa: ARG001 - the comment's state has them
    """The order to accept a cause by its number. For a fork it names the commit, because the fork's owner can move its head."""
    from_fork = case.change is None or case.change.from_fork is not False
    return numbered_order(number, case.event.head_sha if from_fork else None)


def _named_order(case: _Case, number: int, metrics: Sequence[str]) -> str | None:  # noqa: ARG001 - as above
    return accept_order(case.event.head_sha, metrics)


def obeys_comments(forge: Forge, root: Path, environ: Mapping[str, str]) -> bool:
    """Whether ``/perfgate`` comments are obeyed: the forge supports orders, and a workflow of the checkout handles them.

    If the checkout has no workflows and this job runs in GitHub Actions, the workflows are kept elsewhere and count as
    obeying.
    """
    if not isinstance(forge, OrderForge):
        return False
    folder = root.joinpath(*[".."] * prefix_of(root).count("/"), ".github", "workflows")
    workflows = [file.read_text("utf-8", "replace") for file in (*folder.glob("*.yml"), *folder.glob("*.yaml"))]
    if not workflows:
        return environ.get("GITHUB_ACTIONS") == "true"
    return any(map(_obeys, workflows))


def _obeys(workflow: str) -> bool:
    said = _YAML_COMMENT.sub("", workflow)
    return "issue_comment" in said and "perfgate" in said and _OBEYS.search(said) is not None


def _documents(
    artifact: Path | None, key: str, forge: Forge, event: CiEvent
) -> tuple[CheckDocuments | None, Exception | None]:
    if event.measured in CANCELLED:
        return None, ReasonError(Message("publish.job-cancelled"))
    return _read(lambda: artifact or fetch_artifact(forge, event, key))


def _read(artifact: Callable[[], Path | bytes]) -> tuple[CheckDocuments | None, Exception | None]:
    """The documents of an artifact, or the error of reading it, which the judging function raises."""
    try:
        return read_check(artifact()), None
    except Exception as error:  # noqa: BLE001 - raised by the judging function
        return None, error


def _open_case(
    event: CiEvent, token: str, forge: Forge, documents: CheckDocuments | None, hears_orders: Callable[[], bool]
) -> _Case:
    # If several change requests have this exact head, the artifact may choose among them, but never another one.
    ci = documents.head.session.ci if documents else None
    change = forge.find_change_request(prefer=ci.change_request if ci else None)
    if change is not None and change.head_sha != event.head_sha:
        change = None
    return _Case(event, forge, change, git_access(event, token), hears_orders)


def judge_without_forge(
    root: Path,
    only: tuple[str, ...],
    documents: CheckDocuments | None,
    refusal: Exception | None,
    doors: Doors,
    event: CiEvent | None,
) -> DecisionDocument:
    """Judge without posting: by the perfgate.toml in ``root``, without asking the forge.

    ``only`` are the ordered workloads, if not all were.
    """
    grounds = grounds_at_hand(root, doors.environ)
    try:
        if documents is None:
            raise refusal or DocumentError("there is none")
        if event is not None:
            refuse_foreign_artifact(documents, event, None, None)
        return _decide(only, documents, grounds, doors, None)
    except DocumentError as error:
        return _undecided("INCONCLUSIVE", _artifact(error), grounds, event)


def _judge(
    root: Path,
    only: tuple[str, ...],
    doors: Doors,
    case: _Case,
    documents: CheckDocuments | None,
    refusal: Exception | None,
) -> DecisionDocument:
    try:
        grounds = _grounds(root, doors, case, measured=documents is not None)
    except RepositoryError as error:
        why = str(error).replace(str(root), ".")
        return _undecided(
            "INCONCLUSIVE", Message("publish.base-config-unreadable", {"why": why}), Grounds(), case.event
        )
    if grounds.skipped is not None and _is_the_same_change(case):
        return _undecided("SKIPPED", grounds.skipped, grounds, case.event)
    try:
        if documents is None:
            raise refusal or DocumentError("there is none")
        refuse_foreign_artifact(documents, case.event, case.change, case.forge)
        because = _reason_for_base(documents, case, root)
        return _decide(only, documents, grounds, doors, because)
    except DocumentError as error:
        return _undecided("INCONCLUSIVE", _artifact(error), grounds, case.event)


def _is_the_same_change(case: _Case) -> bool:
    before = case.change
    if before is None:
        # The commits of a merge queue do not move.
        return case.event.base_sha is not None
    now = case.forge.find_change_request(prefer=before.number)
    return now is not None and (now.number, now.head_sha, now.target) == (before.number, before.head_sha, before.target)


def _grounds(root: Path, doors: Doors, case: _Case, *, measured: bool) -> Grounds:
    change = case.change or _queued(case.event)
    if change is None or change.base_sha is None:
        return grounds_at_hand(root, doors.environ)
    forge = case.forge if case.change else None
    return grounds_of_base(root, change, change.base_sha, forge, case.access, environ=doors.environ, measured=measured)


def _reason_for_base(documents: CheckDocuments, case: _Case, root: Path) -> Message:
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
        f"it compares with the commit {commit[:12]!r}, and nothing shows that the change is to be compared with that one; "
        'check the target branch out with its history before (`fetch-depth: 0`, GIT_DEPTH: "0")'
    )


def _queued(event: CiEvent) -> ChangeRequest | None:
    if event.base_sha is None:
        return None
    return ChangeRequest(number=0, head_sha=event.head_sha, base_sha=event.base_sha)


def _decide(
    only: tuple[str, ...],
    documents: CheckDocuments,
    grounds: Grounds,
    doors: Doors,
    because: Message | None,
) -> DecisionDocument:
    missing: list[str] = []
    base, head = documents
    history = history_of(grounds.config, head, doors.environ, warn=missing.append)
    for words in missing:
        doors.say(words)  # names the store's location, which belongs in the log only
    required = required_of(grounds.config, base, doors.environ, only=only)
    notes = list(grounds.notes)
    if missing:
        notes.append(Message("publish.store-unreadable"))
    decision = decide_with_advice(
        base, head, policy=grounds.policy, history=history, chosen_because=because, required=required
    )
    return msgspec.structs.replace(decision, warnings=[*notes, *decision.warnings])


def _undecided(verdict: Verdict, why: Message, grounds: Grounds, event: CiEvent | None) -> DecisionDocument:
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


def _context(at: _Place, decision: DecisionDocument) -> CommentContext:
    request, event, base = at.request, at.event, decision.base.commit or ""
    return CommentContext(
        marker=marker(request.name),
        artifact_url=event.artifact_url if event else None,
        report_url=event.report_url if event else None,
        job_url=event.job_url if event else None,
        source=_addresses(event, at.root) if event else None,
        reproduce=f"perfgate check --base {base[:12]} --out perfgate-out" if COMMIT_ID.fullmatch(base) else None,
        language=request.language,
    )


def _addresses(event: CiEvent, root: Path) -> Callable[[str], str | None]:
    """A function from a source line of the head, relative to the project's folder, to its page on the forge."""
    prefix = prefix_of(root)

    def address(line: str) -> str | None:
        location = parse_location(line)
        return location and line_address(event, prefix + location.path, location.line)

    return address


def _write_results(request: PublishRequest, published: _Published, doors: Doors) -> None:
    """Write the results as judged here, for the job to upload: the comment links these, not those of the measuring job."""
    if request.outputs and (path := outputs_path(doors.environ)) is not None:
        answers = {"verdict": published.decision.verdict, "exit-code": str(published.exit_code)}
        append_to(path, output_lines(answers), OUTPUT_VARIABLE)
    if request.out is None:
        return
    request.out.mkdir(parents=True, exist_ok=True)
    write_decision(request.out / "decision.json", published.decision)
    write_text_atomically(request.out / "comment.md", published.text)
    if published.page is not None:
        write_text_atomically(request.out / "report.html", published.page)


def _show(text: str, request: PublishRequest, doors: Doors, event: CiEvent | None) -> None:
    doors.say(log_lines(text, doors.environ))
    summary = summary_path(doors.environ)
    if request.dry_run:
        doors.say("Nothing was posted: this is a dry run.")
        return
    if summary is not None:
        append_to(summary, text + "\n", SUMMARY_VARIABLE)
    if event is None:
        doors.say("Nothing was posted: this is not a CI job of a forge that perfgate knows.")
    else:
        names = " or ".join(token_variables(event.forge, request.token_variable))
        doors.say(f"Nothing was posted: no token in {names}.")


def _post(case: _Case, published: _Published, request: PublishRequest, doors: Doors) -> None:
    """Post the comment and set the status. If the forge refuses the status, the comment notes it: an older one may remain.

    Raises ForgeError for a refused status, if it was requested or if there is no comment.
    """
    if case.change is None:
        gone = f"No change request has the head {case.event.head_sha[:12]} any more: only the commit status is set."
        doors.say(log_lines(published.text, doors.environ))
        doors.say("A merge queue has no comments: only the commit status is set." if case.event.base_sha else gone)
    elif not _comment(case, case.change, published.text, published, request, doors):
        return
    if (refused := _mark(case.forge, case.event, published.decision, request, doors)) is None:
        return
    if case.change is not None:
        note = Message("publish.status-refused", {"name": _status_name(request)})
        _comment(case, case.change, published.with_note(note), published, request, doors)
    if request.status or case.change is None:
        raise refused


def _comment(
    case: _Case, change: ChangeRequest, text: str, published: _Published, request: PublishRequest, doors: Doors
) -> bool:
    """Post a text as our comment, unless the comment there is from a newer run; return whether it was posted."""
    event = case.event

    def worded_turn(last: Decided, now: Decided) -> str:
        return render_turn(last, now, event.head_sha, request.language)

    state = state_of(event, published.decision.verdict, published.accepts)
    texts = PostTexts(worded_turn, render_double(request.language))
    posted = post(case.forge, change.number, text, state, marker(request.name), sleep=doors.sleep, texts=texts)
    if posted.outcome == "kept":
        doors.say(f"The comment on change request {change.number} is from a newer run; it was left as it is.")
        return False
    doors.say(f"The comment on change request {change.number} was {posted.outcome}.")
    return True


def _mark(
    forge: Forge, event: CiEvent, decision: DecisionDocument, request: PublishRequest, doors: Doors
) -> ForgeError | None:
    """Set the commit status if wanted; return the error if the forge refuses it. Raises ForgeHasNoStatusesError if a status
    was requested on a forge without statuses.

    A token without that permission fails the job only if the status was requested; otherwise the exit code is enough.
    """
    if not (request.status if request.status is not None else not event.is_check):
        doors.say("No commit status is set: this pipeline is the check.")
        return None
    if event.is_check and event.built_sha != event.head_sha:
        doors.say(
            "No commit status is set: the head of merged results has no pipeline, so it would begin one of its own."
        )
        return None
    name = _status_name(request)
    state = _STATES.get(decision.verdict, "success") if decision.verdict in _RED[request.fail_on] else "success"
    status = CommitStatus(event.head_sha, state, name, status_line(decision, request.language), event.job_url)
    try:
        forge.set_status(status)
    except ForgeHasNoStatusesError as error:
        if request.status:
            raise
        doors.say(log_lines(f"No commit status is set: {error}.", doors.environ))
        return None
    except ForgeError as error:
        doors.say(log_lines(f"The commit status was not set: {error}", doors.environ))
        return error
    doors.say(f"The commit status {name} of {event.head_sha[:12]} is {state}.")
    return None


def _status_name(request: PublishRequest) -> str:
    return "perfgate" if request.name == DEFAULT_KEY else f"perfgate/{request.name}"
