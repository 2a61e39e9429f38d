"""The privileged half of CI: judge the artifacts again, post one comment, and set one status."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perfgate.document.decision import DecisionDocument
from perfgate.document.kept import REPORT_PAGE
from perfgate.document.message import Message, ReasonedError, quote, reason_of
from perfgate.errors import UsageError
from perfgate.flows.publish.evidence import evidence_pages
from perfgate.flows.publish.judging import (
    PublishCase,
    ReadArtifact,
    judge,
    judge_without_forge,
    open_case,
    undecided,
)
from perfgate.flows.publish.keeping import CheckKeeper, open_keeper
from perfgate.flows.publish.posting import post_published, show
from perfgate.flows.publish.published import JudgedArtifact, Published
from perfgate.flows.publish.record import record_verdicts
from perfgate.flows.publish.request import PublishRequest
from perfgate.flows.publish.testbeds import check_below, expected_testbeds, read_artifacts
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY, fetch_artifact, key_of
from perfgate.flows.shared.doors import Doors
from perfgate.flows.trust.grounds import Grounds
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import prefix_of
from perfgate.judging.forge.comment import TEXT_BUDGET, can_hold, marker
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent, Forge, connect, find_token, line_address
from perfgate.judging.forge.orders import CommentForge, OrderForge, accept_order, numbered_order
from perfgate.judging.forge.runner import OUTPUT_VARIABLE, append_to, log_lines, output_lines, outputs_path
from perfgate.judging.report.render.ci import parse_location
from perfgate.judging.report.render.comment import CommentContext, accepting_metrics
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.testbeds import section_budget

# Conclusions of a measuring job that did not finish. GitHub cancels a job that exceeds its `timeout-minutes`.
CANCELLED = ("cancelled", "timed_out")
# Set by the GitLab template if a webhook brings comments to `perfgate command`.
COMMANDS_VARIABLE = "PERFGATE_COMMANDS"
_YAML_COMMENT = re.compile(r"(?:^|\s)#.*")
# perfgate's reusable workflow, or the command in a hand-written job.
_OBEYS = re.compile(r"/workflows/trusted\.ya?ml\b|\bperfgate command\b")


def publish(artifact: Path | None, request: PublishRequest, doors: Doors) -> int:
    """Publish a check, or those of a matrix as one, and return the exit code of the verdict, judged here.

    ``artifact`` is a check's folder or zip, or a folder with one for each testbed; None means the artifacts uploaded by the
    event's run.
    Raises ForgeError (exit code 4) if the forge refuses; the comment and status there may then be from an earlier run. An
    error while judging is posted as INCONCLUSIVE and then raised.
    """
    if request.outputs and outputs_path(doors.environ) is None:
        raise UsageError(
            "--outputs needs the file that GitHub's runner names in {variable}, which is not set here",
            variable=OUTPUT_VARIABLE,
        )
    event = request.event or detect(doors.environ)
    token = find_token(event.forge, doors.environ, request.token_variable) if event else None
    request, case = replace(request, event=event), None
    testbeds = expected_testbeds(request.root, request.testbeds, doors.environ)
    if event is None or token is None or (request.dry_run and artifact):
        if artifact is None:
            raise UsageError("an artifact is downloaded in a CI job that has a token; give a folder or zip here")
        artifacts = read_artifacts(testbeds, partial(check_below, artifact))
    else:
        forge = connect(event, token, sleep=doors.sleep, clock=doors.clock)
        source: Callable[[str], Path | bytes] = (
            (lambda testbed: fetch_artifact(forge, event, key_of(request.key, testbed)))
            if artifact is None
            else partial(check_below, artifact)
        )
        artifacts = read_artifacts(testbeds, source, cancelled=event.measured in CANCELLED)
        case = open_case(event, token, forge, artifacts, lambda: obeys_comments(forge, request.root, doors.environ))
    published = judge_artifacts(artifacts, case, request, doors, open_keeper(case, request, doors))
    try:
        _write_results(request, published, doors)
    finally:
        # Even after an error, an older comment must not be mistaken for the verdict on this head.
        if case is None or request.dry_run:
            show(published.text, request, doors, event)
        else:
            post_published(case, published, request, doors)
    if request.record and case is not None:
        record_verdicts(published, case, request, doors)
    if published.error is not None:
        raise published.error
    return published.exit_code


def judge_artifacts(
    artifacts: Sequence[ReadArtifact],
    case: PublishCase | None,
    request: PublishRequest,
    doors: Doors,
    keeper: CheckKeeper | None = None,
) -> Published:
    budget = section_budget(len(artifacts), TEXT_BUDGET) if artifacts[0].testbed else TEXT_BUDGET
    judged = [_judged(artifact, case, request, doors, keeper, budget=budget) for artifact in artifacts]
    published = Published(judged, _context(request, None), budget)
    for one in judged:
        if one.error is not None and one.error is not published.error:
            doors.say(log_lines("".join(traceback.format_exception(one.error)), doors.environ))
    return published


def _judged(
    artifact: ReadArtifact,
    case: PublishCase | None,
    request: PublishRequest,
    doors: Doors,
    keeper: CheckKeeper | None,
    *,
    budget: int,
) -> JudgedArtifact:
    """Judge, and render the decision.

    The documents are untrusted. Any error that they or the forge cause between reading and rendering becomes INCONCLUSIVE,
    with its own comment and status, so that the verdict on an earlier head is not mistaken for this one's. ``publish`` raises
    the error again after posting, so that the job's log has its traceback and the job its exit code.
    """
    try:
        decided = judge(artifact, case, request, doors) if case else judge_without_forge(artifact, request, doors)
        return _worded(decided, artifact, case, request, keeper, budget=budget)
    except Exception as error:  # noqa: BLE001 - raised again by publish
        why = reason_of(error) if isinstance(error, ReasonedError) else quote(type(error).__name__)
        decision = undecided("INCONCLUSIVE", Message("publish.not-judged", {"why": why}), Grounds(), request.event)
        unread = artifact._replace(documents=None)
        return replace(_worded(decision, unread, None, request, None, budget=budget), error=error)


def _worded(
    decision: DecisionDocument,
    artifact: ReadArtifact,
    case: PublishCase | None,
    request: PublishRequest,
    keeper: CheckKeeper | None,
    *,
    budget: int,
) -> JudgedArtifact:
    documents = artifact.documents
    context = _context(request, decision.base.commit)
    if case is not None and decision.links:
        pages = evidence_pages(case.forge, case.event, key_of(request.key, artifact.testbed), decision.links)
        context = replace(context, pages=pages)
    # Without a procedure nothing was judged, so there is nothing to accept.
    accepts: list[list[str]] = []
    if case is not None and decision.procedure.name != "none" and case.hears_orders():
        accepts = accepting_metrics(decision)
        # Numbers only work in the one comment that `perfgate command` reads, and if one testbed counts its causes there.
        is_numbered = request.name == DEFAULT_KEY and not artifact.testbed and can_hold(accepts)
        accepts = accepts if is_numbered else []
        context = replace(context, accept_order=_orders(case, is_numbered=is_numbered))
    page = None
    if (request.out is not None or keeper) and documents is not None and decision.procedure.name != "none":
        page = render_html(decision, documents.base, documents.head, request.language)
    if keeper is not None and page is not None:
        addresses = keeper.keep(decision, artifact, page)
        # CI removes its artifacts after some weeks.
        report_url = addresses.get(REPORT_PAGE, context.report_url)
        context = replace(context, pages={**context.pages, **addresses}, report_url=report_url)
    judged = JudgedArtifact(
        decision, context, page=page, accepts=accepts, testbed=artifact.testbed, device=artifact.device
    )
    return judged.worded(budget=budget)


def _orders(case: PublishCase, *, is_numbered: bool) -> Callable[[int, Sequence[str]], str | None]:
    """A function from a cause to the order to accept it: by its number, whose metrics the comment's state has, or by metrics.

    With a number it names the commit of a fork alone, because the fork's owner can move its head.
    """
    head = case.event.head_sha
    from_fork = case.change is None or case.change.from_fork is not False

    def order(number: int, metrics: Sequence[str]) -> str | None:
        return numbered_order(number, head if from_fork else None) if is_numbered else accept_order(head, metrics)

    return order


def obeys_comments(forge: Forge, root: Path, environ: Mapping[str, str]) -> bool:
    """Whether ``/perfgate`` comments are obeyed: the forge supports orders, and a workflow of the checkout handles them.

    If the checkout has no workflows and this job runs in GitHub Actions, the workflows are kept elsewhere and count as
    obeying. On GitLab the template says so, because a webhook has to be set up.
    """
    if not isinstance(forge, OrderForge):
        return False
    if isinstance(forge, CommentForge):
        return environ.get(COMMANDS_VARIABLE) == "true"
    folder = root.joinpath(*[".."] * prefix_of(root).count("/"), ".github", "workflows")
    workflows = [file.read_text("utf-8", "replace") for file in (*folder.glob("*.yml"), *folder.glob("*.yaml"))]
    if not workflows:
        return environ.get("GITHUB_ACTIONS") == "true"
    return any(map(_obeys, workflows))


def _obeys(workflow: str) -> bool:
    said = _YAML_COMMENT.sub("", workflow)
    return "issue_comment" in said and "perfgate" in said and _OBEYS.search(said) is not None


def _context(request: PublishRequest, base: str | None) -> CommentContext:
    event = request.event
    return CommentContext(
        marker=marker(request.name),
        artifact_url=event.artifact_url if event else None,
        report_url=event.report_url if event else None,
        job_url=event.job_url if event else None,
        source=_addresses(event, request.root) if event else None,
        reproduce=f"perfgate check --base {base[:12]} --out perfgate-out"
        if base and COMMIT_ID.fullmatch(base)
        else None,
        language=request.language,
    )


def _addresses(event: CiEvent, root: Path) -> Callable[[str], str | None]:
    """A function from a source line of the head, relative to the project's folder, to its page on the forge."""
    prefix = prefix_of(root)

    def address(line: str) -> str | None:
        location = parse_location(line)
        return location and line_address(event, prefix + location.path, location.line)

    return address


def _write_results(request: PublishRequest, published: Published, doors: Doors) -> None:
    if request.outputs and (path := outputs_path(doors.environ)) is not None:
        answers = {"verdict": published.verdict, "exit-code": str(published.exit_code)}
        append_to(path, output_lines(answers), OUTPUT_VARIABLE)
    if request.out is not None:
        published.write(request.out)
