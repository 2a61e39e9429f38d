"""The privileged half of CI: judge the artifacts again, post one comment, and set one status."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from perfgate.document.message import Message, ReasonedError, quote, reason_of
from perfgate.errors import UsageError
from perfgate.flows.publish.artifact import ReadArtifact
from perfgate.flows.publish.judging import judge, undecided
from perfgate.flows.publish.keeping import open_keeper
from perfgate.flows.publish.posting import Poster, reason_not_posted, show
from perfgate.flows.publish.published import JudgedArtifact, Published
from perfgate.flows.publish.record import record_verdicts
from perfgate.flows.publish.request import PublishRequest
from perfgate.flows.publish.testbeds import check_below, expected_testbeds, read_artifacts
from perfgate.flows.publish.trusted import TrustedInputs, read_trusted_inputs
from perfgate.flows.publish.wording import Wording
from perfgate.flows.shared.ci_artifact import fetch_artifact, key_of
from perfgate.flows.shared.doors import Doors
from perfgate.flows.trust.grounds import Grounds
from perfgate.judging.forge.comment import TEXT_BUDGET
from perfgate.judging.forge.runner import OUTPUT_VARIABLE, append_to, log_lines, output_lines, outputs_path
from perfgate.judging.report.render.testbeds import section_budget
from perfgate.locale import sentence

# Conclusions of a measuring job that did not finish. GitHub cancels a job that exceeds its `timeout-minutes`.
CANCELLED = ("cancelled", "timed_out")


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
    # A trial with an artifact at hand asks the forge nothing.
    trusted = read_trusted_inputs(request, doors, posts=artifact is None or not request.dry_run)
    testbeds = expected_testbeds(trusted.settings.config, request.testbeds)
    is_cancelled = trusted.target is not None and trusted.target.event.measured in CANCELLED
    artifacts = read_artifacts(testbeds, _source(artifact, trusted, request.key), cancelled=is_cancelled)
    trusted = trusted.with_change(read.documents for read in artifacts)

    wording = Wording(
        trusted=trusted,
        key=request.key,
        name=request.name,
        language=request.language,
        writes_pages=request.out is not None,
        keeper=None if request.dry_run else open_keeper(trusted, request.key, doors),
        budget=section_budget(len(artifacts), TEXT_BUDGET) if testbeds else TEXT_BUDGET,
    )
    published = judge_artifacts(artifacts, wording, request.only, doors)
    try:
        if request.outputs:
            _write_outputs(published, doors)
        if request.out is not None:
            published.write(request.out)
    finally:
        # Even after an error, an older comment must not be mistaken for the verdict on this head.
        _post(published, trusted, request, doors)
    # One workload that was ordered alone does not stand for the whole check.
    if request.record and not request.workload and trusted.target is not None:
        record_verdicts(published, trusted, request.key, doors)
    if published.error is not None:
        raise published.error
    return published.exit_code


def judge_artifacts(
    artifacts: Sequence[ReadArtifact], wording: Wording, only: Collection[str], doors: Doors
) -> Published:
    """Judge and word each artifact; ``only`` are the ordered workloads, if not all were."""
    judged = [_judged(artifact, wording, only, doors) for artifact in artifacts]
    published = Published(judged, wording.context(), wording.budget)
    for one in judged:
        if one.error is not None and one.error is not published.error:
            doors.say(log_lines("".join(traceback.format_exception(one.error)), doors.environ))
    return published


def _judged(artifact: ReadArtifact, wording: Wording, only: Collection[str], doors: Doors) -> JudgedArtifact:
    """Judge, and render the decision.

    The documents are untrusted. Any error that they or the forge cause between reading and rendering becomes INCONCLUSIVE,
    with its own comment and status, so that the verdict on an earlier head is not mistaken for this one's. ``publish`` raises
    the error again after posting, so that the job's log has its traceback and the job its exit code.
    """
    try:
        return wording.word(judge(artifact, wording.trusted, only, doors), artifact)
    except Exception as error:  # noqa: BLE001 - raised again by publish
        why = reason_of(error) if isinstance(error, ReasonedError) else quote(type(error).__name__)
        why_not = Message("publish.not-judged", {"why": why})
        decision = undecided("INCONCLUSIVE", why_not, Grounds(), wording.trusted.event)
        return replace(wording.word_undecided(decision, artifact), error=error)


def _source(artifact: Path | None, trusted: TrustedInputs, key: str) -> Callable[[str], Path | bytes]:
    """A function from a testbed to its artifact: the one at hand, or the one that the event's run uploaded."""
    if artifact is not None:
        return partial(check_below, artifact)
    target = trusted.target
    if target is None:
        raise UsageError("an artifact is downloaded in a CI job that has a token; give a folder or zip here")
    return lambda testbed: fetch_artifact(target.forge, target.event, key_of(key, testbed))


def _write_outputs(published: Published, doors: Doors) -> None:
    path = outputs_path(doors.environ)
    assert path is not None, "refused at the beginning"
    outputs = {"verdict": published.verdict, "exit-code": str(published.exit_code)}
    append_to(path, output_lines(outputs), OUTPUT_VARIABLE)


def _post(published: Published, trusted: TrustedInputs, request: PublishRequest, doors: Doors) -> None:
    if request.dry_run:
        doors.say(log_lines(published.text, doors.environ))
        doors.say(sentence("Nothing was posted: this is a dry run."))
    elif trusted.target is None:
        show(published.text, doors)
        doors.say(reason_not_posted(trusted, request.token_variable))
    else:
        poster = Poster(
            target=trusted.target,
            change=trusted.change,
            name=request.name,
            language=request.language,
            status=request.status,
            fail_on=request.fail_on,
            doors=doors,
        )
        poster.post(published)
