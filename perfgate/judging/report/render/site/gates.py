"""gates.html: the verdicts on changes, what became of each failure, and whether they justify a gate that blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from perfgate.document.gates import GateRecord
from perfgate.document.site import SiteContent
from perfgate.judging.report.render.site.addresses import GATES, SiteLinks
from perfgate.judging.report.render.site.frame import render_page
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.trend_rows import gates_line, minute, short
from perfgate.locale import Language, speaking

_MAX_ROWS = 500
# The class of a verdict's label.
_LABELS = {"PASS": "ok", "WARN": "attention", "FAIL": "regressed", "INCONCLUSIVE": "inconclusive"}
_SETTLED = {
    "open": phrase("neither accepted nor withdrawn"),
    "accepted": phrase("accepted"),
    "withdrawn": phrase("withdrawn: a later commit of the change does not fail"),
}


def render_gates(content: SiteContent, links: SiteLinks, language: Language) -> str:
    with speaking(language):
        records, history = content.gates, content.trend.gates
        standing = {gate.commit for gate in history.standing} if history else set()
        values = {
            "title": say("Gates"),
            "mark": Words("SKIPPED" if history is None else "FAIL" if standing else "PASS"),
            "headline": numbers.counted(history.gates if history else 0, "gate"),
            "line": gates_line(content.trend),
            "rows": [_row(record, standing, content.accepted_commits) for record in records[:_MAX_ROWS]],
            "more": max(0, len(records) - _MAX_ROWS),
            "several_gates": len({record.gate for record in records}) > 1,
            "several_testbeds": any(record.testbed for record in records),
        }
        return render_page("site/gates.html.j2", GATES, content, links, values)


def _row(record: GateRecord, standing: Collection[str], accepted: Collection[str]) -> Mapping[str, object]:
    settled = Words("")  # of another verdict than a failure
    if record.verdict == "FAIL" or record.commit in accepted:
        end = "accepted" if record.commit in accepted else "open" if record.commit in standing else "withdrawn"
        settled = say(_SETTLED[end])
    return {
        "when": minute(record.judged_at),
        "change": Words(str(record.change or "")),
        "link": record.link,
        "commit": short(record.commit),
        "gate": record.gate,
        "testbed": record.testbed,
        "verdict": Words(record.verdict),
        "label": Words(_LABELS.get(record.verdict, "")),
        "settled": settled,
    }
