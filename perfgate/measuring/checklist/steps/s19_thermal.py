"""Step 19: speed under sustained load, temperature, and energy per item."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message, reason_of
from perfgate.document.run import Evidence
from perfgate.document.telemetry import DeviceState, TelemetryReading
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.recorded import profiled, setting_number
from perfgate.measuring.checklist.step import (
    LimitValues,
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    unavailable,
)
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.devices.host import run_times
from perfgate.measuring.devices.registry import monitored_kinds
from perfgate.measuring.timing.calls import find_steady_state, measure_throughput
from perfgate.sampling import Sampler, sampling
from perfgate.stats.robust import shift
from perfgate.stats.summary import SampleEstimate
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.kernel_times import kernel_clocks
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.readings import CORE_CLOCK

# Below this share of the rated clock a device at work counts as throttled.
_FULL_CLOCK = 0.97
_FEWEST_READINGS = 2
_TOP_OPS = 10
_SLICE_SECONDS = 0.25
# The compared first and last parts of a soak.
_QUICK_ENDS, _FULL_ENDS = (1.5, 2.0), (3.0, 10.0)
# The subjects of a soak: the workload's calls, and between them a fixed matrix product
# on the device and, on a device with a queue, a fixed series of short launches, which
# take the time of the host.
WORKLOAD, CANARY, LAUNCHES = "workload", "canary", "launches"
# The fastest of these counts, because disturbances only add time.
_CANARIES = 5
_LAUNCHES = 50
_NO_SENSED_CLOCK = Message("system.no-rated-clock")
_NO_SENSED_POWER = Message("system.no-power")
# Metrics that need a sensor, and the reason if they are missing.
_SENSED = {
    "thermal.throttled": _NO_SENSED_CLOCK,
    "thermal.clock": _NO_SENSED_CLOCK,
    "thermal.temperature": Message("system.no-temperature"),
    "thermal.power": _NO_SENSED_POWER,
    "thermal.energy": _NO_SENSED_POWER,
}


class ThermalStep:
    """Soak the device with the first shape while another process reads the sensors."""

    card = card(19)

    def measure(self, context: StepContext) -> StepOutcome:
        """Derating needs no sensor; the other metrics are missing without one."""
        shape = context.workload.shapes[0]
        seconds, ends = (
            (6.0, _QUICK_ENDS) if context.extent.quick else (35.0, _FULL_ENDS)
        )
        context.doing(
            "{seconds:g} s of calls without a pause, of shape {shape}",
            seconds=seconds,
            shape=shape,
        )
        soaked, sensed = _soak_and_sense(context, shape, seconds)
        outcome = context.outcome()
        of_shape = outcome.under(shape=shape)
        losses = {}
        for subject in soaked.slices[0].rates:
            losses[subject] = derating(soaked, *ends, of=subject)
            of_shape.under(of=subject).estimate("thermal.derating", losses[subject])
        add_sensed(
            of_shape, sensed, soaked, items=soaked.calls * context.workload.batch
        )
        judge_speed(of_shape, soaked, losses, context)
        judge_throttling(of_shape)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the clock of the cores, if the profiler recorded it; a recording has no
        other sustained load.
        """
        outcome = context.outcome()
        for summary in context.summaries:
            _judge_recorded_clock(outcome.under(**profiled(summary)), summary, context)
        return outcome.or_else(unavailable(Message("system.no-clock-recorded")))


STEP = ThermalStep()


def _judge_recorded_clock(
    outcome: StepOutcome, summary: DeviceSummary, context: RecordingContext
) -> None:
    """The clock of the cores over their rated one, or over the highest reading if the
    rated one is unknown.

    If the times of kernels are known, only the clock during kernels counts: an idle
    device lowers it by itself.
    """
    clock = summary.timeline.readings.get(CORE_CLOCK)
    if clock is None or not clock.value.max() > 0:
        return
    rated = float(clock.value.max())
    megahertz = setting_number(context.recording.settings, "aic_frequency_mhz")
    if megahertz is not None:
        rated = megahertz * 1e6
    clocks = kernel_clocks(summary.kernel_table, clock)
    lowest = min((row.lowest for row in clocks), default=float(clock.value.min()))
    outcome.number("thermal.clock", lowest / rated)
    if not clocks:
        outcome.below(
            "thermal.clock",
            lowest / rated,
            {"lowest [Hz]": lowest, "rated [Hz]": rated},
        )
    lowered = [row for row in clocks if row.hertz < rated]
    for row in lowered[:_TOP_OPS]:
        outcome.under(op=row.op).number("thermal.kernel_clock", row.hertz / rated)
    idle = [
        row for row in clocks if row.hertz < outcome.limit("thermal.idle_clock.warning")
    ]
    affected = idle or [
        row
        for row in clocks
        if row.hertz / rated < outcome.limit("thermal.kernel_clock.warning")
    ]
    if not affected:
        return
    affected_ns, lost_ns = 0, 0.0
    for row in affected:
        affected_ns += row.time_ns
        lost_ns += row.time_ns * max(1 - row.hertz / rated, 0.0)
    total_ns = sum(row.time_ns for row in clocks)
    heaviest = affected[0]
    evidence: MaybeEvidence = {
        "op": heaviest.op,
        "clock": heaviest.hertz,
        "rated": rated,
        "share": affected_ns / total_ns,
        "lost": lost_ns / total_ns,
        "operators": len(affected),
    }
    if idle:
        outcome.below("thermal.idle_clock", heaviest.hertz, evidence)
    else:
        outcome.below("thermal.kernel_clock", heaviest.hertz / rated, evidence)


class Slice(NamedTuple):
    """One slice: its end, and for each subject its items, matrix products or series of
    launches per second.
    """

    ended_ns: int
    rates: Mapping[str, float]


class Soak(NamedTuple):
    """All slices, the start of the first, and the number of calls.

    ``waited`` is the share of time in which the process was ready to run but others had
    its CPUs, None if unknown.
    """

    began_ns: int
    slices: tuple[Slice, ...]
    calls: int
    waited: float | None = None

    @property
    def ended_ns(self) -> int:
        return self.slices[-1].ended_ns

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


def _soak_and_sense(
    context: StepContext, shape: str, seconds: float
) -> tuple[Soak, Sequence[TelemetryReading] | Message]:
    """The soak and the readings during it, or the reason why there are none."""
    device, call = context.device, context.workload.caller(shape)
    with ExitStack() as stack:
        reason = Message("system.nothing-tells", {"kind": device.kind})
        sampler: Sampler | None = None
        if device.kind in monitored_kinds():
            try:
                sampler = stack.enter_context(
                    sampling(f"{device.kind}:{device.index}", folder=context.artifacts)
                )
            except MeasuringError as error:
                reason = reason_of(error)
        stack.enter_context(quiet())
        find_steady_state(call, device, cap_seconds=1.0)
        soaked = soak(call, device, items=context.workload.batch, seconds=seconds)
        if sampler is None:
            return soaked, reason
        return soaked, sampler.readings()


def add_sensed(
    outcome: StepOutcome,
    sensed: Sequence[TelemetryReading] | Message,
    soaked: Soak,
    *,
    items: int,
) -> None:
    """Add the readings within a soak; a value without any reading is missing, with the
    reason.
    """
    if isinstance(sensed, Message):
        outcome.missing(_SENSED, sensed)
        return
    began, ended = soaked.began_ns, soaked.ended_ns
    within = [
        reading
        for reading in sensed
        if began <= reading.began_ns and reading.ended_ns <= ended
    ]
    if len(within) < _FEWEST_READINGS:
        reason = Message(
            "system.too-few-readings",
            {
                "count": len(within),
                "seconds": soaked.seconds,
                "fewest": _FEWEST_READINGS,
            },
        )
        outcome.missing(_SENSED, reason)
        return
    _add_states(outcome, [reading.telemetry for reading in within])
    power = _mean_power(within, soaked)
    if power is None:
        outcome.missing(("thermal.power", "thermal.energy"), _NO_SENSED_POWER)
    else:
        outcome.numbers(
            {"thermal.power": power, "thermal.energy": power * soaked.seconds / items},
            count=len(within),
        )


def judge_watched(
    readings: Sequence[TelemetryReading], limits: LimitValues
) -> StepOutcome:
    """The outcome of readings during pairs, in which both sides keep the device at work
    by turns.
    """
    if len(readings) < _FEWEST_READINGS:
        return unavailable(Message("system.not-watched"))
    states = [reading.telemetry for reading in readings]
    outcome = StepOutcome(limits=limits)
    _add_states(outcome, states)
    _add_sensed_number(
        outcome, "thermal.power", states, lambda state: state.power, statistics.mean
    )
    judge_throttling(outcome)
    return outcome


def _add_states(outcome: StepOutcome, states: Sequence[DeviceState]) -> None:
    """Add throttling and clock, of a device at work or of unknown load, and the
    temperature.
    """
    # Calls were made all the time, so a device of unknown load was at work.
    working = [state for state in states if state.at_work is not False]
    _add_sensed_number(
        outcome, "thermal.throttled", working, _is_throttled, statistics.mean
    )
    _add_sensed_number(
        outcome, "thermal.clock", working, DeviceState.clock_share, statistics.median
    )
    _add_sensed_number(
        outcome, "thermal.temperature", states, lambda state: state.temperature, max
    )


def _add_sensed_number(
    outcome: StepOutcome,
    metric: str,
    states: Iterable[DeviceState],
    sensor: Callable[[DeviceState], float | None],
    summary: Callable[[Sequence[float]], float],
) -> None:
    numbers = [number for number in map(sensor, states) if number is not None]
    if numbers:
        outcome.number(metric, summary(numbers), count=len(numbers))
    else:
        outcome.missing(metric, _SENSED[metric])


def _is_throttled(telemetry: DeviceState) -> bool | None:
    if telemetry.throttled is not None:
        return telemetry.throttled
    share = telemetry.clock_share()
    return None if share is None else share < _FULL_CLOCK


def _mean_power(readings: Sequence[TelemetryReading], soaked: Soak) -> float | None:
    """The power integrated over the soak, by trapezoids between readings, over its
    length; W.
    """
    times, watts = [], []
    for reading in readings:
        if reading.telemetry.power is not None:
            times.append(reading.ended_ns)
            watts.append(reading.telemetry.power)
    if len(watts) < _FEWEST_READINGS:
        return None
    # The power is extended constantly before the first reading and after the last.
    at = np.array([soaked.began_ns, *times, soaked.ended_ns], dtype=np.float64)
    power = np.array([watts[0], *watts, watts[-1]])
    return float(((power[1:] + power[:-1]) / 2 * np.diff(at)).sum() / (at[-1] - at[0]))


def judge_speed(
    outcome: StepOutcome,
    soaked: Soak,
    losses: Mapping[str, SampleEstimate],
    context: StepContext,
) -> None:
    """Judge the lower bound of the calls' loss; the cause is the device or its host if
    that lost at least half as much.

    There is no judgement if the device is the host and other processes used its CPUs.
    Measured: on two CPUs with a load of five the CPU time of a fixed matrix product
    varied by 30 % within seconds. On a virtual machine with an H100 calls that wait for
    the host lost 20 % and a matrix product on the GPU 2 %; a fixed loop of Python took
    0.40 to 0.74 ms there.
    """
    is_host = "queue" not in context.device.capabilities
    if (
        is_host
        and soaked.waited is not None
        and outcome.above("thermal.shared", soaked.waited)
    ):
        return
    of_calls = losses[WORKLOAD]
    if of_calls.low is None:
        return
    slower = [
        subject for subject, loss in losses.items() if loss.value >= of_calls.value / 2
    ]
    if (
        CANARY in slower or CANARY not in losses
    ):  # without a canary the cause is unknown
        rule = "thermal.derating"
    else:
        rule = "thermal.drift"
        if LAUNCHES in slower:
            rule = "thermal.host"
    evidence: dict[str, Evidence] = {"derating": of_calls.value}
    for subject, loss in losses.items():
        if subject != WORKLOAD:
            evidence[f"thermal.derating {subject}"] = loss.value
    outcome.above(rule, of_calls.low, evidence)


def judge_throttling(outcome: StepOutcome) -> None:
    """Judge the share of time below the rated clock, if the clock is known."""
    numbers = {value.metric: value.value for value in outcome.values}
    throttled = numbers.get("thermal.throttled")
    if throttled is not None:
        evidence = {
            metric: numbers.get(metric)
            for metric in ("thermal.clock", "thermal.temperature")
        }
        outcome.above("thermal.throttled", throttled, evidence)


def soak(
    call: Call,
    device: Device,
    *,
    items: int,
    seconds: float,
    slice_seconds: float = _SLICE_SECONDS,
) -> Soak:
    """Make calls without a pause for ``seconds``, and at least two slices."""
    calls = 0

    def counted() -> Any:
        nonlocal calls
        calls += 1
        return call()

    canaries = _canaries(device)
    before, began = run_times(), device.clock_ns()
    slices: list[Slice] = []
    while len(slices) < 2 or (slices[-1].ended_ns - began) / 1e9 < seconds:
        rates = {WORKLOAD: _rate(counted, device, items, slice_seconds)}
        for subject, canary in canaries.items():
            rates[subject] = _canary_rate(canary, device)
        slices.append(Slice(device.clock_ns(), rates))
    after = run_times()
    waited = None
    if before and after:
        waited = before.waited_share(after)
    return Soak(began, tuple(slices), calls, waited)


def derating(
    soaked: Soak, first_seconds: float, last_seconds: float, *, of: str = WORKLOAD
) -> SampleEstimate:
    """The relative loss of speed from the first part to the last, over their slices."""
    first_end = soaked.began_ns + first_seconds * 1e9
    last_begin = soaked.ended_ns - last_seconds * 1e9
    early, late = [], []
    for part in soaked.slices:
        # A slice of long calls may be longer than the whole first part.
        if part.ended_ns <= first_end or part is soaked.slices[0]:
            early.append(part.rates[of])
        if part.ended_ns > last_begin:
            late.append(part.rates[of])
    moved = shift(np.log(early), np.log(late))
    return SampleEstimate(
        1.0 - math.exp(moved.value), _loss(moved.high), _loss(moved.low), moved.size
    )


def _loss(log_gain: float | None) -> float | None:
    return None if log_gain is None else 1.0 - math.exp(log_gain)


def _rate(call: Call, device: Device, items: int, seconds: float) -> float:
    """Items per second of one slice; on the host, per second of the process's CPU time.

    Other processes cost wall time but not CPU time; a lower clock costs both.
    """
    cpu_before = device.process_cpu_ns()
    (rate,), calls = measure_throughput(
        call, device, items=items, window_seconds=seconds, windows=1
    )
    if "queue" in device.capabilities:
        return float(rate)
    return items * calls / (max(device.process_cpu_ns() - cpu_before, 1) / 1e9)


def _canary_rate(canary: Call, device: Device) -> float:
    clock = device.clock_ns if "queue" in device.capabilities else device.process_cpu_ns
    times = []
    for _ in range(_CANARIES):
        started = clock()
        canary()
        device.synchronize()
        times.append(clock() - started)
    return 1e9 / max(float(min(times)), 1.0)


def _canaries(device: Device) -> dict[str, Call]:
    """Fixed work on the device and on its host, the same on every machine; none if
    torch has no such device.
    """
    import torch

    handle = device.handle()
    if not isinstance(handle, torch.device):
        return {}
    size = 256
    if "own_memory" in device.capabilities:
        size = 2048
    # Fixed numbers, because the state of the random generator belongs to the workload.
    matrix = (
        torch.arange(size * size, dtype=torch.float32).reshape(size, size) % 7
    ).to(handle)
    product, single = torch.empty_like(matrix), matrix[0, :1].clone()

    def multiply() -> None:
        with device.inference_mode():
            torch.mm(matrix, matrix, out=product)

    def launch() -> None:
        with device.inference_mode():
            for _ in range(_LAUNCHES):
                single.add_(single)

    canaries: dict[str, Call] = {CANARY: multiply}
    if "queue" in device.capabilities:
        canaries[LAUNCHES] = launch
    for canary in canaries.values():
        for _ in range(_CANARIES):
            canary()
    device.synchronize()
    return canaries
