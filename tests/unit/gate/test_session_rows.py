"""What the plan of a workload learns from its pairs and stretches, besides their rows."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import Policy
from perfgate.document.run import ErrorDetail, FailedPair, RunDocument
from perfgate.document.samples import Arm, Replicate
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import NumberTable, Rules
from perfgate.judging.gate.evidence.session_rows import SessionRows, WorkloadRows
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.gate.evidence.work_table import WorkTable
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides, stretches_of

replace = msgspec.structs.replace
ERROR = ErrorDetail(kind="exception", message="boom")


def rows_of(base: RunDocument, head: RunDocument) -> WorkloadRows:
    evidence = Evidence(base, head)
    required = Required(workloads=(WORKLOAD,), stretches=True)
    numbers = NumberTable.of(evidence, Rules(Policy()))
    return SessionRows(evidence, numbers, WorkTable(evidence), required, Policy()).workload(WORKLOAD)


def shifted(process: Replicate, by: int) -> Replicate:
    """Return a process whose blocks are measured so much later."""
    blocks = process.shapes[SHAPE]
    later = replace(blocks, sequence=[place + by for place in blocks.sequence])
    return replace(process, shapes={SHAPE: later})


def test_workload__fast_calls_that_took_turns__stretches_are_expected() -> None:
    assert rows_of(*sides([1.0] * 4, call=0.001)).expects_stretches


def test_workload__calls_of_a_second__no_stretches_are_expected() -> None:
    assert not rows_of(*sides([1.0] * 4, call=1.0)).expects_stretches


def test_workload__whole_processes_follow_each_other__no_stretches_are_expected() -> None:
    base, head = sides([1.0] * 4, call=0.001)
    after = changed(head, replicates=[shifted(process, 100) for process in head.pairs.replicates])
    assert not rows_of(base, after).expects_stretches


@pytest.mark.parametrize(("arm", "pairs", "stretch"), [("ab", {3}, False), ("stretch", set(), True)])
def test_workload__a_pair_or_a_stretch_failed__is_told_apart(arm: Arm, pairs: set[int], stretch: bool) -> None:
    base, head = sides([1.0] * 4)
    failed = [FailedPair(pair=3, arm=arm, workload=WORKLOAD, error=ERROR)]
    rows = rows_of(base, changed(head, failed=failed))
    assert (rows.failed_pairs, rows.has_failed_stretch) == (pairs, stretch)


def test_workload__block_of_a_stretch_was_not_timed__its_quad_is_not_usable() -> None:
    base, head = sides([1.0] * 4)
    firsts, seconds = stretches_of(starts=1)
    assert rows_of(*with_stretches(base, head, firsts, seconds)).usable_quads == {SHAPE: 8}
    (process,) = seconds
    blocks = process.shapes[SHAPE]
    seen_ns = [1, *blocks.conductor.seen_ns[1:]]
    untimed = replace(blocks, conductor=replace(blocks.conductor, seen_ns=seen_ns))
    seconds = [replace(process, shapes={SHAPE: untimed})]
    assert rows_of(*with_stretches(base, head, firsts, seconds)).usable_quads == {SHAPE: 7}


def with_stretches(
    base: RunDocument, head: RunDocument, firsts: list[Replicate], seconds: list[Replicate]
) -> tuple[RunDocument, RunDocument]:
    return (
        changed(base, replicates=[*base.pairs.replicates, *firsts]),
        changed(head, replicates=[*head.pairs.replicates, *seconds]),
    )
