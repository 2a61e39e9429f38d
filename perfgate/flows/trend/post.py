"""The posting half of ``perfgate trend``: our issue on the forge, its last state, and the new text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfgate.document.trend import TrendDocument, TrendState
from perfgate.flows.shared.doors import Doors
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
from perfgate.judging.forge.runner import (
    SUMMARY_VARIABLE,
    append_to,
    log_lines,
    summary_path,
)
from perfgate.judging.report.render.trend import issue_title, render_issue, render_news
from perfgate.judging.report.view.summary import CommentContext
from perfgate.judging.trend.standing import state_of
from perfgate.locale import Language, sentence

DEFAULT_KEY = "default"


@dataclass(frozen=True)
class OurIssue:
    """The issue of this repository before we write, or the reason why it cannot be posted."""

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
        doors.say(log_lines(text, doors.environ))
        _summarise(text, doors)
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
    _summarise(text, doors)
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


def _summarise(text: str, doors: Doors) -> None:
    summary = summary_path(doors.environ)
    if summary is not None:
        append_to(summary, text + "\n", SUMMARY_VARIABLE)
