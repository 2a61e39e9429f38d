"""The privileged half of CI: judge an artifact again, believing no verdict in it, post the comment, set the status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from perfgate.catalogue.card import Language
from perfgate.config import CONFIG_NAME, load_config
from perfgate.document.decision import DecisionDocument, Policy, Procedure, SideSummary
from perfgate.document.files import read_run
from perfgate.document.history import Acceptance
from perfgate.document.run import FROM_PROFILE, RunDocument
from perfgate.errors import DocumentError, ForgeError, StoreError, UsageError
from perfgate.flows.decision import judge_folder_with_advice
from perfgate.flows.store import open_project_store
from perfgate.judging.forge.comment import TEXT_BUDGET, Decided, marker, state_of
from perfgate.judging.forge.detect import detect, log_lines, summary_path
from perfgate.judging.forge.forge import (
    ChangeRequest,
    CiEvent,
    CommitStatus,
    Forge,
    StatusState,
    connect,
    token_variables,
)
from perfgate.judging.forge.limits import Clock, Sleep
from perfgate.judging.forge.sticky import post
from perfgate.judging.gate.decide import exit_code
from perfgate.judging.report.comment import CommentContext, render_comment, render_turn
from perfgate.version import __version__

DEFAULT_KEY = "default"
_STATES: dict[str, StatusState] = {"FAIL": "failure", "INCONCLUSIVE": "error"}
_SHA = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class PublishRequest:
    """What to publish: a check folder, judged by the policy of the checkout at ``root``.

    ``key`` tells several gates of one repository apart; ``token_variable`` names the environment variable of the token
    where it is not one the forge's own.
    """

    folder: Path
    root: Path
    key: str = DEFAULT_KEY
    dry_run: bool = False
    token_variable: Optional[str] = None
    language: Language = "en"


@dataclass(frozen=True)
class Doors:
    """The ways out of the process: its environment, its output, its clock (seconds since the epoch)."""

    environ: Mapping[str, str]
    say: Callable[[str], None]
    sleep: Sleep
    clock: Clock


def publish(request: PublishRequest, doors: Doors) -> int:
    """Publish a check folder and return the exit code of its verdict, judged here."""
    event = detect(doors.environ)
    forge = _connect(request, doors, event)
    change = forge.find_change_request() if forge else None
    decision = _judge(request, doors, event, change)
    text = render_comment(decision, _context(request, event, decision), budget=TEXT_BUDGET)
    if forge is None or event is None:
        _show(text, request, doors, event)
    else:
        _post(forge, event, change, decision, text, request, doors)
    return exit_code(decision)


def _connect(request: PublishRequest, doors: Doors, event: Optional[CiEvent]) -> Optional[Forge]:
    """Return the forge to post to; None where nothing is to be posted."""
    if event is None or request.dry_run:
        return None
    names = (request.token_variable,) if request.token_variable else token_variables(event.forge)
    token = next((doors.environ[name] for name in names if doors.environ.get(name)), None)
    return connect(event, token, sleep=doors.sleep, clock=doors.clock) if token else None


def _judge(
    request: PublishRequest, doors: Doors, event: Optional[CiEvent], change: Optional[ChangeRequest]
) -> DecisionDocument:
    has_config = (request.root / CONFIG_NAME).exists()
    policy = load_config(request.root, environ=doors.environ).policy() if has_config else None
    head_path = request.folder / "head" / "run.json"
    try:
        if not head_path.exists():
            raise DocumentError("there is none with a head/run.json; see the log of the measuring job")
        if event is not None:
            _refuse_stranger(read_run(head_path), event, change)
        # The artifact's own word that a regression is meant counts for nothing.
        return judge_folder_with_advice(request.folder, policy=policy, accepted=_accepted(request, doors))
    except DocumentError as error:
        # Where the folder lies on the runner is nobody's business.
        return _nothing_to_judge(str(error).replace(f"{request.folder}/", ""), policy, event)


def _accepted(request: PublishRequest, doors: Doors) -> list[Acceptance]:
    """Return what the project's own store knows to be accepted; without a project or a store nothing is."""
    if not (request.root / CONFIG_NAME).exists():
        return []
    config = load_config(request.root, environ=doors.environ)
    try:
        return open_project_store(config, doors.environ).accepted(config.project)
    except StoreError as error:
        doors.say(f"what was accepted is not known: {error}")
        return []


def _refuse_stranger(head: RunDocument, event: CiEvent, change: Optional[ChangeRequest]) -> None:
    """Raise DocumentError unless a run document was measured for this event.

    A job that is run again alone finds the artifact of an earlier attempt, so that may be lower. What was measured is
    the head itself, or the forge's merge of it.
    """
    ci = head.session.ci
    if head.session.command == "upgrade":
        raise DocumentError("this is an upgrade report, which judges no change; publish the folder of a perfgate check")
    if head.session.command == FROM_PROFILE:
        raise DocumentError(
            "head/run.json was made from a recording, and publish takes only what its own pipeline measured"
        )
    if ci is None:
        raise DocumentError(
            "head/run.json was not measured in CI, and publish takes only what its own pipeline measured"
        )
    pairs = [
        ("forge", ci.forge, event.forge),
        ("repository", ci.repository, event.repository),
        ("run id", ci.run_id, event.run_id),
        ("head commit", ci.head_sha, event.head_sha),
    ]
    for what, found, wanted in pairs:
        if found != wanted:
            raise DocumentError(f"head/run.json has the {what} {found!r}, but this job runs for {wanted!r}")
    if ci.run_attempt > event.run_attempt:
        raise DocumentError(
            f"head/run.json is of attempt {ci.run_attempt}, but this job of attempt {event.run_attempt}"
        )
    merge = change.merge_sha if change and change.head_sha == event.head_sha else None
    if head.source.dirty or head.source.commit not in {event.head_sha, event.built_sha, merge} - {None}:
        raise DocumentError(
            f"head/run.json measured the commit {head.source.commit!r}, but this job runs for {event.head_sha!r}"
        )


def _nothing_to_judge(why: str, policy: Optional[Policy], event: Optional[CiEvent]) -> DecisionDocument:
    """Return the decision over an artifact that is missing, damaged or another's: never a silent green."""
    return DecisionDocument(
        perfgate_version=__version__,
        project=event.repository if event else "",
        verdict="INCONCLUSIVE",
        reasons=[f"artifact: {why}"],
        base=SideSummary(),
        head=SideSummary(commit=event.head_sha if event else None),
        device="unknown",
        policy=policy or Policy(),
        procedure=Procedure(name="none", version=1, seed=0, quantiles=[]),
    )


def _context(request: PublishRequest, event: Optional[CiEvent], decision: DecisionDocument) -> CommentContext:
    base = decision.base.commit or ""
    return CommentContext(
        marker=marker(request.key),
        artifact_url=event.artifact_url if event else None,
        job_url=event.job_url if event else None,
        reproduce=f"perfgate check --base {base[:12]} --out perfgate-out" if _SHA.fullmatch(base) else None,
        language=request.language,
    )


def _show(text: str, request: PublishRequest, doors: Doors, event: Optional[CiEvent]) -> None:
    doors.say(log_lines(text, doors.environ))
    summary = summary_path(doors.environ)
    if request.dry_run:
        doors.say("Nothing was posted: this is a dry run.")
        return
    if summary is not None:
        _append(summary, text)
    if event is None:
        doors.say("Nothing was posted: this is not a CI job of a forge that perfgate knows.")
    else:
        names = request.token_variable or " or ".join(token_variables(event.forge))
        doors.say(f"Nothing was posted: no token in {names}.")


def _append(summary: Path, text: str) -> None:
    try:
        with summary.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise UsageError(f"the job summary {summary} cannot be written: {error}") from error


def _post(
    forge: Forge,
    event: CiEvent,
    change: Optional[ChangeRequest],
    decision: DecisionDocument,
    text: str,
    request: PublishRequest,
    doors: Doors,
) -> None:
    if change is not None:

        def told(last: Decided, now: Decided) -> str:
            return render_turn(last, now, event.head_sha, request.language)

        state = state_of(event, decision.verdict)
        done = post(forge, change.number, text, state, marker(request.key), sleep=doors.sleep, told=told)
        if done.outcome == "kept":
            doors.say(f"The comment on change request {change.number} is from a newer run; it was left as it is.")
            return
        doors.say(f"The comment on change request {change.number} was {done.outcome}.")
    else:
        doors.say(log_lines(text, doors.environ))
        doors.say(f"No open change request has the head {event.head_sha[:12]}: only the commit status is set.")
    _mark(forge, event, decision, request, doors)


def _mark(forge: Forge, event: CiEvent, decision: DecisionDocument, request: PublishRequest, doors: Doors) -> None:
    """Set the commit status. A token without that right is no reason to fail: this job's exit code says the same."""
    name = "perfgate" if request.key == DEFAULT_KEY else f"perfgate/{request.key}"
    state = _STATES.get(decision.verdict, "success")
    status = CommitStatus(event.head_sha, state, name, _description(decision), event.job_url)
    try:
        forge.set_status(status)
    except ForgeError as error:
        doors.say(f"The commit status was not set: {error}")
    else:
        doors.say(f"The commit status {name} of {event.head_sha[:12]} is {state}.")


def _description(decision: DecisionDocument) -> str:
    gating = [comparison for comparison in decision.comparisons if comparison.gating]
    if not gating:
        return f"{decision.verdict}: nothing could be compared"
    regressed = sum(comparison.outcome == "regressed" for comparison in gating)
    return f"{decision.verdict}: {regressed} of {len(gating)} comparisons regressed"
