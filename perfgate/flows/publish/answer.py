"""``perfgate command --answer``: post the result of an ordered bisection as a comment."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perfgate.document.bisection import BISECTION_FILE, BisectionDocument, CommitChange
from perfgate.document.strict_json import parse_json
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.publish.command import connect_to_answer
from perfgate.flows.shared.doors import Doors
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.runner import log_lines
from perfgate.judging.report.render.bisection import render_bisection_answer
from perfgate.locale import Language

_MOST_BYTES = 4 * 1024 * 1024


def answer_bisection(folder: Path, language: Language, doors: Doors) -> None:
    """Answer with the bisection in ``folder``, or with its absence. It is untrusted and never becomes a verdict.

    Raises UsageError outside a CI job for a change request, DocumentError if the bisection is not one of this change, after a
    comment that it is missing, and ForgeError if the forge refuses.
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
    doors.say(log_lines(text, doors.environ))
    if wrong is not None:
        raise wrong


def _read(path: Path, head: str) -> BisectionDocument | None:
    """The bisection of the commits up to ``head``; None if there is none. Raises DocumentError for any other."""
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
    if not document.searched.changes or not document.tried:
        return False
    commits = [document.searched.good or ""]
    for change in document.searched.changes:
        if not isinstance(change, CommitChange):
            return False
        commits += [change.commit, change.before]
    positions = list(document.suspects)
    for block in document.culprits:
        positions += block
    for trial in document.tried:
        positions += trial.changes
    if document.outcome == "found" and (
        not document.culprits or not all(document.culprits)
    ):
        return False
    are_commits = all(COMMIT_ID.fullmatch(commit) for commit in commits)
    return are_commits and all(
        0 <= position < len(document.searched.changes) for position in positions
    )
