"""Look at what the workload returns: a faster wrong model must never pass."""

from __future__ import annotations

from perfgate.document.run import CorrectnessResult
from perfgate.measuring.devices.device import Device
from perfgate.measuring.worker.outputs import signature, stale_output
from perfgate.measuring.worker.timed import differs_when_timed, last_of_block
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.refusal import MAX_MESSAGE, refusal, words_of


def check_outputs(workload: BoundWorkload, device: Device) -> list[CorrectnessResult]:
    """Call every shape: hand output and inputs, both on the host, to the workload's check, if it has one.

    With or without a check the signature of the output is taken, and an output fails that does not follow its input, or is
    another one when the call is timed.
    """
    return [_check_shape(workload, device, shape) for shape in workload.shapes]


def _check_shape(workload: BoundWorkload, device: Device, shape: str) -> CorrectnessResult:
    unchecked = workload.workload.check is None
    try:
        inputs = workload.host_inputs(shape)
        output = device.to_host(workload.invoke(device.to_device(inputs)))
        device.synchronize()
        form = signature(output)
        wrong = (
            refusal(workload, output, inputs)
            or stale_output(workload, device, shape)
            or _wrong_when_timed(workload, device, shape)
        )
    except Exception as error:  # noqa: BLE001 - a shape that cannot be called says nothing about the others
        if unchecked:  # nothing was asked of the output, and the steps report a call that fails
            return CorrectnessResult(workload=workload.name, shape=shape, status="not_checked")
        return CorrectnessResult(workload=workload.name, shape=shape, status="error", message=words_of(error))
    return CorrectnessResult(
        workload=workload.name,
        shape=shape,
        status="failed" if wrong else "not_checked" if unchecked else "passed",
        message=wrong,
        signature=form,
    )


def _wrong_when_timed(workload: BoundWorkload, device: Device, shape: str) -> str | None:
    timed = last_of_block(workload, device, shape)
    if timed is None:
        return None
    refused = refusal(workload, timed.output, device.to_host(timed.inputs))
    return f"in a timed block: {refused}"[:MAX_MESSAGE] if refused else differs_when_timed(workload, device, timed)
