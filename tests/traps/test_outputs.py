"""Traps in what a call does and returns, on real tensors: cached, stale, cheaper, other, or only right when nobody times it."""

from __future__ import annotations

import ctypes
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate.document.decision import DecisionDocument
from perfgate.document.run import RunDocument
from perfgate.measuring.counting.counters import count_calls, with_steady
from perfgate.measuring.counting.kept import with_kept_bytes
from perfgate.measuring.devices.backends.cpu import open_device
from perfgate.measuring.timing.blocks import run_block
from perfgate.measuring.worker.correctness import check_outputs
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.records import changed
from tests.traps.catalogue import caught, not_caught
from tests.traps.naming import names
from tests.traps.virtual import judged
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides

SAME = [1.0 + 0.0005 * (-1) ** pair for pair in range(12)]
WEIGHT = torch.randn(32, 32, generator=torch.Generator().manual_seed(7))

Call = Callable[[dict[str, Any], torch.Tensor], Any]
Check = Callable[[Any, Any], Any]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def honest(_: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    return ((x @ WEIGHT).relu() @ WEIGHT).softmax(-1)


def is_right(output: Any, inputs: Any) -> bool:
    return bool(torch.allclose(output.float(), honest({}, inputs), atol=1e-3))


def random_inputs(batch: int, seed: int) -> torch.Tensor:
    return torch.randn(batch, 32, generator=torch.Generator().manual_seed(seed))


def gate(head: Call, *, base: Call = honest, check: Check | None = None, ratio: float = 1.0) -> DecisionDocument:
    """Count and check both sides for real, and judge them with times of which the head takes ``ratio`` times the base's."""
    runs = sides([share * ratio for share in SAME])
    return judged(*(_looked_at(run, call, check) for run, call in zip(runs, (base, head))))


def _looked_at(run: RunDocument, call: Call, check: Check | None) -> RunDocument:
    workload = Workload(
        build=lambda device: {}, inputs=random_inputs, call=call, check=check, batch=8, shapes={SHAPE: {}}
    )
    device = open_device()
    bound = BoundWorkload(WORKLOAD, workload, device, seed=1, root=Path(__file__).parent)
    counted = with_steady(with_kept_bytes(bound, count_calls(bound, SHAPE)))
    correctness = check_outputs(BoundWorkload(WORKLOAD, workload, device, seed=1))
    return changed(run, counters=[counted], correctness=correctness)


@caught(
    "an output remembered by the identity of its input",
    fools="a benchmark that repeats its inputs measures a dictionary",
    by="a call on a new input is compared with the same call again",
    named="counters.repeat_saves: regressed",
)
def test_cached_by_identity() -> set[str]:
    def cached(seen: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        if id(x) not in seen:
            seen[id(x)] = x, honest(seen, x)
        return seen[id(x)][1]

    return names(gate(cached, check=is_right, ratio=0.1))


@caught(
    "an output remembered by the content of its input",
    fools="the same, and new tensors with old values do not help",
    by="a call on inputs of an unused seed is compared with the same call again",
    named="counters.repeat_saves: regressed",
)
def test_cached_by_content() -> set[str]:
    def cached(seen: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        key = str(x.flatten()[:16].tolist())
        if key not in seen:
            seen[key] = honest(seen, x)
        return seen[key]

    return names(gate(cached, check=is_right, ratio=0.1))


@caught(
    "a stale output",
    fools="the result is kept by the identity of a buffer that every request refills, so every check "
    "with new inputs passes",
    by="perfgate fills an input with other values, and the output must follow",
    named="correctness: regressed",
)
def test_stale_output() -> set[str]:
    def stale(seen: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        if seen.get("input") is not x:
            seen["input"], seen["output"] = x, honest(seen, x)
        return seen["output"]

    return names(gate(stale, check=is_right))


@caught(
    "work deleted, with a check",
    fools="a model without its second half is twice as fast",
    by="the workload's own check fails",
    named="correctness: regressed",
)
def test_deleted_work_with_check() -> set[str]:
    return names(gate(lambda _, x: (x @ WEIGHT).softmax(-1), check=is_right, ratio=0.5))


@caught(
    "the output in another dtype",
    fools="half the digits take half the time, and a check that compares loosely passes",
    by="structure, shapes and dtypes of the output are compared, also without a check",
    named="correctness.signature: regressed",
)
def test_other_dtype_outside() -> set[str]:
    return names(gate(lambda state, x: honest(state, x).bfloat16(), ratio=0.6))


@caught(
    "the output in another shape",
    fools="one row instead of eight is faster",
    by="structure, shapes and dtypes of the output are compared",
    named="correctness.signature: regressed",
)
def test_other_shape() -> set[str]:
    return names(gate(lambda state, x: honest(state, x[:1]), ratio=0.3))


@caught(
    "another dtype inside",
    fools="inputs and outputs are float32, and the work between them is bfloat16",
    by="operators with a result of lower precision are counted; more of them warn unless a check passes",
    named="counters.low_precision_ops: inconclusive",
)
def test_other_dtype_inside() -> set[str]:
    def low(_: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        weight = WEIGHT.bfloat16()
        return ((x.bfloat16() @ weight).relu() @ weight).float().softmax(-1)

    def high(_: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        weight = WEIGHT.double()
        return ((x.double() @ weight).relu() @ weight).float().softmax(-1)

    decision = gate(low, base=high, ratio=0.6)
    found = next(c for c in decision.comparisons if c.metric == "counters.low_precision_ops")
    return names(decision) | {f"{found.metric}: {found.outcome}"}


@caught(
    "a head that does less work inside a timed block",
    fools="code that looks at its callers returns the real output to the check and a cheap one to the clock",
    by="the last call of a block is compared with the same call outside a block, also without a check",
    named="correctness: regressed",
)
def test_detects_the_timing_loop() -> set[str]:
    def detecting(_: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        frame: Any = sys._getframe()
        while frame is not None:
            if frame.f_code.co_name == run_block.__name__:
                return x.softmax(-1)
            frame = frame.f_back
        return honest(_, x)

    return names(gate(detecting, ratio=0.2))


@caught(
    "a head that works in its first calls only",
    fools="the call that is checked is real, and all later calls return its output",
    by="the workload's check looks at the last call of a timed block too",
    named="correctness: regressed",
)
def test_works_in_its_first_calls() -> set[str]:
    def lazy(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        if "output" not in state:
            state["output"] = honest(state, x)
        return state["output"]

    return names(gate(lazy, check=is_right, ratio=0.1))


@caught(
    "memory that every call allocates and frees",
    fools="a caching allocator makes it nearly free here, a fragmented one elsewhere does not",
    by="allocations of a call are counted exactly",
    named="counters.allocations: regressed",
)
def test_allocator_churn() -> set[str]:
    def churning(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            torch.empty(1 << 20)
        return honest(state, x)

    return names(gate(churning))


@caught(
    "every output is kept",
    fools="a leak costs no time while it is measured",
    by="the bytes that every steady call leaves behind are counted",
    named="memory.kept: regressed",
)
def test_leak() -> set[str]:
    kept: list[torch.Tensor] = []

    def leaking(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        kept.append(honest(state, x))
        return kept[-1]

    return names(gate(leaking))


@caught(
    "every request is remembered outside tensors",
    fools="no tensor is kept, so the framework's allocator holds no more than before, and the list costs no time",
    by="the bytes that every call leaves behind in Python are counted, with the line that took them",
    named="memory.kept_python: regressed at test_outputs.py",
)
def test_leak_outside_tensors() -> set[str]:
    seen: list[bytes] = []

    def leaking(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        seen.append(bytes(200_000))
        return honest(state, x)

    decision = gate(leaking)
    parts = next(c.parts for c in decision.comparisons if c.metric == "memory.kept_python")
    lines = {(part.line or "").partition(":")[0] for part in parts}
    return names(decision) | {f"memory.kept_python: regressed at {line}" for line in lines}


@caught(
    "a leak in native code",
    fools="neither Python nor the framework knows of the memory",
    by="the bytes that malloc has handed out are counted before and after calls",
    named="memory.kept_native: regressed",
)
def test_leak_in_native_code() -> set[str]:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p

    def leaking(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        libc.malloc(ctypes.c_size_t(200_000))
        return honest(state, x)

    return names(gate(leaking))


@caught(
    "a leak that stops who counts it",
    fools="tracemalloc is a module of Python: the changed code clears what it has seen after every call",
    by="a count that base has and the head lacks is missing evidence",
    named="verdict INCONCLUSIVE",
)
def test_leak_that_clears_its_traces() -> set[str]:
    seen: list[bytes] = []

    def leaking(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        seen.append(bytes(200_000))
        tracemalloc.clear_traces()
        return honest(state, x)

    return names(gate(leaking))


@not_caught(
    "work deleted, without a check",
    fools="a model without its second half is twice as fast and returns the same shape",
    because="only the workload knows what is right; the comment warns that nothing checks the output and lists the operators "
    "that are gone (`counters.framework_ops` improved)",
)
def test_deleted_work_without_check() -> set[str]:
    found = names(gate(lambda _, x: (x @ WEIGHT).softmax(-1), ratio=0.5))
    assert "counters.framework_ops: improved" in found
    return found


@not_caught(
    "a head that knows perfgate and does less whenever it is there, without a check",
    fools="it looks at its environment or its parent, so the call is the same wherever perfgate looks",
    because="perfgate sees the same calls that it times; with a check the head fails like deleted work",
)
def test_detects_perfgate(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setenv("PERFGATE_IS_HERE", "1")

    def detecting(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        return (x @ WEIGHT).softmax(-1) if "PERFGATE_IS_HERE" in os.environ else honest(state, x)

    assert "correctness: regressed" in names(gate(detecting, check=is_right, ratio=0.5))
    return names(gate(detecting, ratio=0.5))


@not_caught(
    "faster for the measured batch only",
    fools="a special path for the batch of 8 in the workload file; production sends 1 to 64",
    because="only the shapes of the workload are measured. Step 5 sweeps batch sizes of the head, but the "
    "gate does not compare them; add further batches as shapes",
)
def test_faster_for_one_batch() -> set[str]:
    def special(state: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != 8:
            for _ in range(100):
                honest(state, x)
        return honest(state, x)

    return names(gate(special, check=is_right))
