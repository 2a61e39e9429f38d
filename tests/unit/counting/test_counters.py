from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from perfgate.document.run import OpCount
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice
from tests.unit.counting.models import MODELS

PROJECT = """
import torch

class Model:
    def __call__(self, x):
        turned = x.t().contiguous()
        for _ in range(3):
            turned = turned + 1
        same = x.clone()
        wide = x.to(torch.float64)
        return turned.sum() + same.sum() + wide.sum()
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def project(tmp_path: Path) -> ModuleType:
    file = tmp_path / "pkg" / "model.py"
    file.parent.mkdir()
    file.write_text(PROJECT)
    spec = importlib.util.spec_from_file_location("counted_project", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(batch, seed):
    return torch.randn(batch, 8, generator=torch.Generator().manual_seed(seed))


def counted(workload, root, repeats=3):
    device = open_device("cpu")
    return count_calls(BoundWorkload("w", workload, device, seed=1, root=root), "default", repeats=repeats)


@pytest.mark.parametrize(("call_ns", "calls"), [(1_000_000, 3 + 3 + 8 + 9 + 4), (2_000_000_000, 2 + 3 + 5)])
def test_count_calls__slow_call__fewer_of_them(tmp_path: Path, call_ns: int, calls: int) -> None:
    device = FakeDevice()
    made = []

    def call(x):
        made.append(None)
        device.host_works(call_ns)
        return x.clone()

    workload = Workload(build=lambda device: call, inputs=inputs, batch=1)
    found = count_calls(BoundWorkload("w", workload, device, seed=1, root=tmp_path), "default")
    assert len(made) == calls
    assert found.values["counters.copies"] == 1
    assert found.values["counters.repeat_saves"] == 0
    assert found.unstable == []


def test_count_calls__slow_call_that_keeps_its_answers__saving_of_every_new_input(tmp_path: Path) -> None:
    device = FakeDevice()
    answers = {}

    def call(x):
        device.host_works(2_000_000_000)
        # The input is kept too: another one must not get its id.
        if id(x) not in answers:
            answers[id(x)] = x, x.clone()
        return answers[id(x)][1]

    workload = Workload(build=lambda device: call, inputs=inputs, batch=1)
    found = count_calls(BoundWorkload("w", workload, device, seed=1, root=tmp_path), "default")
    assert found.values["counters.copies"] == 0
    assert found.values["counters.repeat_saves"] == 1


def test_count_calls__copies_of_three_kinds__counted_with_bytes_and_lines(project: ModuleType, tmp_path: Path) -> None:
    counters = counted(Workload(build=lambda device: project.Model(), inputs=inputs, batch=4), tmp_path)

    # 4 x 8 floats are 128 bytes, as doubles 256; only the transposed copy changes the layout.
    # Eleven operators have work to do; t() is a view and only listed.
    assert counters.values["counters.framework_ops"] == 11
    assert counters.values["counters.copies"] == 3
    assert counters.values["counters.copy_bytes"] == 512
    assert counters.values["counters.noncontiguous_copies"] == 1
    assert counters.unstable == []
    assert (counters.workload, counters.shape, counters.repeats) == ("w", "default", 3)
    assert counters.ops == [
        OpCount(op="aten::add", count=5, line="pkg/model.py:8"),
        OpCount(op="aten::sum", count=3, line="pkg/model.py:11"),
        OpCount(op="aten::clone", count=2, line="pkg/model.py:6"),
        OpCount(op="aten::_to_copy", count=1, line="pkg/model.py:10"),
        OpCount(op="aten::t", count=1, view=True, line="pkg/model.py:6"),
    ]


def test_count_calls__one_more_copy__seen_in_every_counter_of_copies(project: ModuleType, tmp_path: Path) -> None:
    model = project.Model()
    plain = counted(Workload(build=lambda device: model, inputs=inputs, batch=4), tmp_path)
    more = counted(
        Workload(build=lambda device: model, inputs=inputs, batch=4, call=lambda m, x: m(x.clone())), tmp_path
    )

    difference = {name: more.values[name] - plain.values[name] for name in plain.values}
    assert difference == {
        "counters.framework_ops": 1,
        "counters.copies": 1,
        "counters.copy_bytes": 128,
        "counters.noncontiguous_copies": 0,
        "counters.syncs": 0,
        "counters.low_precision_ops": 0,
        "counters.collectives": 0,
        "counters.flops": 0,
        "counters.deferred_ops": 0,
        "counters.double_ops": 0,
        "counters.autograd_ops": 0,
        "counters.training_modules": 0,
        "counters.loaders_in_process": 0,
        "counters.blocking_transfers": 0,
        "counters.repeat_saves": 0,
        "counters.allocations": 1,
        "memory.peak": 128,
        "memory.kept": 0,
    }


def test_count_calls__gradients_on_or_off__composite_ops_count_as_their_parts(tmp_path: Path) -> None:
    build = MODELS["mlp"].build
    forward = {"inputs": MODELS["mlp"].inputs, "batch": 8}
    inference = counted(Workload(build=build, **forward), tmp_path)
    training = counted(Workload(build=build, train_step=lambda model, x: model(x), **forward), tmp_path)

    assert [(op.op, op.count) for op in inference.ops] == [("aten::addmm", 4), ("aten::relu", 4), ("aten::t", 4)]
    # With gradients on relu keeps its result for the backward pass, detached.
    assert [(op.op, op.count) for op in training.ops] == [
        ("aten::addmm", 4),
        ("aten::detach", 4),
        ("aten::relu", 4),
        ("aten::t", 4),
    ]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_count_calls__sequences_of_different_lengths__nested_tensors_take_their_own_kernels(tmp_path: Path) -> None:
    class Padded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            rows = torch.nested.nested_tensor([x, x[:1]])
            return torch.nested.to_padded_tensor(self.layer(rows).relu(), 0.0)

    workload = Workload(build=lambda device: Padded().eval(), inputs=lambda batch, seed: torch.ones(3, 4))
    assert {"aten::linear", "aten::relu"} <= {op.op for op in counted(workload, tmp_path).ops}


def test_count_calls__work_depends_on_the_data__listed_as_unstable(tmp_path: Path) -> None:
    def loop(_, x):
        for _ in range(int(x[0])):
            x = x + 1
        return x

    workload = Workload(
        build=lambda device: None, inputs=lambda batch, seed: torch.full((batch,), float(seed)), call=loop
    )
    counters = counted(workload, tmp_path)

    assert counters.unstable == [
        "counters.allocations",
        "counters.framework_ops",
        "memory.peak",
        "ops.count:aten::add",
    ]
    # The last of three repeats: seed 1 and input 2.
    assert {op.op: op.count for op in counters.ops}["aten::add"] == 3


def test_count_calls__outside_the_project__no_line() -> None:
    counters = counted(MODELS["mlp"], Path("/nonexistent"))

    assert [op.line for op in counters.ops] == [None, None, None]


def test_count_calls__record_function_in_the_model__no_operator(tmp_path: Path) -> None:
    def call(model, x):
        with torch.profiler.record_function("mine"):
            return x + 1

    counters = counted(Workload(build=lambda device: None, inputs=inputs, call=call), tmp_path)

    assert [(op.op, op.count) for op in counters.ops] == [("aten::add", 1)]


@pytest.mark.parametrize("repeats", [POOL_SIZE, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_count_calls__many_repeats__no_spread(name: str, repeats: int, tmp_path: Path) -> None:
    counters = counted(MODELS[name], tmp_path, repeats=repeats)

    assert counters.unstable == []
    assert len(counters.values) == 18


@pytest.mark.slow
def test_count_calls__fresh_and_forked_processes__same_counters() -> None:
    command = [sys.executable, "-m", "tests.unit.counting.models"]
    root = Path(__file__).parents[3]
    first, second = (
        subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=600).stdout
        for _ in range(2)
    )

    assert first == second
    # Each process prints its own counters and those of a child forked before anything ran.
    own, forked = first.strip().splitlines()
    assert own == forked
    assert '"lstm"' in own


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process, which dispatches its collectives as a group of many does."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_count_calls__a_duplicated_collective__counted_with_operator_and_line(tmp_path: Path) -> None:
    import torch.distributed as dist

    def once(model, x):
        y = model(x)
        dist.all_reduce(y)
        return y

    def twice(model, x):
        y = once(model, x)
        dist.all_reduce(y)
        return y

    root = Path(__file__).parent
    workloads = [Workload(build=lambda _: torch.nn.Linear(8, 8), inputs=inputs, call=call) for call in (once, twice)]
    base, head = (counted(workload, root) for workload in workloads)

    assert base.values["counters.collectives"] == 1
    assert head.values["counters.collectives"] == 2
    lines = [function.__code__.co_firstlineno + 2 for function in (once, twice)]
    assert [(site.name, site.line, site.code) for site in head.sites if site.metric == "counters.collectives"] == [
        ("c10d::allreduce_", f"{Path(__file__).name}:{line}", "dist.all_reduce(y)") for line in lines
    ]
    assert head.unstable == []


class Forgetful(torch.nn.Module):
    """Some layers, called without gradients, or with them where ``no_grad`` was lost: each then keeps what it computed."""

    def __init__(self, lost):
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(9))
        )
        self.lost = lost

    def forward(self, x):
        with torch.set_grad_enabled(self.lost):
            return self.layers(x)


@pytest.mark.parametrize(("grad", "seen"), [(False, False), (True, True)])
def test_count_calls__lost_no_grad__seen_where_the_code_owns_the_mode(tmp_path: Path, grad: bool, seen: bool) -> None:
    kept, lost = (
        counted(Workload(build=lambda device, lost=lost: Forgetful(lost), inputs=inputs, batch=4, grad=grad), tmp_path)
        for lost in (False, True)
    )
    assert (lost.values["memory.peak"] > kept.values["memory.peak"]) is seen


def test_count_calls__wider_layer__its_arithmetic_by_operator(tmp_path: Path) -> None:
    narrow, wide = (
        counted(Workload(build=lambda device, width=width: torch.nn.Linear(8, width), inputs=inputs, batch=4), tmp_path)
        for width in (688, 704)
    )
    # Of a product of 4 x 8 and 8 x width: a multiplication and an addition each.
    assert [one.values["counters.flops"] for one in (narrow, wide)] == [2 * 4 * 8 * 688, 2 * 4 * 8 * 704]
    assert [site.name for site in wide.sites if site.metric == "counters.flops"] == ["aten::addmm"]


def copied(_, x):
    return x.clone()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_count_calls__product_of_a_sparse_matrix__zeros_are_no_arithmetic(tmp_path: Path) -> None:
    workload = Workload(
        build=lambda device: torch.ones(64, 8),
        inputs=lambda batch, seed: torch.eye(64).to_sparse_csr(),
        call=lambda weight, x: x @ weight,
    )
    found = counted(workload, tmp_path)
    assert [op.op for op in found.ops] == ["aten::mm"]
    assert found.values["counters.flops"] == 0


def test_count_calls__copy_of_a_sparse_tensor__the_bytes_that_it_holds(tmp_path: Path) -> None:
    workload = Workload(
        build=lambda device: torch.nn.Identity(), inputs=lambda batch, seed: torch.eye(64).to_sparse(), call=copied
    )
    assert counted(workload, tmp_path).values["counters.copy_bytes"] == 64 * (4 + 2 * 8)
