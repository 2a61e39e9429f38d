"""Which of two rules gives the verdict, for every pair of rules: a new rule without its rows here fails."""

from __future__ import annotations

from itertools import permutations
from typing import Any, NamedTuple

import msgspec
import pytest

from perfgate.document.decision import (
    ComparedSides,
    Comparing,
    EvidenceGaps,
    HarnessChange,
    HarnessRemoval,
    Invalid,
    Missing,
    Policy,
    SideSummary,
    UnfitHarness,
)
from perfgate.document.history import History
from perfgate.document.message import Message, quote
from perfgate.document.run import CALLS_TOO_SLOW, TIME_SPENT, ErrorDetail, FailedPair
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.verdict import VerdictBasis, exit_code, verdict_of, verdict_rules
from tests.each import each
from tests.fakes.documents import make_bound, make_comparison, make_counter, make_difference, make_failure
from tests.fakes.records import changed
from tests.unit.gate.builders import WORKLOAD, sides
from tests.wording import worded


class Row(NamedTuple):
    """A rule, and evidence to which it applies."""

    verdict: str
    reason: str
    evidence: dict[str, list[Any]]

    @property
    def name(self) -> str:
        return f"{self.verdict} {self.reason}"


def change(kind: Any, message: str) -> list[HarnessChange]:
    return [kind(workload="decoder", message=message)]


SLOW_CALLS = ErrorDetail(kind="timeout", message=Message(CALLS_TOO_SLOW, {"budget": 1040}))
SPENT = ErrorDetail(kind="timeout", message=TIME_SPENT)
SLOWER = make_comparison(outcome="regressed", delta=0.07, interval=(0.06, 0.08))
UNCHANGED = make_comparison("latency.p50")
# Of these two any number may apply; the first of them in this order gives the verdict.
OF_CODE = [
    Row("FAIL", "regressed", {"comparisons": [SLOWER]}),
    Row("INCONCLUSIVE", "failed", {"failures": [make_failure("pair", what="pair 3")]}),
    Row(
        "INCONCLUSIVE",
        "invalid",
        {"invalid": [Invalid(workload="encoder", shape="long", kind="throttled", message=quote("throttled"))]},
    ),
    Row("INCONCLUSIVE", "harness", {"changes": change(UnfitHarness, "the base does not run")}),
    Row("INCONCLUSIVE", "testbed", {"differences": [make_difference()]}),
    Row(
        "INCONCLUSIVE",
        "uncounted",
        {"missing": [Missing(workload="encoder", shape="long", side="head")], "uncounted": [quote("tables differ")]},
    ),
    Row("INCONCLUSIVE", "out-of-time", {"failures": [make_failure("pair", what="pair 0", error=SPENT)]}),
    Row("INCONCLUSIVE", "missing", {"missing": [Missing(workload="encoder", shape="long", side="head")]}),
    Row(
        "INCONCLUSIVE",
        "not-judged",
        {"comparisons": [make_bound("latency.p99", 0.02, None, outcome="inconclusive")]},
    ),
    Row("INCONCLUSIVE", "counted-only", {"failures": [make_failure("pair", what="pair 0", error=SLOW_CALLS)]}),
    Row("INCONCLUSIVE", "nothing-compared", {}),
    Row("INCONCLUSIVE", "undecided", {"comparisons": [make_comparison(outcome="inconclusive")]}),
    Row("INCONCLUSIVE", "untimed", {"untimed": ["encoder/long kernels.time: the recordings tell none"]}),
    Row("WARN", "harness", {"changes": change(HarnessRemoval, "the head no longer measures shape short")}),
    Row(
        "WARN",
        "doubtful",
        {"comparisons": [make_bound("latency.p99", 0.02, None, outcome="inconclusive", gating=False)]},
    ),
    Row(
        "WARN",
        "unsteady",
        {"comparisons": [make_counter("counters.copies", 1, 2, outcome="inconclusive", gating=False)]},
    ),
    Row(
        "WARN",
        "setting",
        {"comparisons": [make_counter("counters.settings", 0, 0, outcome="inconclusive", gating=False)]},
    ),
    Row(
        "WARN",
        "costless",
        {
            "comparisons": [
                msgspec.structs.replace(
                    make_counter("counters.copies", 1, 2, outcome="regressed"), gating=False, costless=True
                )
            ]
        },
    ),
    Row(
        "WARN",
        "accepted",
        {"comparisons": [msgspec.structs.replace(SLOWER, gating=False, accepted="mei: twice the layers")]},
    ),
]
# No commit can be blamed for a stack: what got slower warns, and only where everything could be measured. That the two
# testbeds differ is what is asked about.
SLOWER_STACK = OF_CODE[0]._replace(verdict="WARN")
OF_STACK = [
    *(row for row in OF_CODE[1:10] if row.reason != "testbed"),
    SLOWER_STACK,
    *OF_CODE[10:],
]
# A head judged by rules alone has no other testbed beside it.
OF_RULES = [row for row in OF_CODE if row.reason != "testbed"]
ORDERS: dict[Comparing, list[Row]] = {"code": OF_CODE, "stack": OF_STACK, "rules": OF_RULES}
# Something was compared, or accepted, where these apply.
COMPARED = {"regressed", "not-judged", "undecided", "accepted"}


def basis_of(*rows: Row, comparing: Comparing) -> VerdictBasis:
    """Return the evidence of rows, and one unchanged metric where nothing else is said."""
    evidence: dict[str, list[Any]] = {
        name: []
        for name in (
            "comparisons",
            "differences",
            "invalid",
            "failures",
            "changes",
            "missing",
            "untimed",
            "uncounted",
        )
    }
    for row in rows:
        for name, records in row.evidence.items():
            evidence[name] += records
    if not any(row.reason == "nothing-compared" for row in rows):
        evidence["comparisons"] = [*evidence["comparisons"], UNCHANGED]
    sides = ComparedSides(
        comparing=comparing,
        base=SideSummary(),
        head=SideSummary(),
        testbed_differences=evidence["differences"],
        harness_changes=evidence["changes"],
    )
    gaps = EvidenceGaps(failures=evidence["failures"], invalid=evidence["invalid"], missing=evidence["missing"])
    return VerdictBasis(sides, evidence["comparisons"], gaps, evidence["untimed"], evidence["uncounted"])


def expected(first: Row, second: Row, order: list[Row]) -> Row:
    pair = {first.reason, second.reason}
    if "nothing-compared" in pair and pair & COMPARED:
        return first if first.reason in COMPARED else second
    return min(first, second, key=order.index)


@pytest.mark.parametrize("comparing", ORDERS)
def test_rows__rules_that_are_asked__all_of_them_and_no_other(comparing: Comparing) -> None:
    asked = {f"{rule.verdict} {rule.code}" for rule in verdict_rules(basis_of(comparing=comparing))}
    rows = {row.name for row in ORDERS[comparing]}
    assert asked - {"INCONCLUSIVE testbed"} == rows - {"INCONCLUSIVE testbed"}
    assert ("INCONCLUSIVE testbed" in rows) is (comparing == "code")


@each("comparing, row", [(comparing, row) for comparing, order in ORDERS.items() for row in order])
def test_verdict__one_rule_applies__it_gives_the_verdict(comparing: Comparing, row: Row) -> None:
    verdict, reasons = verdict_of(basis_of(row, comparing=comparing))
    assert (verdict, {reason.code for reason in reasons if isinstance(reason, Message)}) == (
        row.verdict,
        {f"verdict.{row.reason}"},
    )


@each(
    "comparing, first, second",
    [(comparing, *pair) for comparing, order in ORDERS.items() for pair in permutations(order, 2)],
)
def test_verdict__two_rules_apply__the_one_that_outranks_the_other(
    comparing: Comparing, first: Row, second: Row
) -> None:
    verdict, reasons = verdict_of(basis_of(first, second, comparing=comparing))
    winner = expected(first, second, ORDERS[comparing])
    assert (verdict, {reason.code for reason in reasons if isinstance(reason, Message)}) == (
        winner.verdict,
        {f"verdict.{winner.reason}"},
    )


def test_verdict__no_rule_applies__pass() -> None:
    assert verdict_of(basis_of(comparing="code")) == ("PASS", [])


@pytest.mark.parametrize(
    ("undecided", "verdict"),
    [
        ("latency.p99", "PASS"),
        ("latency.p50", "PASS"),
        ("throughput.turnaround", "PASS"),
        ("throughput.gap", "INCONCLUSIVE"),
        ("preprocess.low", "INCONCLUSIVE"),
    ],
)
def test_verdict__calls_are_faster_and_another_metric_is_undecided__only_what_must_be_decided_withholds_it(
    undecided: str, verdict: str
) -> None:
    faster = make_comparison(outcome="improved", delta=-0.06, interval=(-0.08, -0.04))
    rows = Row("PASS", "faster", {"comparisons": [faster, make_comparison(undecided, outcome="inconclusive")]})
    assert verdict_of(basis_of(rows, comparing="code"))[0] == verdict


def test_verdict__testbed_differs_in_an_upgrade_report__that_is_the_question_and_no_obstacle() -> None:
    testbed = next(row for row in OF_CODE if row.reason == "testbed")
    assert verdict_of(basis_of(testbed, comparing="stack"))[0] == "PASS"


def test_decide__slower_and_one_pair_failed__fail_that_names_the_regression() -> None:
    base, head = sides([1.05] * 14)
    crashed = FailedPair(pair=20, arm="ab", workload=WORKLOAD, error=ErrorDetail(kind="exit", message="gone"))
    decision = decide(base, changed(head, failed=[crashed]), policy=Policy(), history=History())
    assert decision.verdict == "FAIL"
    assert worded(decision.reasons)[0] == "regressed: encoder/long latency.low"
    assert exit_code(decision) == 1


def test_exit_code__the_time_budget_ran_out__undecided_and_no_failed_measurement() -> None:
    base, head = sides([1.0] * 2)
    spent = FailedPair(pair=0, arm="stretch", workload=WORKLOAD, error=SPENT)
    decision = decide(base, changed(head, failed=[spent]), policy=Policy(), history=History())
    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == ["the time budget ran out: encoder"]
    assert exit_code(decision) == 3
    crashed = FailedPair(pair=1, arm="ab", workload=WORKLOAD, error=ErrorDetail(kind="exit", message="gone"))
    both = decide(base, changed(head, failed=[spent, crashed]), policy=Policy(), history=History())
    assert exit_code(both) == 4
