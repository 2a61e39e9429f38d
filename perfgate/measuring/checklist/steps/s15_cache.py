"""Step 15: how much slower a call is when the cache does not hold what it needs, as it does in a benchmark's loop."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import above, below, limit
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._hit_rates import HitRate, hit_rates
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.measuring.timing.versus import FEWEST_QUADS, Versus, summarize_turns

HOT, COLD, ROTATING = "hot", "cold", "rotating"
_TIMED_CALLS = 3
_MOST_ROUNDS = 30
# More copies than this take longer to make than to measure.
_MOST_COPIES = 4096
_TOP_OPS = 10
_HEAVY = 0.1
_UNKNOWN = "nobody tells how large the device's last cache is, or twice as much memory is not free"
_NO_COUNTERS = (
    "the recording has no counters of the L2 cache; on an NPU record it with aic_metrics=AiCMetrics.L2Cache, or on 910A and "
    "310P with l2_cache=True"
)


@dataclass(frozen=True)
class _Effort:
    warm_up_seconds: float
    seconds: float


_QUICK = _Effort(warm_up_seconds=0.3, seconds=1.5)
_FULL = _Effort(warm_up_seconds=3.0, seconds=8.0)


class CacheStep:
    """The same call with hot, cold and rotating buffers, in turns; the cache is swept outside what is timed."""

    card = card(15)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; unavailable where the cache is of unknown size."""
        size, sweep = context.device.cache_bytes(), context.device.cache_sweeper()
        if size is None or sweep is None:
            return StepOutcome(status="unavailable", reason=_UNKNOWN)
        shape = context.workload.shapes[0]
        context.progress(f"hot and cold caches with inputs of shape {shape}")
        with quiet():
            buffers = _Buffers(context, shape, cache_bytes=size)
            rounds = _rounds(context, buffers, sweep)
        labels = {"shape": shape}
        values = [
            *_times(rounds, labels),
            *(_sensitivity(rounds, way, labels) for way in (COLD, ROTATING) if way in rounds[0]),
        ]
        if buffers.refusal is not None:
            missing = {**labels, "buffers": ROTATING}
            values.append(Value(metric="cache.sensitivity", value=None, labels=missing, reason=buffers.refusal))
        findings = [finding for value in values for finding in _judge(value, context.limits)]
        return StepOutcome(status=status_of(findings), values=values, findings=findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Return the hit rates of the heaviest operators of every rank."""
        values: list[Value] = []
        findings: list[Finding] = []
        for summary in context.summaries:
            for found in hit_rates(summary.kernels())[:_TOP_OPS]:
                values.append(_hit_rate(found, summary.shape))
                findings += _judge_hit_rate(found, summary.shape, context.limits)
        if not values:
            return StepOutcome(status="unavailable", reason=_NO_COUNTERS)
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


STEP = CacheStep()

# Nanoseconds of a call in each way.
_Round = dict[str, float]


class _Buffers:
    """The inputs of a shape: one, and so many copies of it that twice the cache is full before one comes again.

    ``refusal`` says why there are no copies.
    """

    def __init__(self, context: StepContext, shape: str, *, cache_bytes: int) -> None:
        self._invoke = context.workload.invoke
        self._one = context.workload.pool(shape)[0]
        size = context.device.bytes_of(self._one)
        needed = -(-2 * cache_bytes // size) + 1 if size else 0
        self.refusal = _too_many(needed, size)
        self.rotates = self.refusal is None
        self._copies = cycle([copy.deepcopy(self._one) for _ in range(needed)] if self.rotates else ())

    def same(self) -> Any:
        """Make a call on the same input as always."""
        return self._invoke(self._one)

    def next(self) -> Any:
        """Make a call on the copy that was not used for longest."""
        return self._invoke(next(self._copies))


def _too_many(needed: int, size: int) -> str | None:
    if not needed:
        return "the inputs hold no tensor"
    if needed > _MOST_COPIES:
        return f"an input has {size} bytes: {needed} copies of it would be needed to fill the cache twice"
    return None


def _rounds(context: StepContext, buffers: _Buffers, sweep: Callable[[], None]) -> list[_Round]:
    """Time all ways once a round, in random order; what the machine does meanwhile meets all alike."""
    effort = _QUICK if context.quick else _FULL
    device, chance = context.device, random.Random(context.seed)
    find_steady_state(buffers.same, device, cap_seconds=effort.warm_up_seconds)

    def cold() -> float:
        sweep()
        return float(timed_call(buffers.same, device))

    ways: dict[str, Callable[[], float]] = {HOT: lambda: _repeated(buffers.same, device), COLD: cold}
    if buffers.rotates:
        ways[ROTATING] = lambda: _repeated(buffers.next, device)
    until = device.clock_ns() + int(effort.seconds * 1e9)
    rounds: list[_Round] = []
    while len(rounds) < FEWEST_QUADS or (device.clock_ns() < until and len(rounds) < _MOST_ROUNDS):
        rounds.append({way: ways[way]() for way in chance.sample(list(ways), len(ways))})
    return rounds


def _repeated(call: Callable[[], Any], device: Device) -> float:
    """Return the median of some calls after one that finds the caches as another way left them."""
    timed_call(call, device)
    return float(np.median([timed_call(call, device) for _ in range(_TIMED_CALLS)]))


def _times(rounds: list[_Round], labels: dict[str, str]) -> list[Value]:
    return [
        Value(
            metric="cache.call_time",
            value=float(np.median([one[way] for one in rounds])) / 1e9,
            count=len(rounds),
            labels={**labels, "buffers": way},
        )
        for way in (HOT, COLD, ROTATING)
        if way in rounds[0]
    ]


def _sensitivity(rounds: list[_Round], way: str, labels: dict[str, str]) -> Value:
    versus: Versus = summarize_turns(np.asarray([(one[way], one[HOT]) for one in rounds]))
    return versus.value("cache.sensitivity", {**labels, "buffers": way})


def _judge(value: Value, limits: Mapping[str, float]) -> list[Finding]:
    """Judge a sensitivity whose whole interval lies above the limit: single cold calls scatter."""
    if value.metric != "cache.sensitivity" or value.value is None or value.interval is None:
        return []
    low = value.interval[0]
    if low is None or low <= limit("cache.sensitivity.warning", limits):
        return []
    return above("cache.sensitivity", value.value, given=limits, evidence=dict(value.labels))


def _hit_rate(found: HitRate, shape: str) -> Value:
    labels = {"shape": shape, "op": found.op, "access": found.access, "under": "profiler"}
    return Value(metric="cache.hit_rate", value=found.rate, labels=labels)


def _judge_hit_rate(found: HitRate, shape: str, limits: Mapping[str, float]) -> list[Finding]:
    if found.time_share < _HEAVY or found.access == "write":
        return []
    return below("cache.hit_rate", found.rate, given=limits, evidence={"shape": shape, "op": found.op})
