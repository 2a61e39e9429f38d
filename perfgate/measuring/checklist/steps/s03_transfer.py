"""Step 3: the share of an end-to-end call spent copying between host and device, and
how much of it can be hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Evidence
from perfgate.measuring.checklist.experiment import outcome_of, own_call
from perfgate.measuring.checklist.recorded import (
    add_rate,
    busy_window,
    device_times_missing,
    or_absent,
    profiled,
)
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
)
from perfgate.measuring.devices.batches import bytes_of, tensors
from perfgate.measuring.devices.device import Call, Device, DeviceEvent
from perfgate.measuring.timing.calls import (
    CallBudget,
    find_steady_state,
    time_calls,
    time_in_rounds,
)
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.stats.arrays import Floats
from perfgate.system.garbage import quiet
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import TimeSpan
from perfgate.trace.model.readings import DIRECTIONS, link_traffic

# Bytes of a number in half precision.
_HALF = 2
_CALLS_PER_ROUND = 5
_MARKED_CALLS = 20
_ON_DEVICE = "device"
_PLAIN = "pageable"
_PREFETCH = "prefetch"
_FASTER_MODES = ("pinned", _PREFETCH)
_MODES = (_PLAIN, *_FASTER_MODES)
_EXPOSED = "transfer.exposed_share"


class TransferStep:
    """The same call in four ways, interleaved: on inputs already on the device, and
    copied in three ways.
    """

    card = card(3)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable to a device without its own memory."""
        if "own_memory" not in context.device.capabilities:
            return not_applicable(Message("times.host-memory"))
        with quiet():
            own_call(context, context.workload.shapes[0])
            # The workload itself uses neither pinned memory nor a second stream, so
            # their failure is not its error.
            return outcome_of(
                context, partial(_measure, context), failing="times.copying-fails"
            )

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """A recording shows only the copies that no kernel hides; the cost of copying
        takes a call without it.
        """
        outcome = context.outcome()
        for summary in context.summaries:
            _add_traffic(outcome.under(shape=summary.shape), summary)
            parts = summary.parts()
            reason = Message("times.no-device-timeline")
            if summary.on_host or parts is None:
                reason = device_times_missing(summary)
            elif parts.exposed_copies_ns is not None:
                share = parts.exposed_copies_ns / parts.length_ns
                outcome.under(**profiled(summary)).number(
                    _EXPOSED, share, count=summary.spans
                )
                continue
            outcome.under(shape=summary.shape).missing(_EXPOSED, reason)
        return or_absent(outcome)


STEP = TransferStep()


def _add_traffic(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Add the bytes a second between host and device in the steps, by the device's own
    counters.
    """
    window = busy_window(summary)
    if window is None:
        return
    for direction in DIRECTIONS:
        if (
            rates := summary.timeline.readings.get(link_traffic("PCIe", direction))
        ) is not None:
            add_rate(
                outcome.under(direction=direction),
                "transfer.link_traffic",
                rates,
                window,
            )


def _measure(context: StepContext) -> StepOutcome:
    shape = context.workload.shapes[0]
    context.doing("copying inputs of shape {shape}", shape=shape)
    transfers = _Transfers(context.workload, shape)
    times, outcome = _times_of_ways(context, transfers), context.outcome()
    of_shape = outcome.under(shape=shape)
    medians: dict[str, float] = {}
    for mode in _MODES:
        # (end-to-end - device-only) / end-to-end.
        share = 1.0 - times[_ON_DEVICE] / times[mode]
        of_shape.under(mode=mode).median("transfer.share", share)
        medians[mode] = float(np.median(share))
    speedups: dict[str, float] = {}
    evidence: dict[str, Evidence] = {}
    for mode in _FASTER_MODES:
        speedup = times[_PLAIN] / times[mode]
        of_shape.under(of=mode).median("transfer.speedup", speedup)
        speedups[mode] = float(np.median(speedup))
        evidence[f"transfer.share {mode}"] = medians[mode]
    for mode in _MODES:
        _add_copies(of_shape.under(mode=mode), context.device, transfers, mode)
    # Plain copying is judged: code copies so by default. The gain of the other ways is
    # evidence.
    evidence["of"] = max(speedups, key=speedups.__getitem__)
    if outcome.above("transfer.share", medians[_PLAIN], evidence):
        output_bytes = context.device.bytes_of(transfers.calls[_ON_DEVICE]())
        judge_inputs(outcome, transfers.hosts[0], output_bytes, medians[_PLAIN])
    return outcome


def judge_inputs(
    outcome: StepOutcome, inputs: Any, output_bytes: int, share: float
) -> None:
    """Note if most of the copied bytes are full-precision inputs; copying takes a
    ``share`` of the call.
    """
    wide = [
        tensor
        for tensor in tensors(inputs)
        if tensor.is_floating_point() and tensor.element_size() > _HALF
    ]
    size, copied = bytes_of(wide), bytes_of(inputs) + output_bytes
    if not size or size < copied / 2:
        return
    largest = max(wide, key=bytes_of)
    superfluous = sum(
        bytes_of(tensor) * (1 - _HALF / tensor.element_size()) for tensor in wide
    )
    outcome.note(
        "transfer.full_precision",
        "info",
        {
            "size": size,
            "dtype": str(largest.dtype).removeprefix("torch."),
            "saved": share * superfluous / copied,
        },
    )


def _times_of_ways(context: StepContext, transfers: _Transfers) -> dict[str, Floats]:
    """The nanoseconds of a call, on inputs that are on the device and for each way of
    copying, one number per round.

    A round takes the medians of calls.
    """
    most_rounds, seconds, warm_up_seconds = (
        (10, 3.0, 1.0) if context.extent.quick else (40, 20.0, 10.0)
    )
    device = context.device
    find_steady_state(transfers.calls[_ON_DEVICE], device, cap_seconds=warm_up_seconds)

    def median_ns(call: Call) -> float:
        call()
        device.synchronize()
        times = time_calls(call, device, CallBudget(_CALLS_PER_ROUND))
        return float(np.median(times.wall))

    return time_in_rounds(
        {way: partial(median_ns, call) for way, call in transfers.calls.items()},
        device,
        seconds=seconds,
        seed=context.seed,
        # The fewest rounds that bound the median with 95 % confidence by order
        # statistics.
        fewest=6,
        most=most_rounds,
    )


class _Transfers:
    """Makes end-to-end calls on a pool of host batches created beforehand: creating
    them is not part of the transfer.
    """

    def __init__(self, workload: BoundWorkload, shape: str) -> None:
        self._workload = workload
        self._device = device = workload.device
        self.hosts = [
            workload.host_inputs(shape, index=index) for index in range(POOL_SIZE)
        ]
        self._pinned = [device.pin(host) for host in self.hosts]
        self._next = device.to_device(self._pinned[0], non_blocking=True)
        self._cursor = 0
        self.input_bytes = device.bytes_of(self.hosts[0])
        self.calls: dict[str, Call] = {_ON_DEVICE: workload.caller(shape)}
        for mode in _MODES:
            self.calls[mode] = partial(self.end_to_end, mode, _Marks(device))

    def end_to_end(self, mode: str, marks: _Marks) -> Any:
        """Bring an input over, call, bring the output back.

        With ``prefetch`` the next input travels meanwhile.
        """
        self._cursor = (self._cursor + 1) % POOL_SIZE
        inputs = self._next if mode == _PREFETCH else self._upload(mode, marks)
        with marks.around("compute"):
            output = self._workload.invoke(inputs)
        if mode == _PREFETCH:
            with self._device.copy_stream():
                self._next = self._upload(mode, marks)
        with marks.around("down"):
            self._device.to_host(output)
        return output

    def _upload(self, mode: str, marks: _Marks) -> Any:
        with marks.around("up"):
            if mode == _PLAIN:
                return self._device.to_device(self.hosts[self._cursor])
            return self._device.to_device(self._pinned[self._cursor], non_blocking=True)


class _Marks:
    """Pairs of events around the copies and the compute of one call, if it is
    ``marked``.
    """

    def __init__(self, device: Device, *, marked: bool = False) -> None:
        self._device = device
        self._marked = marked
        self._pairs: list[tuple[str, DeviceEvent, DeviceEvent]] = []

    def around(self, kind: str) -> AbstractContextManager[None]:
        """Mark the work queued in the context, in its current stream."""
        return self._pair(kind) if self._marked else nullcontext()

    @contextmanager
    def _pair(self, kind: str) -> Iterator[None]:
        before, after = self._device.event(), self._device.event()
        self._pairs.append((kind, before, after))
        before.record()
        yield
        after.record()

    def spans(self, kind: str) -> list[TimeSpan]:
        """By the device's clock. Valid after a synchronisation."""
        spans = []
        for name, before, after in self._pairs:
            if name == kind:
                spans.append(TimeSpan(before.time_ns(), after.time_ns()))
        return spans


def _add_copies(
    outcome: StepOutcome, device: Device, transfers: _Transfers, mode: str
) -> None:
    """Make calls with events around copies and compute; not in the timed calls, because
    events slow calls down.

    Compute is the time from the first kernel of a call to its last, gaps included.
    """
    exposed_shares: list[float] = []
    up_ns: list[int] = []
    down_ns: list[int] = []
    output_bytes = 0
    for _ in range(_MARKED_CALLS):
        marks = _Marks(device, marked=True)
        started = device.clock_ns()
        output = transfers.end_to_end(mode, marks)
        device.synchronize()
        wall_ns = device.clock_ns() - started
        output_bytes = device.bytes_of(output)
        up = marks.spans("up")
        down = marks.spans("down")
        compute = marks.spans("compute")
        exposed_shares.append(
            sum(_outside(span, compute) for span in up + down) / wall_ns
        )
        up_ns.append(sum(span.length for span in up))
        down_ns.append(sum(span.length for span in down))
    outcome.number(_EXPOSED, float(np.median(exposed_shares)), count=_MARKED_CALLS)
    for metric, size, times_ns in (
        ("transfer.h2d_bandwidth", transfers.input_bytes, up_ns),
        ("transfer.d2h_bandwidth", output_bytes, down_ns),
    ):
        time_ns = float(np.median(times_ns))
        if size == 0 or time_ns <= 0:
            outcome.missing(metric, Message("times.nothing-copied"))
        else:
            outcome.number(metric, size / time_ns * 1e9, count=len(times_ns))


def _outside(span: TimeSpan, computes: list[TimeSpan]) -> int:
    """The length of a span outside the computes, which do not overlap each other."""
    inside = sum(
        max(0, min(span.end, compute.end) - max(span.start, compute.start))
        for compute in computes
    )
    return span.length - inside
