"""The Python that a call runs is counted to the function and the bytecode."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch

from perfgate.catalogue.names import BYTECODES, PYTHON_CALLS
from perfgate.document.run import CounterSet
from perfgate.measuring.counting import python_work
from perfgate.measuring.counting.python_work import count_python, with_python_work
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.system.garbage import quiet

PROJECT = """
import copy
import sys
import torch

def helper(x):
    return x

def calls(count):
    for _ in range(count):
        helper(1)

def loop(count):
    total = 0
    for number in range(count):
        total += number
    return total

def generator():
    return list(number for number in range(4))

def deep():
    return copy.deepcopy({"layers": [{"size": 8}, {"size": 16}]})

def traced():
    sys.settrace(None)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Growing:
    def __init__(self):
        self.seen = []

    def __call__(self, x):
        self.seen.append(1)
        for one in self.seen:
            pass
        return x
"""


@pytest.fixture
def project(tmp_path: Path) -> ModuleType:
    file = tmp_path / "model.py"
    file.write_text(PROJECT)
    spec = importlib.util.spec_from_file_location("project_of_python", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def counted(call, root: Path) -> Counter:
    """Count as ``with_python_work`` does: the interpreter may miss bytecodes the first time, and a callback of the garbage
    collector would count as part of the call."""
    with quiet():
        count_python(call, root)
        found = count_python(call, root)
    assert found is not None
    return found.sites


def total(sites: Counter, metric: str) -> int:
    return sum(count for site, count in sites.items() if site.metric == metric)


def test_count_python__functions_of_the_project__by_the_line_that_calls_them(
    project: ModuleType, tmp_path: Path
) -> None:
    found = counted(lambda: project.calls(7), tmp_path)
    assert {site: count for site, count in found.items() if site.name == "helper" and site.metric == PYTHON_CALLS} == {
        (PYTHON_CALLS, "helper", "model.py:11"): 7
    }
    assert {site.line for site in found if site.name == "helper" and site.metric == BYTECODES} >= {"model.py:7"}


def test_count_python__loop__bytecodes_of_a_turn_on_its_lines(project: ModuleType, tmp_path: Path) -> None:
    short, long = counted(lambda: project.loop(10), tmp_path), counted(lambda: project.loop(110), tmp_path)
    more = {site: long[site] - short[site] for site in long if long[site] != short[site]}
    assert {site.line for site in more} == {"model.py:15", "model.py:16"}
    assert all(count % 100 == 0 for count in more.values())
    assert total(long, PYTHON_CALLS) == total(short, PYTHON_CALLS)


def test_count_python__what_libraries_run__on_the_line_of_the_project_around_it(
    project: ModuleType, tmp_path: Path
) -> None:
    found = counted(project.deep, tmp_path)
    assert found[BYTECODES, "deepcopy", "model.py:23"] > 100
    assert found[PYTHON_CALLS, "deepcopy", "model.py:23"] > 5


def test_count_python__forward_hooks__their_calls_show(project: ModuleType, tmp_path: Path) -> None:
    net, hooked, x = project.Net(), project.Net(), torch.zeros(1, 8)
    for layer in hooked.layers:
        layer.register_forward_hook(lambda *_: None)
    plain, more = counted(lambda: net(x), tmp_path), counted(lambda: hooked(x), tmp_path)
    assert more[PYTHON_CALLS, "<lambda>", "model.py:35"] == 4
    assert total(more, BYTECODES) > 1.3 * total(plain, BYTECODES)


@pytest.mark.parametrize("call", ["calls", "deep", "generator", "loop"])
def test_count_python__same_call_again__same_counts(project: ModuleType, tmp_path: Path, call: str) -> None:
    work = getattr(project, call)
    arguments = (5,) if call in {"calls", "loop"} else ()
    first = counted(lambda: work(*arguments), tmp_path)
    for _ in range(100):  # CPython specializes bytecodes of what runs often
        work(*arguments)
    assert counted(lambda: work(*arguments), tmp_path) == first


def test_count_python__call_that_traces_itself__nothing_is_known_and_the_trace_function_stays(
    project: ModuleType, tmp_path: Path
) -> None:
    before = sys.gettrace()
    assert count_python(project.traced, tmp_path) is None
    assert sys.gettrace() == before


def test_count_python__more_bytecodes_than_are_counted__the_functions_alone(
    project: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_work, "MOST_BYTECODES", 50)
    found = counted(lambda: project.calls(40), tmp_path)
    assert {site.metric for site in found} == {PYTHON_CALLS}
    assert found[PYTHON_CALLS, "helper", "model.py:11"] == 40


def with_counts(model, tmp_path: Path) -> CounterSet:
    device = open_device("cpu")
    workload = Workload(build=lambda device: model, inputs=lambda batch, seed: torch.zeros(batch, 8), batch=2)
    bound = BoundWorkload("w", workload, device, seed=1, root=tmp_path)
    return with_python_work(bound, CounterSet(workload="w", shape="default", repeats=3, values={}, ops=[]))


def test_with_python_work__model__counts_without_those_of_perfgate_itself(project: ModuleType, tmp_path: Path) -> None:
    found = with_counts(project.Net(), tmp_path)
    assert found.values[PYTHON_CALLS] == sum(site.count for site in found.sites if site.metric == PYTHON_CALLS)
    assert found.values[BYTECODES] > 100
    assert found.unstable == []
    assert "invoke" not in {site.name for site in found.sites}


def test_with_python_work__call_that_does_more_each_time__unstable(project: ModuleType, tmp_path: Path) -> None:
    assert with_counts(project.Growing(), tmp_path).unstable == [BYTECODES]


def test_with_python_work__call_that_traces_itself__no_counts(project: ModuleType, tmp_path: Path) -> None:
    assert with_counts(lambda x: project.traced(), tmp_path).values == {}
