from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from perfgate.document.comparison import Comparison
from perfgate.document.decision import Policy
from perfgate.document.run import CounterSet
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.measuring.counting.counters import with_steady
from perfgate.measuring.counting.kept import KEPT_NATIVE, KEPT_PYTHON, with_kept_bytes
from perfgate.measuring.counting.python_work import with_python_work
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.unit.counting.models import MODELS
from tests.unit.gate.builders import SHAPE, WORKLOAD

KIB = 1024
HEADER = [
    "import itertools",
    "import json",
    "import tracemalloc",
    "import numpy",
    "",
    "seen, by_input, turn = [], {}, itertools.count(1)",
    "",
]
LEAK_LINE = len(HEADER) + 2


@pytest.fixture
def compiler() -> Iterator[None]:
    """Forget afterwards that anything was compiled: other tests count it."""
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[..., Callable[[Any], Any]]]:
    """A function that writes a project of one file whose ``call`` has this line, and returns ``call``."""

    def written(line: str) -> Callable[[Any], Any]:
        (tmp_path / "model.py").write_text("\n".join([*HEADER, "def call(x):", f"    {line}", "    return x + 1", ""]))
        spec = importlib.util.spec_from_file_location("kept_model", tmp_path / "model.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        call: Callable[[Any], Any] = module.call
        return call

    yield written
    sys.modules.pop("kept_model", None)


def _count(call: Callable[[Any], Any], root: Path) -> CounterSet:
    workload = Workload(
        build=lambda device: call, inputs=lambda batch, seed: torch.full((batch, 8), float(seed)), batch=2
    )
    bound = BoundWorkload(WORKLOAD, workload, open_device("cpu"), seed=1, root=root)
    empty = CounterSet(workload=WORKLOAD, shape=SHAPE, repeats=3, values={"memory.kept": 0}, ops=[])
    counted = with_python_work(bound, msgspec.structs.replace(empty, shape="default"))
    return with_steady(msgspec.structs.replace(with_kept_bytes(bound, counted), shape=SHAPE))


def _compared(base: CounterSet, head: CounterSet) -> dict[str, Comparison]:
    before = changed(make_run("base"), counters=[base])
    after = changed(make_run("head"), counters=[head])
    return {
        comparison.metric: comparison
        for comparison in compare_counters(WorkTable(Evidence(before, after)).counted, Policy())
    }


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("seen.append(bytes(100_000))", 100_000),
        ("seen.append(numpy.zeros(25_000, dtype='float32'))", 100_000),
        # Taken inside a library: the line that called it counts.
        ("seen.append(json.loads('[' + '1.5,' * 250 + '1]'))", 251 * 8 + 250 * 24),
        # Every other call: no single call is sure to show it, a round does.
        ("next(turn) % 2 and seen.append(bytes(100_000))", 50_000),
    ],
)
def test_with_kept_bytes__call_that_keeps_what_python_made__bytes_and_line(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path, line: str, size: int
) -> None:
    head = _count(write(line), tmp_path)
    found = _compared(_count(write("pass"), tmp_path), head)[KEPT_PYTHON]
    assert size <= head.values[KEPT_PYTHON] < size * 1.1 + 500
    assert (found.outcome, found.gating, found.parts[0].line) == ("regressed", True, f"model.py:{LEAK_LINE}")
    assert (found.parts[0].name, head.sites[-1].code) == ("call", line)
    assert KEPT_PYTHON in head.steady


@pytest.mark.parametrize(
    "line",
    [
        "pass",
        "seen[:] = [bytes(100_000)]",
        "by_input[x[0, 0].item()] = bytes(100_000)",
        "len(seen) < 5 and seen.append(bytes(100_000))",
        # A new block only now and then: the smaller growth counts.
        "next(turn) == 2 * 8 + 4 and seen.append(bytes(10_000_000))",
    ],
)
def test_with_kept_bytes__what_is_replaced_or_fills_up__no_leak(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path, line: str
) -> None:
    base, head = _count(write("pass"), tmp_path), _count(write(line), tmp_path)
    assert {c.outcome for name, c in _compared(base, head).items() if name.startswith("memory.")} == {"unchanged"}
    assert not {KEPT_PYTHON, KEPT_NATIVE} & {*head.unstable, *head.ranges}


class _Threaded(torch.nn.Module):
    """A call that starts threads: each of the first ones takes an arena of malloc."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(4) as threads:
            return torch.cat(list(threads.map(self.layer, x.chunk(4))))


MORE_MODELS = {
    "threads": dataclasses.replace(MODELS["mlp"], build=lambda device: _Threaded().eval()),
    "compiled": dataclasses.replace(
        MODELS["mlp"], build=lambda device: torch.compile(_Threaded().layer, backend="eager")
    ),
}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", [*MODELS, *MORE_MODELS])
def test_with_kept_bytes__usual_models__within_what_a_call_may_grow_by(name: str, tmp_path: Path) -> None:
    device = open_device("cpu")
    bound = BoundWorkload(WORKLOAD, {**MODELS, **MORE_MODELS}[name], device, seed=1, root=tmp_path)
    # As many calls as the other counts make before.
    for _ in range(3):
        for inputs in bound.pool("default"):
            bound.invoke(inputs)
    empty = CounterSet(workload=WORKLOAD, shape="default", repeats=3, values={}, ops=[])
    found = [with_kept_bytes(bound, empty) for _ in range(3)]
    assert max(counted.values[KEPT_PYTHON] for counted in found) <= 512
    assert max(counted.values[KEPT_NATIVE] for counted in found) <= 64 * KIB
    assert all(counted.unstable == [] for counted in found)


@pytest.mark.parametrize("every", [2, 3, 10, 60])
def test_with_kept_bytes__rare_calls_that_keep__leak_of_the_mean(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path, every: int
) -> None:
    head = _count(write(f"next(turn) % {every} == 0 and seen.append(bytes(65_536))"), tmp_path)
    found = _compared(_count(write("pass"), tmp_path), head)[KEPT_PYTHON]
    assert (found.outcome, found.parts[0].line) == ("regressed", f"model.py:{LEAK_LINE}")
    assert 0.4 < head.values[KEPT_PYTHON] * every / 65_536 < 1.6


def test_with_kept_bytes__growth_that_wavers__its_range_is_compared(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path
) -> None:
    head = _count(write("seen.append(bytes(1000 * next(turn)))"), tmp_path)
    least, most = head.ranges[KEPT_PYTHON]
    assert 10_000 < least < most
    assert head.unstable == [KEPT_PYTHON]
    found = _compared(_count(write("pass"), tmp_path), head)[KEPT_PYTHON]
    assert (found.outcome, found.head, found.parts[0].line) == ("regressed", least, f"model.py:{LEAK_LINE}")


def test_with_kept_bytes__native_code_that_keeps__counted_without_a_line(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path
) -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    taken: list[int] = []

    def leaking(x: torch.Tensor) -> torch.Tensor:
        taken.append(libc.malloc(200_000))
        return x + 1

    head = _count(leaking, tmp_path)
    assert 199_000 <= head.values[KEPT_NATIVE] < 205_000
    found = _compared(_count(write("pass"), tmp_path), head)
    assert (found[KEPT_NATIVE].outcome, found[KEPT_NATIVE].parts) == ("regressed", [])
    assert found[KEPT_PYTHON].outcome == "unchanged"


def test_with_kept_bytes__bytes_of_python__not_counted_as_native_too(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path
) -> None:
    assert _count(write("seen.append(bytes(100_000))"), tmp_path).values[KEPT_NATIVE] <= 4 * KIB


@pytest.mark.parametrize("line", ["tracemalloc.stop()", "tracemalloc.clear_traces()", "tracemalloc.start()"])
def test_with_kept_bytes__calls_that_use_tracemalloc_themselves__not_counted(
    write: Callable[..., Callable[[Any], Any]], tmp_path: Path, line: str
) -> None:
    try:
        counted = _count(write(f"seen.append(bytes(100_000)); {line}"), tmp_path)
    finally:
        tracemalloc.stop()
    assert not {KEPT_PYTHON, KEPT_NATIVE} & counted.values.keys()
    assert counted.uncounted == [KEPT_PYTHON, KEPT_NATIVE]


@pytest.mark.parametrize(
    ("call_ns", "calls"), [(1_000_000, 1 + 3 * POOL_SIZE + 25 * POOL_SIZE), (2_000_000_000, 1 + 3 * 2)]
)
def test_with_kept_bytes__slow_call__fewer_of_them(tmp_path: Path, call_ns: int, calls: int) -> None:
    device = FakeDevice()
    made = []

    def call(x: Any) -> Any:
        made.append(None)
        device.host_works(call_ns)
        return x

    workload = Workload(build=lambda device: call, inputs=lambda batch, seed: seed, batch=1)
    bound = BoundWorkload(WORKLOAD, workload, device, seed=1, root=tmp_path)
    with_kept_bytes(bound, CounterSet(workload=WORKLOAD, shape="default", repeats=3, values={}, ops=[]))
    assert len(made) == calls
