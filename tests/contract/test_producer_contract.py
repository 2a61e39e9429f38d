"""One suite over all producers of numbers: their rows are of known metrics and families, and have terms to be judged by."""

from __future__ import annotations

from types import ModuleType

import pytest

from perfgate.catalogue.lookup import is_known
from perfgate.document.decision import Policy
from perfgate.document.job import JobNumber, JobRecord, Turn
from perfgate.document.run import RunDocument
from perfgate.judging.gate.compare.judge import AlphaShares, judge_numbers
from perfgate.judging.gate.evidence import producers
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Number, Rules
from perfgate.judging.gate.evidence.producers import device_clocks
from perfgate.plugins import load_members
from tests.fakes.card_times import Call, CardGate, CardNoise
from tests.fakes.records import changed
from tests.unit.gate.builders import sides, stretches_of

POLICY = Policy(tolerances={"latency.p90": 0.1})
JOB = JobRecord(
    name="train",
    kind="ranks",
    reference="train.py",
    sha256="0" * 64,
    numbers=[JobNumber(metric="ranks.step", unit="s", better="lower")],
)


def turns(seconds: float) -> list[Turn]:
    return [
        Turn(workload="train", start=quad // 4, quad=quad, place=0, values={"ranks.step": seconds}, seconds=1)
        for quad in range(8)
    ]


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """The documents of a check with pairs, long stretches and a job."""
    base, head = sides([1.0] * 16, call=0.001)
    firsts, seconds = stretches_of()

    def with_more(run: RunDocument, stretches: list[object], level: float) -> RunDocument:
        return changed(run, replicates=[*run.pairs.replicates, *stretches], records=[JOB], turns=turns(level))

    return Evidence(with_more(base, list(firsts), 0.02), with_more(head, list(seconds), 0.021))


@pytest.fixture(scope="module")
def evidence_of_card() -> Evidence:
    """The documents of a check on an accelerator."""
    gate = CardGate(Call(), Call(), CardNoise(), seed=1)
    gate.measure(pairs=8)
    return Evidence(*gate.documents())


@pytest.fixture(params=load_members(producers), ids=lambda module: module.__name__.rpartition(".")[2])
def rows(request: pytest.FixtureRequest, evidence: Evidence, evidence_of_card: Evidence) -> list[Number]:
    producer: ModuleType = request.param
    measured = evidence_of_card if producer is device_clocks else evidence
    return list(producer.numbers(measured, Rules(POLICY)))


def test_numbers__each__has_rows_of_known_metrics_with_terms(rows: list[Number]) -> None:
    assert rows
    for number in rows:
        assert is_known(number.metric)
        assert number.terms.looks
        assert min(number.terms.margins) >= number.terms.tolerance


def test_numbers__each__has_a_family_with_a_share_of_the_alpha(rows: list[Number]) -> None:
    shares = AlphaShares.of_subjects(POLICY, subjects=2)
    assert all(0 < shares.of(number.family) <= POLICY.alpha for number in rows)


def test_judge__each__one_comparison_or_more_a_row_with_its_unit_and_place(rows: list[Number]) -> None:
    for number in rows:
        comparisons = judge_numbers([number], AlphaShares.of_subjects(POLICY, subjects=2), floors=())
        assert {row.place for row in comparisons} == {tuple(number.place)}
        assert number.unit in {row.unit for row in comparisons}
