"""Preprocessing in timed blocks: what each stage took, on raw batches that stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from perfgate.document.files import misfit
from perfgate.document.samples import unpack
from perfgate.measuring.timing.preprocessing import Preprocessing
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.timing.warm_up import warm_up
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice
from tests.fakes.workloads import curve

MS = 1_000_000
HERE = Path(__file__).parent


def _works(device: FakeDevice, ns: int) -> Any:
    def stage(batch: Any) -> Any:
        device.host_works(ns)
        return batch

    return stage


def _bound(device: FakeDevice, stages: dict[str, Any], **fields: Any) -> BoundWorkload:
    return BoundWorkload("fake", curve(MS, 0, preprocess=stages, **fields), device, seed=1, root=HERE)


def test_preprocessing__stages__each_timed_and_the_wall_is_their_sum() -> None:
    device = FakeDevice()
    recorder = BlockRecorder(
        _bound(device, {"decode": _works(device, 2 * MS), "resize": _works(device, 3 * MS)}), counters=None
    )
    block = recorder.record_preprocessing("default", calls=4, quad=0, sequence=0)
    recorder.record_preprocessing("default", calls=2, quad=1, sequence=5)
    assert block.calls.wall.tolist() == [5 * MS] * 4
    columns = recorder.preprocess_columns()["default"]
    assert (columns.quad, columns.sequence, columns.calls) == ([0, 1], [0, 5], [4, 2])
    assert [(stage.name, unpack(stage.wall).tolist()) for stage in columns.times.stages] == [
        ("decode", [2 * MS] * 6),
        ("resize", [3 * MS] * 6),
    ]
    assert [stage.line for stage in columns.times.stages] == ["test_preprocessing.py:25"] * 2
    assert columns.times.cpu_source == "thread_cpu"
    assert misfit(columns) is None
    assert recorder.columns() == {}


def test_preprocessing__stage_changes_its_input__gets_a_fresh_copy_every_time() -> None:
    seen: list[float] = []

    def shrink(batch: np.ndarray) -> np.ndarray:
        seen.append(float(batch[0]))
        batch /= 2
        return batch

    device = FakeDevice()
    workload = Workload(build=lambda handle: print, inputs=lambda batch, seed: np.ones(batch), preprocess=shrink)
    preprocessing = Preprocessing(BoundWorkload("fake", workload, device, seed=1), "default")
    for _ in range(20):
        preprocessing()
    assert set(seen) == {1.0}


def test_warm_up__preprocessing__block_calls_of_its_own_at_least_one() -> None:
    device = FakeDevice()
    bound = _bound(device, {"decode": _works(device, 5 * MS)}, shapes={"short": {}, "long": {}})
    recorder = BlockRecorder(bound, counters=None)
    found = warm_up(bound, block_seconds=0.02, cap_seconds=5.0, preprocessing=recorder.preprocessing)
    assert found.block_calls == {"short": 20, "long": 20}
    assert found.preprocess_calls == {"short": 4, "long": 4}
    slow = _bound(device, {"decode": _works(device, 100 * MS)})
    recorder = BlockRecorder(slow, counters=None)
    found = warm_up(slow, block_seconds=0.02, cap_seconds=5.0, preprocessing=recorder.preprocessing)
    assert found.preprocess_calls == {"default": 1}


def test_block_recorder__no_preprocessing__costs_nothing() -> None:
    device = FakeDevice()
    bound = BoundWorkload("fake", curve(MS, 0), device, seed=1)
    recorder = BlockRecorder(bound, counters=None)
    assert recorder.preprocessing == {}
    assert recorder.preprocess_columns() == {}
    assert warm_up(bound, block_seconds=0.02, cap_seconds=5.0).preprocess_calls == {}
