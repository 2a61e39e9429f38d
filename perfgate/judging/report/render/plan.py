"""The plan of a check in one line, for the terminal and the commit status."""

from __future__ import annotations

from perfgate.document.plan import MeasurementPlan
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import Words
from perfgate.locale import Language, speaking

_MOST_WORKLOADS = 4


def plan_line(plan: MeasurementPlan, language: Language = "en") -> Words:
    with speaking(language):
        names = plan.workloads
        values = {
            "measure": plan.measure,
            "reason": plan.reason,
            "workloads": names[:_MOST_WORKLOADS],
            "more": max(0, len(names) - _MOST_WORKLOADS),
            "places": list(plan.testbeds) or [plan.device],
        }
        return line("ci/plan.j2", "plain", values)
