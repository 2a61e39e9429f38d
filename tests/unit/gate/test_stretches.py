from __future__ import annotations

import msgspec
import numpy as np
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.document.samples import Replicate, pack, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.advice.advise import advised
from perfgate.judging.gate.compare.judge import AlphaShares, judge_numbers
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.blocks import ALL_BY_WALL
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Rules
from perfgate.judging.gate.evidence.producers import long_stretches
from perfgate.judging.gate.evidence.sampled import sampled_effects
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.gate.look import Look
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides, stretches_of

EQUAL = [1.0] * 16
MS = 1_000_000


def documents(**stretches: object) -> tuple[RunDocument, RunDocument]:
    base, head = sides(EQUAL, call=0.001)
    firsts, seconds = stretches_of(**stretches)  # type: ignore[arg-type]
    return (
        changed(base, replicates=[*base.pairs.replicates, *firsts]),
        changed(head, replicates=[*head.pairs.replicates, *seconds]),
    )


def decided(base: RunDocument, head: RunDocument, required: Required = Required()) -> DecisionDocument:  # noqa: B008
    return decide(base, head, policy=Policy(), history=History(), required=required)


def row(decision: DecisionDocument, metric: str) -> Comparison:
    return next(c for c in decision.comparisons if c.metric == metric)


def title(decision: DecisionDocument) -> str:
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    return next(line for line in comment.splitlines() if "–" in line)


def test_decide__equal_stretches__mean_unchanged_and_no_row_of_stalls() -> None:
    decision = decided(*documents())
    assert decision.verdict == "PASS"
    mean = row(decision, "latency.mean")
    assert (mean.outcome, mean.excluded, mean.pairs, mean.starts) == ("unchanged", 0.05, 16, 2)
    assert "latency.stalls" not in {c.metric for c in decision.comparisons}


def test_decide__head_stalls_30_ms_in_every_50th_call__fails_and_is_told_as_a_tail() -> None:
    decision = decided(*documents(stalls=((0, 0.0), (50, 0.03))))
    assert decision.verdict == "FAIL"
    stalls = row(decision, "latency.stalls")
    assert (stalls.outcome, stalls.base, stalls.head) == ("regressed", 0.0, 0.02)
    assert stalls.reason == Message(
        "gate.rare-slow-calls", {"every": 50, "seconds": 0.03, "how": Message("gate.stall-computing")}
    )
    assert row(decision, "latency.mean").delta == pytest.approx(0.6, rel=0.01)
    assert "about 1 call in 50 takes 30.0 ms longer than the median call" in title(decision)


def test_decide__only_base_stalls__improved() -> None:
    decision = decided(*documents(stalls=((50, 0.03), (0, 0.0))))
    assert decision.verdict == "PASS"
    stalls = row(decision, "latency.stalls")
    assert (stalls.outcome, stalls.gating, stalls.base, stalls.head) == ("improved", False, 0.02, 0.0)


def test_decide__many_short_stalls_of_both_sides_beside_the_long_ones__the_long_ones_are_told() -> None:
    base, head = documents(stalls=((10, 0.003), (50, 0.03)))
    noisy = changed(
        head,
        replicates=[_with_stalls(r, every=10, ns=3 * MS) if r.arm == "stretch" else r for r in head.pairs.replicates],
    )
    reason = row(decided(base, noisy), "latency.stalls").reason
    assert reason is not None
    assert (reason.values["every"], reason.values["seconds"]) == (50, pytest.approx(0.033))


def _with_stalls(replicate: Replicate, *, every: int, ns: int) -> Replicate:
    columns = replicate.shapes[SHAPE]
    wall = unpack(columns.times.wall)
    wall[every - 1 :: every] += ns
    calls = np.asarray(columns.calls)
    spans = np.add.reduceat(wall, np.concatenate([[0], np.cumsum(calls)[:-1]]))
    slower = msgspec.structs.replace(
        columns,
        times=msgspec.structs.replace(columns.times, wall=pack(wall), cpu=pack(wall)),
        worker=msgspec.structs.replace(
            columns.worker, end_ns=[int(start + span) for start, span in zip(columns.worker.start_ns, spans)]
        ),
        conductor=msgspec.structs.replace(
            columns.conductor, seen_ns=[int(span * (count + 1) / count) for span, count in zip(spans, calls)]
        ),
    )
    return msgspec.structs.replace(replicate, shapes={SHAPE: slower})


def test_decide__both_sides_stall_alike__unchanged() -> None:
    decision = decided(*documents(stalls=((50, 0.03), (50, 0.03))))
    assert decision.verdict == "PASS"
    stalls = row(decision, "latency.stalls")
    assert (stalls.outcome, stalls.gating, stalls.delta) == ("inconclusive", False, 0.0)


def test_decide__uniformly_slower__the_mean_fails_without_stalls() -> None:
    decision = decided(*documents(ratio=1.1))
    assert row(decision, "latency.mean").outcome == "regressed"
    assert "latency.stalls" not in {c.metric for c in decision.comparisons}


def test_decide__calls_just_above_the_limit_of_a_stall__no_regression_while_the_mean_stays() -> None:
    decision = decided(*documents(stalls=((50, 0.00195), (50, 0.00205)), calls=100))
    assert decision.verdict == "PASS"
    assert row(decision, "latency.stalls").outcome == "inconclusive"


def test_decide__stalls_in_few_quads__undecided_and_the_title_of_the_pass_names_the_bound() -> None:
    decision = decided(*documents(stalls=((0, 0.0), (1000, 0.08))))
    assert decision.verdict == "PASS"
    mean = row(decision, "latency.mean")
    assert mean.outcome == "inconclusive"
    assert mean.interval is not None
    assert mean.interval[1] > 0.05
    assert "mean call may be up to" in title(decision)


def test_judge_numbers__reason_to_inform_and_stalls_that_do_not_gate__only_the_mean_informs_by_it() -> None:
    evidence = Evidence(*documents(stalls=((50, 0.03), (50, 0.03))))
    reason = Message("gate.cycles-decide", {"change": 0.1})
    numbers = [number._replace(informs=reason) for number in long_stretches.numbers(evidence, Rules(Policy()))]
    mean, stalls = judge_numbers(numbers, AlphaShares.of_subjects(Policy(), subjects=1), floors=())
    assert (mean.outcome, mean.gating, mean.reason) == ("informs", False, reason)
    assert (stalls.outcome, stalls.gating, stalls.reason) == ("inconclusive", False, None)


def test_look__stalls_in_few_quads__more_stretches_would_help_until_all_are_measured() -> None:
    leaning = documents(stalls=((0, 0.0), (300, 0.08)))
    assert Look(*leaning, Policy(), workload=WORKLOAD).more_calls_would_help()
    assert not Look(*leaning, Policy(), workload=WORKLOAD).more_pairs_would_help()
    whole = documents(stalls=((0, 0.0), (300, 0.08)), starts=8)
    assert not Look(*whole, Policy(), workload=WORKLOAD).more_calls_would_help()
    assert not Look(*documents(), Policy(), workload=WORKLOAD).more_calls_would_help()


def test_decide__stretches_taken_on_a_throttled_device__inconclusive_by_name() -> None:
    base, head = (
        changed(run, replicates=[_throttled(r) if r.arm == "stretch" else r for r in run.pairs.replicates])
        for run in documents(stalls=((0, 0.0), (50, 0.03)))
    )
    decision = decided(base, head)
    assert decision.verdict == "INCONCLUSIVE"
    assert "latency.mean" in {m.metric for m in decision.gaps.missing}


def _throttled(replicate: Replicate) -> Replicate:
    columns = replicate.shapes[SHAPE]
    tainted = msgspec.structs.replace(
        columns, device=msgspec.structs.replace(columns.device, throttled=[True] * len(columns.calls))
    )
    return msgspec.structs.replace(replicate, shapes={SHAPE: tainted})


def test_decide__slow_calls_were_sampled_at_a_line__the_title_and_the_advice_name_it() -> None:
    base, head = documents(stalls=((0, 0.0), (50, 0.03)))
    sampled = {SHAPE: {"model.py:8": 12, "model.py:3": 2}}
    replicates = [
        msgspec.structs.replace(r, stalled_at=sampled) if r.arm == "stretch" else r for r in head.pairs.replicates
    ]
    decision = advised(decided(base, changed(head, replicates=replicates)), base, head)
    assert "longer than the median call at `model.py:8`" in title(decision)
    (regression, *_) = decision.explained.regressions
    assert regression.suggestion is not None
    suggestion = decision.explained.suggestions[regression.suggestion]
    assert (suggestion.rule, suggestion.line) == ("calls-that-compute", "model.py:8")


def test_decide__samples_at_many_lines__none_is_named() -> None:
    base, head = documents(stalls=((0, 0.0), (50, 0.03)))
    sampled = {SHAPE: {f"model.py:{line}": 1 for line in range(10)}}
    replicates = [
        msgspec.structs.replace(r, stalled_at=sampled) if r.arm == "stretch" else r for r in head.pairs.replicates
    ]
    decision = decided(base, changed(head, replicates=replicates))
    assert "model.py" not in title(decision)


def test_decide__head_computes_for_no_longer_in_its_stalls__they_wait() -> None:
    base, head = documents(stalls=((0, 0.0), (50, 0.03)))
    equal = changed(head, replicates=[_with_cpu(r, MS) for r in head.pairs.replicates])
    reason = row(decided(base, equal), "latency.stalls").reason
    assert reason is not None
    assert reason.values["how"] == Message("gate.stall-waiting")


def test_paired_numbers__stretches__the_tail_of_the_checklist_is_theirs() -> None:
    base, head = documents(stalls=((0, 0.0), (50, 0.03)))
    place = ShapePlace(WORKLOAD, SHAPE)
    effects = sampled_effects(base, head, place, ALL_BY_WALL)
    assert effects["latency.tail"].head > 3 * effects["latency.tail"].base
    assert effects["latency.tail"].size == 16
    without = [changed(run, replicates=[r for r in run.pairs.replicates if r.arm == "ab"]) for run in (base, head)]
    of_pairs = sampled_effects(without[0], without[1], place, ALL_BY_WALL)["latency.tail"]
    assert of_pairs.head == pytest.approx(of_pairs.base)


def _with_cpu(replicate: Replicate, ns: int) -> Replicate:
    if replicate.arm != "stretch":
        return replicate
    columns = replicate.shapes[SHAPE]
    alike = pack(np.full(columns.times.cpu.count, ns))
    return msgspec.structs.replace(
        replicate,
        shapes={SHAPE: msgspec.structs.replace(columns, times=msgspec.structs.replace(columns.times, cpu=alike))},
    )
