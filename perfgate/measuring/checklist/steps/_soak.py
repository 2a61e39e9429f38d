"""Load a device without a pause, slice by slice, and say how its speed changes from the first slices to the last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfgate.measuring.devices.contention import run_times
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import measure_throughput
from perfgate.stats.two_samples import shift

# Of these the fastest counts: whatever disturbs a product adds time.
_CANARIES = 5
_CPU_SIZE = 256
_DEVICE_SIZE = 2048


@dataclass(frozen=True)
class Effort:
    """Seconds of the soak, of one slice, and of the first and the last part that are compared."""

    seconds: float
    slice_seconds: float
    first_seconds: float
    last_seconds: float


@dataclass(frozen=True)
class Slice:
    """One slice: when it ended, items a second of the workload, and matrix products a second, None without a canary."""

    ended_ns: int
    rate: float
    canary_rate: float | None


@dataclass(frozen=True)
class Soak:
    """All slices, when the first began, and how many calls were made.

    ``waited`` is the share of the time in which the process could have run and others had its CPUs, None where nobody knows.
    """

    began_ns: int
    slices: tuple[Slice, ...]
    calls: int
    waited: float | None = None

    @property
    def ended_ns(self) -> int:
        """Return when the last slice ended."""
        return self.slices[-1].ended_ns

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return (self.ended_ns - self.began_ns) / 1e9


@dataclass(frozen=True)
class Derating:
    """How much lower the last rates are than the first, 0 to 1, and the interval; an end that too few slices give is None."""

    value: float
    low: float | None
    high: float | None
    slices: int


def soak(call: Callable[[], Any], device: Device, *, items: int, effort: Effort) -> Soak:
    """Make calls for ``effort.seconds``; at least two slices, however long a call takes."""
    made = 0

    def counted() -> Any:
        nonlocal made
        made += 1
        return call()

    canary = _canary(device)
    before, began = run_times(), device.clock_ns()
    slices: list[Slice] = []
    while len(slices) < 2 or (slices[-1].ended_ns - began) / 1e9 < effort.seconds:
        rate = _rate(counted, device, items, effort.slice_seconds)
        canary_rate = None if canary is None else _canary_rate(canary, device)
        slices.append(Slice(device.clock_ns(), rate, canary_rate))
    after = run_times()
    waited = before.waited_share(after) if before and after else None
    return Soak(began, tuple(slices), made, waited)


def derating(soaked: Soak, effort: Effort, *, canary: bool = False) -> Derating | None:
    """Return how much speed was lost from the first part to the last; None for a canary that did not run."""
    first = [one for one in soaked.slices if one.ended_ns <= soaked.began_ns + effort.first_seconds * 1e9]
    last = [one for one in soaked.slices if one.ended_ns > soaked.ended_ns - effort.last_seconds * 1e9]
    # A slice of long calls may be longer than the whole first part.
    early, late = _rates(first or soaked.slices[:1], canary), _rates(last, canary)
    if not early or not late:
        return None
    moved = shift(np.log(early), np.log(late))
    return Derating(_lost(moved.value), _end(moved.high), _end(moved.low), len(early) + len(late))


def _lost(log_ratio: float) -> float:
    return 1.0 - math.exp(log_ratio)


def _end(log_ratio: float) -> float | None:
    return _lost(log_ratio) if math.isfinite(log_ratio) else None


def _rates(slices: Sequence[Slice], canary: bool) -> list[float]:
    found = [one.canary_rate if canary else one.rate for one in slices]
    return [rate for rate in found if rate is not None]


def _rate(call: Callable[[], Any], device: Device, items: int, seconds: float) -> float:
    """Return items a second of one slice; where the host computes, a second is one of CPU time of the process.

    Others that use the CPUs too take wall time from it, and none of that; a lower clock takes both.
    """
    used = device.process_cpu_ns()
    measured = measure_throughput(call, device, items=items, window_seconds=seconds, windows=1)
    if "queue" in device.capabilities:
        return float(measured.rates[0])
    return items * measured.calls / (max(device.process_cpu_ns() - used, 1) / 1e9)


def _canary_rate(canary: Callable[[], Any], device: Device) -> float:
    waits = "queue" in device.capabilities
    clock = device.clock_ns if waits else device.process_cpu_ns
    times = []
    for _ in range(_CANARIES):
        started = clock()
        canary()
        device.synchronize()
        times.append(clock() - started)
    return 1e9 / max(float(min(times)), 1.0)


def _canary(device: Device) -> Callable[[], Any] | None:
    """Return a matrix product on the device, the same on every machine; None where torch has no such device."""
    import torch

    handle = device.handle()
    if not isinstance(handle, torch.device):
        return None
    size = _DEVICE_SIZE if "own_memory" in device.capabilities else _CPU_SIZE
    # Of fixed numbers: a generator's state is the workload's own.
    left = (torch.arange(size * size, dtype=torch.float32).reshape(size, size) % 7).to(handle)
    product = torch.empty_like(left)

    def multiply() -> Any:
        with device.inference_mode():
            return torch.mm(left, left, out=product)

    for _ in range(_CANARIES):
        multiply()
    device.synchronize()
    return multiply
