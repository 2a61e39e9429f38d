"""What a changed workload file changed, and what that makes of the decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perfgate.document.decision import DecisionDocument, HarnessEdit, Policy
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.document.run import CorrectnessResult, ErrorDetail, FailedPair, Harness, RunDocument, StepResult
from perfgate.errors import DocumentError
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.verdict import exit_code
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides
from tests.wording import text_of, worded

NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
SLOWER = [1.05 + 0.001 * pair for pair in range(14)]
BROKEN = ErrorDetail(kind="exception", message="TypeError: build() takes 0 positional arguments\nmore")


def harness(**fields: Any) -> Harness:
    """Return what a file measures: two shapes in batches of 8, with a check."""
    values: dict[str, Any] = {
        "workload": WORKLOAD,
        "reference": "perf/workload.py:encoder",
        "file_sha256": "a",
        "batch": 8,
        "shapes": {"short": "length=16", "long": "length=512"},
        "functions": {"build": "1", "inputs": "2", "check": "3"},
        "sla_p99": 0.05,
    }
    return Harness(**{**values, **fields})


def test_harness_changes__head_says_where_its_file_changed__the_change_says_it() -> None:
    decision = judged([harness()], [harness(batch=1, changed_lines=["perf/workload.py:5"])])
    assert decision.sides.harness_changes == [
        HarnessEdit(
            workload=WORKLOAD,
            message=Message("harness.batch-changed", {"before": 8, "after": 1}),
            lines=["perf/workload.py:5"],
        )
    ]


def kinds_and_words(decision: DecisionDocument) -> list[tuple[object, str]]:
    return [(change.__struct_config__.tag, text_of(change.message)) for change in decision.sides.harness_changes]


def judged(before: list[Harness], after: list[Harness], ratios: list[float] = NO_CHANGE) -> DecisionDocument:
    base, head = sides(ratios)
    base, head = changed(base, harness=before), changed(head, harness=after)
    return decide(base, head, policy=Policy(), history=History())


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"shapes": {"short": "length=16"}}, "removed", "the head no longer measures shape long"),
        (
            {"shapes": {"short": "length=16", "long": "length=64"}},
            "changed",
            "shape long changed from length=512 to length=64",
        ),
        ({"batch": 1}, "changed", "the batch changed from 8 to 1"),
        ({"batch_sizes": [1, 2]}, "changed", "the sizes of the batch sweep changed"),
        ({"functions": {"build": "1", "inputs": "2"}}, "removed", "the head removed check="),
        ({"functions": {"build": "1", "inputs": "2", "check": "9"}}, "changed", "the head changed check="),
        (
            {"functions": {"build": "1", "inputs": "2", "check": "3", "train_step": "4"}, "added": ["train_step"]},
            "changed",
            "the head added train_step=",
        ),
        ({"sla_p99": None}, "removed", "the head removed the P99 latency SLA"),
        ({"sla_p99": 0.5}, "changed", "the P99 latency SLA changed from 0.05 s to 0.5 s"),
        ({"file_sha256": "b"}, "changed", "other code in perf/workload.py or in a module next to it changed"),
    ],
)
def test_decide__head_measures_less_or_else__warn_with_the_reason(
    fields: dict[str, Any], kind: str, message: str
) -> None:
    decision = judged([harness()], [harness(**fields)])
    assert kinds_and_words(decision) == [(kind, message)]
    assert decision.verdict == "WARN"
    assert worded(decision.reasons) == [f"harness: encoder: {message}"]
    assert exit_code(decision) == 0


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([harness(shapes={"long": "length=512"})], [harness(added=["short"])], "shape short is new"),
        ([harness(functions={"build": "1", "inputs": "2"})], [harness(added=["check"])], "the head added check="),
        ([harness(sla_p99=None)], [harness(added=["sla_p99"])], "the head added a P99 latency SLA"),
        ([], [harness(added=[WORKLOAD])], "workload encoder is new"),
    ],
)
def test_decide__head_measures_more__recorded_and_pass(
    before: list[Harness], after: list[Harness], message: str
) -> None:
    decision = judged(before, after)
    assert kinds_and_words(decision) == [("added", message)]
    assert decision.verdict == "PASS"


def test_decide__files_measure_the_same__nothing_is_named() -> None:
    assert judged([harness()], [harness()]).sides.harness_changes == []


def test_decide__workload_gone_and_base_file_unreadable__warn_names_both() -> None:
    before = [harness(workload="decoder"), harness(error=BROKEN)]
    decision = judged(before, [harness()])
    assert decision.verdict == "WARN"
    assert worded(decision.reasons) == [
        "harness: decoder: the head no longer measures workload decoder",
        "harness: encoder: the measurements of the base's own workload file are unknown: "
        "TypeError: build() takes 0 positional arguments",
    ]


def test_decide__less_measured_and_slower__fail_that_still_names_the_change() -> None:
    decision = judged([harness()], [harness(batch=1)], SLOWER)
    assert decision.verdict == "FAIL"
    assert [text_of(change.message) for change in decision.sides.harness_changes] == ["the batch changed from 8 to 1"]


def broken_base(head_harness: list[Harness], base_harness: list[Harness]) -> tuple[RunDocument, RunDocument]:
    base, head = sides([])
    workloads = [msgspec.structs.replace(base.workloads[0], error=BROKEN)]
    base = changed(base, workloads=workloads, replicates=[], steps=[], harness=base_harness)
    return base, changed(head, replicates=[], harness=head_harness)


def test_decide__base_does_not_run_under_the_heads_file__not_comparable_and_exit_3() -> None:
    base, head = broken_base([harness(functions={"build": "9", "inputs": "2", "check": "3"})], [harness()])
    decision = decide(base, head, policy=Policy(), history=History())
    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == ["harness: encoder: the base does not run under the head's workload file"]
    assert exit_code(decision) == 3
    named = [c for c in decision.comparisons if c.outcome == "not_comparable"]
    assert [(c.workload, c.shape, text_of(c.reason)) for c in named] == [
        (WORKLOAD, SHAPE, "the base does not run under the head's workload file")
    ]


def test_decide__base_fails_under_an_unchanged_file__the_measuring_failed_and_exit_4() -> None:
    base, head = broken_base([], [])
    decision = decide(base, head, policy=Policy(), history=History())
    assert worded(decision.reasons) == ["failed: base encoder load"]
    assert exit_code(decision) == 4


@pytest.mark.parametrize(("number", "slug", "verdict"), [(13, "memory_format", "WARN"), (1, "latency", "INCONCLUSIVE")])
def test_decide__step_that_fails_on_the_base_under_the_heads_file__matters_if_the_gate_rests_on_it(
    number: int, slug: str, verdict: str
) -> None:
    base, head = sides(NO_CHANGE)
    failed = StepResult(number=number, slug=slug, workload=WORKLOAD, status="error", error=BROKEN)
    done = StepResult(number=number, slug=slug, workload=WORKLOAD, status="ok")
    base = changed(base, steps=[failed], harness=[harness()])
    head = changed(head, steps=[done], harness=[harness(functions={"build": "9", "inputs": "2", "check": "3"})])
    decision = decide(base, head, policy=Policy(), history=History())
    assert decision.verdict == verdict
    unfit = "harness: encoder: the base does not run under the head's workload file"
    assert (unfit in worded(decision.reasons)) == (verdict == "INCONCLUSIVE")


def test_decide__both_sides_fail_under_a_changed_file__the_head_is_to_blame() -> None:
    base, head = broken_base([harness(batch=1)], [harness()])
    failed = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="error", message="no")
    decision = decide(base, changed(head, correctness=[failed]), policy=Policy(), history=History())
    assert worded(decision.reasons) == ["failed: base encoder load", "failed: head encoder correctness"]
    assert exit_code(decision) == 4


def upgrade(ratios: list[float], **source: Any) -> tuple[RunDocument, RunDocument]:
    base, head = sides(ratios)
    session = msgspec.structs.replace(head.session, command="upgrade")
    comparable = {**head.testbed.comparable, "torch": "2.14.0"}
    testbed = msgspec.structs.replace(head.testbed, comparable=comparable, fingerprint="e" * 64)
    head_source = msgspec.structs.replace(base.source, **source)
    return (
        msgspec.structs.replace(base, session=session),
        msgspec.structs.replace(head, session=session, testbed=testbed, source=head_source),
    )


def test_decide__upgrade_to_a_slower_stack__warn_though_the_testbeds_differ() -> None:
    decision = decide(*upgrade(SLOWER), policy=Policy(), history=History())
    assert (decision.verdict, decision.sides.comparing) == ("WARN", "stack")
    assert "regressed: encoder/long latency.low" in worded(decision.reasons)
    assert [difference.field for difference in decision.sides.testbed_differences] == ["torch"]
    assert exit_code(decision) == 0


def test_decide__upgrade_to_an_equal_stack__pass() -> None:
    assert decide(*upgrade(NO_CHANGE), policy=Policy(), history=History()).verdict == "PASS"


@pytest.mark.parametrize("source", [{"commit": "b" * 40}, {"dirty": True}, {"commit": None}])
def test_decide__upgrade_of_two_commits__refused(source: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match="an upgrade report has the same commit on both sides"):
        decide(*upgrade(SLOWER, **source), policy=Policy(), history=History())


def test_decide__head_fails_too_where_the_base_does_not_run__its_own_failure_is_not_excused() -> None:
    base, head = broken_base([harness(functions={"build": "9", "inputs": "2", "check": "3"})], [harness()])
    failed = FailedPair(pair=3, arm="ab", workload=WORKLOAD, error=BROKEN)
    head = changed(head, failed=[failed], workloads=[msgspec.structs.replace(head.workloads[0], error=BROKEN)])

    decision = decide(base, head, policy=Policy(), history=History())

    assert any(reason.startswith("failed: head encoder") for reason in worded(decision.reasons)), worded(
        decision.reasons
    )
    assert exit_code(decision) == 4
