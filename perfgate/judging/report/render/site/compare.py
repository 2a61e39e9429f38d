"""compare/: two runs of main, their numbers side by side beside main's level; no difference and no verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfgate.document.history import StoredRun
from perfgate.document.run import RunDocument
from perfgate.document.site import BesideLevel, SiteContent
from perfgate.judging.report.render.site.addresses import COMPARE, SiteLinks, compare_address
from perfgate.judging.report.render.site.cells import interval_count, level_cells, run_cells
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.page_tables import testbed_rows
from perfgate.judging.report.view.trend_rows import check_command
from perfgate.locale import Language, speaking

_MAX_ROWS = 600


def render_compare(
    earlier: StoredRun,
    later: StoredRun,
    documents: tuple[RunDocument, RunDocument],
    rows: Sequence[BesideLevel],
    content: SiteContent,
    links: SiteLinks,
    language: Language,
) -> str:
    """The page of two runs as the store lists them, with their documents."""
    with speaking(language):
        address = compare_address(earlier.id, later.id)
        root = links.root(address)
        cells = [level_cells(placed, links, root) for placed in rows[:_MAX_ROWS]]
        timed = interval_count(rows)
        confidence = max((row.confidence or 0.0 for row in rows), default=0.0)
        differences = [row for row in testbed_rows(*documents) if row.base != row.head]
        values = {
            "title": say("Two runs"),
            "earlier": run_cells(earlier, content, links, root),
            "later": run_cells(later, content, links, root),
            "same_testbed": earlier.fingerprint == later.fingerprint,
            "differences": differences[:_MAX_ROWS],
            "apart": [row for row, placed in zip(cells, rows) if placed.is_apart],
            "rest": [row for row, placed in zip(cells, rows) if not placed.is_apart],
            "more": max(0, len(rows) - _MAX_ROWS),
            "timed": timed,
            "level": numbers.confidence(confidence) if confidence else Words(""),
            "by_chance": Words(f"{math.ceil(timed * (1 - confidence) * 10) / 10:.1f}") if confidence else Words(""),
            "conditions": _conditions(documents),
            "command": check_command(earlier.commit, later.commit),
        }
        return render_page("site/compare.html.j2", address, content, links, values)


def render_compare_form(content: SiteContent, links: SiteLinks, language: Language, *, unknown: str = "") -> str:
    """The page that asks for two runs; ``unknown`` are digits that no run, or more than one, begins with."""
    with speaking(language):
        root = links.root(COMPARE)
        values = {
            "title": say("Two runs"),
            "unknown": unknown,
            "rows": [run_cells(run, content, links, root) for run in content.runs[:_MAX_ROWS]],
        }
        return render_page("site/compare_form.html.j2", COMPARE, content, links, values)


def _conditions(sides: tuple[RunDocument, RunDocument]) -> list[Mapping[str, object]]:
    """How both runs were measured, a row for each property."""
    procedures = [_procedure(run) for run in sides]
    waits = [max((step.waited for step in run.steps if step.waited is not None), default=None) for run in sides]
    rows: list[tuple[Words, Sequence[str]]] = [
        (say("procedure"), procedures),
        (say("longest wait for a CPU"), [numbers.DASH if wait is None else numbers.percent(wait) for wait in waits]),
        (say("warnings"), [numbers.whole(len(run.warnings)) for run in sides]),
        (say("measured by"), [f"perfgate {run.perfgate_version}" for run in sides]),
    ]
    return [{"name": name, "earlier": of[0], "later": of[1], "differs": of[0] != of[1]} for name, of in rows]


def _procedure(run: RunDocument) -> Words:
    kinds = {workload.quick for workload in run.workloads}
    if kinds == {True}:
        return say("quick")
    return say("full") if kinds == {False} else say("not recorded") if kinds <= {None} else say("quick and full")
