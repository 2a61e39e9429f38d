"""Reading an output: everything in it that was put off is computed, and what cannot be read is refused."""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import functools
import multiprocessing.pool
import threading
import time
from collections import OrderedDict, deque, namedtuple
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch.utils._pytree import tree_map

from perfgate import Workload
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.worker.correctness import check_outputs
from perfgate.measuring.worker.trial import try_calls
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.output import UnreadOutputError, holds_result, read
from tests.each import each

Pair = namedtuple("Pair", "first second")


class LazyTensor(torch.Tensor):
    """A tensor that computes itself whenever an operator reads it."""

    @staticmethod
    def __new__(cls, compute: Callable[[], torch.Tensor], shape: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)  # type: ignore[attr-defined]

    def __init__(self, compute: Callable[[], torch.Tensor], shape: Any) -> None:
        self.compute = compute

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def computed(value: Any) -> Any:
            return value.compute() if isinstance(value, LazyTensor) else value

        return func(*tree_map(computed, args), **tree_map(computed, kwargs or {}))


class FunctionTensor(torch.Tensor):
    """The same by ``__torch_function__``: its own memory holds nothing of use."""

    compute: Callable[[], torch.Tensor]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def computed(value: Any) -> Any:
            return value.compute() if isinstance(value, FunctionTensor) else value

        with torch._C.DisableTorchFunctionSubclass():
            if getattr(func, "__name__", "") == "__get__":
                return func(*args, **(kwargs or {}))
            return func(*tree_map(computed, args), **tree_map(computed, kwargs or {}))


@dataclasses.dataclass(frozen=True)
class Record:
    scores: Any


class Holder:
    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute

    @property
    def scores(self) -> Any:
        return self._compute()


class Cached(Holder):
    @functools.cached_property
    def scores(self) -> Any:
        return self._compute()


class Rows:
    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute

    def __iter__(self) -> Iterator[Any]:
        yield self._compute()


def function_tensor(compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    tensor = torch.empty(2).as_subclass(FunctionTensor)
    tensor.compute = compute
    return tensor


def generator(compute: Callable[[], Any]) -> Iterator[Any]:
    yield compute()


async def coroutine(compute: Callable[[], Any]) -> Any:
    await asyncio.sleep(0)
    return compute()


async def async_generator(compute: Callable[[], Any]) -> AsyncIterator[Any]:
    yield compute()


def _called(compute: Callable[[], Any]) -> Any:
    return compute()


def torch_future(compute: Callable[[], Any]) -> Any:
    future = torch.futures.Future[Any]()

    def work() -> None:
        time.sleep(0.02)
        future.set_result(compute())

    threading.Thread(target=work).start()
    return future


POOL = ThreadPoolExecutor(1)
THREADS = multiprocessing.pool.ThreadPool(1)
atexit.register(THREADS.terminate)
# How something may put off what ``compute`` does.
WAYS: dict[str, Callable[[Callable[[], torch.Tensor]], Any]] = {
    "generator": generator,
    "map": lambda compute: map(_called, [compute]),
    "future": lambda compute: POOL.submit(lambda: (time.sleep(0.02), compute())),
    "torch future": torch_future,
    "pool's result": lambda compute: THREADS.apply_async(lambda: (time.sleep(0.02), compute())),
    "coroutine": coroutine,
    "async generator": async_generator,
    "dispatched tensor": lambda compute: LazyTensor(compute, (2,)),
    "tensor of functions": function_tensor,
    "property": Holder,
    "cached property": Cached,
    "object to iterate": Rows,
    "thread": lambda compute: _started(threading.Thread(target=lambda: (time.sleep(0.02), compute()))),
}
INSIDE: dict[str, Callable[[Any], Any]] = {
    "alone": lambda output: output,
    "list": lambda output: [torch.ones(1), output],
    "tuple": lambda output: (output, 1),
    "named tuple": lambda output: Pair(1, output),
    "dictionary": lambda output: {"scores": output},
    "ordered dictionary": lambda output: OrderedDict(scores=output),
    "deque": lambda output: deque([output]),
    "record": Record,
    "nested": lambda output: {"steps": [(Record(output),)]},
}


def _started(thread: threading.Thread) -> threading.Thread:
    thread.start()
    return thread


# An object is iterated where the call returns it, not where it is one of many.
@each(
    "way, inside",
    [(way, inside) for way in WAYS for inside in INSIDE if way != "object to iterate" or inside == "alone"],
)
def test_read__something_put_off__computed_when_it_returns(way: str, inside: str) -> None:
    computed = []

    def compute() -> torch.Tensor:
        computed.append(1)
        return torch.ones(2)

    read(INSIDE[inside](WAYS[way](compute)))
    assert computed


def test_read__generator_of_futures__list_of_their_results() -> None:
    assert read(POOL.submit(lambda number=number: number) for number in range(3)) == [0, 1, 2]


def test_read__iterator_in_containers__check_gets_its_items() -> None:
    output = read({"rows": iter([1, 2]), "record": Record(iter([3])), "pair": Pair(iter([4]), 5)})
    assert output == {"rows": [1, 2], "record": Record([3]), "pair": Pair([4], 5)}


@pytest.mark.parametrize(
    "output",
    [
        torch.ones(2),
        torch.nn.Parameter(torch.ones(2)),
        [1, 2.0, "text", None],
        (torch.ones(1), {"mask": torch.ones(1)}),
        numpy.ones(3),
        Record(torch.ones(1)),
        torch.nn.Linear(2, 2),
        None,
    ],
    ids=lambda output: type(output).__name__,
)
def test_read__nothing_put_off__same_object(output: Any) -> None:
    assert read(output) is output


@pytest.mark.parametrize(
    "output", [len, lambda: 1, functools.partial(int, 1), [functools.partial(int, 1)], Record(len)]
)
def test_read__function__refused_with_what_to_do(output: Any) -> None:
    with pytest.raises(UnreadOutputError, match=r"without calling it; make call= call it"):
        read(output)


def test_read__meta_tensor__refused() -> None:
    with pytest.raises(UnreadOutputError, match="device meta, which has no values"):
        read({"scores": torch.ones(2, device="meta")})


def test_read__future_that_failed__its_error() -> None:
    with pytest.raises(ZeroDivisionError):
        read(POOL.submit(lambda: 1 / 0))


def test_read__property_that_does_not_apply__left_alone() -> None:
    holder = Holder(lambda: 1 / 0)
    assert read(holder) is holder


def test_read__file__left_open(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("one\ntwo\n")
    with (tmp_path / "words").open() as file:
        assert read(file) is file
        assert file.readline() == "one\n"


GIVEN = torch.ones(2)


@pytest.mark.parametrize(
    ("output", "holds"),
    [
        (torch.ones(2), True),
        (GIVEN, False),
        ({"tokens": [1, 2]}, True),
        ("text", True),
        (numpy.ones(2), True),
        (None, False),
        ([], False),
        (Holder(lambda: None), False),
        (SimpleNamespace(scores=3), True),
        (SimpleNamespace(_scores=3), False),
        (len, False),
        (torch.nn.Linear(1, 1), False),
        (Record(None), False),
        (Record(3), True),
    ],
)
def test_holds_result__value_that_a_call_may_have_computed(output: Any, holds: bool) -> None:
    assert holds_result(output, (GIVEN,)) is holds


def _trial(call: Callable[[Any, torch.Tensor], Any]) -> str:
    workload = Workload(build=lambda device: {}, inputs=lambda batch, seed: torch.ones(batch, 2), call=call)
    device = open_device("cpu")
    failed = try_calls(BoundWorkload("w", workload, device, seed=1, root=Path(__file__).parent))
    (checked,) = check_outputs(BoundWorkload("w", workload, device, seed=1))
    # In CI the trial refuses nothing; there the document says it, as an error, which no verdict passes.
    assert (failed is None) == (checked.status != "error")
    return "" if failed is None else str(failed[2])


@pytest.mark.parametrize(
    "call",
    [
        lambda _, x: x,
        lambda _, x: {"given": x},
        lambda _, x: None,
        lambda _, x: Holder(lambda: None),
        lambda _, x: [],
    ],
)
def test_trial__no_operator_and_no_value__refused_with_what_to_do(call: Any) -> None:
    assert "runs no framework operator and returns no computed value" in _trial(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda _, x: x + 1,
        lambda _, x: x.add_(1),
        lambda _, x: (x.add_(1), None)[1],
        lambda _, x: [len(word) for word in ["words", "without", "tensors"]],
        lambda _, x: numpy.ones(3) @ numpy.ones(3),
        lambda _, x: (number for number in range(3)),
    ],
)
def test_trial__operator_or_value__measured(call: Any) -> None:
    assert _trial(call) == ""
