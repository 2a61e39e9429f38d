"""The plan of a check in one line, for the terminal and the commit status."""

from __future__ import annotations

from perfgate.document.plan import MeasurementPlan
from perfgate.judging.report.text.numbers import beyond
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import Words
from perfgate.locale import Language, speaking

_MOST_WORKLOADS = 4


def plan_line(plan: MeasurementPlan, language: Language = "en") -> Words:
    with speaking(language):
        names = plan.workloads
        return line(
            "ci/plan.j2",
            "plain",
            measure=plan.measure,
            reason=plan.reason,
            workloads=names[:_MOST_WORKLOADS],
            more=beyond(names, _MOST_WORKLOADS),
            places=plan.testbeds or [plan.device],
        )
