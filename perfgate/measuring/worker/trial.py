"""One call of every shape and its check, before anything is measured: what a workload that is set up wrong fails at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from perfgate.errors import WorkloadError
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import BoundWorkload, answered_no, line_of


class FailedTrial(NamedTuple):
    """What failed first."""

    part: Literal["call", "check"]
    shape: str
    error: BaseException


def try_calls(workload: BoundWorkload, device: Device, root: Path) -> FailedTrial | None:
    """Call every shape once and have the output checked, until something fails."""
    for shape in workload.shapes:
        part: Literal["call", "check"] = "call"
        try:
            inputs = workload.host_inputs(shape)
            output = device.to_host(workload.invoke(device.to_device(inputs)))
            device.synchronize()
            part = "check"
            if refused := answered_no(workload, output, inputs):
                place = line_of(workload.workload.check, root) if workload.workload.check else None
                raise WorkloadError(f"{refused} (at {place})" if place else refused)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything, SystemExit included
            return FailedTrial(part, shape, error)
    return None
