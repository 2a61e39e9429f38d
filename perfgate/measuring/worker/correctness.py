"""Run the workload's own check of its output: a faster wrong model must never pass."""

from __future__ import annotations

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
    inputs = workload.host_inputs(shape)
    output = device.to_host(workload.invoke(device.to_device(inputs)))
    device.synchronize()
    try:
        accepted = check(output, inputs)
    except Exception as error:  # noqa: BLE001 - whatever the check raises is its way of saying no
        message = f"{type(error).__name__}: {error}"[:MAX_MESSAGE]
        return CorrectnessResult(workload=workload.name, shape=shape, status="failed", message=message)
    if accepted is False:
        return CorrectnessResult(workload=workload.name, shape=shape, status="failed", message="check returned False")
    return CorrectnessResult(workload=workload.name, shape=shape, status="passed")
