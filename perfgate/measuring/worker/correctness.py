"""Run the workload's own check of its output: a faster wrong model must never pass."""

from __future__ import annotations

import traceback

from perfgate.document.run import CorrectnessResult
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload

MAX_MESSAGE = 500


def check_outputs(workload: BoundWorkload, device: Device) -> list[CorrectnessResult]:
    """Make one call per shape and hand output and inputs, both on the host, to the workload's check."""
    return [_check_shape(workload, device, shape) for shape in workload.shapes]


def _check_shape(workload: BoundWorkload, device: Device, shape: str) -> CorrectnessResult:
    check = workload.workload.check
    if check is None:
        return CorrectnessResult(workload=workload.name, shape=shape, status="not_checked")
    try:
        inputs = workload.host_inputs(shape)
        output = device.to_host(workload.invoke(device.to_device(inputs)))
        device.synchronize()
    except Exception as error:  # noqa: BLE001 - a shape that cannot be called says nothing about the others
        return CorrectnessResult(workload=workload.name, shape=shape, status="error", message=_words(error))
    try:
        accepted = check(output, inputs)
        # Not `is False`: a tensor or numpy bool that says no is a no as well.
        refused = accepted is not None and not accepted
    except Exception as error:  # noqa: BLE001 - whatever the check raises is its way of saying no
        return CorrectnessResult(workload=workload.name, shape=shape, status="failed", message=_words(error))
    if refused:
        message = f"check returned {accepted!r}"[:MAX_MESSAGE]
        return CorrectnessResult(workload=workload.name, shape=shape, status="failed", message=message)
    return CorrectnessResult(workload=workload.name, shape=shape, status="passed")


def _words(error: Exception) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()[:MAX_MESSAGE]
