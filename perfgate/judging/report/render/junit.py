"""A decision as JUnit XML: one test case for each metric of each workload and shape,
for hosts that show tests.

GitLab reads suites, cases with ``name`` and ``classname``, and one of failure, error
and skipped per case (docs.gitlab.com, "Unit test reports"). GitLab recognizes a new
failure by the names of its case, so they must stay the same from run to run: they are
the documents' own words, in no language.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Failure
from perfgate.document.run import RunDocument
from perfgate.judging.report.text import formats
from perfgate.judging.report.text.escape import MAX_PROSE, clean
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import first_line, place_of
from perfgate.judging.report.text.numbers import DASH
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.view.headline import headline
from perfgate.judging.report.view.rows import label, row
from perfgate.judging.report.view.run_steps import step_row
from perfgate.judging.report.view.summary import Summary
from perfgate.locale import Language, speaking

SUITE = "perfgate"
VERDICT = "verdict"
_EMPTY = "(empty)"
_STEP_KINDS = {"ok": None, "attention": None, "error": "error"}
_VERDICT_KINDS = {"FAIL": "failure", "INCONCLUSIVE": "error", "SKIPPED": "skipped"}
# All characters that XML 1.0 forbids, escaped or not (section 2.2, production "Char").
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(decision: DecisionDocument, language: Language) -> str:
    """The report of a decision.

    A regression that fails the gate is a failure, a failed measurement an error.
    """
    summary = Summary(decision, "plain")
    with speaking(language):
        cases = [_verdict_case(summary)]
        for failure in decision.gaps.failures:
            if failure.side != "pair":
                cases.append(_failure_case(failure))
        for comparison in summary.metrics:
            cases.append(_metric_case(comparison, summary))
        # Regressed operators are not metrics, but a verdict may rest on them.
        for comparison in summary.regressed:
            if comparison not in summary.metrics:
                cases.append(_metric_case(comparison, summary))
    return _document(_with_own_names(cases))


def junit_of_run(run: RunDocument, language: Language) -> str:
    with speaking(language):
        cases = []
        for step in run.checklist.steps:
            worded = step_row(step)
            name = f"{step.number} {step.slug}"
            kind = _STEP_KINDS.get(step.status, "skipped")
            text = "\n".join(worded.notes)
            cases.append(_case(step.workload, name, kind, worded.status, text))
        return _document(_with_own_names(cases))


def junit_without_verdict(why: str) -> str:
    """The report of a job without a verdict: an error, never empty."""
    return _document([_case(SUITE, VERDICT, "error", why, why)])


def _verdict_case(summary: Summary) -> ET.Element:
    words = headline(summary)
    kind = _VERDICT_KINDS.get(summary.verdict)
    has_regression = any(_fails(row, summary) for row in summary.regressed)
    if summary.failures or has_regression:
        kind = None  # another case already fails
    return _case(SUITE, VERDICT, kind, summary.verdict, words)


def _failure_case(failure: Failure) -> ET.Element:
    error = failure.error
    message = first_line(word(error.message))
    text = render(
        "ci/junit_error.txt.j2",
        "plain",
        message=message,
        text=error.traceback or error.log_tail,
    )
    name = f"{failure.what} ({failure.side})"
    return _case(failure.workload, name, "error", message, text)


def _metric_case(comparison: Comparison, summary: Summary) -> ET.Element:
    text = render(
        "ci/junit_metric.txt.j2",
        "plain",
        row=row(comparison, summary),
        has_limit=formats.limit(comparison) != DASH,
    )
    kind = None
    if comparison.outcome in ("inconclusive", "not_comparable"):
        kind = "skipped"
    if _fails(comparison, summary):
        kind = "failure"
    message: str = formats.change(comparison)
    if comparison.reason is not None:
        message += f": {word(comparison.reason)}"
    return _case(place_of(comparison), comparison.metric, kind, message, text)


def _fails(comparison: Comparison, summary: Summary) -> bool:
    return comparison.outcome == "regressed" and label(comparison, summary) == "FAIL"


def _case(
    classname: str, name: str, kind: str | None, message: str, text: str
) -> ET.Element:
    case = ET.Element("testcase", {"classname": _name(classname), "name": _name(name)})
    if kind is None:
        ET.SubElement(case, "system-out").text = _xml(text)
        return case
    result = ET.SubElement(case, kind, {"message": _name(message)})
    if kind != "skipped":
        result.set("type", kind)
        result.text = _xml(text) or _EMPTY
    return case


def _with_own_names(cases: list[ET.Element]) -> list[ET.Element]:
    """Number the cases with equal names after cleaning: a host would show only the last
    of them.
    """
    used = set()
    for case in cases:
        classname = case.attrib["classname"]
        first = case.attrib["name"]
        name = first
        number = 1
        while (classname, name) in used:
            number += 1
            name = f"{first} #{number}"
        used.add((classname, name))
        case.set("name", name)
    return cases


def _document(cases: list[ET.Element]) -> str:
    suites = ET.Element("testsuites")
    count = {"name": SUITE, "tests": str(len(cases))}
    suite = ET.SubElement(suites, "testsuite", count)
    suite.extend(cases)
    for name, tag in _COUNTED.items():
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    ET.indent(suites)
    text = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def _name(text: str) -> str:
    return _xml(clean(text, limit=MAX_PROSE)).strip() or _EMPTY


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
