"""The checklist of both sides, number by number: what it compares, how sure it is, and that it decides nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from perfgate.document.budget import Budget
from perfgate.document.decision import DecisionDocument, Policy, StepComparison
from perfgate.document.files import canonical_bytes
from perfgate.document.history import History
from perfgate.document.run import REPEAT, ErrorDetail, Finding, RunDocument, StepResult, Value
from perfgate.judging.advice.advise import advised
from perfgate.judging.gate.compare.rule import pairs_to_decide, single_interval
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.effect import Differences
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides

UNCHANGED = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]


def value(metric: str, number: float | None, **fields: object) -> Value:
    return msgspec.convert({"metric": metric, "value": number, "labels": {"shape": SHAPE}, **fields}, Value)


def with_steps(
    run: RunDocument, *values: Value, number: int = 5, slug: str = "batch", waited: float | None = None
) -> RunDocument:
    step = StepResult(number=number, slug=slug, workload=WORKLOAD, status="ok", values=list(values), waited=waited)
    return changed(run, counters=[counters({"aten::add": 1})], steps=[*run.checklist.steps, step])


def judged(before: list[Value], after: list[Value], policy: Policy | None = None, **step: object) -> DecisionDocument:
    base, head = sides(UNCHANGED)
    of_step = {"number": 5, "slug": "batch", **step}
    return decide(
        with_steps(base, *before, **of_step),  # type: ignore[arg-type]
        with_steps(head, *after, **of_step),  # type: ignore[arg-type]
        policy=policy or Policy(),
        history=History(),
    )


def rendered(decision: DecisionDocument) -> str:
    return render_comment(decision, CommentContext(marker="<!-- perfgate -->"))


def row_of(decision: DecisionDocument, metric: str) -> StepComparison:
    (row,) = [row for row in decision.checklist.numbers if (row.metric, row.shape) == (metric, SHAPE)]
    return row


def turns(metric: str, numbers: Sequence[float | None]) -> list[Value]:
    return [
        value(metric, number, labels={"shape": SHAPE, **({REPEAT: str(turn)} if turn > 1 else {})})
        for turn, number in enumerate(numbers, start=1)
    ]


def test_checklist__number_that_each_side_measured_once__no_difference_however_large() -> None:
    before = value("cache.sensitivity", 1.0, interval=(0.99, 1.01), confidence=0.95)
    after = value("cache.sensitivity", 4.0, interval=(3.9, 4.1), confidence=0.95)
    decision = judged([before], [after], number=15, slug="cache")
    row = row_of(decision, "cache.sensitivity")
    assert (row.base, row.head, row.difference) == (1.0, 4.0, None)
    assert "| 1.00 → 4.00 | measured once per side |" in rendered(decision)


def test_checklist__six_turns__their_difference_and_interval() -> None:
    before = turns("cache.sensitivity", [1.0, 1.01, 0.99, 1.0, 1.02, 0.98])
    after = turns("cache.sensitivity", [1.5, 1.52, 1.49, 1.5, 1.51, 1.48])
    row = row_of(judged(before, after, number=15, slug="cache"), "cache.sensitivity")
    assert (row.difference.unit, row.difference.count, row.difference.confidence) == ("turn", 6, 0.95)
    assert row.difference.delta == pytest.approx(0.5, abs=0.02)
    assert row.difference.interval is not None
    assert 0.4 < row.difference.interval[0] < row.difference.delta < row.difference.interval[1] < 0.6


@pytest.mark.parametrize(
    ("metric", "waited", "title"),
    [
        ("cache.sensitivity", 0.01, "cold/hot time ratio"),
        ("cache.sensitivity", 0.3, "cold/hot time ratio, without CPU waits"),
        ("cache.hit_rate", 0.3, "L2 hit rate"),
    ],
)
def test_checklist__workers_waited_for_a_cpu__the_label_of_what_is_timed_says_that_it_is_left_out(
    metric: str, waited: float, title: str
) -> None:
    decision = judged(turns(metric, [1.0] * 6), turns(metric, [1.5] * 6), number=15, slug="cache", waited=waited)
    assert row_of(decision, metric).clock == ("awake" if "waits" in title else "wall")
    assert f"| {title} · " in rendered(decision)


@pytest.mark.parametrize(
    ("after", "needed", "words"),
    [
        # The same numbers in another order: no number of turns would show a difference.
        ([1.3, 1.0, 1.1, 0.9, 1.2, 1.0], None, r"not resolved \(±\d\d\.\d %\)"),
        ([1.1, 1.3, 0.95, 1.2, 1.0, 1.5], 7, r"not resolved \(±7\.7 %; about 7 turns\)"),
    ],
)
def test_checklist__turns_that_do_not_resolve_it__half_the_width_and_how_many_would(
    after: list[float], needed: int | None, words: str
) -> None:
    before = turns("cache.sensitivity", [1.0, 1.2, 0.9, 1.1, 1.0, 1.3])
    decision = judged(before, turns("cache.sensitivity", after), number=15, slug="cache")
    row = row_of(decision, "cache.sensitivity")
    assert row.difference.interval is not None
    assert row.difference.interval[0] <= 0 <= row.difference.interval[1]
    assert row.difference.needed == needed
    assert re.search(words, rendered(decision))


def test_checklist__turns_needed__are_about_as_many_as_then_show_a_difference_of_that_size() -> None:
    """Of 200 draws of so many turns with the effect that was foreseen, most resolve it."""
    lot = np.random.default_rng(9)
    needed = pairs_to_decide(Differences.of([0.05, -0.05, 0.15, 0.0, 0.1, 0.05]), excluded=0.0)
    drawn = [single_interval(Differences.of(lot.normal(0.05, 0.074, needed))) for _ in range(200)]
    assert np.mean([bounds is not None and bounds.low > 0 for bounds in drawn]) >= 0.6


def best_of(values: list[Value]) -> list[Value]:
    """The same values with a best size, as a step has it."""
    return [value("batch.best", 64.0, labels={"shape": SHAPE}), *values]


def sweep(fixed: float, factors: list[float], *, slower: float = 1.0, **fields: object) -> list[Value]:
    """The rates of each batch size in turns of calls that take ``slower * (fixed + size)``, as a pair measures them."""
    rates = {size: size / (fixed + size) / slower for size in (1, 2, 4, 8, 16, 32, 64)}
    return [
        value("batch.knee", None, labels={"shape": SHAPE}),
        *(
            value("batch.throughput", rate * factor, labels={"shape": SHAPE, "batch": str(size), **fields, **turn})
            for size, rate in rates.items()
            for number, factor in enumerate(factors, start=1)
            for turn in ([{REPEAT: str(number)}] if number > 1 else [{}])
        ),
    ]


ROUNDS = [100.0, 103.0, 97.0, 99.0, 102.0, 101.0]


def test_checklist__batch_knee__from_the_rates_of_all_turns() -> None:
    row = row_of(judged(sweep(4.4, ROUNDS), sweep(0.6, ROUNDS)), "batch.knee")
    assert (row.base, row.head, row.difference.delta, row.difference.interval) == (32.0, 8.0, -0.75, (-0.75, -0.75))
    assert (row.difference.unit, row.difference.count, row.difference.confidence, row.is_resolved) == (
        "turn",
        6,
        0.9,
        True,
    )
    unchanged = row_of(judged(sweep(4.4, ROUNDS), sweep(4.4, ROUNDS[::-1])), "batch.knee")
    assert (unchanged.difference.interval, unchanged.is_resolved) == ((0.0, 0.0), False)
    assert (unchanged.base_range, unchanged.head_range) == ((32.0, 32.0), (32.0, 32.0))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (sweep(4.4, ROUNDS), sweep(100.0, ROUNDS)),  # the largest is the fastest: the knee may be any larger size
        (sweep(4.4, ROUNDS), sweep(4.4, [1.0])[:1]),  # no rates
        (sweep(4.4, ROUNDS), sweep(4.4, ROUNDS, batch="9" * 5000)),
        (sweep(4.4, ROUNDS), sweep(4.4, [*ROUNDS[:5], -1.0])),
        (sweep(4.4, [*ROUNDS, 100.0]), sweep(0.6, ROUNDS)),
    ],
)
def test_checklist__batch_knee_that_a_side_did_not_reach_or_measure__no_difference(
    before: list[Value], after: list[Value]
) -> None:
    assert ("batch.knee", SHAPE) not in {(row.metric, row.shape) for row in judged(before, after).checklist.numbers}


def test_checklist__several_numbers_of_a_step__the_one_that_its_card_names_leads_whatever_differs() -> None:
    same, faster = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [0.55, 0.56, 0.55, 0.54, 0.55, 0.56]
    before = [*turns("cache.hit_rate", [0.5] * 6), *turns("cache.sensitivity", same)]
    after = [*turns("cache.hit_rate", faster), *turns("cache.sensitivity", same)]
    decision = judged(before, after, number=15, slug="cache")
    assert [(row.metric, row.leads, row.is_resolved) for row in decision.checklist.numbers if row.step == 15] == [
        ("cache.hit_rate", False, True),
        ("cache.sensitivity", True, False),
    ]
    comment = rendered(decision)
    assert comment.count("\n| 15 | ") == 1
    assert "2 more numbers (1 resolved difference) in `report.html`." in comment


def test_checklist__number_that_leads_was_not_measured__the_next_that_the_card_names_leads() -> None:
    once = value("cache.hit_rate", 0.5)
    decision = judged([once], [once], number=15, slug="cache")
    assert [row.metric for row in decision.checklist.numbers if row.step == 15 and row.leads] == ["cache.hit_rate"]


def test_checklist__operators__the_three_with_most_time_on_head_lead_and_are_named_in_a_pass() -> None:
    def shares(**of: float) -> list[Value]:
        labels = {op: {"shape": SHAPE, "op": f"aten::{op}"} for op in of}
        return [value("ops.operator_share", share, labels=labels[op]) for op, share in of.items()]

    # The first turn of either side saw another order.
    before = shares(mul=0.1, add=0.2, addmm=0.5, sdpa=0.18)
    decision = judged(before, shares(mul=0.15, sdpa=0.25, addmm=0.5, add=0.1), number=4, slug="top_ops")
    leading = [row.labels["op"] for row in decision.checklist.numbers if row.step == 4 and row.leads]
    assert leading == ["aten::addmm", "aten::sdpa", "aten::mul"]
    comment = rendered(decision)
    assert " · top: `addmm` 50.0 %, `sdpa` 25.0 % · " in comment.partition("<details>")[0]
    assert "| `addmm` 50.0 → 50.0 %, `sdpa` 18.0 → 25.0 %, `mul` 10.0 → 15.0 % |" in comment


def test_checklist__all_twenty_steps__have_a_row_and_the_last_is_the_decision() -> None:
    number = value("cache.sensitivity", 1.0)
    lines = rendered(judged([number], [number], number=15, slug="cache")).splitlines()
    rows = [line.split(" | ") for line in lines if re.match(r"\| \d+ \|", line)]
    assert [row[0] for row in rows] == [f"| {step}" for step in range(1, 21)]
    assert rows[8][2] == "not run"
    assert rows[-1][2] == "PASS"


def test_checklist__batch_sizes_of_both_sides__each_with_its_range() -> None:
    knee = msgspec.structs.replace(value("batch.knee", 16.0), interval=(8.0, 32.0))
    decision = judged([knee], [knee], number=5, slug="batch")
    row = msgspec.structs.replace(row_of(decision, "batch.knee"), leads=True)
    assert "| 16 (8 to 32) → 16 (8 to 32) |" in rendered(changed(decision, numbers=[row]))


def test_checklist__turns_that_disagree__no_difference_shown_but_their_interval() -> None:
    before = turns("cache.sensitivity", [1.0, 1.2, 0.9, 1.1, 1.0, 1.3])
    after = turns("cache.sensitivity", [1.3, 1.0, 1.1, 0.9, 1.2, 1.0])
    decision = judged(before, after, number=15, slug="cache")
    row = row_of(decision, "cache.sensitivity")
    assert row.difference.interval is not None
    assert row.difference.interval[0] < 0 < row.difference.interval[1]
    assert "not resolved (±" in rendered(decision)


def test_checklist__best_size_of_equal_code__the_same_on_both_sides_whatever_single_turns_show() -> None:
    """By its own turns base would be best at 64 and head at 32."""
    lot = np.random.default_rng(3)
    factors = [float(100 * factor) for factor in np.exp(lot.normal(0, 0.05, 32))]
    same = 0
    for _ in range(20):
        lot.shuffle(factors)
        rows = judged(best_of(sweep(1.6, factors[:16])), best_of(sweep(1.6, factors[16:])))
        row = row_of(rows, "batch.best")
        assert row.difference.interval is not None
        same += row.base == row.head and row.difference.interval[0] <= 0 <= row.difference.interval[1]
    assert same >= 19


def test_checklist__mistake_that_halves_the_gain_of_a_batch__best_size_and_throughput_resolved() -> None:
    lot = np.random.default_rng(4)
    factors = [float(100 * factor) for factor in np.exp(lot.normal(0, 0.02, 32))]
    decision = judged(best_of(sweep(1.6, factors[:16])), best_of(sweep(0.3, factors[16:], slower=2.0)))
    best = row_of(decision, "batch.best")
    assert best.head is not None
    assert best.base is not None
    assert best.head < best.base
    of_sizes = {row.labels["batch"]: row for row in decision.checklist.numbers if row.metric == "batch.throughput"}
    assert of_sizes["64"].is_resolved
    assert of_sizes["64"].difference.delta == pytest.approx(-0.49, abs=0.03)


@pytest.mark.parametrize("left_out", [1, 5])
def test_checklist__turn_that_a_side_lacks__no_difference(left_out: int) -> None:
    numbers = turns("cache.sensitivity", [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    row = row_of(judged(numbers, numbers[:-left_out], number=15, slug="cache"), "cache.sensitivity")
    assert row.difference is None


@pytest.mark.parametrize("label", ["x", "-1", "1e3", "²", "9" * 5000])
def test_checklist__turn_whose_label_is_no_number__no_difference_and_the_verdict_stays(label: str) -> None:
    numbers = turns("cache.sensitivity", [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    broken = [*numbers[:-1], value("cache.sensitivity", 1.0, labels={"shape": SHAPE, REPEAT: label})]
    decision = judged(numbers, broken, number=15, slug="cache")
    assert decision.verdict == "PASS"
    assert row_of(decision, "cache.sensitivity").difference is None


@pytest.mark.parametrize(("base", "head"), [(1e-308, 1e308), (1e308, 1e-308), (0.0, 1e308), (-1.0, 1.0)])
def test_checklist__turns_without_a_ratio__no_difference_and_the_verdict_stays(base: float, head: float) -> None:
    before, after = turns("cache.sensitivity", [base] * 6), turns("cache.sensitivity", [head] * 6)
    decision = judged(before, after, number=15, slug="cache")
    assert decision.verdict == "PASS"
    assert row_of(decision, "cache.sensitivity").difference is None


def using(run: RunDocument, share: float, *findings: Finding) -> RunDocument:
    """The run with blocks that use a share of their CPU, and with step 2, which measured 50 % by itself."""
    replicates = []
    for replicate in run.pairs.replicates:
        blocks = replicate.shapes[SHAPE]
        used = msgspec.structs.replace(
            blocks,
            conductor=msgspec.structs.replace(
                blocks.conductor, used_ns=[round(seen * share) for seen in blocks.conductor.seen_ns]
            ),
        )
        replicates.append(msgspec.structs.replace(replicate, shapes={SHAPE: used}))
    run = changed(run, replicates=replicates)
    run = with_steps(run, value("utilization.host", 0.5), number=2, slug="utilization")
    step = msgspec.structs.replace(
        run.checklist.steps[-1], findings=list(findings), status="attention" if findings else "ok"
    )
    return changed(run, steps=[step])


def test_checklist__host_utilization__from_the_blocks_of_the_pairs() -> None:
    base, head = sides(UNCHANGED)
    row = row_of(decide(using(base, 0.9), using(head, 0.72), policy=Policy(), history=History()), "utilization.host")
    assert (row.difference.unit, row.base, row.difference.delta, row.clock) == (
        "pair",
        0.9,
        pytest.approx(-0.2),
        "awake",
    )


@pytest.mark.parametrize(("share", "shown"), [(0.9, []), (0.72, ["utilization.host"])])
def test_checklist__finding_on_a_number_that_the_pairs_measured__shown_if_their_number_is_beyond_the_limit_too(
    share: float, shown: list[str]
) -> None:
    finding = Finding(
        rule="utilization.host", severity="warning", evidence={"shape": SHAPE, "utilization.host": 0.5, "limit": 0.8}
    )
    base, head = (using(run, used, finding) for run, used in zip(sides(UNCHANGED), (share, share + 0.05)))
    decision = advised(decide(base, head, policy=Policy(), history=History()), base, head)
    (step,) = [step for step in decision.checklist.steps if step.number == 2]
    assert [one.rule for one in step.findings] == shown
    assert step.gone == []
    assert step.status == ("attention" if shown else "ok")
    assert [one.rule for one in decision.explained.suggestions if one.step == 2] == shown


def test_checklist__numbers_of_the_samples__from_the_pairs_whatever_the_step_measured_by_itself() -> None:
    base, head = sides([1.25 + 0.0005 * (-1) ** pair for pair in range(16)])
    alone = [value("throughput.median", 500.0), value("latency.p90", 0.01), value("latency.tail", 0.01)]
    runs = (with_steps(run, *alone, number=1, slug="latency") for run in (base, head))
    decision = decide(*runs, policy=Policy(), history=History())
    for metric, delta in (("throughput.median", -0.2), ("latency.p90", 0.25), ("latency.tail", 0.25)):
        row = row_of(decision, metric)
        assert (row.difference.unit, row.difference.count) == ("pair", 16)
        assert row.difference.delta == pytest.approx(delta, abs=0.001)
        assert row.difference.interval is not None
        assert row.difference.interval[0] < row.difference.delta < row.difference.interval[1]
    # 0.01 s a call
    assert row_of(decision, "throughput.median").base == pytest.approx(base.workloads[0].batch / 0.01)
    assert row_of(decision, "latency.p90").base == pytest.approx(0.01)


def test_checklist__times_that_prove_nothing__no_difference_and_no_verdict_of_a_number_that_gates() -> None:
    base, head = sides([1.25 + 0.0005 * (-1) ** pair for pair in range(16)], aa_ratios=[1.05] * 7)
    alone = [value("throughput.median", 500.0), value("latency.p90", 0.01)]
    runs = [with_steps(run, *alone, number=1, slug="latency") for run in (base, head)]
    decision = decide(*runs, policy=Policy(tolerances={"throughput.median": 0.05}), history=History())
    assert decision.verdict == "INCONCLUSIVE"
    assert {row_of(decision, metric).difference for metric in ("throughput.median", "latency.p90")} == {None}
    (gating,) = [one for one in decision.comparisons if one.metric == "throughput.median"]
    assert gating.outcome == "not_comparable"


def test_single_interval__turns_of_the_same_code__holds_no_change_in_95_of_100() -> None:
    lot = np.random.default_rng(7)
    held = [single_interval(Differences.of(lot.normal(0.0, 0.05, turns))) for turns in (6, 6, 6, 8) for _ in range(500)]
    assert np.mean([bounds is not None and bounds.low <= 0.0 <= bounds.high for bounds in held]) >= 0.95


def test_single_interval__turns_that_drift_together__holds_no_change_in_95_of_100() -> None:
    """What heats up or is loaded for minutes is in both members of a turn, but not alike."""
    lot = np.random.default_rng(11)
    held = []
    for _ in range(1000):
        noise = lot.normal(0.0, 0.05, 6)
        for turn in range(1, 6):
            noise[turn] += 0.3 * noise[turn - 1]
        bounds = single_interval(Differences.of(noise))
        held.append(bounds is not None and bounds.low <= 0.0 <= bounds.high)
    assert np.mean(held) >= 0.95


def test_single_interval__fewer_than_six__none() -> None:
    assert single_interval(Differences.of([0.1, 0.1, 0.1, 0.1, 0.1])) is None


def test_checklist__number_that_pairs_compare__theirs() -> None:
    slow = [value("latency.p50", 0.02)]
    row = row_of(judged([value("latency.p50", 0.01)], slow, number=1, slug="latency"), "latency.p50")
    assert row.difference.unit == "pair"
    assert row.difference.delta == pytest.approx(0.0, abs=0.001)
    assert row.tolerance == 0.02


def test_checklist__number_of_one_side__no_difference_and_a_dash() -> None:
    decision = judged([value("cache.sensitivity", 8.0)], [value("cache.sensitivity", None)], number=15, slug="cache")
    row = row_of(decision, "cache.sensitivity")
    assert (row.base, row.head, row.difference) == (8.0, None, None)
    assert "| cold/hot time ratio · `encoder/long` | 8.00 → – | – | – |" in rendered(decision)


def test_checklist__far_worse_number_that_nobody_named__informs() -> None:
    far_worse = [value("batch.knee", 64.0), value("batch.best", 1.0)]
    decision = judged([value("batch.knee", 8.0), value("batch.best", 64.0)], far_worse)
    assert decision.verdict == "PASS"
    assert row_of(decision, "batch.knee").head == 64.0
    assert not any(comparison.metric.startswith("batch.") for comparison in decision.comparisons)


def test_checklist__limit_of_the_checklist__stands_beside_the_number() -> None:
    numbers = [value("utilization.busy", 0.9)]
    row = row_of(judged(numbers, numbers, number=2, slug="utilization"), "utilization.busy")
    assert (row.bound, row.at_most) == (0.8, False)


def test_checklist__budget__comes_before_the_limit() -> None:
    policy = Policy(budgets=[Budget(metric="utilization.busy", bound=0.95, at_most=False)])
    numbers = [value("utilization.busy", 0.99)]
    row = row_of(judged(numbers, numbers, policy, number=2, slug="utilization"), "utilization.busy")
    assert (row.bound, row.at_most) == (0.95, False)


@pytest.mark.parametrize(("number", "slug", "verdict"), [(8, "precision", "PASS"), (4, "top_ops", "INCONCLUSIVE")])
def test_decide__step_that_failed__matters_where_it_decides(number: int, slug: str, verdict: str) -> None:
    base, head = (changed(run, counters=[counters({"aten::add": 1})]) for run in sides(UNCHANGED))
    error = ErrorDetail(kind="exception", message="RuntimeError: no kernel")
    failed = StepResult(number=number, slug=slug, workload=WORKLOAD, status="error", error=error)
    decision = decide(base, changed(head, steps=[failed]), policy=Policy(), history=History())
    assert decision.verdict == verdict
    assert {step.number: step.status for step in decision.checklist.steps}[number] == "error"


def test_decide__step_that_failed_and_a_limit_is_about__inconclusive() -> None:
    base, head = (changed(run, counters=[counters({"aten::add": 1})]) for run in sides(UNCHANGED))
    failed = StepResult(
        number=5, slug="batch", workload=WORKLOAD, status="error", error=ErrorDetail(kind="exception", message="x")
    )
    policy = Policy(tolerances={"batch.knee": 0.0})
    decision = decide(base, changed(head, steps=[failed]), policy=policy, history=History())
    assert decision.verdict == "INCONCLUSIVE"


def test_decide__counts_whose_ratio_no_float_holds__no_difference_and_a_decision_that_can_be_written() -> None:
    step = {"number": 4, "slug": "top_ops"}
    decision = judged([value("fusion.patterns", 1e-308)], [value("fusion.patterns", 1e308)], **step)
    (row,) = [row for row in decision.checklist.numbers if row.metric == "fusion.patterns"]
    assert row.difference is not None
    assert row.difference.delta is None
    assert canonical_bytes(decision, name="decision.json")
