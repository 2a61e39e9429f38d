"""The verdict: rules in the order in which they are asked, of which the first that
applies decides, and its exit code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfgate.catalogue.names import SETTINGS
from perfgate.document.comparison import Bound, Checked, Comparison, Exact
from perfgate.document.decision import (
    ComparedSides,
    DecisionDocument,
    EvidenceGaps,
    Failure,
    HarnessChange,
    UnfitHarness,
    Verdict,
)
from perfgate.document.message import Message, as_message
from perfgate.errors import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.judging.gate.plan.harness import is_consequence

# The first of these that a testbed has is the verdict of all. A testbed that was
# skipped, because no relevant file changed, does not count.
ORDER: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "WARN", "PASS", "SKIPPED")


class VerdictRule(NamedTuple):
    """A verdict, the code of its reason, and the names it applies to: it gives the
    verdict if ``names`` is not empty.
    """

    verdict: Verdict
    code: str
    names: Sequence[Message | str]


@dataclass(frozen=True)
class VerdictBasis:
    """Everything that a verdict rests on.

    ``untimed`` are places of recordings without a time of kernels. ``uncounted`` is why
    there are no counts in the recording of a side: its tables contradict each other, or
    are cut off.
    """

    sides: ComparedSides
    comparisons: Sequence[Comparison] = ()
    gaps: EvidenceGaps = field(default_factory=EvidenceGaps)
    untimed: Sequence[str] = ()
    uncounted: Sequence[Message] = ()

    @property
    def undecided(self) -> list[Comparison]:
        return [
            comparison
            for comparison in self.comparisons
            if comparison.outcome == "inconclusive"
        ]


def verdict_of(basis: VerdictBasis) -> tuple[Verdict, list[Message]]:
    """The verdict and its reasons."""
    for rule in verdict_rules(basis):
        if rule.names:
            code = f"verdict.{rule.code}"
            return rule.verdict, [Message(code, {"name": name}) for name in rule.names]
    return "PASS", []


def verdict_rules(basis: VerdictBasis) -> list[VerdictRule]:
    """Every rule in the order in which they are asked.

    An upgrade report judges a stack, and no commit is to blame for it: a slowdown is a
    warning, after everything unmeasured.
    """
    regressed = []
    for comparison in basis.comparisons:
        if comparison.gating and comparison.outcome == "regressed":
            regressed.append(_name(comparison))
    if basis.sides.comparing == "stack":
        first = [*_unmeasured(basis), VerdictRule("WARN", "regressed", regressed)]
    else:
        first = [VerdictRule("FAIL", "regressed", regressed), *_unmeasured(basis)]
    return [*first, *_undecided(basis), *_warnings(basis)]


def _unmeasured(basis: VerdictBasis) -> list[VerdictRule]:
    """The rules on evidence that is missing or worthless: it may be the very evidence
    of a regression.
    """
    failed = set()
    counted_only = []
    out_of_time = set()
    for failure in basis.gaps.failures:
        if failure.error.is_out_of_time:
            out_of_time.add(failure.workload)
        elif failure.error.lacks_time_for_pairs:
            counted_only.append(_about(failure.workload, failure.error.message))
        elif _is_error(failure, basis.sides.harness_changes):
            failed.add(f"{failure.side} {failure.workload} {failure.what}")
    invalid = []
    for entry in basis.gaps.invalid:
        invalid.append(
            Message(
                "verdict.place", {"place": "/".join(entry.place), "what": entry.message}
            )
        )
    other_files = [
        _about(change.workload, change.message)
        for change in basis.sides.harness_changes
        if isinstance(change, UnfitHarness)
    ]
    testbeds: list[str] = []
    if basis.sides.comparing == "code":
        testbeds += [difference.field for difference in basis.sides.testbed_differences]
    # The reason for missing numbers is more helpful than their names.
    uncounted: Sequence[Message] = ()
    if basis.gaps.missing:
        uncounted = basis.uncounted
    missing = []
    for gap in basis.gaps.missing:
        named = filter(None, (gap.place.label, gap.metric, f"({gap.side})"))
        missing.append(" ".join(named))
    bounds = [
        _name(bound)
        for bound in basis.undecided
        if isinstance(bound, Bound) and bound.gating
    ]
    return [
        # These two end with another exit code, so they are the reasons given for it.
        VerdictRule("INCONCLUSIVE", "failed", sorted(failed)),
        VerdictRule("INCONCLUSIVE", "invalid", invalid),
        VerdictRule("INCONCLUSIVE", "harness", other_files),
        VerdictRule("INCONCLUSIVE", "testbed", testbeds),
        VerdictRule("INCONCLUSIVE", "uncounted", uncounted),
        VerdictRule("INCONCLUSIVE", "out-of-time", sorted(out_of_time)),
        VerdictRule("INCONCLUSIVE", "missing", missing),
        VerdictRule("INCONCLUSIVE", "not-judged", bounds),
        VerdictRule("INCONCLUSIVE", "counted-only", counted_only),
    ]


def _undecided(basis: VerdictBasis) -> list[VerdictRule]:
    nothing = [Message("gate.nothing-compared")]
    for comparison in basis.comparisons:
        if comparison.gating or comparison.accepted:
            nothing = []
    undecided = [
        _name(comparison) for comparison in basis.undecided if comparison.must_decide
    ]
    return [
        VerdictRule("INCONCLUSIVE", "nothing-compared", nothing),
        VerdictRule("INCONCLUSIVE", "undecided", undecided),
        VerdictRule("INCONCLUSIVE", "untimed", basis.untimed),
    ]


def _warnings(basis: VerdictBasis) -> list[VerdictRule]:
    doubtful = []
    unsteady = []
    settings = []
    for comparison in basis.undecided:
        if comparison.gating:
            continue
        if isinstance(comparison, (Bound, Checked)):
            doubtful.append(_name(comparison))
        elif comparison.metric == SETTINGS:
            settings.append(_about(comparison.workload, comparison.reason))
        elif isinstance(comparison, Exact):
            # It differs between the head's own calls, so it cannot be compared with the
            # base's, and must not hide behind that.
            unsteady.append(_about(_name(comparison), comparison.reason))
    costless = []
    accepted = []
    for comparison in basis.comparisons:
        if isinstance(comparison, Exact) and comparison.costless:
            costless.append(_name(comparison))
        if comparison.accepted:
            values = {"place": _name(comparison), "by": comparison.accepted}
            accepted.append(Message("verdict.accepted-by", values))
    hiding = [
        _about(change.workload, change.message)
        for change in basis.sides.harness_changes
        if change.hides
    ]
    return [
        VerdictRule("WARN", "harness", hiding),
        VerdictRule("WARN", "doubtful", doubtful),
        VerdictRule("WARN", "unsteady", unsteady),
        VerdictRule("WARN", "setting", settings),
        VerdictRule("WARN", "costless", costless),
        VerdictRule("WARN", "accepted", accepted),
    ]


def exit_code(decision: DecisionDocument) -> int:
    """The documented exit code: an error is not a verdict, so a failed measurement has
    its own.
    """
    if decision.verdict == "FAIL":
        return EXIT_FAIL
    if decision.verdict != "INCONCLUSIVE":
        return EXIT_PASS
    gaps = decision.gaps
    changes = decision.sides.harness_changes
    has_error = any(_is_error(failure, changes) for failure in gaps.failures)
    if gaps.invalid or has_error:
        return EXIT_MEASURING
    return EXIT_INCONCLUSIVE


def _is_error(failure: Failure, changes: list[HarnessChange]) -> bool:
    """Whether something failed, and not by a changed workload file; too little time is
    no failure.
    """
    return not failure.error.lacks_time and not is_consequence(failure, changes)


def _about(place: str, what: Message | str | None) -> Message:
    return Message("verdict.about", {"place": place, "what": as_message(what or "")})


def _name(comparison: Comparison) -> str:
    return f"{comparison.place.label} {comparison.name}"


# --- several testbeds


def joint_verdict(verdicts: Collection[Verdict]) -> Verdict:
    """The verdict of a matrix: FAIL if any testbed fails, else INCONCLUSIVE if any is
    undecided or missing.
    """
    return next(verdict for verdict in ORDER if verdict in verdicts)
