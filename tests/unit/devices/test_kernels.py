"""The kernels of profiled blocks: their sums, their rows, and whether two blocks did the same work."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from perfgate.measuring.devices.backends.cuda import kernels_of
from perfgate.measuring.devices.device import KernelRun
from perfgate.measuring.devices.kernels import MOST_CHARACTERS, MOST_ROWS, OTHER_KERNELS, KernelBlock, kernel_columns
from perfgate.measuring.devices.kernels import work_of as hash_of

GEMM = KernelRun("gemm", "8x8x1 128x1x1", 7, 100, 4_000)
RELU = KernelRun("relu", "64x1x1 256x1x1", 7, 5_000, 1_000)


def test_kernel_columns__two_blocks__sums_and_the_median_of_each_kernel_in_a_call() -> None:
    slow = RELU._replace(ns=3_000)
    blocks = [KernelBlock(0, 1, [GEMM, RELU]), KernelBlock(2, 2, [GEMM, RELU, GEMM, slow])]

    columns = kernel_columns(blocks)

    assert (columns.quad, columns.calls, columns.busy_ns) == ([0, 2], [1, 2], [5_000, 12_000])
    assert [(row.name, row.count, row.ns) for row in columns.rows] == [("gemm", 1.0, 4_000), ("relu", 1.0, 1_500)]
    assert columns.cycles == []


def test_kernel_columns__cycles_of_every_kernel__their_sum() -> None:
    counted = [GEMM._replace(cycles=6_000), RELU._replace(cycles=1_500)]

    assert kernel_columns([KernelBlock(0, 1, counted)]).cycles == [7_500]
    assert kernel_columns([KernelBlock(0, 1, [*counted, RELU])]).cycles == []


def test_kernel_columns__hundreds_of_kernels__the_longest_and_the_rest_together() -> None:
    kernels = [KernelRun(f"k{number}", "", 7, number, 1_000 - number) for number in range(300)]

    rows = kernel_columns([KernelBlock(0, 1, kernels)]).rows

    assert len(rows) == MOST_ROWS
    assert rows[0].name == "k0"
    assert (rows[-1].name, rows[-1].count) == (OTHER_KERNELS, 300 - MOST_ROWS + 1)
    assert sum(row.ns for row in rows) == sum(kernel.ns for kernel in kernels)


def test_kernel_columns__names_of_templates__cut_and_still_distinct() -> None:
    kernels = [KernelRun("t<" + "float, " * 100 + end, "", 7, 0, 10) for end in ("a>", "b>")]

    names = [row.name for row in kernel_columns([KernelBlock(0, 1, kernels)]).rows]

    assert len(set(names)) == 2
    assert {len(name) for name in names} == {MOST_CHARACTERS}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ([GEMM._replace(ns=9_000), RELU], True),
        ([GEMM._replace(stream=13), RELU._replace(stream=13)], True),
        ([GEMM, RELU._replace(name="gelu")], False),
        ([GEMM, RELU._replace(launch="32x1x1 256x1x1")], False),
        ([GEMM._replace(start_ns=9_000), RELU], False),
        ([GEMM, RELU._replace(stream=13)], False),
        ([GEMM], False),
    ],
)
def test_work_of__another_block__same_names_sizes_and_order(other: list[KernelRun], is_same: bool) -> None:
    assert (hash_of(other) == hash_of([GEMM, RELU])) is is_same


@dataclass
class KinetoEvent:
    """An event as torch 2.13 hands it over (``torch._C._autograd._KinetoEvent``)."""

    text: str
    kind: str
    device: str = "CUDA"
    metadata: str = ""

    def name(self) -> str:
        return self.text

    def activity_type(self) -> str:
        return self.kind

    def device_type(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.device)

    def device_resource_id(self) -> int:
        return 7

    def start_ns(self) -> int:
        return 1_000

    def duration_ns(self) -> int:
        return 42

    def metadata_json(self) -> str:
        return self.metadata


def test_kernels_of__events_of_kineto__kernels_with_their_launch_sizes() -> None:
    # Arguments of a kernel as Kineto writes them into traces (cuda-kineto of the recordings).
    metadata = '"queued": 0, "device": 0, "stream": 7, "grid": [13, 1, 1], "block": [256, 1, 1]'
    events = [
        KinetoEvent("aten::mm", "cpu_op", device="CPU"),
        KinetoEvent("sgemm", "kernel", metadata=metadata),
        KinetoEvent("relu", "kernel"),
        KinetoEvent("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy"),
        KinetoEvent("my step", "gpu_user_annotation"),
    ]

    assert kernels_of(events) == [
        KernelRun("sgemm", "13x1x1 256x1x1", 7, 1_000, 42),
        KernelRun("relu", "", 7, 1_000, 42),
    ]
