"""Machines whose gates favour one side, from the base-against-base effects of stored gates."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.document.decision import NoiseFloor
from perfgate.document.history import BiasedMachine, GateRecord, TwinEffect
from perfgate.judging.report.view.trend_rows import biased_machine_lines
from perfgate.judging.trend.gates import gate_history
from perfgate.judging.trend.machines import biased_machines, twin_effect
from perfgate.locale import speaking
from tests.fakes.documents import make_decision
from tests.fakes.trends import make_gates, make_trend


def gates_of(
    machine: str, *, bias: float = 0.0, count: int = 100, seed: int = 1, spread: float = 0.006
) -> list[GateRecord]:
    """The gates of one machine, a wild one among twenty."""
    random = np.random.default_rng(seed)
    effects = bias + random.normal(0, spread, count) * np.where(random.random(count) < 0.05, 4.0, 1.0)
    records: list[GateRecord] = []
    for number, effect in enumerate(effects):
        records.append(
            GateRecord(
                gate="default",
                commit=f"{seed:04x}{number:036x}",
                change=number,
                verdict="PASS",
                judged_at=f"2026-{1 + number // 28:02}-{1 + number % 28:02}T10:00:00+00:00",
                twins=TwinEffect(machine=machine, effect=float(effect), pairs=7),
            )
        )
    return records


@pytest.mark.parametrize("seed", range(5))
def test_biased_machines__half_a_percent_over_a_hundred_gates__names_the_machine_with_its_evidence(seed: int) -> None:
    records = gates_of("runner-a", seed=10 + seed) + gates_of("runner-b", bias=0.005, seed=30 + seed)
    records += gates_of("runner-c", seed=50 + seed)
    (biased,) = biased_machines(records)
    assert (biased.machine, biased.gates, biased.sister_gates) == ("runner-b", 100, 200)
    assert biased.effect == pytest.approx(0.005, abs=0.002)
    assert biased.interval[0] < 0.005 < biased.interval[1]


def test_biased_machines__all_machines_alike__names_none() -> None:
    # The second process is slower everywhere: a property of the measurement.
    records = [record for seed in range(5) for record in gates_of(f"runner-{seed}", bias=0.004, seed=seed)]
    assert biased_machines(records) == []


def test_biased_machines__two_machines_differ__names_the_machine_further_from_zero() -> None:
    (biased,) = biased_machines(gates_of("runner-a", seed=3) + gates_of("runner-b", bias=0.01, seed=4))
    assert biased.machine == "runner-b"


def test_biased_machines__few_gates__names_none() -> None:
    assert biased_machines(gates_of("runner-a", bias=0.05, count=19)) == []


def test_biased_machines__only_machine_with_a_bias__is_compared_with_zero() -> None:
    (biased,) = biased_machines(gates_of("runner-a", bias=0.006))
    assert (biased.gates, biased.sister_gates) == (100, 0)


def test_biased_machines__repaired_two_hundred_gates_ago__no_longer_named() -> None:
    old = gates_of("runner-a", bias=0.02, count=60, seed=1)
    late = [
        GateRecord(
            gate="default",
            commit=record.commit,
            verdict="PASS",
            judged_at="2027" + record.judged_at[4:],
            twins=record.twins,
        )
        for record in gates_of("runner-a", count=200, seed=2)
    ]
    assert biased_machines(old + late) == []


def test_gate_history__gates_with_twins__the_biased_machine_is_in_the_report() -> None:
    history = gate_history(gates_of("runner-a", bias=0.01), [], triages=())
    assert history is not None
    assert [entry.machine for entry in history.biased] == ["runner-a"]


def test_biased_machine_lines__a_biased_machine__names_it_with_the_evidence() -> None:
    gates = make_gates(
        biased=[BiasedMachine(machine="runner-b", effect=0.005, interval=(0.004, 0.006), gates=100, sister_gates=200)]
    )
    with speaking("en"):
        (line,) = biased_machine_lines(make_trend(gates=gates))
    assert str(line) == (
        "runner-b favours one side: base against base differs by +0.5 % (+0.4 to +0.6 %) on average of 100 gates. "
        "It is the difference from 200 gates of the other machines."
    )


def test_twin_effect__decision_with_pairs_of_base__their_median_over_the_shapes_and_the_machine() -> None:
    floors = [
        NoiseFloor(
            workload="encoder", shape=shape, metric="latency.low", floor=0.01, pairs=3, differs=False, effects=effects
        )
        for shape, effects in (("short", [0.001, 0.002, 0.5]), ("long", [0.004, 0.006, 0.005]))
    ]
    decision = make_decision(noise_floors=floors, machine="runner 7/b")
    assert twin_effect(decision) == TwinEffect(machine="runner-7-b", effect=0.0035, pairs=6)


def test_twin_effect__no_pairs_or_no_machine__none() -> None:
    assert twin_effect(make_decision(noise_floors=[], machine="runner-7")) is None
    floor = NoiseFloor(
        workload="encoder", shape="", metric="latency.low", floor=0.01, pairs=1, differs=False, effects=[0.0]
    )
    assert twin_effect(make_decision(noise_floors=[floor], machine="")) is None
