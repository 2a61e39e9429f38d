"""Modules and functions of the project, timed by a clock that the called code itself advances."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from perfgate.measuring.counting.profile import SubroutineTimes
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice

PROJECT = """
import torch

class Layer(torch.nn.Module):
    def __init__(self, work):
        super().__init__()
        self.work = work

    def forward(self, x):
        self.work(10)
        return x

class Net(torch.nn.Module):
    def __init__(self, work):
        super().__init__()
        self.work = work
        self.layers = torch.nn.ModuleList(Layer(work) for _ in range(3))
        self.head = torch.nn.Identity()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        self.work(5)
        return self.head(x)

def countdown(work, left):
    work(1)
    return countdown(work, left - 1) if left else None

def steps(work):
    for _ in range(3):
        work(2)
        yield

def fails(work):
    work(4)
    raise ValueError('full')
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[ModuleType]:
    file = tmp_path / "models" / "net.py"
    file.parent.mkdir()
    file.write_text(PROJECT)
    spec = importlib.util.spec_from_file_location("subroutines_net", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["subroutines_net"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["subroutines_net"]


class Clock(FakeDevice):
    """A device whose clock only ``work`` advances, in microseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0

    def clock_ns(self) -> int:
        return self.now

    def work(self, microseconds: int) -> None:
        self.now += 1000 * microseconds


def timed(device: Clock, call, root: Path, calls: int = 2) -> dict[str, float]:
    """Return the microseconds of every subroutine of a call."""
    workload = Workload(build=lambda _: torch.nn.Identity(), inputs=lambda batch, seed: torch.ones(1), call=call)
    times = SubroutineTimes(BoundWorkload("timed", workload, device, seed=1, root=root))
    times.run("default", calls=calls)
    return {name: round(seconds * 1e6, 6) for name, seconds in times.typical_times().get("default", {}).items()}


def test_subroutines__modules_and_their_functions__layers_of_a_stack_are_one(
    project: ModuleType, tmp_path: Path
) -> None:
    device = Clock()
    net = project.Net(device.work)
    modules = {"module.Net": 35, "module.Net.layers.*": 30, "module.Net.head": 0}
    functions = {"function.models/net.py:Net.forward": 35, "function.models/net.py:Layer.forward": 30}
    if sys.version_info < (3, 11):
        # Without qualified names both are one, the outer.
        functions = {"function.models/net.py:forward": 35}
    assert timed(device, lambda model, x: net(x), tmp_path) == modules | functions


def test_subroutines__one_inside_itself__counts_once(project: ModuleType, tmp_path: Path) -> None:
    device = Clock()
    found = timed(device, lambda model, x: project.countdown(device.work, 4), tmp_path)
    assert found == {"function.models/net.py:countdown": 5}


def test_subroutines__generator__its_turns_without_what_runs_between_them(project: ModuleType, tmp_path: Path) -> None:
    device = Clock()

    def consume(model, x):
        for _ in project.steps(device.work):
            device.work(100)

    assert timed(device, consume, tmp_path) == {"function.models/net.py:steps": 6}


def test_subroutines__error_that_is_caught__ends_the_function(project: ModuleType, tmp_path: Path) -> None:
    device = Clock()

    def guarded(model, x):
        with pytest.raises(ValueError, match="full"):
            project.fails(device.work)
        device.work(50)

    assert timed(device, guarded, tmp_path)["function.models/net.py:fails"] == 4


def test_subroutines__profile_function_of_somebody_else__there_again_afterwards(
    project: ModuleType, tmp_path: Path
) -> None:
    device, theirs = Clock(), lambda *_: None
    sys.setprofile(theirs)
    try:
        timed(device, lambda model, x: None, tmp_path)
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)
