"""Models whose processes do different work: equal code never fails by a count, an operator of the change always does.

The real conductor, fork servers and workers count; pairs, which say nothing about counts, are left out.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import pytest

from perfgate.conductor.sides.checklist.recount import Recount
from perfgate.conductor.sides.checklist.turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.workers.bench import open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import load_config
from perfgate.document.comparison import Comparison, Exact
from perfgate.document.decision import Policy
from perfgate.document.run import CounterSet
from perfgate.judging.gate.look import Look
from tests.end_to_end.tuners import MODELS, added_line, make_project
from tests.fakes.documents import make_run
from tests.fakes.records import changed

OPS = "counters.framework_ops"
# The first process may count what others do not; a difference is sought until this many gates of each kind saw it.
GATES = 4


class Counted(NamedTuple):
    """What each side counted, and how the gate compares it."""

    base: CounterSet
    head: CounterSet
    comparisons: list[Comparison]

    def differing(self) -> list[tuple[str, str, str | None]]:
        return [
            (found.metric, found.outcome, found.parts[0].line if found.parts else None)
            for found in self.comparisons
            if found.outcome in ("regressed", "improved") and isinstance(found, Exact)
        ]


def counted(folder: Path, kind: str, change: str) -> Counted:
    sides = []
    for name, of in (("base", "none"), ("head", change)):
        root = make_project(folder / name, kind, of)
        sides.append(ChecklistSide(name, Checkout(root, root), folder / f"out-{name}"))  # type: ignore[arg-type]
        sides[-1].folder.mkdir()
    config = load_config(sides[0].checkout.root)

    def look() -> Look:
        runs = [
            changed(
                make_run(side.name, pairs=0),
                workloads=[side.found.workload],
                counters=side.found.counters,
                steps=[],
                replicates=[],
            )
            for side in sides
        ]
        return Look(runs[0], runs[1], Policy(strict=True), workload=config.references[0].name)

    with open_bench(config, logs=folder / "logs", say=lambda _: None) as bench:
        turns = ChecklistTurns(bench, config.references[0], sides)
        recount = Recount(bench, turns, draws=bench.servers.draws)
        turns.first((4,))
        recount.confirm(lambda: look().differing_counts(), deadline=math.inf)
        recount.count_base(deadline=math.inf)
    (base,), (head,) = (side.found.counters for side in sides)
    return Counted(base, head, look().comparisons)


def test_counts__operator_added_to_code_that_tunes_itself__regressed_at_its_line(tmp_path: Path) -> None:
    found = counted(tmp_path, "random", "added")
    at = {line for metric, outcome, line in found.differing() if (metric, outcome) == (OPS, "regressed")}
    assert at == {added_line("random")}
    assert found.base.processes == found.head.processes == 5


@pytest.mark.slow
@pytest.mark.parametrize("gate", range(GATES))
@pytest.mark.parametrize("kind", MODELS)
def test_counts__unchanged_code_of_any_kind__no_difference(tmp_path: Path, kind: str, gate: int) -> None:
    found = counted(tmp_path, kind, "unseen")
    print(
        kind, gate, found.base.processes, found.head.processes, found.base.ranges.get(OPS), found.head.ranges.get(OPS)
    )
    assert found.differing() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_counts__added_operator_of_any_kind__regressed_at_its_line(tmp_path: Path, kind: str) -> None:
    found = counted(tmp_path, kind, "added")
    at = {line for metric, outcome, line in found.differing() if (metric, outcome) == (OPS, "regressed")}
    assert at == {added_line(kind)}
