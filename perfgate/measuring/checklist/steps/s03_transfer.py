"""Step 3: how much of an end-to-end call is copying between host and device, and how much of it can be hidden."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import above
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._transfers import DEVICE_ONLY, MODES, PLAIN, Marked, Transfers, mark_calls
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.calls import CallBudget, time_calls
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.timing.steady import find_steady_state
from perfgate.stats.summary import CONFIDENCE, quantile

_CALLS_PER_ROUND = 5
_MARKED_CALLS = 20
# Six rounds are the fewest whose order statistics hold the median with 95 % confidence.
_FEWEST_ROUNDS = 6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Effort:
    rounds: int
    seconds: float
    warm_up_seconds: float


_QUICK = _Effort(rounds=10, seconds=3.0, warm_up_seconds=1.0)
_FULL = _Effort(rounds=40, seconds=20.0, warm_up_seconds=10.0)


class TransferStep:
    """The same call made in four ways, interleaved: on inputs that are there already, and copied in three ways."""

    card = card(3)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable where the device has no memory of its own."""
        if "own_memory" not in context.device.capabilities:
            reason = "the device works in host memory: there is nothing to copy"
            return StepOutcome(status="not_applicable", reason=reason)
        shape = context.workload.shapes[0]
        with quiet():
            context.progress(f"copying inputs of shape {shape}")
            transfers = Transfers(context.workload, context.device, shape)
            shares = _shares(context, transfers)
            marked = {mode: mark_calls(context.device, transfers, mode, calls=_MARKED_CALLS) for mode in MODES}
        findings = _judge(context, {mode: float(np.median(share)) for mode, share in shares.items()})
        values = [_share_value(mode, share, shape) for mode, share in shares.items()]
        for mode, calls_of_mode in marked.items():
            values += _copy_values(calls_of_mode, {"shape": shape, "mode": mode})
        return StepOutcome(status=status_of(findings), values=values, findings=findings)


def _shares(context: StepContext, transfers: Transfers) -> dict[str, Floats]:
    """Return for each way of copying its share of the end-to-end time, one number per round.

    (end-to-end - device-only) / end-to-end, of medians of calls made in the same round in random order: what the
    machine does meanwhile hits all ways alike.
    """
    effort = _QUICK if context.quick else _FULL
    chance = random.Random(context.seed)
    find_steady_state(transfers.calls[DEVICE_ONLY], context.device, cap_seconds=effort.warm_up_seconds)
    latest = context.device.clock_ns() + int(effort.seconds * 1e9)
    rounds: list[dict[str, float]] = []
    while len(rounds) < effort.rounds and (len(rounds) < _FEWEST_ROUNDS or context.device.clock_ns() < latest):
        order = chance.sample(list(transfers.calls), len(transfers.calls))
        rounds.append({mode: _median_ns(transfers.calls[mode], context.device) for mode in order})
    only = np.asarray([times[DEVICE_ONLY] for times in rounds])
    return {mode: 1.0 - only / np.asarray([times[mode] for times in rounds]) for mode in MODES}


def _median_ns(call: Callable[[], Any], device: Device) -> float:
    call()
    device.synchronize()
    return float(np.median(time_calls(call, device, CallBudget(_CALLS_PER_ROUND)).wall))


def _share_value(mode: str, share: Floats, shape: str) -> Value:
    found = quantile(share, 0.5)
    return Value(
        metric="transfer.share",
        value=float(np.median(share)),
        interval=found.interval,
        confidence=CONFIDENCE,
        count=found.size,
        labels={"shape": shape, "mode": mode},
    )


def _copy_values(marked: Marked, labels: dict[str, str]) -> list[Value]:
    calls = marked.calls
    exposed = float(np.median([call.exposed / call.wall for call in calls]))
    return [
        Value(metric="transfer.exposed_share", value=exposed, count=len(calls), labels=labels),
        _bandwidth("transfer.h2d_bandwidth", marked.input_bytes, [call.up for call in calls], labels),
        _bandwidth("transfer.d2h_bandwidth", marked.output_bytes, [call.down for call in calls], labels),
    ]


def _bandwidth(metric: str, size: int, times_ns: list[int], labels: dict[str, str]) -> Value:
    time_ns = float(np.median(times_ns))
    if size == 0 or time_ns <= 0:
        return Value(metric=metric, value=None, reason="nothing was copied", labels=labels)
    return Value(metric=metric, value=size / time_ns * 1e9, count=len(times_ns), labels=labels)


def _judge(context: StepContext, shares: dict[str, float]) -> list[Finding]:
    """Judge plain copying: it is what code does that takes no care; what care would gain stands in the evidence."""
    evidence = {f"transfer.share {mode}": share for mode, share in shares.items() if mode != PLAIN}
    return above("transfer.share", shares[PLAIN], given=context.limits, evidence=evidence)


STEP = TransferStep()
