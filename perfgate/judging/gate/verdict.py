"""The verdict: rules in the order in which they are asked, of which the first that applies decides, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfgate.catalogue.names import SETTINGS
from perfgate.document.comparison import Bound, Checked, Comparison, Exact
from perfgate.document.decision import (
    Comparing,
    DecisionDocument,
    Failure,
    HarnessChange,
    Invalid,
    Missing,
    TestbedDifference,
    Verdict,
)
from perfgate.document.message import Message, quote
from perfgate.errors import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.judging.gate.plan.harness import is_consequence


class VerdictRule(NamedTuple):
    """A verdict, the code of its reason, and the names it applies to: it gives the verdict if ``names`` is not empty."""

    verdict: Verdict
    code: str
    names: Sequence[Message | str]


@dataclass(frozen=True)
class VerdictBasis:
    """Everything that a verdict rests on.

    ``untimed`` are places of recordings without a time of kernels. ``uncounted`` is why nothing was counted in the recording of
    a side: its tables contradict each other, or are cut off.
    """

    comparing: Comparing
    comparisons: list[Comparison] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    differences: list[TestbedDifference] = field(default_factory=list)
    invalid: list[Invalid] = field(default_factory=list)
    changes: list[HarnessChange] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    untimed: list[str] = field(default_factory=list)
    uncounted: list[Message] = field(default_factory=list)

    @property
    def gating(self) -> list[Comparison]:
        return [comparison for comparison in self.comparisons if comparison.gating]

    @property
    def undecided(self) -> list[Comparison]:
        return [comparison for comparison in self.comparisons if comparison.outcome == "inconclusive"]


def verdict_of(basis: VerdictBasis) -> tuple[Verdict, list[Message]]:
    """The verdict and its reasons."""
    for rule in verdict_rules(basis):
        if rule.names:
            reasons = [Message(f"verdict.{rule.code}", {"name": name}) for name in rule.names]
            return rule.verdict, reasons
    return "PASS", []


def verdict_rules(basis: VerdictBasis) -> list[VerdictRule]:
    """Every rule in the order in which they are asked.

    An upgrade report judges a stack, and no commit is to blame for it: a slowdown is a warning, after everything unmeasured.
    """
    regressed = [_name(comparison) for comparison in basis.gating if comparison.outcome == "regressed"]
    if basis.comparing == "stack":
        first = [*_unmeasured(basis), VerdictRule("WARN", "regressed", regressed)]
    else:
        first = [VerdictRule("FAIL", "regressed", regressed), *_unmeasured(basis)]
    return [*first, *_undecided(basis), *_warnings(basis)]


def _unmeasured(basis: VerdictBasis) -> list[VerdictRule]:
    """The rules on evidence that is missing or worthless: it may be the very evidence of a regression."""
    failed = {f"{f.side} {f.workload} {f.what}" for f in basis.failures if _is_error(f, basis.changes)}
    counted_only = [_about(f.workload, f.error.message) for f in basis.failures if f.error.is_of_slow_calls]
    invalid = [
        Message("verdict.place", {"place": "/".join(entry.place), "what": entry.message}) for entry in basis.invalid
    ]
    other_files = [_about(c.workload, c.message) for c in basis.changes if c.is_not_comparable]
    testbeds = [difference.field for difference in basis.differences] if basis.comparing == "code" else []
    bounds = [_name(c) for c in basis.undecided if isinstance(c, Bound) and c.gating]
    return [
        # These two end with another exit code, so they are the reasons given for it.
        VerdictRule("INCONCLUSIVE", "failed", sorted(failed)),
        VerdictRule("INCONCLUSIVE", "invalid", invalid),
        VerdictRule("INCONCLUSIVE", "harness", other_files),
        VerdictRule("INCONCLUSIVE", "testbed", testbeds),
        # The reason for missing numbers is more helpful than their names.
        VerdictRule("INCONCLUSIVE", "uncounted", basis.uncounted if basis.missing else []),
        VerdictRule("INCONCLUSIVE", "missing", [_missing_name(entry) for entry in basis.missing]),
        VerdictRule("INCONCLUSIVE", "not-judged", bounds),
        VerdictRule("INCONCLUSIVE", "counted-only", counted_only),
    ]


def _undecided(basis: VerdictBasis) -> list[VerdictRule]:
    has_any = basis.gating or any(comparison.accepted for comparison in basis.comparisons)
    return [
        VerdictRule("INCONCLUSIVE", "nothing-compared", [] if has_any else [Message("gate.nothing-compared")]),
        VerdictRule("INCONCLUSIVE", "undecided", [_name(c) for c in basis.undecided if c.must_decide]),
        VerdictRule("INCONCLUSIVE", "untimed", basis.untimed),
    ]


def _warnings(basis: VerdictBasis) -> list[VerdictRule]:
    informing = [comparison for comparison in basis.undecided if not comparison.gating]
    doubtful = [_name(comparison) for comparison in informing if isinstance(comparison, (Bound, Checked))]
    counts = [comparison for comparison in informing if isinstance(comparison, Exact)]
    # A count that differs between the head's own calls cannot be compared with the base's: it must not hide behind that.
    unsteady = [_about(_name(count), count.reason) for count in counts if count.metric != SETTINGS]
    settings = [_about(count.workload, count.reason) for count in counts if count.metric == SETTINGS]
    costless = [_name(c) for c in basis.comparisons if isinstance(c, Exact) and c.costless]
    accepted = [
        Message("verdict.accepted-by", {"place": _name(comparison), "by": comparison.accepted})
        for comparison in basis.comparisons
        if comparison.accepted
    ]
    hiding = [_about(change.workload, change.message) for change in basis.changes if change.hides]
    return [
        VerdictRule("WARN", "harness", hiding),
        VerdictRule("WARN", "doubtful", doubtful),
        VerdictRule("WARN", "unsteady", unsteady),
        VerdictRule("WARN", "setting", settings),
        VerdictRule("WARN", "costless", costless),
        VerdictRule("WARN", "accepted", accepted),
    ]


def exit_code(decision: DecisionDocument) -> int:
    """The documented exit code: an error is not a verdict, so a failed measurement has its own."""
    if decision.verdict == "FAIL":
        return EXIT_FAIL
    if decision.verdict == "INCONCLUSIVE":
        failed = any(_is_error(failure, decision.harness_changes) for failure in decision.failures)
        return EXIT_MEASURING if failed or decision.invalid else EXIT_INCONCLUSIVE
    return EXIT_PASS


def _is_error(failure: Failure, changes: list[HarnessChange]) -> bool:
    """Whether something failed, and not by a changed workload file; a workload that was only counted did not fail."""
    return not failure.error.is_of_slow_calls and not is_consequence(failure, changes)


def _missing_name(entry: Missing) -> str:
    place = f"{entry.workload}/{entry.shape}" if entry.shape else entry.workload
    return " ".join(part for part in (place, entry.metric, f"({entry.side})") if part)


def _about(place: str, what: Message | str | None) -> Message:
    return Message("verdict.about", {"place": place, "what": what if isinstance(what, Message) else quote(what or "")})


def _name(comparison: Comparison) -> str:
    place = f"{comparison.workload}/{comparison.shape}" if comparison.shape else comparison.workload
    return f"{place} {comparison.name}"
