"""The luck of a start comes from main's stored runs, within bounds, and never from the documents under judgement."""

from __future__ import annotations

import pytest

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History, HistorySeries
from perfgate.document.run import RunDocument, StepResult, Value
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.effect import start_luck_of
from tests.fakes.card_times import LOOKS, Call, CardGate, CardNoise
from tests.fakes.records import changed
from tests.traps.virtual import SHAPE, WORKLOAD


def spreads(*values: float, shape: str = SHAPE) -> HistorySeries:
    return HistorySeries(workload=WORKLOAD, shape=shape, metric="latency.start_spread", values=list(values))


def decided(base: RunDocument, head: RunDocument, *stored: HistorySeries) -> DecisionDocument:
    return decide(base, head, policy=Policy(looks=LOOKS), history=History(series=list(stored)))


def width(decision: DecisionDocument) -> float:
    (low,) = [row for row in decision.comparisons if isinstance(row, Paired) and row.metric == "latency.low"]
    assert low.interval is not None
    return low.interval[1] - low.interval[0]


@pytest.fixture(scope="module")
def runs() -> tuple[RunDocument, RunDocument]:
    gate = CardGate(Call(), Call(), CardNoise(luck=0.0005, quad=0.001), seed=3)
    gate.measure(pairs=8)
    return gate.documents()


@pytest.mark.parametrize(
    ("values", "luck"),
    [
        ((), {}),
        ((0.004, 0.005), {}),
        ((0.002, 0.009, 0.004), {WORKLOAD: 0.004}),
        ((0.0001, 0.0, 0.0002), {WORKLOAD: 0.001}),
        ((0.2, 0.3, 0.4), {WORKLOAD: 0.01}),
    ],
)
def test_start_luck_of__stored_values__median_within_bounds_from_three_on(
    values: tuple[float, ...], luck: dict[str, float]
) -> None:
    assert start_luck_of([spreads(*values)]) == luck


def test_decide__spread_of_main__widens_or_narrows_the_interval(runs: tuple[RunDocument, RunDocument]) -> None:
    assumed = width(decided(*runs))

    assert width(decided(*runs, spreads(0.01, 0.01, 0.01))) > 1.5 * assumed
    assert width(decided(*runs, spreads(0.001, 0.001, 0.001))) < assumed


def test_decide__spread_in_the_documents_under_judgement__changes_nothing(
    runs: tuple[RunDocument, RunDocument],
) -> None:
    forged = [with_spread(run, 0.009) for run in runs]

    assert width(decided(*forged)) == width(decided(*runs))


def with_spread(run: RunDocument, value: float) -> RunDocument:
    measured = Value(metric="latency.start_spread", value=value, labels={"shape": SHAPE}, count=3)
    step = StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[measured])
    return changed(run, steps=[*run.checklist.steps, step])
