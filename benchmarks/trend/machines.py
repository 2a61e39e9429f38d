"""Machines whose gates favour one side: how often one is named wrongly, and how often a
planted bias is named.

    python benchmarks/trend/machines.py [--draws 200]

Ten machines with equally many gates; the effect of base against base in one gate is
normal with the given spread, and in one of 20 gates four times as large.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from perfgate.document.history import GateRecord, TwinEffect
from perfgate.judging.trend.machines import biased_machines

MACHINES = 10
BIASES = (0.0, 0.003, 0.005, 0.01)


def records_of(
    random: np.random.Generator, machines: int, gates: int, spread: float, bias: float
) -> list[GateRecord]:
    """The gates of all machines; the first is biased."""
    wild = np.where(random.random((machines, gates)) < 0.05, 4.0, 1.0)
    effects = random.normal(0, spread, (machines, gates)) * wild
    effects[0] += bias
    records: list[GateRecord] = []
    for machine, of_machine in enumerate(effects):
        for gate, effect in enumerate(of_machine):
            twins = TwinEffect(
                machine=f"runner-{machine}", effect=float(np.expm1(effect)), pairs=7
            )
            commit = f"{machine:020x}{gate:020x}"
            records.append(
                GateRecord(
                    gate="default",
                    commit=commit,
                    verdict="PASS",
                    judged_at="2026-11-01T10:00:00Z",
                    twins=twins,
                )
            )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    random = np.random.default_rng(17)
    table = Table(
        "gates of each",
        "spread of a gate",
        "bias of the first",
        "first named",
        "others named of all",
    )
    for gates in (20, 50, 100):
        for spread in (0.005, 0.008):
            for bias in BIASES:
                first = others = 0
                for _ in range(draws):
                    for entry in biased_machines(
                        records_of(random, MACHINES, gates, spread, bias)
                    ):
                        first += entry.machine == "runner-0"
                        others += entry.machine != "runner-0"
                table.add_row(
                    str(gates), f"{spread:.1%}", f"{bias:.1%}", f"{first / draws:.1%}",
                    f"{others / draws / (MACHINES - 1):.3%}",
                )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
