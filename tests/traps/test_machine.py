"""Traps that the machine sets, in virtual time: it changes speed, slows down, is shared, or prefers who comes second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from perfgate.document.telemetry import DeviceProcess, DeviceState
from tests.fakes.device import FakeDevice
from tests.traps.catalogue import caught, not_caught
from tests.traps.naming import names
from tests.traps.virtual import HOST, MS, Call, Side, VirtualGate, judged, works
from tests.unit.gate.builders import sides

Pace = Callable[[int], float]


def paced(pace: Pace, ns: int = MS) -> Side:
    """A side whose calls take ``ns`` times what the machine's pace is at that moment (of the pair's own time)."""
    return lambda: lambda device: device.launch("mm", round(ns * pace(device.host_ns)))


def in_one_go(pace: Pace, *, calls: int = 300) -> float:
    """Return head over base - 1 of the same code, timed as a gate that measures one side after the other would."""
    device = FakeDevice()
    medians = []
    for _ in range(2):
        times = []
        for _ in range(calls):
            started = device.host_ns
            paced(pace)()(device)
            device.synchronize()
            times.append(device.host_ns - started)
        medians.append(float(np.median(times)))
    return medians[1] / medians[0] - 1


def ramp(now: int) -> float:
    """A clock that starts at half its rate and reaches it after 0.6 s."""
    return 2.0 - min(1.0, now / (600 * MS))


@caught(
    "the device's clock ramps up while it is measured",
    fools="the side that is measured first has a slower device: the head looks faster than it is, and a "
    "slowdown disappears",
    by="sides take turns in blocks of milliseconds, in an order drawn by lot",
    named="latency.low: regressed",
)
def test_clock_ramp() -> set[str]:
    assert in_one_go(ramp) < -0.2
    return names(VirtualGate(paced(ramp), paced(ramp, MS * 106 // 100)).decide())


@caught(
    "the same ramp, the same code",
    fools="a difference of 20 % between two runs of one commit",
    by="sides take turns in blocks of milliseconds, in an order drawn by lot",
    named="latency.low: unchanged",
)
def test_clock_ramp_same_code() -> set[str]:
    return names(VirtualGate(paced(ramp), paced(ramp)).decide())


def drift(now: int) -> float:
    """A machine that gets slower by a third within a second."""
    return 1.0 + now / (3000 * MS)


@caught(
    "a machine that drifts",
    fools="the side that is measured later is slower",
    by="blocks in ABBA or BAAB order cancel a drift, and pairs differ in which side starts",
    named="latency.low: unchanged",
)
def test_drifting_machine() -> set[str]:
    assert in_one_go(drift) > 0.05
    return names(VirtualGate(paced(drift), paced(drift)).decide())


def burst(now: int) -> float:
    """A neighbour that sleeps for 0.3 s and takes half of the machine for 0.6 s."""
    return 1.0 if now % (900 * MS) < 300 * MS else 2.0


@caught(
    "a bursty neighbour in one half of the job",
    fools="the side that is measured meanwhile looks twice as slow",
    by="blocks of both sides lie milliseconds apart, and low quantiles exclude the burst",
    named="latency.low: unchanged",
)
def test_bursty_neighbour() -> set[str]:
    assert abs(in_one_go(burst)) > 0.3
    return names(VirtualGate(paced(burst), paced(burst)).decide())


@caught(
    "a bursty neighbour hides a real loss",
    fools="noise twice as large as the loss makes any interval wide",
    by="the disturbance of both sides cancels, and the 5 % remain",
    named="latency.low: regressed",
)
def test_bursty_neighbour_hides_a_loss() -> set[str]:
    return names(VirtualGate(paced(burst), paced(burst, MS * 105 // 100)).decide())


@caught(
    "one wild pair in eight",
    fools="one process with an unlucky memory layout moves a mean by 5 %",
    by="rank tests over pairs: one pair is one vote",
    named="latency.low: unchanged",
)
def test_one_wild_pair() -> set[str]:
    processes = iter(range(1000))

    def sometimes_wild() -> Call:
        number = next(processes)
        return lambda device: device.launch("mm", MS * 14 // 10 if number == 4 else MS)

    decision = VirtualGate(works(MS), sometimes_wild).decide()
    return names(decision)


class ColdAfterAPause(FakeDevice):
    """A device that sleeps in a pause of a millisecond and then runs the next 15 ms 5 % slower."""

    cold_until = 0
    busy_until = 0

    def run(self, ns: int) -> None:
        """Run a kernel at the speed of the moment."""
        if self.host_ns - self.busy_until > MS:
            self.cold_until = self.host_ns + 12 * MS
        self.launch("mm", ns * 105 // 100 if self.host_ns < self.cold_until else ns)
        self.busy_until = self.host_ns + ns


@caught(
    "the head always comes second",
    fools="the first side wakes the device up: in a fixed order the same code is 5 % faster as head, "
    "which hides a slowdown of that size",
    by="a recorded seed draws which side leads a group of four blocks; the other side leads its second half",
    named="latency.low: regressed",
)
def test_order_effect() -> set[str]:
    def side(ns: int) -> Side:
        return lambda: lambda device: device.run(ns)  # type: ignore[attr-defined]

    assert in_fixed_order(side(MS), side(MS * 104 // 100)) < 0.01
    return names(VirtualGate(side(MS), side(MS * 104 // 100), device=ColdAfterAPause, quads=4).decide())


def in_fixed_order(base: Side, head: Side, *, blocks: int = 6, calls: int = 10) -> float:
    """Return head over base - 1 as a gate measures it that lets the base go first after every pause."""
    device = ColdAfterAPause()
    times: dict[Side, list[int]] = {base: [], head: []}
    for _ in range(blocks):
        device.host_ns += 2 * MS
        for side in (base, head):
            for _ in range(calls):
                started = device.host_ns
                side()(device)
                device.synchronize()
                times[side].append(device.host_ns - started)
    return float(np.mean(times[head]) / np.mean(times[base])) - 1


def reporting(condition: DeviceState, every: int) -> Callable[[], FakeDevice]:
    """A device that reports this condition after every so manieth block."""

    def make() -> FakeDevice:
        device = FakeDevice()
        device.conditions = [condition if index % every == 0 else DeviceState() for index in range(1000)]
        return device

    return make


@caught(
    "thermal throttling",
    fools="a device that slows itself down slows the side that has the turn",
    by="perfgate drops blocks in which the device throttles, with their group of four on both sides; "
    "too many make the times invalid",
    named="invalid throttled",
)
def test_throttled() -> set[str]:
    return names(VirtualGate(works(MS), works(MS), device=reporting(DeviceState(throttled=True), 2)).decide())


@caught(
    "a clock below its rate",
    fools="a device that saves power is slow at some moments and not at others",
    by="perfgate drops blocks below 97 % of the rated clock, with their group of four",
    named="invalid slow_clock",
)
def test_slow_clock() -> set[str]:
    return names(
        VirtualGate(works(MS), works(MS), device=reporting(DeviceState(clock=0.8e9, rated_clock=1e9), 2)).decide()
    )


@caught(
    "another process on the device",
    fools="its kernels wait in the same queue",
    by="perfgate drops blocks with a foreign process on the device, with their group of four",
    named="invalid foreign_process",
)
def test_foreign_process() -> set[str]:
    return names(
        VirtualGate(
            works(MS), works(MS), device=reporting(DeviceState(foreign_processes=[DeviceProcess(pid=1)]), 2)
        ).decide()
    )


@caught(
    "throttled in a few blocks of one side only",
    fools="dropping only the slow blocks of one side makes that side faster",
    by="a dropped block takes its group of four with it, on both sides; a block is never dropped "
    "because of its own time",
    named="latency.low: unchanged",
)
def test_few_throttled_blocks() -> set[str]:
    return names(VirtualGate(works(MS), works(MS), device=reporting(DeviceState(throttled=True), 12), quads=6).decide())


@caught(
    "base against base differs",
    fools="on a machine where two processes of one code have two speeds, any difference of the head is luck",
    by="base also runs against base (A/A) in the same job",
    named="invalid aa_differs",
)
def test_base_differs_from_itself() -> set[str]:
    return names(judged(*sides([1.05] * 12, aa_ratios=[1.05] * 7)))


@not_caught(
    "a neighbour outside the job that knows whose turn it is",
    fools="a process outside the job (a cron entry, another container) burns the CPU whenever the base runs",
    because="the kernel's accounting covers the worker's own processes; from inside a job it is impossible to "
    "tell whose process it is. The report shows how long workers waited for a CPU",
)
def test_neighbour_that_knows_the_turn() -> set[str]:
    def slowed() -> Call:
        return lambda device: device.launch("mm", MS * 110 // 100)

    # The base is slowed by 10 %, and so a head that does 8 % more work looks faster.
    gate = VirtualGate(works(MS), works(MS * 108 // 100), device=lambda: FakeDevice(capabilities=HOST))
    base, _ = replace(gate, base=slowed).documents()
    _, head = gate.documents()
    return names(judged(base, head))
