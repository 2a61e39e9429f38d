"""Preprocessing in the gate: compared like the fast path of the call, and the stage that got slower is named."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import CodeChange, RunDocument
from perfgate.document.samples import BlockColumns, StageTimes, pack
from perfgate.judging.gate.decide import decide
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, columns, sides
from tests.wording import worded

DECODE, RESIZE = 0.002, 0.003
SAME = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]


def _blocks(decode: float, resize: float, *, first_line: int = 30) -> BlockColumns:
    made = columns(decode + resize)
    calls = sum(made.calls)
    stages = [
        StageTimes(name="decode", wall=pack(np.full(calls, round(decode * 1e9))), line="data/images.py:12"),
        StageTimes(name="resize", wall=pack(np.full(calls, round(resize * 1e9))), line=f"data/images.py:{first_line}"),
    ]
    return msgspec.structs.replace(made, times=msgspec.structs.replace(made.times, stages=stages))


def _with(run: RunDocument, blocks: Sequence[BlockColumns]) -> RunDocument:
    replicates = [
        msgspec.structs.replace(replicate, preprocess={SHAPE: lane})
        for replicate, lane in zip(run.pairs.replicates, (*blocks, *[blocks[0]] * len(run.pairs.replicates)))
    ]
    return changed(run, replicates=replicates)


def _decide(resize: float, *, calls: Sequence[float] = SAME) -> DecisionDocument:
    base, head = sides(calls)
    base = _with(base, [_blocks(DECODE, RESIZE)])
    head = _with(head, [_blocks(DECODE, resize * ratio, first_line=31) for ratio in SAME])
    return decide(base, head, policy=Policy(), history=History())


def _found(decision: DecisionDocument, metric: str) -> Comparison:
    return next(comparison for comparison in decision.comparisons if comparison.metric == metric)


def test_decide__slower_stage_changed_in_one_place__that_place_is_its_line() -> None:
    base, head = sides(SAME)
    base, head = _with(base, [_blocks(DECODE, RESIZE)]), _with(head, [_blocks(DECODE, RESIZE * 4 / 3)])
    source = msgspec.structs.replace(
        head.source,
        changes=[CodeChange(file="data/images.py", first=34, last=34, function="resize", begins=30, ends=36)],
    )
    decision = decide(base, msgspec.structs.replace(head, source=source), policy=Policy(), history=History())
    assert [part.line for part in _found(decision, "preprocess.low").parts] == [
        "data/images.py:12",
        "data/images.py:34",
    ]


def test_decide__same_preprocessing__unchanged_and_pass() -> None:
    decision = _decide(RESIZE)
    assert decision.verdict == "PASS"
    assert _found(decision, "preprocess.low").outcome == "unchanged"
    assert any(floor.metric == "preprocess.low" for floor in decision.measured.noise_floors)


def test_decide__one_stage_a_third_slower__fails_with_stage_and_line() -> None:
    decision = _decide(0.004)
    found = _found(decision, "preprocess.low")
    assert decision.verdict == "FAIL"
    assert worded(decision.reasons) == ["regressed: encoder/long preprocess.low"]
    assert found.delta == pytest.approx(0.2, abs=1e-3)
    assert (found.base, found.head) == (pytest.approx(0.005), pytest.approx(0.006, rel=1e-3))
    assert found.tolerance == 0.005
    parts = {part.name: (part.base, part.head, part.line) for part in found.parts}
    assert parts["decode"] == (pytest.approx(0.002), pytest.approx(0.002), "data/images.py:12")
    assert parts["resize"] == (pytest.approx(0.003), pytest.approx(0.004, rel=1e-3), "data/images.py:31")


def test_decide__call_slower_too__each_is_blamed_for_its_own() -> None:
    decision = _decide(0.004, calls=[1.05] * 14)
    (stage,) = [cause for cause in decision.explained.causes if cause.stage]
    assert (stage.op, stage.line, stage.more_time) == ("resize", "data/images.py:31", pytest.approx(0.001, rel=1e-2))
    number = decision.explained.causes.index(stage)
    assert _found(decision, "preprocess.low").cause == number
    assert _found(decision, "latency.low").cause != number


def test_decide__no_preprocessing__no_such_comparison() -> None:
    decision = decide(*sides(SAME), policy=Policy(), history=History())
    assert all(comparison.metric != "preprocess.low" for comparison in decision.comparisons)
