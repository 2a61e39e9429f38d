"""Batch sizes inside the pairs, on real workers: rounds of both sides, sizes that fail, and step 5 made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perfgate.catalogue.names import BATCH_THROUGHPUT
from perfgate.conductor.sides.function.batch_sizes import FEWEST_ROUNDS, MOST_ROUNDS, BatchSizes, sizes_in_time
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference, load_config
from perfgate.document.run import REPEAT, WorkloadRecord
from perfgate.flows.check.checklist import batch_step
from tests.fakes.wording import reason_of
from tests.shared_bench import SharedBench

WORKLOAD = """
import os

import torch

from perfgate import Workload


class Model(torch.nn.Module):
    def forward(self, x):
        PLANTED
        return x + 1


plain = Workload(build=lambda device: Model(), inputs=lambda batch, seed: torch.ones(batch, 4), batch=8)
"""
NO_LIMITS: dict[str, float] = {}
Project = Callable[[str], Path]
StartWorker = Callable[[Path], Worker]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    def write(planted: str) -> Path:
        root = tmp_path / f"project-{len(list(tmp_path.iterdir()))}"
        root.mkdir()
        (root / "model.py").write_text(WORKLOAD.replace("PLANTED", planted))
        (root / "perfgate.toml").write_text('project = "sizes"\nworkload = "model.py:plain"\n')
        return root

    return write


@pytest.fixture
def sized_bench(shared_bench: SharedBench, project: Project) -> Iterator[Bench]:
    with shared_bench.configured(load_config(project("pass"))) as bench:
        yield bench


@pytest.fixture
def start_worker(sized_bench: Bench) -> Iterator[StartWorker]:
    reference = WorkloadReference(name="plain", file="model.py", attribute="plain")
    with ExitStack() as stack:

        def start(root: Path) -> Worker:
            checkout = Checkout(root=root, harness=root)
            worker, _ = stack.enter_context(
                sized_bench.worker(checkout, reference, cpus=sized_bench.cpus, layout_seed=1, log_name="plain")
            )
            return worker

        yield start


def record() -> WorkloadRecord:
    return WorkloadRecord(name="plain", reference="model.py:plain", sha256="", batch=8, shapes=["default"])


def test_run_round__two_rounds__every_size_of_both_sides_in_each(
    sized_bench: Bench, project: Project, start_worker: StartWorker
) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    base, head = start_worker(project("pass")), start_worker(project("pass"))
    for _ in range(2):
        sizes.run_round(base, head, call_seconds=1e-5)
    assert sizes.reason is None
    for side in sizes.sides:
        assert set(side.sweep.sizes) >= {1, 2, 4, 8, 16, 32, 64}
        assert {len(rates) for rates in side.sweep.rates.values()} == {2}
        step = batch_step(side, sizes, record(), NO_LIMITS)
        assert step.status in ("ok", "attention")
        turns = [value.labels.get(REPEAT) for value in step.values if value.metric == BATCH_THROUGHPUT]
        assert set(turns) == {None, "1", "2"}
        assert step.procedure is not None
        assert step.procedure.clock == "awake"


def test_run_round__head_refuses_large_batches__sizes_of_both_sides_and_no_others(
    sized_bench: Bench, project: Project, start_worker: StartWorker
) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    base, head = start_worker(project("pass")), start_worker(project("assert len(x) < 16"))
    sizes.run_round(base, head, call_seconds=1e-5)
    assert [sorted(side.sweep.rates) for side in sizes.sides] == [[1, 2, 4, 8]] * 2
    step = batch_step(sizes.sides[1], sizes, record(), NO_LIMITS)
    assert "batch.refused" in {finding.rule for finding in step.findings}


def test_run_round__head_accepts_one_size__reason_and_no_comparison(
    sized_bench: Bench, project: Project, start_worker: StartWorker
) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    base, head = start_worker(project("pass")), start_worker(project("assert len(x) == 8"))
    sizes.run_round(base, head, call_seconds=1e-5)
    before, after = (batch_step(side, sizes, record(), NO_LIMITS) for side in sizes.sides)
    assert (before.status, after.status) == ("unavailable", "not_applicable")
    assert reason_of(before) == "no batch size but the configured 8 works on both sides"
    assert reason_of(after).startswith("the batch size is fixed at 8: a batch of 1 is refused")


def test_run_round__process_of_head_ends_at_a_size__error_of_its_side_and_an_end_of_the_rounds(
    sized_bench: Bench, project: Project, start_worker: StartWorker
) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    base, head = start_worker(project("pass")), start_worker(project("len(x) == 32 and os._exit(3)"))
    sizes.run_round(base, head, call_seconds=1e-5)
    assert sizes.is_finished
    before, after = (batch_step(side, sizes, record(), NO_LIMITS) for side in sizes.sides)
    assert (before.status, after.status) == ("unavailable", "error")
    assert reason_of(before) == "a process ended while it measured batch sizes"
    assert after.error is not None


def test_run_round__process_of_head_ends_in_a_later_round__base_keeps_the_complete_rounds(
    sized_bench: Bench, project: Project, start_worker: StartWorker
) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    of_head = project("os.path.exists('stop') and len(x) == 32 and os._exit(3)")
    base, head = start_worker(project("pass")), start_worker(of_head)
    for _ in range(3):
        sizes.run_round(base, head, call_seconds=1e-5)
    (of_head / "stop").touch()
    sizes.run_round(base, head, call_seconds=1e-5)
    before, after = (batch_step(side, sizes, record(), NO_LIMITS) for side in sizes.sides)
    assert after.status == "error"
    assert before.status in ("ok", "attention")
    turns = [value.labels.get(REPEAT) for value in before.values if value.metric == BATCH_THROUGHPUT]
    assert set(turns) == {None, "1", "2", "3"}


def test_run_round__long_calls__no_size_is_tried(
    sized_bench: Bench, project: Project, start_worker: StartWorker
) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    worker = start_worker(project("pass"))
    sizes.run_round(worker, worker, call_seconds=3.0)
    step = batch_step(sizes.sides[0], sizes, record(), NO_LIMITS)
    assert step.status == "unavailable"
    assert reason_of(step) == "calls of 3 s are too long to measure every batch size in turns"


def test_batch_step__no_pair_was_measured__unavailable(sized_bench: Bench) -> None:
    sizes = BatchSizes(sized_bench, "plain", 8)
    step = batch_step(sizes.sides[0], sizes, record(), NO_LIMITS)
    assert (step.status, step.procedure) == ("unavailable", None)


def test_sizes_in_time__long_calls_of_large_sizes__largest_left_out_and_the_configured_one_kept() -> None:
    short = {1: 1e-4, 8: 1e-4, 64: 1e-4}
    assert sizes_in_time(short, 8) == short
    assert list(sizes_in_time({1: 0.05, 2: 0.1, 4: 0.2, 8: 0.15}, 8)) == [1, 2, 8]
    assert FEWEST_ROUNDS < MOST_ROUNDS
