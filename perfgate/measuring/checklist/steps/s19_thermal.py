"""Step 19: whether the device keeps its speed under sustained load, how warm it gets, and what an item costs in energy."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.document.telemetry import Reading, Telemetry
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.limits import above, below
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._soak import Derating, Effort, Soak, derating, soak
from perfgate.measuring.devices.registry import sensor_kinds
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.sampling import sampling
from perfgate.stats.summary import CONFIDENCE

# Below this share of the rated clock a device at work is slowed down (facts/measuring.md, step 19).
_FULL_CLOCK = 0.97
_FEWEST_READINGS = 2
_WARM_UP_SECONDS = 1.0
_QUICK = Effort(seconds=6.0, slice_seconds=0.25, first_seconds=1.5, last_seconds=2.0)
_FULL = Effort(seconds=35.0, slice_seconds=0.25, first_seconds=3.0, last_seconds=10.0)
_NO_CLOCK = "the recording holds no clock of the device's cores"


@dataclass(frozen=True)
class Sensed:
    """What the sensor said; without readings, why."""

    readings: Sequence[Reading]
    reason: str = ""


class ThermalStep:
    """Soak the device with the first shape while a process of its own reads the sensors."""

    card = card(19)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure derating in any case; what only a sensor tells has no value where there is none."""
        shape = context.workload.shapes[0]
        effort = _QUICK if context.quick else _FULL
        context.progress(f"{effort.seconds:g} s of calls without a pause, of shape {shape}")
        soaked, sensed = _soak_and_sense(context, shape, effort)
        of_calls, of_canary = derating(soaked, effort), derating(soaked, effort, canary=True)
        values = [
            *_derating_values(of_calls, of_canary, shape),
            *sensor_values(sensed, soaked, items=soaked.calls * context.workload.batch, shape=shape),
        ]
        findings = [
            *judge_speed(soaked, of_calls, of_canary, context),
            *judge_throttling(values, context.limits, shape),
        ]
        return StepOutcome(status=status_of(findings), values=values, findings=findings)

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the clock of the cores, which some profilers record; nothing else of a recording is sustained load."""
        values: list[Value] = []
        findings: list[Finding] = []
        for summary in context.summaries:
            clock = summary.timeline.core_frequency
            if clock is None or clock[1] <= 0:
                continue
            lowest, highest = clock
            values.append(
                Value(
                    metric="thermal.clock", value=lowest / highest, labels={"shape": summary.shape, "under": "profiler"}
                )
            )
            evidence: dict[str, Evidence] = {"shape": summary.shape, "lowest [Hz]": lowest, "highest [Hz]": highest}
            findings += below("thermal.clock", lowest / highest, given=context.limits, evidence=evidence)
        if not values:
            return StepOutcome(status="unavailable", reason=_NO_CLOCK)
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


STEP = ThermalStep()


def _soak_and_sense(context: StepContext, shape: str, effort: Effort) -> tuple[Soak, Sensed]:
    device, call = context.device, context.workload.caller(shape)
    with ExitStack() as stack:
        sampler, why = None, ""
        try:
            if device.kind not in sensor_kinds():
                raise MeasuringError(f"nothing tells the temperature, clock or power of a {device.kind} device")
            sampler = stack.enter_context(sampling(f"{device.kind}:{device.index}", folder=context.artifacts))
        except MeasuringError as error:
            why = str(error)
        with quiet():
            find_steady_state(call, device, cap_seconds=_WARM_UP_SECONDS)
            soaked = soak(call, device, items=context.workload.batch, effort=effort)
        return soaked, Sensed(sampler.readings() if sampler else (), why)


def _derating_values(of_calls: Derating | None, of_canary: Derating | None, shape: str) -> Iterator[Value]:
    for what, found in (("workload", of_calls), ("canary", of_canary)):
        if found is not None:
            yield Value(
                metric="thermal.derating",
                value=found.value,
                interval=(found.low, found.high),
                confidence=CONFIDENCE,
                count=found.slices,
                labels={"shape": shape, "of": what},
            )


def sensor_values(sensed: Sensed, soaked: Soak, *, items: int, shape: str) -> list[Value]:
    """Return what the readings within a soak say; a value that none of them tells is missing, with the reason."""
    within = [one for one in sensed.readings if one.began_ns >= soaked.began_ns and one.ended_ns <= soaked.ended_ns]
    why = sensed.reason
    if not why and len(within) < _FEWEST_READINGS:
        why = (
            f"the sensor answered {len(within)} times in {soaked.seconds:.0f} s of calls, {_FEWEST_READINGS} are needed"
        )
    if why:
        return [_missing(metric, why, shape) for metric in _SENSOR_METRICS]
    at_work = [one.telemetry for one in within if _works(one.telemetry)]
    power = _mean_power(within, soaked)
    numbers = (
        _throttled(at_work),
        _median([share for one in at_work if (share := one.clock_share()) is not None]),
        max((one.telemetry.temperature for one in within if one.telemetry.temperature is not None), default=None),
        power,
        None if power is None else power * soaked.seconds / items,
    )
    return [
        _missing(metric, _NOT_TOLD[metric], shape)
        if number is None
        else Value(metric=metric, value=number, count=len(within), labels={"shape": shape})
        for metric, number in zip(_SENSOR_METRICS, numbers)
    ]


_SENSOR_METRICS = ("thermal.throttled", "thermal.clock", "thermal.temperature", "thermal.power", "thermal.energy")
_NO_CLOCK_TOLD = "the sensor tells no clock of a device at work beside its rated one"
_NO_POWER_TOLD = "the sensor tells no power of this device"
_NOT_TOLD = {
    "thermal.throttled": _NO_CLOCK_TOLD,
    "thermal.clock": _NO_CLOCK_TOLD,
    "thermal.temperature": "the sensor tells no temperature of this device",
    "thermal.power": _NO_POWER_TOLD,
    "thermal.energy": _NO_POWER_TOLD,
}


def _missing(metric: str, reason: str, shape: str) -> Value:
    return Value(metric=metric, value=None, labels={"shape": shape}, reason=reason)


def _works(telemetry: Telemetry) -> bool:
    # Calls were made all the time, so a device of which no load is told was at work.
    return telemetry.at_work is not False


def _throttled(at_work: Sequence[Telemetry]) -> float | None:
    told = [slowed for one in at_work if (slowed := _is_slowed(one)) is not None]
    return sum(told) / len(told) if told else None


def _is_slowed(telemetry: Telemetry) -> bool | None:
    share = telemetry.clock_share()
    if telemetry.throttled is not None:
        return telemetry.throttled
    return None if share is None else share < _FULL_CLOCK


def _median(shares: Sequence[float]) -> float | None:
    return statistics.median(shares) if shares else None


def _mean_power(readings: Sequence[Reading], soaked: Soak) -> float | None:
    """Return the power integrated over the soak, by trapezoids between readings, over its length; W."""
    told = [(one.ended_ns, one.telemetry.power) for one in readings if one.telemetry.power is not None]
    if len(told) < _FEWEST_READINGS:
        return None
    times, watts = np.array([time for time, _ in told], dtype=np.float64), np.array([power for _, power in told])
    # Before the first reading and after the last the power is taken as there.
    times = np.concatenate(([soaked.began_ns], times, [soaked.ended_ns]))
    watts = np.concatenate((watts[:1], watts, watts[-1:]))
    return float(((watts[1:] + watts[:-1]) / 2 * np.diff(times)).sum() / (times[-1] - times[0]))


def judge_speed(
    soaked: Soak, of_calls: Derating | None, of_canary: Derating | None, context: StepContext
) -> list[Finding]:
    """Judge the lower end of what calls lost; where the canary lost less than half of it, the device is not the cause.

    Where others had the CPUs of a device that is the host, its speed is that of all of them, and nothing is judged. Measured:
    on two CPUs with a load of five the CPU time of a fixed matrix product moved by 30 % within seconds.
    """
    if "queue" not in context.device.capabilities and soaked.waited is not None:
        shared = above("thermal.shared", soaked.waited, given=context.limits, evidence={})
        if shared:
            return shared
    if of_calls is None or of_calls.low is None:
        return []
    evidence: dict[str, Evidence] = {"derating": of_calls.value, "shape": context.workload.shapes[0]}
    if of_canary is not None:
        evidence["derating of the canary"] = of_canary.value
    device_keeps_speed = of_canary is not None and of_canary.value < of_calls.value / 2
    rule = "thermal.drift" if device_keeps_speed else "thermal.derating"
    return above(rule, of_calls.low, given=context.limits, evidence=evidence)


def judge_throttling(values: Sequence[Value], limits: Mapping[str, float], shape: str) -> list[Finding]:
    """Judge how often the device was below its clock; nothing where no clock is told."""
    told = {value.metric: value.value for value in values if value.value is not None}
    if "thermal.throttled" not in told:
        return []
    evidence: dict[str, Evidence] = {"shape": shape}
    evidence.update({metric: told[metric] for metric in ("thermal.clock", "thermal.temperature") if metric in told})
    return above("thermal.throttled", told["thermal.throttled"], given=limits, evidence=evidence)
