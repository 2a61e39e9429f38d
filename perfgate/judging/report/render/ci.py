"""Output for CI hosts, other than the comment: regressed lines in the diff, a run's
checklist, and why there is no verdict.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument
from perfgate.document.explanation import Cause
from perfgate.document.plan import MeasurementPlan
from perfgate.document.run import RunDocument
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.media import plain_line
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.numbers import beyond
from perfgate.judging.report.text.templates import Medium, line, render
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say
from perfgate.judging.report.view.causes import CauseView
from perfgate.judging.report.view.facts import counts
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.rows import label
from perfgate.judging.report.view.run_steps import run_title, step_rows
from perfgate.judging.report.view.summary import Summary
from perfgate.locale import Language, speaking

Level = Literal["error", "warning"]
_LOCATION = re.compile(r"(?P<path>[^:\x00-\x1f]{1,400}):(?P<line>[1-9][0-9]{0,6})")
_MESSAGE_LINES = 6
_LONGEST_LINE = 300
_MOST_WORKLOADS = 4


class Location(NamedTuple):
    """A line of the head; ``path`` is relative to the clone."""

    path: str
    line: int


class Annotation(NamedTuple):
    """An annotation that a host shows at a line; without a ``location`` it is about the
    whole change.
    """

    level: Level
    title: str
    message: str
    location: Location | None = None


def annotate(
    decision: DecisionDocument, language: Language = "en", *, prefix: str = ""
) -> list[Annotation]:
    """The annotations at lines, the worst first; empty for a verdict without
    regressions. ``prefix`` is as in ``parse_location``.
    """
    if decision.verdict not in ("FAIL", "WARN"):
        return []
    summary = Summary(decision, "plain")
    with speaking(language):
        return [
            *_at_causes(summary, prefix),
            *_at_harness_changes(summary, prefix),
        ]


def status_line(decision: DecisionDocument, language: Language) -> str:
    """The text of a commit status: the verdict and how many of the comment's metrics
    regressed.
    """
    with speaking(language):
        return line(
            "ci/status.j2",
            "plain",
            verdict=decision.verdict,
            counts=counts(Summary(decision, "plain")),
        )


def plan_line(plan: MeasurementPlan, language: Language) -> Words:
    """The plan of a check, for the terminal and the commit status."""
    with speaking(language):
        return line(
            "ci/plan.j2",
            "plain",
            plan=plan,
            workloads=plan.workloads[:_MOST_WORKLOADS],
            more=beyond(plan.workloads, _MOST_WORKLOADS),
            places=plan.testbeds or [plan.device],
        )


def verdict_annotation(
    decision: DecisionDocument, language: Language
) -> Annotation | None:
    """The verdict as an annotation without a line, None for a verdict that needs no
    action.
    """
    if decision.verdict in ("PASS", "SKIPPED"):
        return None
    level: Level = "error"
    if decision.verdict == "WARN":
        level = "warning"
    with speaking(language):
        words = headline(Summary(decision, "plain"))
    return Annotation(level, f"perfgate: {decision.verdict}", words)


def _at_causes(summary: Summary, prefix: str) -> list[Annotation]:
    titled: dict[str, tuple[Comparison, Cause]] = {}
    for comparison in summary.regressed:
        cause = summary.cause_of(comparison)
        if cause is not None and cause.line:
            titled.setdefault(cause.line, (comparison, cause))
    messages: dict[str, list[str]] = {}
    for line_of_cause in titled:
        messages[line_of_cause] = []
    for cause, places in summary.causes:
        if cause.line:
            messages.setdefault(cause.line, []).append(
                plain_line(CauseView(cause, places).in_full)
            )
    annotations = []
    for place, lines in messages.items():
        location = parse_location(place, prefix)
        if location is not None:
            annotations.append(_annotation(location, lines, titled.get(place), summary))
    return annotations


def _annotation(
    location: Location,
    messages: Sequence[str],
    titled: tuple[Comparison, Cause] | None,
    summary: Summary,
) -> Annotation:
    if titled is None:
        return Annotation(
            "warning", f"perfgate: {summary.verdict}", _joined(messages), location
        )
    comparison, cause = titled
    words = line(
        "ci/annotation_title.j2",
        "plain",
        label=label(comparison, summary),
        named=comparison,
    )
    own = [plain_line(CauseView(cause).in_short)]
    level: Level = "warning"
    if summary.verdict == "FAIL" and comparison.gating:
        level = "error"
    return Annotation(level, f"perfgate: {words}", _joined(messages or own), location)


def _at_harness_changes(summary: Summary, prefix: str) -> list[Annotation]:
    title = f"perfgate: {say('workload file')}"
    annotations = []
    for change in summary.harness_losses:
        locations = [parse_location(place, prefix) for place in change.lines]
        for location in itertools.islice(filter(None, locations), 1):
            words = clean(word(change.message), limit=_LONGEST_LINE)
            annotations.append(Annotation("warning", title, words, location))
    return annotations


def parse_location(text: str, prefix: str = "") -> Location | None:
    """The place in a text like ``model.py:88``, None if the text names none in the
    clone.

    The text is relative to the project's folder, which ``prefix`` names in the clone,
    with a slash at its end. Code that projects share lies above it.
    """
    while prefix and text.startswith("../"):
        text = text.removeprefix("../")
        prefix = prefix[: prefix.rstrip("/").rfind("/") + 1]
    match = _LOCATION.fullmatch(text)
    if (
        match is None
        or match["path"].startswith(("/", "~"))
        or ".." in match["path"].split("/")
    ):
        return None
    return Location(prefix + match["path"], int(match["line"]))


def _joined(messages: Sequence[str]) -> str:
    return "\n".join(
        clean(message, limit=_LONGEST_LINE) for message in messages[:_MESSAGE_LINES]
    )


# Why there is no verdict, by the exit code of the command that measured.
_ENDS = phrases(
    {
        2: "wrong usage or configuration",
        4: "the measurement failed",
        5: "a bug in perfgate",
        130: "interrupted",
    }
)


def run_markdown(run: RunDocument, language: Language) -> str:
    with speaking(language):
        return render(
            "ci/run.md.j2", "markdown", title=run_title(run), steps=step_rows(run)
        )


def no_verdict(
    why: str,
    exit_code: int | None,
    language: Language,
    *,
    medium: Medium = "plain",
) -> str:
    """One line with the reason for the missing verdict and how the measurement ended."""
    with speaking(language):
        end = EMPTY
        if exit_code in _ENDS:
            end = say(_ENDS[exit_code])
        return line("ci/no_verdict.j2", medium, why=why, code=exit_code, end=end)
