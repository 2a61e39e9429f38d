"""A new kind of evidence is one producer of numbers and two entries of the catalogue: nothing else of the gate changes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.catalogue.lookup import FAMILIES, METRICS
from perfgate.catalogue.records import Family, GateTerms, Metric
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence import producers
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides

ENERGY = "energy.call"
MODULE = f"{producers.__name__}.energy"
PAIRS = 16
BASE = [0.5 + 0.001 * (pair % 5) for pair in range(PAIRS)]


@pytest.fixture
def joules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that the producer reads, which the test writes."""
    metric = Metric(
        name=ENERGY,
        step=20,
        title="Energy",
        better="lower",
        explanation="-",
        source="-",
        unit="J",
        gate=GateTerms(tolerance=0.02),
    )
    monkeypatch.setitem(METRICS, ENERGY, metric)
    monkeypatch.setitem(FAMILIES, "energy", Family(metrics=(ENERGY,), share=0.05))
    folder = Path(__file__).with_name("new_evidence")
    monkeypatch.setattr(producers, "__path__", [*producers.__path__, str(folder)])
    file = tmp_path / "joules.json"
    monkeypatch.setattr(importlib.import_module(MODULE), "FILE", file)
    yield file
    del sys.modules[MODULE]


def decided(file: Path, *, head: list[float], policy: Policy = Policy()) -> DecisionDocument:  # noqa: B008
    of_sides = {side: {WORKLOAD: {SHAPE: values}} for side, values in (("base", BASE), ("head", head))}
    file.write_text(json.dumps(of_sides))
    return decide(*sides([1.0] * PAIRS), policy=policy, history=History())


def energy_of(decision: DecisionDocument) -> Comparison:
    return next(row for row in decision.comparisons if row.metric == ENERGY)


def test_decide__joules_from_a_file_are_equal__unchanged_and_passes(joules: Path) -> None:
    decision = decided(joules, head=list(reversed(BASE)))
    energy = energy_of(decision)
    assert decision.verdict == "PASS"
    assert (energy.outcome, energy.unit, energy.better) == ("unchanged", "J", "lower")
    assert isinstance(energy, Paired)
    assert energy.pairs == PAIRS
    assert energy.base == pytest.approx(0.502)


def test_decide__a_call_takes_ten_percent_more_energy__fails_by_it_alone(joules: Path) -> None:
    decision = decided(joules, head=[1.1 * value for value in BASE])
    energy = energy_of(decision)
    assert decision.verdict == "FAIL"
    assert [row.metric for row in decision.comparisons if row.outcome == "regressed"] == [ENERGY]
    assert isinstance(energy, Paired)
    assert energy.delta == pytest.approx(0.1)


def test_decide__a_tolerance_names_the_energy__it_is_judged_by_it(joules: Path) -> None:
    decision = decided(joules, head=[1.1 * value for value in BASE], policy=Policy(tolerances={ENERGY: 0.2}))
    assert (decision.verdict, energy_of(decision).outcome) == ("PASS", "unchanged")
