"""gates.html: the verdicts on changes, what became of each failure, and whether they justify a gate that blocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perfgate.document.gates import GateRecord
from perfgate.document.site import SiteContent
from perfgate.judging.report.render.site.addresses import GATES, SiteLinks
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.templates import TemplateView
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.trend_rows import gates_line
from perfgate.locale import Language, speaking

_MAX_ROWS = 500
# The class of a verdict's label.
_LABELS = {"PASS": "ok", "WARN": "attention", "FAIL": "regressed", "INCONCLUSIVE": "inconclusive"}


@dataclass(frozen=True)
class GateRow:
    """A verdict, the class of its label, and what became of a failure."""

    record: GateRecord
    label: Words
    settled: Words


@dataclass(frozen=True)
class Gates(TemplateView):
    """The verdicts, newest first."""

    mark: Words
    headline: Words
    line: Words | None
    rows: Sequence[GateRow]
    more: int
    several_gates: bool
    several_testbeds: bool


def render_gates(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        records, history = content.gates, content.trend.gates
        standing = {gate.commit for gate in history.standing} if history else set()
        mark = "FAIL" if standing else "PASS"
        rows = [_row(record, standing, content.accepted_commits) for record in records[:_MAX_ROWS]]
        page = Gates(
            mark=Words(mark if history else "SKIPPED"),
            headline=numbers.counted(history.gates if history else 0, "gate"),
            line=gates_line(content.trend),
            rows=rows,
            more=numbers.beyond(records, _MAX_ROWS),
            several_gates=len({record.gate for record in records}) > 1,
            several_testbeds=any(record.testbed for record in records),
        )
        return render_page("site/gates.html.j2", say("Gates"), GATES, content, links, page)


def _row(record: GateRecord, standing: Collection[str], accepted: Collection[str]) -> GateRow:
    settled = Words("")  # of another verdict than a failure
    if record.commit in accepted:
        settled = say("accepted")
    elif record.verdict == "FAIL" and record.commit in standing:
        settled = say("neither accepted nor withdrawn")
    elif record.verdict == "FAIL":
        settled = say("withdrawn: a later commit of the change does not fail")
    return GateRow(record, Words(_LABELS.get(record.verdict, "")), settled)
