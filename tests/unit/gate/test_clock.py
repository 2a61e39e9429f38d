"""Which clock decides is said by how long workers waited and whether calls compute, before anybody looks at the times."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from perfgate.document.decision import Comparison, DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import BlockColumns, Replicate
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.pairs import deciding_clock
from tests.unit.gate.builders import columns, sides

CALL = 0.01
PAIRS = 16


def blocks(*, waited: float = 0.0, slept: float = 0.0, source: str = "thread_cpu") -> BlockColumns:
    """Return blocks of calls that compute for 10 ms, and wait for a CPU or sleep for so many times as long."""
    made = columns(CALL * (1 + waited + slept), cpu=CALL)
    delays = [round(CALL * waited * (count + 1) * 1e9) for count in made.calls]
    return msgspec.structs.replace(made, run_delay_ns=delays, cpu_source=source)


@pytest.mark.parametrize(
    ("base", "head", "clock"),
    [
        (blocks(), blocks(), "wall"),
        (blocks(waited=0.015), blocks(waited=0.015), "wall"),
        (blocks(waited=0.3), blocks(waited=0.3), "cpu"),
        (blocks(waited=0.3), blocks(waited=0.3, slept=0.05), "cpu"),
        (blocks(waited=0.3), blocks(waited=0.3, slept=0.2), "wall"),
        (blocks(waited=0.3, slept=0.2), blocks(waited=0.3), "wall"),
        (blocks(waited=0.3, slept=3.0), blocks(waited=0.3, slept=3.0), "wall"),
        (blocks(waited=0.3, source="device"), blocks(waited=0.3, source="device"), "device"),
        (blocks(source="device"), blocks(source="device"), "wall"),
        (columns(CALL), columns(CALL), "wall"),  # a kernel that does not say
    ],
)
def test_deciding_clock__what_workers_waited_and_computed(base: BlockColumns, head: BlockColumns, clock: str) -> None:
    assert deciding_clock([base], [head]) == clock


def busy(
    replicates: Sequence[Replicate], *, seed: int, work: float = 1.0, slept: float = 0.0, told: float = 1.0
) -> list[Replicate]:
    """Return processes that waited for a CPU, each for a share of its own between 10 and 60 %.

    They say that they computed for ``told`` times as long as they did.
    """
    lot = np.random.default_rng(seed)
    jitter = lot.normal(0.0, 0.003, len(replicates))
    return [
        msgspec.structs.replace(
            one, shapes={shape: _busy(share, work * (1 + own), slept, told) for shape in one.shapes}
        )
        for one, share, own in zip(replicates, lot.uniform(0.1, 0.6, len(replicates)), jitter)
    ]


def _busy(share: float, work: float, slept: float, told: float) -> BlockColumns:
    made = columns(CALL * (work + share + slept), cpu=CALL * work * told)
    return msgspec.structs.replace(made, run_delay_ns=[round(CALL * share * 21 * 1e9)] * 4)


def decided(**of_head: float) -> DecisionDocument:
    base, head = sides([1.0] * PAIRS)
    base = msgspec.structs.replace(base, replicates=busy(base.replicates, seed=1))
    head = msgspec.structs.replace(head, replicates=busy(head.replicates, seed=2, **of_head))
    return decide(base, head, policy=Policy(looks=[PAIRS]), history=History())


def compared(decision: DecisionDocument, metric: str) -> Comparison:
    (found,) = [comparison for comparison in decision.comparisons if comparison.metric == metric]
    return found


def test_decide__equal_work_on_a_busy_machine__unchanged_by_cpu_time_and_the_wall_beside_it() -> None:
    decision = decided()
    assert decision.verdict == "PASS"
    low, wall = compared(decision, "latency.low"), compared(decision, "latency.wall")
    assert (low.clock, low.outcome, low.gating) == ("cpu", "unchanged", True)
    assert (wall.clock, wall.outcome, wall.gating) == ("wall", "inconclusive", False)
    assert low.base == pytest.approx(CALL, rel=0.01)
    assert wall.base > 1.1 * CALL


def test_decide__more_work_on_a_busy_machine__found_by_cpu_time() -> None:
    decision = decided(work=1.05)
    low = compared(decision, "latency.low")
    assert (decision.verdict, low.clock, low.outcome) == ("FAIL", "cpu", "regressed")
    assert low.delta == pytest.approx(0.05, abs=0.005)


def test_decide__calls_that_sleep_on_a_busy_machine__found_by_the_turnaround() -> None:
    decision = decided(slept=0.06)
    assert compared(decision, "latency.low").outcome == "unchanged"
    assert compared(decision, "throughput.turnaround").outcome == "regressed"
    assert decision.verdict == "FAIL"


def test_decide__head_whose_cpu_clock_misses_what_it_does_more__found_by_the_turnaround() -> None:
    decision = decided(work=1.08, told=1 / 1.08)
    assert compared(decision, "latency.low").outcome == "unchanged"
    assert compared(decision, "throughput.turnaround").outcome == "regressed"
    assert decision.verdict == "FAIL"


def test_decide__head_whose_cpu_clock_misses_more__the_wall_decides() -> None:
    decision = decided(work=1.3, told=1 / 1.3)
    assert compared(decision, "latency.low").clock == "wall"
    assert decision.verdict != "PASS"


def test_decide__idle_machine__the_wall_alone() -> None:
    base, head = sides([1.0] * PAIRS)
    decision = decide(base, head, policy=Policy(looks=[PAIRS]), history=History())
    assert compared(decision, "latency.low").clock == "wall"
    assert "latency.wall" not in {comparison.metric for comparison in decision.comparisons}


def test_decide__base_against_base_on_a_busy_machine__floors_by_the_same_clock() -> None:
    base, head = sides([1.0] * PAIRS)
    base = msgspec.structs.replace(base, replicates=busy(base.replicates, seed=1))
    head = msgspec.structs.replace(head, replicates=busy(head.replicates, seed=2))
    floors = {floor.metric: floor for floor in decide(base, head, policy=Policy(), history=History()).noise_floors}
    assert floors["latency.low"].clock == "cpu"
    assert floors["latency.low"].floor < 0.01 < floors["latency.wall"].floor
