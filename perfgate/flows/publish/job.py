"""``perfgate publish``: judge the check of a change again, post one comment, and set one status."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from perfgate.document.message import Message, ReasonedError, quote, reason_of
from perfgate.flows.publish.artifacts import (
    ReadArtifact,
    measured_change,
    open_keeper,
    read_artifacts,
)
from perfgate.flows.publish.judging import judge, undecided
from perfgate.flows.publish.posting import post, record_verdicts
from perfgate.flows.publish.published import JudgedArtifact, Published
from perfgate.flows.publish.trusted import PublishRequest, TrustedInputs
from perfgate.flows.publish.wording import Wording
from perfgate.flows.shared.doors import Doors, given_file
from perfgate.flows.trust.grounds import Grounds
from perfgate.judging.forge.runner import (
    OUTPUT_VARIABLE,
    append_to,
    output_lines,
    outputs_path,
)


def publish(
    artifact: Path | None, trusted: TrustedInputs, request: PublishRequest, doors: Doors
) -> int:
    """Publish a check, or all checks of a matrix as one, and return the exit code of the verdict, judged here.

    ``artifact`` is a check's folder or zip, or a folder with one for each testbed;
    None means the artifacts uploaded by the event's run. Raises ForgeError (exit code
    4) if the forge refuses; the comment and status there may then be from an earlier
    run. An error while judging is posted as INCONCLUSIVE and then raised.
    """
    outputs = None
    if request.outputs:
        outputs = given_file(outputs_path(doors.environ), OUTPUT_VARIABLE, "--outputs")
    artifacts = read_artifacts(artifact, trusted, request.key, request.testbeds)
    trusted = trusted.with_change(measured_change(artifacts))
    keeper = None
    if not request.dry_run:
        keeper = open_keeper(trusted, request.key, doors)
    wording = Wording(
        request.key,
        request.name,
        request.language,
        keeper,
        with_page=request.out is not None,
    )
    published = judge_artifacts(artifacts, trusted, wording, request.only, doors)
    try:
        if outputs is not None:
            values = {
                "verdict": published.verdict,
                "exit-code": str(published.exit_code),
            }
            append_to(outputs, output_lines(values), OUTPUT_VARIABLE)
        if request.out is not None:
            published.write(request.out)
    finally:
        # Even after an error, an older comment must not be mistaken for the verdict on this head.
        post(published, trusted, request, doors)
    # One workload that was ordered alone does not stand for the whole check.
    if request.record and not request.workload:
        record_verdicts(published, trusted, request.key, doors)
    if published.error is not None:
        raise published.error
    return published.exit_code


def judge_artifacts(
    artifacts: Sequence[ReadArtifact],
    trusted: TrustedInputs,
    wording: Wording,
    only: Collection[str],
    doors: Doors,
) -> Published:
    """Judge and word each artifact; ``only`` are the ordered workloads, if not all were."""
    wording = wording.for_artifacts(artifacts)
    judged = [
        _judged(artifact, trusted, wording, only, doors) for artifact in artifacts
    ]
    published = Published(judged, wording.context(trusted), wording.budget)
    for each in judged:
        if each.error is not None and each.error is not published.error:
            doors.say_foreign("".join(traceback.format_exception(each.error)))
    return published


def _judged(
    artifact: ReadArtifact,
    trusted: TrustedInputs,
    wording: Wording,
    only: Collection[str],
    doors: Doors,
) -> JudgedArtifact:
    """Judge, and render the decision.

    The documents are untrusted. Any error that they or the forge cause between reading and rendering becomes INCONCLUSIVE,
    with its own comment and status, so that the verdict on an earlier head is not mistaken for this one's. ``publish`` raises
    the error again after posting, so that the job's log has its traceback and the job its exit code.
    """
    try:
        decision = judge(artifact, trusted, only, doors)
        return wording.word(decision, artifact, trusted)
    except Exception as error:  # noqa: BLE001 - raised again by publish
        why = quote(type(error).__name__)
        if isinstance(error, ReasonedError):
            why = reason_of(error)
        why_not = Message("publish.not-judged", {"why": why})
        decision = undecided("INCONCLUSIVE", why_not, Grounds(), trusted.event)
        return replace(wording.word(decision, artifact, trusted), error=error)
