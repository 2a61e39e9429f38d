"""Traps in how calls are timed, in virtual time: what is waited for, what is recorded, what is thrown away."""

from __future__ import annotations

import gc
import time
from typing import Any

import msgspec
import numpy as np
import pytest

from perfgate.document.decision import Policy
from perfgate.document.samples import BlockColumns, pack, unpack
from perfgate.measuring.checklist.steps.s01_latency import STEP as LATENCY
from perfgate.measuring.devices.backends.cpu import open_device
from perfgate.system.garbage import collector_off
from tests.fakes.device import FakeDevice
from tests.fakes.records import changed
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, fake_workload
from tests.traps.catalogue import caught, not_caught
from tests.traps.naming import finding_names, names
from tests.traps.virtual import HOST, MS, US, Call, Side, VirtualGate, documents_of, judged, works


def host_device() -> FakeDevice:
    return FakeDevice(capabilities=HOST)


@caught(
    "no call waits for the device",
    fools="a call on an asynchronous device returns when it is queued; timing without a synchronisation times the launch",
    by="every call of a block ends with a synchronisation, inside its time",
    named="latency.low: regressed",
)
def test_no_synchronisation() -> set[str]:
    device = FakeDevice(launch_ns=10 * US)
    started = device.host_ns
    works(2 * MS)()(device)
    assert device.host_ns - started == 10 * US  # what a careless loop would call the time of a call

    def launching() -> FakeDevice:
        return FakeDevice(launch_ns=10 * US)

    return names(VirtualGate(works(1 * MS), works(1 * MS + 50 * US), device=launching).decide())


@caught(
    "launches alone get slower",
    fools="device time, the usual number on an accelerator, does not move when the host takes longer to launch",
    by="the host's clock around launch and synchronisation decides, device time is a separate column",
    named="latency.low: regressed",
)
def test_launch_bound_head() -> set[str]:
    def launching(ns: int) -> Side:
        def call(device: FakeDevice) -> None:
            device.launch("mm", 20 * US)
            device.host_works(ns)

        return lambda: call

    return names(VirtualGate(launching(500 * US), launching(550 * US)).decide())


@caught(
    "lazy compilation in the head's first call",
    fools="without warm-up, one call of two seconds is a mean of calls and a lost P99",
    by="warming up goes on until blocks agree; the first call is a separate metric",
    named="latency.low: unchanged",
)
def test_lazy_compilation() -> set[str]:
    def compiling() -> Call:
        seen: list[int] = []

        def call(device: FakeDevice) -> None:
            device.launch("mm", MS if seen else 2000 * MS)
            seen.append(1)

        return call

    found = names(VirtualGate(works(MS), compiling).decide())
    device = FakeDevice(kernel_times={"mm": [2000 * MS, MS]})
    workload = fake_workload(call=lambda model, _: device.launch("mm"))
    outcome = LATENCY.measure(context_on(device, workload))
    first_call = next(value.value for value in outcome.values if value.metric == "latency.first_call")
    assert first_call == pytest.approx(2.0)
    return found


@caught(
    "a head that warms for seconds",
    fools="its blocks still get faster while they are compared, so the pair compares moments instead of code",
    by="the warm-up says when it ended without a steady state",
    named="invalid not_steady",
)
def test_slow_warm_up() -> set[str]:
    def warming() -> Call:
        times = iter([round(200 * MS * 0.985**number) for number in range(400)])
        return lambda device: device.launch("mm", next(times, MS))

    gate = VirtualGate(works(MS), warming, policy=Policy(looks=[8]), aa_pairs=2, quads=1, block_seconds=0.003)
    return names(gate.decide())


@caught(
    "a run that never becomes steady",
    fools="a mean over a falling series has no meaning",
    by="step 1 looks for three windows that agree and says when there are none",
    named="finding latency.steady_state",
)
def test_never_steady() -> set[str]:
    device = FakeDevice(kernel_times={"mm": lambda number: max(MS, round(20 * MS * 0.995**number))})
    outcome = LATENCY.measure(context_on(device, fake_workload(call=lambda model, _: device.launch("mm"))))
    return finding_names(outcome.findings)


def tailed(every: int, extra: int) -> Side:
    """A side whose every so manieth call takes so much longer."""

    def make() -> Call:
        count = iter(range(10_000_000))
        return lambda device: device.launch("mm", MS + (extra if next(count) % every == every - 1 else 0))

    return make


@caught(
    "only the tail gets slower, and outliers are filtered",
    fools="percentiles after an interquartile filter cannot see a loss of one call in forty",
    by="no call is dropped; P99 is a separate metric, on device or CPU time",
    named="latency.p99: regressed",
)
def test_filtered_tail() -> set[str]:
    gate = VirtualGate(tailed(40, 0), tailed(40, 2 * MS), block_seconds=0.09)
    base, head = gate.documents()
    wall = np.concatenate([unpack(member.shapes["default"].times.wall) for member in head.pairs.replicates])
    first, third = np.quantile(wall, [0.25, 0.75])
    kept = wall[wall <= third + 1.5 * (third - first)]
    assert np.quantile(kept, 0.99) == MS  # what the filter would have left
    return names(judged(base, head))


@caught(
    "garbage collection inside calls",
    fools="a pause in one call of forty does not move the median",
    by="perfgate collects outside of calls, so P99 shows the collections that the head causes",
    named="latency.p99: regressed",
)
def test_collection_inside_calls() -> set[str]:
    return names(VirtualGate(tailed(40, 0), tailed(40, 3 * MS), device=host_device, block_seconds=0.09).decide())


@caught(
    "the collector is turned on again",
    fools="`gc.enable` in a call undoes what perfgate set: the head's garbage is collected inside calls, the base's after them",
    by="the pauses are in the head's own calls, where P99 shows them; after each block the collector is as it was",
    named="latency.p99: regressed",
)
def test_collector_turned_on() -> set[str]:
    class Node:
        def __init__(self, device: FakeDevice) -> None:
            self.device = device
            self.circle = self

        def __del__(self) -> None:
            self.device.host_works(5 * US)

    def littering(device: FakeDevice) -> None:
        device.launch("mm", MS)
        for _ in range(10):
            Node(device)

    def collecting(device: FakeDevice) -> None:
        gc.enable()
        littering(device)

    before = gc.get_threshold()
    gc.set_threshold(200)
    try:
        gate = VirtualGate(lambda: littering, lambda: collecting, device=host_device, block_seconds=0.09)
        return names(gate.decide())
    finally:
        gc.set_threshold(*before)


@caught(
    "garbage that is cleared between calls",
    fools="the destructor runs after the call's time was taken",
    by="outputs are released between calls, and the time between calls is a metric",
    named="throughput.gap: regressed",
)
def test_destructor_between_calls() -> set[str]:
    class Output:
        def __init__(self, device: FakeDevice) -> None:
            self.device = device

        def __del__(self) -> None:
            self.device.host_works(100 * US)

    def leaving(device: FakeDevice) -> Output:
        device.launch("mm", MS)
        return Output(device)

    return names(VirtualGate(works(MS), lambda: leaving, device=host_device).decide())


@caught(
    "reference cycles that are collected after the block",
    fools="the collector is off while calls are timed, so its cost is in no call",
    by="the conductor's clock runs from request to reply and includes the collection",
    named="throughput.turnaround: regressed",
)
def test_garbage_in_circles() -> set[str]:
    class Node:
        def __init__(self, device: FakeDevice) -> None:
            self.device = device
            self.circle = self

        def __del__(self) -> None:
            self.device.host_works(100 * US)

    def leaving(device: FakeDevice) -> None:
        device.launch("mm", MS)
        Node(device)

    return names(VirtualGate(works(MS), lambda: leaving, device=host_device).decide())


@caught(
    "`gc.collect` replaced by nothing",
    fools="with an empty function in the module, the collection after a block costs nothing",
    by="the collector's functions are taken before user code runs",
    named="collected all the same",
)
def test_collector_replaced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    cleared = []

    class Node:
        def __init__(self) -> None:
            self.circle = self

        def __del__(self) -> None:
            cleared.append(1)

    with collector_off():
        Node()
    return {"collected all the same"} if cleared else set()


@caught(
    "`time.perf_counter_ns` replaced by a slower clock",
    fools="code in the same process can put another function into the module that tells the time",
    by="the clock's function is taken before user code runs",
    named="the clock runs on",
)
def test_clock_replaced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    device = open_device()
    return {"the clock runs on"} if device.clock_ns() > 0 else set()


def first_call_pays(ns: int, hidden: int) -> Side:
    """A side that does work for later in the call after a pause, which is the one that no block records."""

    def make() -> Call:
        last = [0]

        def call(device: FakeDevice) -> None:
            paused = device.host_ns - last[0] > 20 * US
            device.launch("mm", ns + (hidden if paused else 0))
            last[0] = device.host_ns

        return call

    return make


@caught(
    "work moved into the unrecorded call",
    fools="the first call of a block warms caches and is not recorded; a head that notices the pause does its work there",
    by="the conductor's clock includes the unrecorded call",
    named="throughput.turnaround: regressed",
)
def test_unrecorded_call_pays() -> set[str]:
    decision = VirtualGate(works(MS), first_call_pays(MS, 2 * MS), device=host_device).decide()
    assert "latency.low: regressed" not in names(decision)
    return names(decision)


def faster_clock(share: float) -> Any:
    """Return the head's columns as a clock reports them that misses ``share`` of the time."""

    def reported(columns: BlockColumns) -> BlockColumns:
        told = (unpack(columns.times.wall) * (1 - share)).astype(np.int64)
        starts, ends = np.array(columns.worker.start_ns), np.array(columns.worker.end_ns)
        # Rounding down call by call never makes the calls longer than their block.
        spans = np.ceil((ends - starts) * (1 - share)).astype(np.int64)
        took = np.ceil(np.array(columns.worker.took_ns) * (1 - share)).astype(np.int64)
        return msgspec.structs.replace(
            columns,
            times=msgspec.structs.replace(columns.times, wall=pack(told), cpu=pack(told)),
            worker=msgspec.structs.replace(
                columns.worker, end_ns=[int(end) for end in starts + spans], took_ns=[int(turn) for turn in took]
            ),
        )

    return reported


@caught(
    "a worker's clock at half speed",
    fools="twice the work looks like the same time",
    by="the conductor compares every block with its own clock",
    named="invalid worker_clock",
)
def test_clock_at_half_speed() -> set[str]:
    return names(VirtualGate(works(MS), works(2 * MS), device=host_device, reported=faster_clock(0.5)).decide())


@caught(
    "a worker's clock that misses 15 %",
    fools="a slowdown of 17 % disappears, and the clock's error is too small to be detected",
    by="the turnaround, which only the conductor times",
    named="throughput.turnaround: regressed",
)
def test_clock_misses_15_percent() -> set[str]:
    decision = VirtualGate(works(MS), works(MS * 100 // 85), device=host_device, reported=faster_clock(0.15)).decide()
    assert "latency.low: regressed" not in names(decision)
    return names(decision)


@caught(
    "true clock, false report of calls",
    fools="the worker hands over calls that are 10 % shorter than it measured",
    by="the missing time shows as a gap between calls",
    named="throughput.gap: regressed",
)
def test_false_report_of_calls() -> set[str]:
    def reported(columns: BlockColumns) -> BlockColumns:
        return msgspec.structs.replace(
            columns,
            times=msgspec.structs.replace(
                columns.times, wall=pack((unpack(columns.times.wall) * 0.9).astype(np.int64))
            ),
        )

    return names(VirtualGate(works(MS), works(MS * 10 // 9), device=host_device, reported=reported).decide())


@caught(
    "calls that take longer than their block",
    fools="a report in which only the calls were changed",
    by="the calls of a block cannot take longer than the block",
    named="invalid worker_clock",
)
def test_calls_longer_than_their_block() -> set[str]:
    def reported(columns: BlockColumns) -> BlockColumns:
        return msgspec.structs.replace(
            columns,
            times=msgspec.structs.replace(
                columns.times, wall=pack((unpack(columns.times.wall) * 1.1).astype(np.int64))
            ),
        )

    return names(VirtualGate(works(MS), works(MS), device=host_device, reported=reported).decide())


@caught(
    "a reply before the block is done",
    fools="the worker answers at once, so that the conductor sees a short block, and goes on working",
    by="a block cannot take longer by the worker's clock than the conductor waited",
    named="invalid worker_clock",
)
def test_early_reply() -> set[str]:
    base, head = VirtualGate(works(MS), works(MS), device=host_device).documents()
    early = [
        msgspec.structs.replace(
            member,
            shapes={
                shape: msgspec.structs.replace(
                    columns,
                    conductor=msgspec.structs.replace(
                        columns.conductor, seen_ns=[100 * US for _ in columns.conductor.seen_ns]
                    ),
                )
                for shape, columns in member.shapes.items()
            },
        )
        for member in head.pairs.replicates
    ]
    return names(judged(base, changed(head, replicates=early)))


@caught(
    "one stall that delays all waiting requests (coordinated omission)",
    fools="a closed loop counts a stall of a second as one slow call in 250, though every request of that second waited",
    by="step 1 also measures throughput, over windows of whole seconds, and it stays below what the latency promises",
    named="throughput.median: a fifth of what latency.p90 promises",
)
def test_coordinated_omission() -> set[str]:
    device = FakeDevice(kernel_times={"mm": lambda number: 1000 * MS if number % 250 == 249 else MS})
    context = context_on(device, fake_workload(call=lambda model, _: device.launch("mm")), quick=False)
    values = {value.metric: value.value for value in LATENCY.measure(context).values}
    assert values["latency.p90"] == pytest.approx(0.001)  # 1000 calls a second, says the closed loop
    # 250 calls take 1.249 s.
    reached = values["throughput.median"] == pytest.approx(250 / 1.249, rel=0.05)
    return {"throughput.median: a fifth of what latency.p90 promises"} if reached else {str(values)}


@caught(
    "a P99 of 200 calls",
    fools="the second slowest of 200 calls is printed as a P99 and compared",
    by="a P99 of fewer than 662 calls has no value, and says why",
    named="latency.p99 not estimable",
)
def test_p99_of_too_few_calls() -> set[str]:
    device = FakeDevice(kernel_times={"mm": 10 * MS})
    context = context_on(device, fake_workload(call=lambda model, _: device.launch("mm")))
    value = next(value for value in LATENCY.measure(context).values if value.metric == "latency.p99")
    assert value.value is None
    return {"latency.p99 not estimable"} if "not estimable: a P99 needs 662 calls" in reason_of(value) else set()


@not_caught(
    "a clock that lies by 2 %",
    fools="every time the worker reports is 2 % short, its blocks too: a slowdown of 2 % is hidden",
    because="the turnaround includes other work of the machine, so its tolerance is 3 %; the worker's "
    "clock cannot be checked closer from outside",
)
def test_clock_lies_a_little() -> set[str]:
    return names(VirtualGate(works(MS), works(MS * 102 // 100), reported=faster_clock(0.02)).decide())


def paused_once(*, after: int, ns: int) -> Side:
    """A side of which the first process that makes so many calls is held up once."""
    pauses = [ns]

    def make() -> Call:
        count = iter(range(10_000_000))

        def call(device: FakeDevice) -> None:
            pause = pauses.pop() if next(count) == after and pauses else 0
            device.launch("mm", MS + pause)

        return call

    return make


def names_of_whole_gate(gate: VirtualGate) -> set[str]:
    """The names of a gate that measures stretches after its pairs."""
    measured, _ = gate.measure()
    gate.measure_stretches(measured, quads=0)
    return names(judged(*documents_of(measured), policy=gate.policy))


@caught(
    "a stall in one call of 300",
    fools="a process of a pair makes too few calls to reach it, and it moves neither the quantiles nor P99",
    by="both sides take turns of thousands of calls in one process, and their stalls are compared",
    named="latency.stalls: regressed",
)
def test_rare_stall() -> set[str]:
    return names_of_whole_gate(VirtualGate(tailed(300, 0), tailed(300, 30 * MS), device=host_device))


@caught(
    "one long pause of the machine while head has its turn",
    fools="a pause of 2 s doubles the mean of 2,000 calls",
    by="signs are flipped quad by quad: one quad proves nothing, however long its pause",
    named="latency.mean: inconclusive",
)
def test_one_long_pause() -> set[str]:
    return names_of_whole_gate(VirtualGate(works(MS), paused_once(after=900, ns=2_000 * MS), device=host_device))


@not_caught(
    "a stall in one call of 20,000",
    fools="the stretches of a gate end before it",
    because="a gate has a minute, not an hour; a soak test finds it",
)
def test_rarest_stall() -> set[str]:
    return names_of_whole_gate(VirtualGate(tailed(20_000, 0), tailed(20_000, 30 * MS), device=host_device))
