"""compare/: two runs of main, their numbers side by side with main's level; no difference and no verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.history import StoredRun
from perfgate.document.run import RunDocument
from perfgate.document.site import BesideLevel
from perfgate.judging.report.render.site.cells import split_levels
from perfgate.judging.report.render.site.page import SitePage
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.judging.report.view.page_tables import testbed_rows
from perfgate.judging.report.view.trend_rows import check_command

_MAX_ROWS = 600


@dataclass(frozen=True)
class Condition:
    """A property of how both runs were measured."""

    name: Words
    earlier: str
    later: str

    @property
    def differs(self) -> bool:
        return self.earlier != self.later


def render_compare(
    earlier: StoredRun,
    later: StoredRun,
    documents: tuple[RunDocument, RunDocument],
    rows: Sequence[BesideLevel],
    page: SitePage,
) -> str:
    """The page of two runs as the store lists them, with their documents.

    ``timed`` numbers have an interval at ``level``, of which about ``by_chance`` fall outside.
    """
    apart, rest = split_levels(rows[:_MAX_ROWS])
    timed, confidence = 0, 0.0
    for row in rows:
        timed += row.interval is not None and not row.series.is_exact
        confidence = max(confidence, row.confidence or 0.0)
    differences = [row for row in testbed_rows(*documents) if row.base != row.head]
    level, by_chance = EMPTY, EMPTY
    if confidence:
        level = numbers.confidence(confidence)
        by_chance = Words(f"{math.ceil(timed * (1 - confidence) * 10) / 10:.1f}")
    return page.render(
        "compare",
        say("Two runs"),
        earlier=earlier,
        later=later,
        same_testbed=earlier.fingerprint == later.fingerprint,
        differences=differences[:_MAX_ROWS],
        apart=apart,
        rest=rest,
        more=numbers.beyond(rows, _MAX_ROWS),
        timed=timed,
        level=level,
        by_chance=by_chance,
        conditions=_conditions(*documents),
        command=check_command(earlier.commit, later.commit),
    )


def render_compare_form(page: SitePage, unknown: str) -> str:
    """The page that asks for two runs.

    ``unknown`` are digits that no run, or more than one, begins with.
    """
    return page.render(
        "compare_form",
        say("Two runs"),
        unknown=unknown,
        runs=page.content.runs[:_MAX_ROWS],
    )


def _conditions(earlier: RunDocument, later: RunDocument) -> list[Condition]:
    waits = _longest_wait(earlier), _longest_wait(later)
    warnings = numbers.whole(len(earlier.warnings)), numbers.whole(len(later.warnings))
    versions = (
        f"perfgate {earlier.perfgate_version}",
        f"perfgate {later.perfgate_version}",
    )
    return [
        Condition(say("procedure"), _procedure(earlier), _procedure(later)),
        Condition(say("longest wait for a CPU"), *waits),
        Condition(say("warnings"), *warnings),
        Condition(say("measured by"), *versions),
    ]


def _longest_wait(run: RunDocument) -> Words:
    waits = [step.waited for step in run.checklist.steps if step.waited is not None]
    return numbers.percent(max(waits, default=None))


def _procedure(run: RunDocument) -> Words:
    kinds = {workload.quick for workload in run.workloads}
    if kinds == {True}:
        return say("quick")
    if kinds == {False}:
        return say("full")
    if kinds <= {None}:
        return say("not recorded")
    return say("quick and full")
