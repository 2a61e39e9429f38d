"""All suggestions of a run or of a decision, the most promising first."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perfgate.document.decision import DecisionDocument, Suggestion
from perfgate.document.message import english
from perfgate.document.run import RunDocument
from perfgate.judging.advice.advisor import on_advisories
from perfgate.judging.advice.changes import on_changes
from perfgate.judging.advice.findings import is_new, on_findings

_KINDS = {"measured": 0, "estimated": 1}
_SEVERITIES = {"severe": 0, "warning": 1, "info": 2}


def suggestions(run: RunDocument) -> list[Suggestion]:
    return _ranked([*on_findings(run), *on_advisories(run)])


def advised(decision: DecisionDocument, base: RunDocument, head: RunDocument) -> DecisionDocument:
    """The decision with its suggestions; those on what the change introduced say so.

    A pure function of the documents. Where the testbeds differ nothing that head alone shows is the change's doing.
    """
    comparable = not decision.testbed_differences or decision.comparing == "stack"
    of_base = {(advisory.workload, advisory.category) for advisory in base.advisories}
    advice = on_changes(decision)
    for suggestion in suggestions(head):
        if suggestion.step is None:
            new = bool(of_base) and (suggestion.workload, suggestion.rule) not in of_base
        else:
            new = is_new(suggestion, base)
        advice.append(msgspec.structs.replace(suggestion, introduced=comparable and new))
    return msgspec.structs.replace(decision, suggestions=_ranked(advice))


def _ranked(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Each suggestion once, by what it surely saves, then by what it may save, then by severity.

    One rule on one line is the same advice whatever the shape: that of the shape which gains most stays.
    """
    ordered = sorted(suggestions, key=_rank)
    once: dict[tuple[object, ...], Suggestion] = {}
    for suggestion in ordered:
        once.setdefault(
            (suggestion.workload, suggestion.rule, english(suggestion.message), suggestion.line), suggestion
        )
    return list(once.values())


def _rank(suggestion: Suggestion) -> tuple[int, float, int, bool, str, str]:
    gain = suggestion.gain
    return (
        _KINDS[gain.kind] if gain else len(_KINDS),
        -gain.saved if gain else 0.0,
        _SEVERITIES[suggestion.severity],
        suggestion.source != "perfgate",
        suggestion.workload,
        suggestion.rule,
    )
