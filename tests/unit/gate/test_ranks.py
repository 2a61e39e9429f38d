"""Ranks in turns: the one with more to do is named, and losses agree as far as the project says."""

from __future__ import annotations

import random

import msgspec
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import Policy
from perfgate.document.job import JobNumber, JobRecord, RankCounts, Turn
from perfgate.document.run import RunDocument
from perfgate.document.samples import SampleSet, pack
from perfgate.judging.gate.compare.jobs import losses_differ
from perfgate.judging.gate.compare.judge import AlphaShares
from perfgate.judging.gate.compare.parts import exposed_parts, rank_parts
from perfgate.judging.gate.compare.session import compare_sides
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import NumberTable, Rules
from perfgate.judging.gate.evidence.quads import Quad
from perfgate.judging.gate.evidence.work_table import WorkTable
from tests.fakes.documents import make_run

NAME = "train"


def turn(
    quad: int = 0, *, cpu: tuple[float, ...] = (0.01, 0.01), step: float = 0.02, loss: float | None = None
) -> Turn:
    samples = [
        SampleSet(metric="ranks.cpu", samples=pack([round(seconds * 1e9)]), labels={"rank": str(rank)})
        for rank, seconds in enumerate(cpu)
    ]
    values = {"ranks.step": step, "ranks.cpu": sum(cpu), **({} if loss is None else {"ranks.loss": loss})}
    return Turn(workload=NAME, start=quad // 8, quad=quad, place=0, values=values, samples=samples, seconds=1)


def runs(base: list[Turn], head: list[Turn]) -> tuple[RunDocument, RunDocument]:
    numbers = [JobNumber(metric=metric, unit="s", better="lower") for metric in ("ranks.step", "ranks.cpu")]
    job = JobRecord(name=NAME, kind="ranks", reference="train.py", sha256="0" * 64, numbers=numbers)
    return make_run(records=[job], turns=base), make_run(records=[job], turns=head)


def compared(base: list[Turn], head: list[Turn], policy: Policy) -> list[Comparison]:
    evidence = Evidence(*runs(base, head))
    numbers = NumberTable.of(evidence, Rules(policy))
    shares = AlphaShares.of_subjects(policy, subjects=1)
    return compare_sides(numbers, WorkTable(evidence), policy, shares).comparisons


def quads(head: tuple[float, ...], *, base: tuple[float, ...] = (0.010, 0.010, 0.010), starts: int = 4) -> list[Quad]:
    """Eight quads of each start whose ranks take so long on either side, within a few percent."""
    noise = random.Random(0)

    def noisy(quad: int, cpu: tuple[float, ...]) -> list[Turn]:
        return [turn(quad, cpu=tuple(seconds * noise.gauss(1.0, 0.03) for seconds in cpu))]

    return [Quad(number // 8, noisy(number, base), noisy(number, head)) for number in range(8 * starts)]


@pytest.mark.parametrize(
    ("head", "starts", "named"),
    [
        ((0.010, 0.016, 0.010), 4, ["rank 1"]),
        ((0.014, 0.010, 0.018), 4, ["rank 2"]),
        # Whatever slows all of them is not the fault of one.
        ((0.016, 0.016, 0.016), 4, []),
        ((0.0101, 0.0102, 0.010), 4, []),
        # One start has its luck.
        ((0.010, 0.016, 0.010), 1, []),
    ],
)
def test_rank_parts__growth__named_where_it_exceeds_that_of_the_others(
    head: tuple[float, ...], starts: int, named: list[str]
) -> None:
    assert [part.name for part in rank_parts("ranks.step", quads(head, starts=starts))] == named


@pytest.mark.parametrize(
    ("head", "named"), [([0.003, 0.004, 0.0032], True), ([0.003, 0.0011, 0.004], False), ([0.003, 0.004], False)]
)
def test_exposed_parts__longer_in_every_start__named(head: list[float], named: bool) -> None:
    base = [0.001, 0.0012, 0.0011]
    sides = [
        [
            msgspec.structs.replace(
                turn(8 * start), counts=[RankCounts(rank=rank, steps=4, exposed=time) for rank in (0, 1)]
            )
            for start, time in enumerate(times)
        ]
        for times in (base, head)
    ]
    assert bool(exposed_parts(*sides)) is named


def test_compare_sides__slower_by_one_rank__both_times_name_it() -> None:
    spread = [1 + 0.002 * (number % 5) for number in range(32)]
    base = [turn(quad, step=0.02 * factor) for quad, factor in enumerate(spread)]
    head = [turn(quad, step=0.026 * factor, cpu=(0.01, 0.016 * factor)) for quad, factor in enumerate(reversed(spread))]
    rows = {row.metric: row for row in compared(base, head, Policy())}
    assert rows["ranks.step"].outcome == rows["ranks.cpu"].outcome == "regressed"
    assert [part.name for part in rows["ranks.step"].parts] == ["rank 1"]
    assert rows["ranks.cpu"].parts == rows["ranks.step"].parts


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "differ"),
    [
        (1.0, 1.0, 0.0, False),
        (1.0, 1.0000001, 0.0, True),
        (1.0, 1.0009, 0.001, False),
        (1.0, 1.0011, 0.001, True),
        (0.0, 1e-9, 0.001, True),
    ],
)
def test_losses_differ__relative_to_the_larger(before: float, after: float, tolerance: float, differ: bool) -> None:
    assert losses_differ([turn(loss=before)], [turn(loss=after)], tolerance) is differ


def test_compare_sides__losses_too_far_apart__other_output() -> None:
    base, head = ([turn(quad, loss=loss) for quad in range(8)] for loss in (2.0, 2.1))
    near, far = (Policy(tolerances={f"ranks.loss@{NAME}": tolerance}) for tolerance in (0.1, 0.01))
    assert "job.output" not in {row.metric for row in compared(base, head, near)}
    output = next(row for row in compared(base, head, far) if row.metric == "job.output")
    assert (output.outcome, output.gating) == ("regressed", True)
    assert output.reason is not None
    assert output.reason.values == {"count": 8, "quads": 8}
