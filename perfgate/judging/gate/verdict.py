"""The verdict: rules in the order in which they are asked, of which the first that applies decides, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
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
from perfgate.judging.gate.plan.harness import hides, is_consequence


class VerdictRule(NamedTuple):
    """A verdict, the code of its reason, and the names it applies to: it gives the verdict if ``names`` is not empty."""

    verdict: Verdict
    code: str
    names: Sequence[Message | str]


def verdict_of(rules: list[VerdictRule]) -> tuple[Verdict, list[Message]]:
    """The verdict and its reasons."""
    for rule in rules:
        if rule.names:
            reasons = [Message(f"verdict.{rule.code}", {"name": name}) for name in rule.names]
            return rule.verdict, reasons
    return "PASS", []


def verdict_rules(
    comparisons: list[Comparison],
    differences: list[TestbedDifference],
    invalid: list[Invalid],
    failures: list[Failure],
    changes: list[HarnessChange],
    missing: list[Missing],
    comparing: Comparing,
    *,
    not_timed: list[str],
    uncounted: Sequence[Message] = (),
) -> list[VerdictRule]:
    """Every rule in the order in which they are asked; ``not_timed`` are places of recordings without a time of kernels.

    ``uncounted`` is why nothing was counted in the recording of a side: its tables contradict each other, or are cut off.

    An upgrade report judges a stack, which no commit can be blamed for: a slowdown is a warning.
    """
    gating = [c for c in comparisons if c.gating]
    inconclusive = [c for c in comparisons if c.outcome == "inconclusive"]
    open_bounds = [c for c in inconclusive if isinstance(c, Bound) and c.gating]
    undecided = [c for c in inconclusive if c.must_decide]
    doubtful = [c for c in inconclusive if isinstance(c, (Bound, Checked)) and not c.gating]
    open_counts = [c for c in inconclusive if isinstance(c, Exact) and not c.gating]
    # A count that differs between the head's own calls cannot be compared with the base's: it must not hide behind that.
    unsteady = [_about(_name(c), c.reason) for c in open_counts if c.metric != SETTINGS]
    other_settings = [_about(c.workload, c.reason) for c in open_counts if c.metric == SETTINGS]
    failed = {f"{f.side} {f.workload} {f.what}" for f in failures if _is_error(f, changes)}
    counted_only = [_about(f.workload, f.error.message) for f in failures if f.error.is_of_slow_calls]
    not_comparable = [_about(c.workload, c.message) for c in changes if c.kind == "not_comparable"]
    invalid_places = [
        Message("verdict.place", {"place": f"{i.workload}/{i.shape}", "what": i.message}) for i in invalid
    ]
    accepted = [
        Message("verdict.accepted-by", {"place": _name(c), "by": c.accepted}) for c in comparisons if c.accepted
    ]
    costless = [_name(c) for c in comparisons if isinstance(c, Exact) and c.costless]
    nothing_compared = not gating and not accepted
    regressed = [_name(c) for c in gating if c.outcome == "regressed"]
    slower = VerdictRule("WARN" if comparing == "stack" else "FAIL", "regressed", regressed)
    unmeasured = [
        # These two end with another exit code, so they are the reasons given for it.
        VerdictRule("INCONCLUSIVE", "failed", sorted(failed)),
        VerdictRule("INCONCLUSIVE", "invalid", invalid_places),
        VerdictRule("INCONCLUSIVE", "harness", not_comparable),
        VerdictRule("INCONCLUSIVE", "testbed", [d.field for d in differences] if comparing == "code" else []),
        # The reason for missing numbers is more helpful than their names.
        VerdictRule("INCONCLUSIVE", "uncounted", list(uncounted) if missing else []),
        # Missing evidence may be the very evidence of a regression, so nothing below counts without it.
        VerdictRule("INCONCLUSIVE", "missing", [_missing_name(entry) for entry in missing]),
        VerdictRule("INCONCLUSIVE", "not-judged", [_name(c) for c in open_bounds]),
        VerdictRule("INCONCLUSIVE", "counted-only", counted_only),
    ]
    return [
        *([*unmeasured, slower] if comparing == "stack" else [slower, *unmeasured]),
        VerdictRule("INCONCLUSIVE", "nothing-compared", [Message("gate.nothing-compared")] if nothing_compared else []),
        VerdictRule("INCONCLUSIVE", "undecided", [_name(c) for c in undecided]),
        VerdictRule("INCONCLUSIVE", "untimed", not_timed),
        VerdictRule(
            "WARN", "harness", [_about(change.workload, change.message) for change in changes if hides(change)]
        ),
        VerdictRule("WARN", "doubtful", [_name(c) for c in doubtful]),
        VerdictRule("WARN", "unsteady", unsteady),
        VerdictRule("WARN", "setting", other_settings),
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
