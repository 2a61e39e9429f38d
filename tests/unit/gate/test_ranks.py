"""Ranks in turns: the one with more to do is named, and losses agree as far as the project says."""

from __future__ import annotations

import pytest

from perfgate.document.decision import Policy
from perfgate.document.job import JobNumber, JobRecord, Turn
from perfgate.document.run import RunDocument
from perfgate.document.samples import SampleSet, pack
from perfgate.judging.gate.evidence import Evidence
from perfgate.judging.gate.ranks import losses_differ, rank_parts
from perfgate.judging.gate.turns import compare_turns
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
    return Turn(workload=NAME, start=quad // 8, quad=quad, place=0, values=values, samples=samples, begun=0, seconds=1)


def runs(base: list[Turn], head: list[Turn]) -> tuple[RunDocument, RunDocument]:
    numbers = [JobNumber(metric=metric, unit="s", better="lower") for metric in ("ranks.step", "ranks.cpu")]
    job = JobRecord(name=NAME, kind="ranks", reference="train.py", sha256="0" * 64, numbers=numbers)
    return make_run(jobs=[job], turns=base), make_run(jobs=[job], turns=head)


def test_rank_parts__every_rank__with_its_median() -> None:
    base = [turn(cpu=(0.010, 0.011, 0.012))] * 3
    head = [turn(cpu=(0.010, 0.019, 0.011))] * 2 + [turn(cpu=(0.5, 0.5, 0.5))]
    parts = [(part.name, part.base, part.head) for part in rank_parts("ranks.step", base, head)]
    assert parts == [("rank 0", 0.010, 0.010), ("rank 1", 0.011, 0.019), ("rank 2", 0.012, 0.011)]


def test_rank_parts__ten_ranks__in_the_order_of_numbers() -> None:
    parts = rank_parts("ranks.step", [turn(cpu=(0.01,) * 12)], [turn(cpu=(0.01,) * 12)])
    assert [part.name for part in parts] == [f"rank {rank}" for rank in range(12)]


def test_compare_turns__slower_by_one_rank__both_times_name_it() -> None:
    spread = [1 + 0.002 * (number % 5) for number in range(32)]
    base = [turn(quad, step=0.02 * factor) for quad, factor in enumerate(spread)]
    head = [turn(quad, step=0.026 * factor, cpu=(0.01, 0.016 * factor)) for quad, factor in enumerate(reversed(spread))]
    rows = {row.metric: row for row in compare_turns(Evidence(*runs(base, head)), Policy())}
    assert rows["ranks.step"].outcome == rows["ranks.cpu"].outcome == "regressed"
    assert [part.name for part in rows["ranks.step"].parts] == ["rank 1", "rank 0"]
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


def test_compare_turns__losses_too_far_apart__other_output() -> None:
    base, head = ([turn(quad, loss=loss) for quad in range(8)] for loss in (2.0, 2.1))
    near, far = (Policy(tolerances={f"ranks.loss@{NAME}": tolerance}) for tolerance in (0.1, 0.01))
    assert "job.output" not in {row.metric for row in compare_turns(Evidence(*runs(base, head)), near)}
    output = next(row for row in compare_turns(Evidence(*runs(base, head)), far) if row.metric == "job.output")
    assert (output.outcome, output.gating) == ("regressed", True)
    assert output.reason is not None
    assert output.reason.values == {"count": 8, "quads": 8}
