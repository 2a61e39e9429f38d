"""Step 2: the share of time in which the device works, and its idle time per call."""

from __future__ import annotations

import statistics

import msgspec

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.graph_head import exposed_head_ns
from perfgate.measuring.checklist.recorded import (
    busy_window,
    device_times_missing,
    or_absent,
    profiled,
    waiting_shares,
)
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.traces import steady_calls
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.devices.card import read_under_load
from perfgate.measuring.devices.device import Call, Device
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary, StepTotals
from perfgate.trace.model.arithmetic import union_length
from perfgate.trace.model.readings import ACCELERATOR_TRAFFIC, Readings

_TIMELINE_METRICS = ("utilization.busy", "utilization.gap")
_FEWEST_CALLS = 20
# A workload of minutes per call gets fewer than twenty rather than an hour.
_LONGEST_NS = 2_000_000_000
_FEWEST_LONG_CALLS = 3
# The driver's utilization covers about the last second, and npu-smi takes about a
# second to read it.
_REPORTED_SECONDS = 5.0
_FEWEST_READINGS = 2


class UtilizationStep:
    """Kernel time from a trace over wall time from a run without it: the profiler
    stretches gaps, not kernels.
    """

    card = card(2)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure every shape. Without a kernel timeline only the host's own
        utilization is known.
        """
        outcome = context.outcome()
        with quiet():
            for shape in context.workload.shapes:
                context.doing("utilization with inputs of shape {shape}", shape=shape)
                _measure_shape(outcome.under(shape=shape), context, shape)
        return outcome

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        outcome = context.outcome()
        for summary, waiting in zip(
            context.summaries, waiting_shares(context.summaries)
        ):
            _add_accelerators(outcome.under(shape=summary.shape), summary)
            parts = summary.parts()
            if parts is None:
                outcome.under(shape=summary.shape).missing(
                    _TIMELINE_METRICS, device_times_missing(summary)
                )
                continue
            kernels_ns = (
                parts.computing_ns + parts.fused_ns + parts.exposed_communication_ns
            )
            numbers = {
                "utilization.busy": kernels_ns / parts.length_ns,
                "utilization.computing": parts.computing_ns / parts.length_ns,
                "utilization.free": parts.free_ns / parts.length_ns,
                "utilization.gap": (parts.length_ns - kernels_ns) / summary.spans / 1e9,
            }
            rank = outcome.under(**profiled(summary))
            rank.numbers(numbers, count=summary.spans)
            head_ns = exposed_head_ns(summary, context.settings.graph_spans)
            _judge_parts(rank, parts, head_ns, waiting)
        return or_absent(outcome)


STEP = UtilizationStep()


def _add_accelerators(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Add the share of readings in which an accelerator other than the AI cores read or
    wrote; its levels have no unit.
    """
    window, levels = busy_window(summary), dict[str, list[Readings]]()
    if window is None:
        return
    for name, readings in summary.timeline.readings.items():
        if traffic := ACCELERATOR_TRAFFIC.fullmatch(name):
            levels.setdefault(traffic[1], []).append(readings)
    for number, both in levels.items():
        moving = Readings.total(both).within(*window) > 0
        if moving.size:
            of_accelerator = outcome.under(accelerator=number)
            of_accelerator.number(
                "utilization.accelerator", float(moving.mean()), count=moving.size
            )


def _measure_shape(outcome: StepOutcome, context: StepContext, shape: str) -> None:
    call = context.workload.caller(shape)
    state = context.warm_up(shape, quick=1.0, full=10.0)
    calls = _FEWEST_LONG_CALLS
    if state.call_ns <= _LONGEST_NS:
        most = 100
        if context.extent.quick:
            most = _FEWEST_CALLS
        calls = calls_within(
            state.call_ns, seconds=2.0, fewest=_FEWEST_CALLS, most=most
        )
    wall_ns, cpu_ns = _time_back_to_back(call, context.device, calls=calls)
    host = cpu_ns / (wall_ns * context.settings.threads)
    if not context.shows_kernels:
        outcome.missing(_TIMELINE_METRICS, Message("times.no-own-timeline"))
        outcome.number("utilization.host", host, count=calls)
        # Other processes use the CPUs too, so a low share is not the workload's fault
        # alone.
        outcome.below("utilization.host", host)
        return
    if not context.extent.quick:
        _add_reported(outcome, context, call)
    trace = steady_calls(context, shape)
    busy_ns = union_length(trace.kernels().intervals) / trace.calls * calls
    # Kernels of the traced run may take slightly longer than in the plain run; a share
    # ends at 1.
    busy = min(busy_ns / wall_ns, 1.0)
    gap = max(wall_ns - busy_ns, 0) / calls / 1e9
    outcome.numbers(
        {"utilization.busy": busy, "utilization.gap": gap, "utilization.host": host},
        count=calls,
    )
    outcome.below("utilization.busy", busy, {"free": 1 - busy})


def _time_back_to_back(call: Call, device: Device, *, calls: int) -> tuple[int, int]:
    """The time of calls without a profiler by the timer, and the CPU time of the whole
    process; waits once, at the end.
    """
    device.synchronize()
    cpu_started, started = device.process_cpu_ns(), device.timer_ns()
    for _ in range(calls):
        call()
    device.synchronize()
    # A coarse clock may not have moved, and the time is a divisor.
    return max(device.timer_ns() - started, 1), device.process_cpu_ns() - cpu_started


def _add_reported(outcome: StepOutcome, context: StepContext, call: Call) -> None:
    """Add the driver's own utilization during calls without a profiler: npu-smi shows 0
    % while one runs.
    """

    def load() -> None:
        call()
        context.device.synchronize()

    readings = read_under_load(context.device.telemetry, load, _REPORTED_SECONDS)
    shares = [
        reading.utilization for reading in readings if reading.utilization is not None
    ]
    if len(shares) < _FEWEST_READINGS:
        reason = Message(
            "times.utilization-readings",
            {"count": len(shares), "seconds": _REPORTED_SECONDS},
        )
        outcome.missing("utilization.reported", reason)
    else:
        outcome.number(
            "utilization.reported", statistics.median(shares), count=len(shares)
        )


def _judge_parts(
    outcome: StepOutcome, parts: StepTotals, head_ns: float, waiting: float | None
) -> None:
    """Judge the share of the steps in which kernels ran; the largest other part decides
    the rule of the finding.

    The exposed ``head_ns`` of compiled calls lies before the first kernel of a step,
    and what is more of it between kernels. ``waiting`` is the share of the time in
    collectives that a rank only waits for others.
    """
    head_of_step_ns = min(head_ns, parts.preparing_ns)
    later_head_ns = min(head_ns - head_of_step_ns, parts.free_ns)
    rule, name, rest_ns = max(
        (
            "utilization.communication",
            "exposed communication",
            parts.exposed_communication_ns,
        ),
        ("utilization.copies", "exposed copies", parts.exposed_copies_ns or 0),
        ("utilization.graph_head", "graph head", head_of_step_ns + later_head_ns),
        ("utilization.preparing", "preparing", parts.preparing_ns - head_of_step_ns),
        ("utilization.busy", "free", parts.free_ns - later_head_ns),
        key=lambda rest: rest[2],
    )
    busy = (
        parts.computing_ns + parts.fused_ns + parts.exposed_communication_ns
    ) / parts.length_ns
    if outcome.below(
        "utilization.busy",
        busy,
        {
            "computing": parts.computing_ns / parts.length_ns,
            name: rest_ns / parts.length_ns,
            "waiting": waiting if rule == "utilization.communication" else None,
        },
    ):
        outcome.findings[-1] = msgspec.structs.replace(outcome.findings[-1], rule=rule)
