"""Where the time of a call goes: parts that add up, rows with the line that called them, on a real CPU and a fake device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from perfgate.document.run import CallAccount, CallRow
from perfgate.measuring.counting.account import account_for, measure_roof
from perfgate.measuring.counting.collect import CallTrace, record_calls
from perfgate.measuring.counting.counters import count_in_order
from perfgate.measuring.counting.tally import Dispatched
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.model.events import EventKind, EventTableBuilder
from perfgate.trace.model.recording import Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.workloads import FakeKernel, fake_workload

HERE = Path(__file__).parent
US = 1000


class Model(torch.nn.Module):
    """Two matrix products of different sizes, a copy, and a function that only runs Python."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(64, 256)
        self.narrow = torch.nn.Linear(256, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return something of everything."""
        linger(2e-3)
        hidden = torch.relu(self.wide(x))
        return self.narrow(hidden).t().contiguous()


def linger(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def made(workload: Workload, device: Device, folder: Path, *, order: bool = True) -> CallAccount:
    bound = BoundWorkload("model", workload, device, seed=1, root=HERE)
    trace = record_calls(device, bound.caller("default"), calls=6, folder=folder, name="trace")
    _, counted = count_in_order(bound, "default") if order else (None, ())
    return account_for(trace, "model", "default", order=counted, root=HERE, roof=None)


def rows_of(account: CallAccount, op: str) -> Sequence[CallRow]:
    return [row for row in account.rows if row.op == op]


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> CallAccount:
    workload = Workload(build=lambda device: Model().eval(), inputs=lambda batch, seed: torch.ones(16, 64))
    return made(workload, open_device("cpu"), tmp_path_factory.mktemp("trace"))


def test_account_for__real_call__parts_add_up_to_its_wall_time(account: CallAccount) -> None:
    assert account.parts.keys() == {"operators", "outside"}
    assert sum(account.parts.values()) == pytest.approx(account.wall, rel=1e-9)
    assert account.parts["outside"] > 2e-3
    operators = [row.self_time for row in account.rows if row.kind == "host"]
    assert sum(operators) == pytest.approx(account.parts["operators"], rel=1e-3)


def test_account_for__one_operator_on_two_lines__two_rows_with_line_code_inputs_and_work(account: CallAccount) -> None:
    wide, narrow = sorted(rows_of(account, "aten::addmm"), key=lambda row: row.line or "")
    assert wide.line == line_of("hidden = torch.relu(")
    assert wide.inputs == "float32[256], float32[16,64], float32[64,256] strided"
    assert (wide.count, wide.flops) == (1, 2 * 16 * 64 * 256)
    # Bias, input, weight and result, four bytes each.
    assert wide.moved_bytes == 4 * (256 + 16 * 64 + 64 * 256 + 16 * 256)
    assert narrow.line == line_of("return self.narrow(")
    assert narrow.code == "return self.narrow(hidden).t().contiguous()"


def test_account_for__operators_that_another_one_runs__have_the_line_of_that_one(account: CallAccount) -> None:
    # contiguous() is dispatched as a clone, which runs copy_.
    (copy,) = [row for row in rows_of(account, "aten::copy_") if row.inputs == "float32[32,16] strided"]
    assert copy.line == line_of("return self.narrow(")
    # linear dispatches nothing of its own: it has the line of what it calls.
    assert {row.line for row in rows_of(account, "aten::linear")} == {
        line_of("hidden ="),
        line_of("return self.narrow("),
    }


def test_account_for__python_between_operators__is_a_row_of_the_function_with_its_line(account: CallAccount) -> None:
    (lingering,) = rows_of(account, "linger")
    assert (lingering.kind, lingering.line, lingering.count) == ("python", line_of("def linger("), 1)
    assert lingering.self_time > 1.9e-3


def test_account_for__calls_that_differ__no_lines(tmp_path: Path) -> None:
    # The counted calls run one operator, and those that the profiler watches another.
    def call(model: object, x: torch.Tensor) -> torch.Tensor:
        return x.exp() if torch.autograd._profiler_enabled() else x.sin()

    workload = Workload(build=lambda device: 0, inputs=lambda batch, seed: torch.ones(4), call=call)
    account = made(workload, open_device("cpu"), tmp_path)
    assert [row.line for row in rows_of(account, "aten::exp")] == [None]


def test_account_for__device_with_a_timeline__kernels_copies_and_gaps_add_up(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=5 * US)
    workload = fake_workload(FakeKernel("aten::mm", 100 * US), FakeKernel("aten::softmax", 20 * US))
    account = made(workload, device, tmp_path, order=False)

    assert account.wall == pytest.approx(125e-6)
    assert account.parts["compute"] == pytest.approx(120e-6)
    assert account.parts["gap_host"] == pytest.approx(5e-6)
    assert sum(account.parts.values()) == pytest.approx(account.wall, rel=1e-9)
    assert {row.line for row in account.rows} == {None}
    assert [(row.op, row.kind, row.self_time) for row in account.rows] == [
        ("mm_kernel", "compute", pytest.approx(100e-6)),
        ("softmax_kernel", "compute", pytest.approx(20e-6)),
    ]


def test_measure_roof__cpu__what_a_machine_can_do_and_nothing_for_a_device_without_tensors() -> None:
    roof = measure_roof(open_device("cpu"))
    assert roof is not None
    assert 1e8 < roof.flops_per_second < 1e15
    assert 1e8 < roof.bytes_per_second < 1e13
    assert measure_roof(FakeDevice()) is None


def test_account_for__kernels_that_a_queue_launched__the_line_of_the_operator_that_filled_it() -> None:
    python, queue, cann, stream = ("Python", "Thread 1"), ("Python", "Thread 2"), ("CANN", "Thread 2"), ("NPU", "0")
    builder = EventTableBuilder()

    def add(start: int, duration: int, track: tuple[str, str], name: str, kind: EventKind, number: int = -1) -> None:
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=number)

    add(0, 1000, python, "perfgate.call", "annotation")
    for number, (start, op, kernel) in enumerate([(100, "relu", "Relu"), (300, "sigmoid", "Sigmoid")]):
        add(start, 100, python, f"aten::{op}", "host_op")
        add(start + 10, 50, python, f"aclnn{kernel}", "host_op")
        add(start + 20, 20, python, f"Enqueue@aclnn{kernel}", "runtime")
        # Taken out of the queue when the host is long past the operator.
        add(start + 450, 50, queue, f"Dequeue@aclnn{kernel}", "runtime")
        add(start + 460, 30, cann, "Node@launch", "runtime", number)
        add(start + 480, 10, stream, kernel, "compute", number)
    trace = CallTrace(Timeline(None, None, builder.table()), calls=1, path=Path("trace"))
    order = [
        Dispatched("aten::relu", "model.py:3", "float32[4]", None, 32, view=False),
        Dispatched("aten::sigmoid", "model.py:4", "float32[8]", None, 64, view=False),
    ]

    account = account_for(trace, "model", "default", order=order, root=HERE, roof=None)

    assert [(row.op, row.line, row.inputs) for row in account.rows] == [
        ("Relu", "model.py:3", "float32[4]"),
        ("Sigmoid", "model.py:4", "float32[8]"),
    ]
