"""What blocks and counts hold of calls that work ahead of the host: streams, copies, replayed graphs, lazy compilation.

The fake device's clock is exact. The card is the software card of ``tests/plugins``, whose queue runs in real time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perfgate import Workload
from perfgate.measuring.counting.collect import record_calls
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.kernels import KernelRecorder
from perfgate.measuring.timing.blocks import run_block
from perfgate.measuring.timing.calls import find_steady_state, measure_throughput
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.timing.warm_up import warm_up
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from tests.fakes.device import FakeDevice, FakeTensor

CARD = Path(__file__).parents[1] / "plugins" / "card"
US, MS = 1_000, 1_000_000
CALLS = 5


def bound(device: Any, call: Callable[[Any], Any], inputs: Callable[..., Any] | None = None) -> BoundWorkload:
    """A workload whose call gets an input and nothing else."""
    workload = Workload(
        build=lambda _: None,
        inputs=inputs or (lambda batch, seed: FakeTensor(batch, 64 * batch)),
        batch=1,
        call=lambda _, batch: call(batch),
    )
    return BoundWorkload("asynchronous", workload, device, seed=1)


# --- streams


def two_streams(device: FakeDevice) -> None:
    """A millisecond on the first stream, five on a second one that the first never waits for."""
    device.launch("main", MS)
    with device.side_stream():
        device.launch("side", 5 * MS)


def test_block__second_stream_that_the_first_does_not_wait_for__each_call_lasts_until_both_are_idle() -> None:
    device = FakeDevice(launch_ns=10 * US)

    block = run_block(lambda: two_streams(device), device, calls=CALLS)

    assert block.calls.wall.tolist() == [5 * MS + 20 * US] * CALLS
    assert block.calls.host is not None
    assert block.calls.host.tolist() == [20 * US] * CALLS
    # The device's span ends when both are idle, though its events mark the first stream.
    assert block.calls.cpu.tolist() == [5 * MS + 20 * US] * CALLS


def test_block__overlap_of_two_streams_lost__device_time_grows_by_it() -> None:
    """The same kernels, all on the stream that nobody waits for: their sum is equal, and the first stream is idle."""
    device = FakeDevice(launch_ns=10 * US)

    def one_stream() -> None:
        with device.side_stream():
            device.launch("main", MS)
            device.launch("side", 5 * MS)

    overlapping, serial = (
        run_block(call, device, calls=CALLS).calls.cpu for call in (lambda: two_streams(device), one_stream)
    )

    assert serial.min() - overlapping.max() >= MS - 20 * US


def test_block__second_stream_that_is_waited_for__only_the_events_count() -> None:
    device = FakeDevice(launch_ns=10 * US)

    def joined() -> None:
        two_streams(device)
        device.join_side_stream()

    block = run_block(joined, device, calls=CALLS)

    assert block.calls.cpu.tolist() == [5 * MS + 20 * US] * CALLS


def test_kernel_block__two_streams__busy_time_is_the_sum_of_both() -> None:
    device = FakeDevice(launch_ns=10 * US)
    recorder = KernelRecorder(device)

    recorder.record("default", lambda: two_streams(device), calls=CALLS, quad=0)

    columns = recorder.columns()["default"]
    assert columns.busy_ns == [6 * MS * CALLS]
    assert {row.name: row.ns for row in columns.rows} == {"main": MS, "side": 5 * MS}


def test_kernel_block__order_between_streams__is_no_other_work() -> None:
    device = FakeDevice(launch_ns=10 * US)
    recorder = KernelRecorder(device)

    def sides_first() -> None:
        with device.side_stream():
            device.launch("side", 5 * MS)
        device.launch("main", MS)

    for quad, call in enumerate((lambda: two_streams(device), sides_first)):
        recorder.record("default", call, calls=CALLS, quad=quad)

    assert len(set(recorder.columns()["default"].work)) == 1


def test_trace__two_streams__kernels_of_both_belong_to_their_call(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=10 * US)

    trace = record_calls(device, lambda: two_streams(device), calls=CALLS, folder=tmp_path, name="trace")

    kernels = trace.kernels()
    assert len(kernels) == 2 * CALLS
    assert len(np.unique(kernels.track)) == 2
    spans = trace.spans()
    assert ((spans.end - spans.start) >= 5 * MS).all()


def test_throughput__second_stream_that_nobody_waits_for__as_fast_as_that_stream() -> None:
    device = FakeDevice(launch_ns=10 * US)

    rates, _ = measure_throughput(lambda: two_streams(device), device, items=1, window_seconds=0.1, windows=3)

    before = device.clock_ns()
    device.synchronize()
    assert device.clock_ns() == before  # the windows end with an idle device
    assert rates == pytest.approx([200] * 3, rel=0.02)


# --- asynchronous copies


def test_block__asynchronous_copy_of_the_input__the_host_goes_on_and_the_call_lasts_until_it_is_there() -> None:
    device = FakeDevice(launch_ns=10 * US, pinned_bandwidth=1e9)
    pinned = device.pin(FakeTensor(1, 4_000_000))  # 4 ms

    def call() -> None:
        device.to_device(pinned, non_blocking=True)
        device.launch("mm", MS)

    block = run_block(call, device, calls=CALLS)

    assert block.calls.host is not None
    assert block.calls.host.max() < MS
    assert block.calls.wall.min() >= 5 * MS
    # The span of the device holds the copy, the sum of its kernels does not.
    assert block.calls.cpu.min() >= 5 * MS
    kernels = device.record_kernels(call, calls=CALLS)
    assert [kernel.ns for kernel in kernels] == [MS] * CALLS


def test_block__copy_on_another_stream_while_kernels_run__only_its_exposed_part_is_in_the_call() -> None:
    device = FakeDevice(launch_ns=10 * US, pinned_bandwidth=1e9)
    pinned = device.pin(FakeTensor(1, 4_000_000))  # 4 ms

    def call() -> None:
        with device.side_stream():
            device.to_device(pinned, non_blocking=True)
        device.launch("mm", 3 * MS)

    block = run_block(call, device, calls=CALLS)

    assert block.calls.wall.min() >= 4 * MS
    assert block.calls.wall.max() < 5 * MS


def test_pool__inputs_uploaded_before_the_first_call__no_call_waits_for_them() -> None:
    device = FakeDevice(launch_ns=10 * US, pageable_bandwidth=1e8)
    workload = bound(
        device,
        lambda _: device.launch("mm", MS),
        lambda batch, seed: FakeTensor(batch, 10_000_000),  # 100 ms each
    )
    workload.pool("default")

    first = run_block(workload.caller("default"), device, calls=1)

    assert first.took_ns < 3 * MS
    workload.new_inputs("default")
    assert max(device.free_ns.values()) <= device.host_ns


# --- lazy compilation


class Compiler:
    """Compiles a call for every size of input that it has not seen, for as long as it takes."""

    def __init__(self, compile_it: Callable[[], None]) -> None:
        self._compile = compile_it
        self.sizes: set[int] = set()
        self.compiled = 0

    def prepare(self, size: int) -> None:
        if size not in self.sizes:
            self.sizes.add(size)
            self.compiled += 1
            self._compile()


@pytest.mark.parametrize("kernel_ns", [20 * US, 5 * MS, 40 * MS])
def test_warm_up__compiled_for_each_size_of_input__all_is_compiled_before_the_blocks(kernel_ns: int) -> None:
    device = FakeDevice(launch_ns=10 * US)
    compiler = Compiler(lambda: device.host_works(200 * MS))

    def call(batch: FakeTensor) -> None:
        compiler.prepare(batch.bytes)
        device.launch("mm", kernel_ns)

    workload = bound(device, call, lambda batch, seed: FakeTensor(batch, 64 * seed))
    warm = warm_up(workload, block_seconds=0.05, cap_seconds=10.0)
    compiled = compiler.compiled
    recorder = BlockRecorder(workload, counters=None)
    for sequence in range(8):
        recorder.record("default", calls=warm.block_calls["default"], quad=0, sequence=sequence)

    assert compiled == compiler.compiled == POOL_SIZE


def test_steady_state__compiled_for_each_size_of_input__all_is_compiled_when_it_is_steady() -> None:
    device = FakeDevice(launch_ns=10 * US)
    compiler = Compiler(lambda: device.host_works(200 * MS))

    def call(batch: FakeTensor) -> None:
        compiler.prepare(batch.bytes)
        device.launch("mm", 30 * MS)

    workload = bound(device, call, lambda batch, seed: FakeTensor(batch, 64 * seed))

    assert find_steady_state(workload.caller("default"), device).steady
    assert compiler.compiled == POOL_SIZE


@pytest.mark.parametrize("compile_ns", [MS, 400 * MS, 3_000 * MS])
def test_warm_up__torch_compiles_for_each_length__no_block_compiles_and_calls_count_as_quick(compile_ns: int) -> None:
    """The framework's own lazy compilation, with a backend that takes virtual time, so that compiling looks like slow calls."""
    device = FakeDevice(launch_ns=10 * US)
    compiled: list[int] = []

    def backend(module: Any, inputs: list[Any]) -> Any:
        compiled.append(len(inputs))
        device.host_works(compile_ns)
        return module.forward

    with torch._dynamo.config.patch(recompile_limit=64, accumulated_recompile_limit=64):
        torch._dynamo.reset()
        double = torch.compile(lambda rows: torch.relu(rows * 2), backend=backend, dynamic=False)

        def call(batch: FakeTensor) -> None:
            double(torch.ones(batch.items))
            device.launch("mm", 5 * MS)

        workload = bound(device, call, lambda batch, seed: FakeTensor(seed, 64))
        warm = warm_up(workload, block_seconds=0.05, cap_seconds=60.0)
        before = len(compiled)
        recorder = BlockRecorder(workload, counters=None)
        for sequence in range(4):
            recorder.record("default", calls=warm.block_calls["default"], quad=0, sequence=sequence)
        torch._dynamo.reset()

    assert warm.steady
    assert warm.call_seconds == pytest.approx(0.005, rel=0.01)
    assert before == len(compiled) == POOL_SIZE


def test_count_calls__memory_that_compiling_for_a_size_keeps__is_no_leak(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=10 * US)
    compiled: list[FakeTensor] = []
    compiler = Compiler(lambda: compiled.append(device.allocate(1000)))

    def call(batch: FakeTensor) -> None:
        compiler.prepare(batch.bytes)
        device.launch("mm", MS)

    workload = bound(device, call, lambda batch, seed: FakeTensor(batch, 64 * seed))
    counters = count_calls(workload, "default")

    assert len(compiled) >= POOL_SIZE
    assert counters.values["memory.kept"] == 0


# --- replayed graphs


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The software card, opened in this process."""
    monkeypatch.syspath_prepend(str(CARD))
    from perfgate_card.device import CardDevice
    from perfgate_card.driver import Card

    yield CardDevice(Card(luck=0.0, noise=0.0))
    for name in [name for name in sys.modules if name.startswith("perfgate_card")]:
        del sys.modules[name]


def replayed(card: Any, captures: list[int]) -> Callable[[Any], None]:
    """Ten kernels of a tenth of a millisecond, captured in the first call and then replayed."""
    graphs: list[Any] = []

    def call(_: Any) -> None:
        if not graphs:
            captures.append(1)
            with card.card.capture() as graph:
                for number in range(10):
                    card.card.launch(f"layer_{number}", 1e-4)
            graphs.append(graph)
        graphs[0].replay()

    return call


def test_card__captured_graph__every_block_replays_and_none_captures(card: Any) -> None:
    captures: list[int] = []
    workload = bound(card, replayed(card, captures), lambda batch, seed: torch.zeros(batch, 8))
    warm = warm_up(workload, block_seconds=0.02, cap_seconds=2.0)
    assert captures == [1]

    recorder = BlockRecorder(workload, counters=None)
    block = recorder.record("default", calls=warm.block_calls["default"], quad=0, sequence=0)
    recorder.record_kernels("default", calls=CALLS, quad=0)

    assert captures == [1]
    assert block.calls.wall.min() >= MS
    kernels = recorder.kernel_columns()["default"]
    assert {row.name: row.count for row in kernels.rows} == {f"layer_{number}": 1.0 for number in range(10)}
    assert kernels.busy_ns[0] == pytest.approx(CALLS * MS, rel=1e-3)


def test_card__graph_captured_while_kernels_are_recorded__what_was_captured_did_not_run(card: Any) -> None:
    captures: list[int] = []
    call = replayed(card, captures)

    kernels = card.record_kernels(lambda: call(None), calls=CALLS)

    assert len(kernels) == 10 * CALLS


def test_card__trace_of_a_replayed_graph__every_kernel_of_every_replay(card: Any, tmp_path: Path) -> None:
    call = replayed(card, [])
    call(None)

    trace = record_calls(card, lambda: call(None), calls=CALLS, folder=tmp_path, name="trace")

    assert len(trace.kernels()) == 10 * CALLS


def test_card__call_that_returns_at_once__lasts_until_its_kernels_have_run(card: Any) -> None:
    block = run_block(lambda: card.card.launch("mm", 5e-3), card, calls=CALLS)

    assert block.calls.wall.min() >= 5 * MS
    assert block.calls.cpu.min() >= 5 * MS
