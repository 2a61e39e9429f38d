"""``perfgate trend``: read main's histories, confirm suspected changes, write the
report, post it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from perfgate.config import Config, load_config
from perfgate.document.files import write_atomically, write_text_atomically
from perfgate.document.history import Confirmation
from perfgate.document.kept import KeptLink
from perfgate.document.strict_json import parse_json
from perfgate.document.trend import ConfirmationsFile, TrendDocument, TrendState
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.shared.artifacts import kept_reader, open_artifacts
from perfgate.flows.shared.doors import Bisect, Check, Doors, Progress, Remembering
from perfgate.flows.shared.session import prepare_out
from perfgate.flows.shared.store import open_project_store
from perfgate.flows.shared.trend.commits import commit_names
from perfgate.flows.shared.trend.read import (
    Wanted,
    find_trend,
    open_documents,
    read_histories,
)
from perfgate.flows.trend.confirm import (
    confirm_suspected,
    keep_confirmations,
    read_confirmations,
)
from perfgate.flows.trend.culprit import bisect_oldest
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent, token_variables
from perfgate.judging.forge.issues import (
    Issue,
    IssueForge,
    IssueState,
    find_own,
    issue_marker,
    keeps_issues,
    post_issue,
    read_state,
    text_budget,
)
from perfgate.judging.report.render.trend import (
    issue_title,
    render_email,
    render_issue,
    render_news,
)
from perfgate.judging.report.render.trend_page import (
    MAX_PICTURES,
    render_trend_page,
    runs_beside,
)
from perfgate.judging.report.view.summary import CommentContext
from perfgate.judging.report.view.trend_rows import moved_by
from perfgate.judging.store.index import read_log
from perfgate.judging.trend.gates import gate_history
from perfgate.judging.trend.standing import state_of
from perfgate.locale import Language, sentence

DEFAULT_KEY = "default"
_STATE_FILE = "trend-state.json"
_CONFIRMATIONS_FILE = "confirmations.json"
_MOST_STATE_BYTES = 256 * 1024


@dataclass(frozen=True)
class TrendRequest:
    """The series to search and the outputs to write; without ``metrics`` or
    ``workloads``, the default of ``Wanted``.
    """

    root: Path
    metrics: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    out: Path | None = None
    email: Path | None = None
    confirm: bool = False
    max_seconds: float = 1800.0
    confirmations: Path | None = None
    post: bool = False
    key: str = DEFAULT_KEY
    language: Language = "en"


def run_trend(
    request: TrendRequest,
    doors: Doors,
    progress: Progress,
    check: Check,
    bisect: Bisect,
) -> TrendDocument:
    """Compute the trend and write the requested outputs; ``check`` and ``bisect``
    measure what is to be confirmed.

    Raises UsageError if there is no run of main.
    """
    config = load_config(request.root, environ=doors.environ)
    remembered = Remembering(progress)
    # Find unwritable folders and unreachable forges before an hour of measuring, not
    # after it.
    out = None
    if request.out:
        out = prepare_out(request.out)
    if request.email is not None and not request.email.parent.is_dir():
        raise UsageError(
            "{folder} is not a folder; create it, or write the e-mail elsewhere",
            folder=request.email.parent,
        )
    issue = None
    if request.post:
        issue = find_issue(request.key, doors)
    before = _state_before(issue, out)
    log = read_log(open_project_store(config, doors.environ), config.project)
    selection = Wanted(request.metrics, request.workloads)
    stored = read_histories(
        log, selection, remembered, seconds_since_1970=doors.clock()
    )
    # Without outputs they only give the origin of changes.
    note = remembered.note if out or request.post or request.email else lambda _: None
    opened = open_documents(log, stored, note=note)
    find = partial(
        find_trend,
        log,
        opened,
        before=before,
        name_commits=commit_names(config.root, log),
    )
    document = find(confirmations=log.confirmations)
    added = _confirmations(request, document, config, remembered, check)
    if request.confirm and config.trend.bisect:
        # A suspicion that was refuted just now is not searched for.
        confirmed = find(confirmations=[*added, *log.confirmations])
        added += bisect_oldest(
            config,
            confirmed,
            remembered,
            check=check,
            bisect=bisect,
            clock=time.monotonic,
        )
    if added:
        keep_confirmations(log, added, note=remembered.note)
        document = find(confirmations=[*added, *log.confirmations])
    gates = gate_history(log.gates, log.acceptances, log.triages)
    document = msgspec.structs.replace(document, notes=remembered.notes, gates=gates)
    if out is not None:
        _write(document, out, config, request.language, doors, remembered)
        if request.confirm:
            file = ConfirmationsFile(project=config.project, confirmations=added)
            write_atomically(out / _CONFIRMATIONS_FILE, msgspec.json.encode(file))
    if request.email is not None:
        write_text_atomically(request.email, render_email(document, request.language))
    if issue is not None:
        post_trend(document, issue, request.key, request.language, doors)
    return document


def _confirmations(
    request: TrendRequest,
    document: TrendDocument,
    config: Config,
    progress: Remembering,
    check: Check,
) -> list[Confirmation]:
    """The confirmations of suspected changes by another job, and by measuring them
    here.
    """
    confirmations: list[Confirmation] = []
    if request.confirmations is not None:
        confirmations += read_confirmations(
            request.confirmations, document, note=progress.note
        )
    if request.confirm:
        confirmations += confirm_suspected(
            config,
            document,
            progress,
            check=check,
            max_seconds=request.max_seconds,
            clock=time.monotonic,
        )
    return confirmations


def _write(
    document: TrendDocument,
    out: Path,
    config: Config,
    language: Language,
    doors: Doors,
    progress: Progress,
) -> None:
    links = _kept_beside_changes(document, config, doors, progress)
    issue_text = render_issue(document, CommentContext(marker="", language=language))
    write_atomically(
        out / "trend.json", msgspec.json.encode(document, order="deterministic")
    )
    write_text_atomically(
        out / "trend.html", render_trend_page(document, language, links)
    )
    write_text_atomically(out / "trend.md", issue_text)
    write_atomically(
        out / _STATE_FILE,
        msgspec.json.encode(state_of(document.series, document.runs.newest)),
    )


def _kept_beside_changes(
    document: TrendDocument, config: Config, doors: Doors, progress: Progress
) -> dict[str, list[KeptLink]]:
    """The kept files of the runs on both sides of the changes that the page draws."""
    store = open_artifacts(config, doors.environ)
    if store is None:
        return {}
    read, links = kept_reader(store, document.project), dict[str, list[KeptLink]]()
    for cause in document.causes[:MAX_PICTURES]:
        for run_id in runs_beside(moved_by(cause, document)[0]):
            if run_id not in links:
                artifacts = read(run_id)
                if artifacts.why:
                    progress.note(
                        sentence("artifacts are not linked: {why}", why=artifacts.why)
                    )
                    return links
                links[run_id] = artifacts.links
    return links


def _state_before(issue: OurIssue | None, out: Path | None) -> TrendState | None:
    if issue is not None:
        return issue.state
    if out is None or not (path := out / _STATE_FILE).exists():
        return None
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_STATE_BYTES + 1)
        return msgspec.convert(
            parse_json(data, name=str(path), max_bytes=_MOST_STATE_BYTES), TrendState
        )
    except (OSError, msgspec.ValidationError) as error:
        raise DocumentError(
            "{path}: {error}; remove it, and everything is reported as new once more",
            path=path,
            error=error,
        ) from error


@dataclass(frozen=True)
class OurIssue:
    """The issue of this repository before we write, or the reason why it cannot be
    posted.
    """

    event: CiEvent | None = None
    forge: IssueForge | None = None
    issue: Issue | None = None
    why_not: str = ""

    @property
    def state(self) -> TrendState | None:
        """The state that the issue last reported; None if there is no issue yet."""
        if self.issue and (state := read_state(self.issue.body)):
            return state.trend
        return None


def find_issue(key: str, doors: Doors) -> OurIssue:
    """Our current issue. Raises ForgeError if the forge refuses."""
    event = detect(doors.environ)
    if event is None:
        return OurIssue(
            why_not=sentence("this is not a CI job of a forge that perfgate knows")
        )
    forge = doors.connect(event)
    if forge is None:
        names = " or ".join(token_variables(event.forge))
        return OurIssue(
            event=event, why_not=sentence("no token in {names}", names=names)
        )
    with_issues = keeps_issues(forge)
    return OurIssue(event, with_issues, find_own(with_issues, issue_marker(key)))


def post_trend(
    document: TrendDocument, ours: OurIssue, key: str, language: Language, doors: Doors
) -> None:
    """Write the report into our issue, or print it if that is impossible."""
    context = CommentContext(language=language)
    if ours.event:
        context = replace(
            context,
            artifact_url=ours.event.job.artifact_url,
            job_url=ours.event.job.job_url,
        )
    if ours.forge is None or ours.event is None:
        text = render_issue(document, context)
        doors.say_foreign(text)
        doors.summarise(text)
        doors.say(sentence("Nothing was posted: {why_not}.", why_not=ours.why_not))
        return
    state = IssueState(
        run=int(ours.event.job.run_id),
        attempt=ours.event.job.run_attempt,
        trend=state_of(document.series, document.runs.newest),
    )
    first_line = issue_marker(key)
    text = render_issue(document, context, budget=text_budget(state, first_line))
    posted = post_issue(
        ours.forge,
        ours.issue,
        title=issue_title("" if key == DEFAULT_KEY else key, language),
        text=text,
        state=state,
        first_line=first_line,
        news=render_news(document, language),
    )
    doors.summarise(text)
    where = ""
    if ours.issue:
        where = f" {ours.issue.number}"
    if posted == "kept":
        doors.say(
            sentence(
                "The issue{where} is from a newer run; it was left as it is.",
                where=where,
            )
        )
    else:
        doors.say(
            sentence("The issue{where} was {posted}.", where=where, posted=posted)
        )
