"""The decision as a whole: each verdict by the situation that must give it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import canonical_bytes, write_document
from perfgate.document.history import History, HistorySeries, write_history
from perfgate.document.message import Message, quote
from perfgate.document.run import CorrectnessResult, ErrorDetail, FailedPair, RunDocument, StepResult, Value
from perfgate.errors import DocumentError
from perfgate.judging.gate.decide import decide, judge_folder
from perfgate.judging.gate.look import Look
from perfgate.judging.gate.verdict import exit_code
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides
from tests.wording import text_of, worded

NO_HISTORY, DEFAULT_POLICY = History(), Policy()
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
SLOWER = [1.05 + 0.001 * pair for pair in range(14)]


def judge(
    base: RunDocument, head: RunDocument, *, history: History = NO_HISTORY, policy: Policy = DEFAULT_POLICY
) -> DecisionDocument:
    return decide(
        base, head, policy=policy, history=history, chosen_because=Message("gate.base-merge-base", {"revision": "main"})
    )


def comparison(decision: DecisionDocument, metric: str) -> Comparison:
    return next(found for found in decision.comparisons if found.metric == metric)


def with_counters(
    base: RunDocument, head: RunDocument, before: dict[str, int], after: dict[str, int], **fields: object
):
    return (
        changed(base, counters=[counters(before)]),
        changed(head, counters=[counters(after, **fields)]),  # type: ignore[arg-type]
    )


def test_decide__same_speed__pass() -> None:
    decision = judge(*sides(NO_CHANGE))
    assert decision.verdict == "PASS"
    assert exit_code(decision) == 0
    assert comparison(decision, "latency.low").outcome == "unchanged"
    assert comparison(decision, "throughput.gap").outcome == "unchanged"


def test_decide__five_percent_slower__fail_with_interval_around_the_truth() -> None:
    decision = judge(*sides([1.05] * 14))
    found = comparison(decision, "latency.low")
    assert decision.verdict == "FAIL"
    assert exit_code(decision) == 1
    assert found.outcome == "regressed"
    assert found.delta == pytest.approx(0.05, abs=1e-6)
    # Around the estimate by the luck of code alone: 1.65 standard deviations of 0.2 %.
    assert found.interval == pytest.approx((0.0465, 0.0535), abs=1e-4)
    assert found.confidence == pytest.approx(0.967, abs=1e-2)
    assert "regressed: encoder/long latency.low" in worded(decision.reasons)


def test_decide__slower_within_tolerance__pass() -> None:
    assert judge(*sides([1.004] * 14)).verdict == "PASS"


def test_decide__tolerance_raised_in_policy__pass() -> None:
    policy = Policy(tolerances={"latency.low": 0.1, "latency.p50": 0.1, "throughput.turnaround": 0.1})
    assert judge(*sides([1.05] * 14), policy=policy).verdict == "PASS"


def test_decide__five_percent_faster__pass_and_improved() -> None:
    decision = judge(*sides([0.95] * 14))
    assert decision.verdict == "PASS"
    assert comparison(decision, "latency.low").outcome == "improved"


def test_decide__one_wild_pair_among_equal_ones__pass() -> None:
    assert judge(*sides([*NO_CHANGE[:13], 1.4])).verdict == "PASS"


def test_decide__only_the_gap_grew__fail_by_throughput() -> None:
    decision = judge(*sides(NO_CHANGE, gaps=(1e-6, 0.0004)))
    regressed = [c.metric for c in decision.comparisons if c.outcome == "regressed"]
    assert regressed == ["throughput.gap", "throughput.turnaround"]
    assert decision.verdict == "FAIL"


def test_decide__a_gap_longer_than_the_call_is_gone__improved_to_nothing() -> None:
    found = comparison(judge(*sides(NO_CHANGE, gaps=(0.03, 0.0))), "throughput.gap")
    assert found.outcome == "improved"
    assert (found.base, found.head) == (pytest.approx(0.03), pytest.approx(0.0, abs=2e-5))


def test_decide__noise_of_ten_percent__inconclusive_and_says_how_many_pairs() -> None:
    ratios = np.exp(np.random.default_rng(5).normal(0.0, 0.1, 14)).tolist()
    decision = judge(*sides(ratios))
    found = comparison(decision, "latency.low")
    assert decision.verdict == "INCONCLUSIVE"
    assert exit_code(decision) == 3
    assert found.outcome == "inconclusive"
    assert found.pairs_needed is not None
    assert found.pairs_needed > 14


def test_decide__base_differs_from_itself__inconclusive_not_fail() -> None:
    decision = judge(*sides([1.05] * 14, aa_ratios=[1.05] * 7))
    assert decision.verdict == "INCONCLUSIVE"
    assert comparison(decision, "latency.low").outcome == "not_comparable"
    assert worded(decision.reasons) == ["invalid: encoder/long base against base differs in latency.low"]
    assert exit_code(decision) == 4


def test_decide__noise_floor__half_width_from_base_against_base() -> None:
    aa = [1.01, 1 / 1.01, 1.01, 1 / 1.01, 1.01, 1 / 1.01, 1.01]
    floor = next(f for f in judge(*sides(NO_CHANGE, aa_ratios=aa)).measured.noise_floors if f.metric == "latency.low")
    # 2.326 x 1.4826 x ln(1.01) / sqrt(14)
    assert floor.floor == pytest.approx(0.009171, rel=1e-3)
    assert not floor.differs


def test_decide__one_more_op__warns_with_op_and_line() -> None:
    pair = sides(NO_CHANGE)
    lines = {"aten::clone": "model.py:7"}
    decision = judge(*with_counters(*pair, {"aten::add": 3}, {"aten::add": 3, "aten::clone": 2}, lines=lines))
    found = comparison(decision, "counters.copies")
    assert (decision.verdict, found.gating, found.costless) == ("WARN", False, True)
    assert (found.base, found.head, found.delta) == (0, 2, None)
    assert [(p.name, p.base, p.head, p.line) for p in found.parts] == [("aten::clone", 0, 2, "model.py:7")]


def test_decide__one_op_replaced_by_another__pass_and_both_listed() -> None:
    decision = judge(*with_counters(*sides(NO_CHANGE), {"aten::mul": 1}, {"aten::div": 1}))
    assert decision.verdict == "PASS"
    assert comparison(decision, "ops.count:aten::div").outcome == "regressed"
    assert not comparison(decision, "ops.count:aten::div").gating


OPS = "counters.framework_ops"


def wavering(base: tuple[int, int] | None, head: tuple[int, int], *, most: int) -> tuple[DecisionDocument, Comparison]:
    """Judge calls of equal speed whose number of operators differs between repeats; the head's last ran ``most``."""
    pair = with_counters(*sides(NO_CHANGE), {"aten::add": 3}, {"aten::add": most}, ranges={OPS: head})
    if base is not None:
        (steady,) = pair[0].checklist.counters
        sites = [msgspec.structs.replace(site, between=base) for site in steady.sites]
        spoiled = msgspec.structs.replace(steady, unstable=[OPS], ranges={OPS: base}, sites=sites)
        pair = changed(pair[0], counters=[spoiled]), pair[1]
    decision = judge(*pair)
    return decision, comparison(decision, OPS)


def test_decide__count_of_the_head_alone_differs_between_repeats__warn() -> None:
    decision, found = wavering(None, (3, 9), most=9)
    assert (decision.verdict, found.outcome) == ("WARN", "inconclusive")
    assert worded(decision.reasons) == [
        "unsteady: encoder/long counters.framework_ops: counts differ between calls or processes of the head, "
        "but not of the base"
    ]


def test_decide__every_call_of_a_wavering_head_counts_more__regressed_by_the_least_of_it() -> None:
    _, found = wavering(None, (7, 9), most=8)
    assert (found.outcome, found.base, found.head, found.delta) == ("regressed", 3, 7, pytest.approx(4 / 3))


@pytest.mark.parametrize(
    ("base", "head", "outcome"),
    [
        ((100, 110), (200, 220), "regressed"),
        ((100, 110), (105, 115), "not_comparable"),
        ((100, 110), (112, 114), "not_comparable"),  # apart by less than twice what calls differ by
        ((100, 110), (131, 131), "regressed"),
        ((200, 220), (100, 110), "improved"),
        ((100, 110), (109, 400), "not_comparable"),
    ],
)
def test_decide__count_differs_between_repeats_of_both__ranges_are_compared(
    base: tuple[int, int], head: tuple[int, int], outcome: str
) -> None:
    decision, found = wavering(base, head, most=head[1])
    assert found.outcome == outcome
    ends = {"regressed": (base[1], head[0]), "improved": (base[0], head[1])}
    assert outcome not in ends or (found.base, found.head) == ends[outcome]
    assert decision.verdict == ("WARN" if outcome == "regressed" else "PASS")


def test_decide__both_sides_warn_of_the_same__said_once() -> None:
    base, head = sides(NO_CHANGE)
    unchecked = quote("encoder: nothing checks the output")
    base = msgspec.structs.replace(base, warnings=[unchecked, quote("the clock is slow")])
    head = msgspec.structs.replace(head, warnings=[quote("no flame graph"), unchecked])
    assert worded(judge(base, head).warnings) == [
        "base and head: encoder: nothing checks the output",
        "base: the clock is slow",
        "head: no flame graph",
    ]


def test_decide__correctness_check_failed__fail_though_faster() -> None:
    base, head = sides([0.5] * 14)
    failed = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="failed", message="cosine 0.2")
    decision = judge(base, changed(head, correctness=[failed]))
    assert decision.verdict == "FAIL"
    assert text_of(comparison(decision, "correctness").reason) == "cosine 0.2"


def test_decide__other_testbed__inconclusive_naming_the_field() -> None:
    base, head = sides([1.2] * 14)
    testbed = msgspec.structs.replace(
        head.testbed, fingerprint="0" * 64, comparable={**head.testbed.comparable, "torch": "2.12.0"}
    )
    decision = judge(base, msgspec.structs.replace(head, testbed=testbed))
    assert decision.verdict == "INCONCLUSIVE"
    assert [(d.field, d.base, d.head) for d in decision.sides.testbed_differences] == [
        ("torch", "2.13.0+cpu", "2.12.0")
    ]
    assert comparison(decision, "latency.low").outcome == "not_comparable"


def test_decide__head_step_failed__measuring_failed_not_a_verdict() -> None:
    base, head = sides(NO_CHANGE)
    error = ErrorDetail(kind="exception", message="RuntimeError: boom", traceback="…")
    step = StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="error", reason=quote("boom"), error=error)
    decision = judge(base, changed(head, steps=[step]))
    assert decision.verdict == "INCONCLUSIVE"
    assert exit_code(decision) == 4


def test_decide__a_pair_failed__measuring_failed() -> None:
    base, head = sides(NO_CHANGE)
    failed = FailedPair(
        pair=3, arm="ab", workload=WORKLOAD, error=ErrorDetail(kind="signal", message="killed", signal="SIGKILL")
    )
    assert exit_code(judge(base, changed(head, failed=[failed]))) == 4


def test_decide__nothing_measured__inconclusive() -> None:
    decision = judge(*sides([]))
    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == ["missing: encoder/long latency.low (both)"]


def with_p50(head: RunDocument, seconds: float) -> RunDocument:
    value = Value(metric="latency.p50", value=seconds, labels={"shape": SHAPE})
    return changed(head, steps=[StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[value])])


STORED = [0.0100, 0.0101, 0.0099, 0.0100, 0.0102, 0.0098]


def stored(values: list[float]) -> History:
    return History(series=[HistorySeries(workload=WORKLOAD, shape=SHAPE, metric="latency.p50", values=values)])


def test_decide__stored_runs_and_no_pairs__inconclusive_for_times_are_missing() -> None:
    base, head = sides([])
    pair = with_counters(base, with_p50(head, 0.012), {"aten::add": 1}, {"aten::add": 1})
    decision = judge(*pair, history=stored(STORED))
    assert decision.verdict == "INCONCLUSIVE"
    assert worded(decision.reasons) == ["missing: encoder/long latency.low (both)"]
    assert exit_code(decision) == 3


def test_decide__sides_of_two_sessions__refused() -> None:
    base, head = sides(NO_CHANGE)
    other = msgspec.structs.replace(head, session=msgspec.structs.replace(head.session, id="another"))
    with pytest.raises(DocumentError, match="different sessions"):
        judge(base, other)


def test_decide__p99_sla_broken_by_head_only__fail() -> None:
    base, head = sides(NO_CHANGE)
    workloads = [msgspec.structs.replace(head.workloads[0], sla_p99=0.02)]
    value = Value(metric="latency.p99", value=0.03, interval=(0.025, 0.04), labels={"shape": SHAPE})
    step = StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[value])
    decision = judge(base, changed(head, workloads=workloads, steps=[step]))
    assert decision.verdict == "FAIL"
    assert comparison(decision, "sla.p99").outcome == "regressed"


def test_judge_folder__documents_written_and_read__same_bytes(tmp_path: Path) -> None:
    base, head = sides(SLOWER)
    base, head = with_counters(base, with_p50(head, 0.012), {"aten::add": 3}, {"aten::add": 4})
    decision = judge(base, head, history=stored(STORED))
    for side, run in (("base", base), ("head", head)):
        (tmp_path / side).mkdir()
        write_document(tmp_path / side / "run.json", run)
    write_history(tmp_path / "history.json", stored(STORED))
    write_document(tmp_path / "decision.json", decision)
    again = judge_folder(tmp_path, policy=None)
    assert canonical_bytes(again, name="again") == (tmp_path / "decision.json").read_bytes()


@pytest.mark.slow
def test_decide__two_hundred_unchanged_gates__alarms_stay_rare() -> None:
    # Wild pairs as on a shared machine: one in eight is several percent off, on either side.
    generator = np.random.default_rng(11)
    alarms = 0
    for _ in range(200):
        spread = np.where(generator.random(14) < 0.125, 0.08, 0.01)
        alarms += judge(*sides(np.exp(generator.normal(0.0, spread)).tolist())).verdict == "FAIL"
    assert alarms <= 4


@pytest.mark.parametrize(
    ("pairs", "strict", "help_where_a_counter_grew"), [(8, True, True), (16, True, False), (16, False, True)]
)
def test_more_pairs_would_help__noisy_pairs__yes_but_no_third_look_where_a_counter_fails_alone(
    pairs: int, strict: bool, help_where_a_counter_grew: bool
) -> None:
    policy = msgspec.structs.replace(DEFAULT_POLICY, strict=strict)
    base, head = sides(np.exp(np.random.default_rng(5).normal(0.0, 0.1, pairs)).tolist())
    assert Look(base, head, policy, workload=WORKLOAD).more_pairs_would_help()
    failed = with_counters(base, head, {"aten::add": 1}, {"aten::add": 2})
    found = Look(*failed, policy, workload=WORKLOAD).more_pairs_would_help()
    assert found == help_where_a_counter_grew


def test_more_pairs_would_help__a_counter_fails_alone_and_what_it_costs_is_known__no() -> None:
    # Eight pairs cannot alarm by themselves, however much slower all of them are.
    slower = sides([1.3 * ratio for ratio in NO_CHANGE[:8]])
    assert Look(*slower, DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()
    failed = with_counters(*slower, {"aten::add": 1}, {"aten::add": 2})
    strict = msgspec.structs.replace(DEFAULT_POLICY, strict=True)
    assert not Look(*failed, strict, workload=WORKLOAD).more_pairs_would_help()
    assert Look(*failed, DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()


def test_more_pairs_would_help__faster_than_eight_pairs_can_show__measured_on_until_it_is_shown() -> None:
    ratios = np.exp(np.random.default_rng(3).normal(math.log(0.944), 0.02, 16)).tolist()
    first = sides(ratios[:8])
    seen = comparison(judge(*first), "latency.low")
    assert (seen.outcome, seen.is_better) == ("unchanged", True)
    assert Look(*first, DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()
    second = sides(ratios)
    assert comparison(judge(*second), "latency.low").outcome == "improved"
    assert not Look(*second, DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()


@pytest.mark.parametrize("gates", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_more_pairs_would_help__unchanged_code__hardly_ever_taken_for_faster(gates: int) -> None:
    """Noise that excludes the slowdown sought at the first look must not cost a second one, nor be called faster."""
    going_on = 0
    for seed in range(gates):
        ratios = np.exp(np.random.default_rng(seed).normal(0.0, 0.002, 8)).tolist()
        documents = sides(ratios)
        going_on += Look(*documents, DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()
        assert comparison(judge(*documents), "latency.low").outcome == "unchanged"
    assert going_on <= 1


def test_more_pairs_would_help__tail_looks_worse_than_tolerated__yes() -> None:
    base, head = sides(NO_CHANGE[:8], cpu=0.0108, blocks=6)
    metrics = {c.metric: (c.outcome, c.delta) for c in judge(base, head).comparisons}
    assert metrics["latency.p99"][0] == "inconclusive"
    assert Look(base, head, DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()


def test_more_pairs_would_help__decided_or_another_workload__no() -> None:
    assert not Look(*sides(NO_CHANGE), DEFAULT_POLICY, workload=WORKLOAD).more_pairs_would_help()
    noisy = sides(np.exp(np.random.default_rng(5).normal(0.0, 0.1, 14)).tolist())
    assert not Look(*noisy, DEFAULT_POLICY, workload="another").more_pairs_would_help()


def test_decide__workers_that_waited_for_the_cpu__the_share_is_said() -> None:
    base, head = sides(NO_CHANGE)
    assert judge(base, head).measured.waited is None
    seen = []
    for one in head.pairs.replicates:
        columns = changed(one.shapes[SHAPE], seen_ns=[300_000_000] * 4, run_delay_ns=[75_000_000] * 4)
        seen.append(changed(one, shapes={SHAPE: columns}))
    assert judge(base, changed(head, replicates=seen)).measured.waited == 0.25


@pytest.mark.parametrize("ratios", [[1.0] * 16, [0.999] * 16])
def test_decide__nothing_tolerated_and_nothing_to_exclude__an_answer_and_no_crash(ratios: list[float]) -> None:
    nothing = dict.fromkeys(("latency.low", "latency.p50", "latency.p99"), 0.0)
    decision = judge(*sides(ratios, aa_ratios=[1.01, 0.99] * 4), policy=Policy(ok_margin=0.0, tolerances=nothing))
    assert comparison(decision, "latency.low").outcome in ("inconclusive", "improved")


def test_base_differs__twin_in_other_layouts__named_for_its_workload_alone() -> None:
    base, head = sides([1.0] * 8, aa_ratios=[1.05] * 7)
    assert Look(base, head, Policy(), workload=WORKLOAD).base_differs
    assert not Look(base, head, Policy(), workload="another").base_differs
    assert not Look(*sides([1.05] * 8), Policy(), workload=WORKLOAD).base_differs
