"""Operators that run after the call has returned are counted with it, and told apart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate.document.run import CounterSet
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.unit.worker.test_output import WAYS

WEIGHT = torch.ones(8, 8)
POOL = ThreadPoolExecutor(2)
OPS, FLOPS, DEFERRED = "counters.framework_ops", "counters.flops", "counters.deferred_ops"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def counted(call: Callable[[Any, torch.Tensor], Any]) -> CounterSet:
    def inputs(batch: int, seed: int) -> torch.Tensor:
        return torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))

    device = open_device("cpu")
    workload = Workload(build=lambda device: {}, inputs=inputs, call=call)
    bound = BoundWorkload("w", workload, device, seed=1, root=Path(__file__).parents[1])
    return count_calls(bound, "default")


def products(x: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        x = x @ WEIGHT
    return x


# Threads of multiprocessing's pools and of torch's futures are not followed; those are awaited, and their time is the call's.
@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"pool's result", "thread", "tensor of functions"}))
def test_count_calls__fifty_times_the_work_put_off__all_of_it_counted(way: str) -> None:
    def call(_: Any, x: torch.Tensor) -> Any:
        return WAYS[way](lambda: products(x, 50)[0, :2])

    counters = counted(call)
    assert counters.values[FLOPS] == 50 * 2 * 2 * 8 * 8
    assert counters.values[DEFERRED] >= 50
    lines = {site.line for site in counters.sites if (site.metric, site.name) == (DEFERRED, "aten::mm")}
    assert lines == {f"counting/test_deferred.py:{products.__code__.co_firstlineno + 2}"}


def test_count_calls__nothing_put_off__none_deferred() -> None:
    values = counted(lambda _, x: [products(x, 2)]).values
    assert (values[OPS], values[DEFERRED]) == (2, 0)


def test_count_calls__threads_that_the_call_waits_for__counted_and_not_deferred() -> None:
    def call(_: Any, x: torch.Tensor) -> Any:
        return [future.result() for future in [POOL.submit(products, x, 3) for _ in range(2)]]

    counters = counted(call)
    assert (counters.values[OPS], counters.values[FLOPS], counters.values[DEFERRED]) == (6, 6 * 256, 0)
    assert counters.unstable == []


def test_count_calls__thread_goes_on_after_the_call__its_work_is_deferred() -> None:
    def call(_: Any, x: torch.Tensor) -> Any:
        output = torch.zeros(2, 8)
        threading.Timer(0.05, lambda: products(x, 5)).start()
        return output

    counters = counted(call)
    assert (counters.values[OPS], counters.values[DEFERRED]) == (6, 5)


def test_count_calls__tensor_of_a_class_that_computes_at_once__our_copy_of_it_is_not_counted() -> None:
    class Named(torch.Tensor):
        pass

    values = counted(lambda _, x: (x + 1).as_subclass(Named)).values
    assert (values[OPS], values[DEFERRED]) == (1, 0)
