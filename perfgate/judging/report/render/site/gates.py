"""gates.html: the verdicts on changes, how each failure was settled, and whether they
justify a gate that blocks.
"""

from __future__ import annotations

from collections.abc import Collection

from perfgate.document.history import GateRecord
from perfgate.judging.report.render.site.page import SitePage
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import EMPTY, Words, say
from perfgate.judging.report.view.trend_rows import gates_line

_MAX_ROWS = 500
# The class of a verdict's label.
_LABELS = {
    "PASS": "ok",
    "WARN": "attention",
    "FAIL": "regressed",
    "INCONCLUSIVE": "inconclusive",
}


def render_gates(page: SitePage) -> str:
    """The verdicts, newest first, with the class of a label and the settlement."""
    content = page.content
    records = content.gates
    history = content.trend.gates
    mark = "SKIPPED"
    count = 0
    standing = set[str]()
    if history:
        mark = "PASS"
        count = history.gates
        standing = {gate.commit for gate in history.standing}
    if standing:
        mark = "FAIL"
    rows = []
    for record in records[:_MAX_ROWS]:
        label = Words(_LABELS.get(record.verdict, ""))
        rows.append(
            (record, label, _settlement(record, standing, content.accepted_commits))
        )
    return page.render(
        "gates",
        say("Gates"),
        mark=mark,
        headline=numbers.counted(count, "gate"),
        line=gates_line(content.trend),
        rows=rows,
        more=numbers.beyond(records, _MAX_ROWS),
        several_gates=len({record.gate for record in records}) > 1,
        several_testbeds=any(record.testbed for record in records),
    )


def _settlement(
    record: GateRecord, standing: Collection[str], accepted: Collection[str]
) -> Words:
    """How a failure was settled; empty for another verdict."""
    if record.commit in accepted:
        return say("accepted")
    if record.verdict != "FAIL":
        return EMPTY
    if record.commit in standing:
        return say("neither accepted nor withdrawn")
    return say("withdrawn: a later commit of the change does not fail")
