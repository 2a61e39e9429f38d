"""Whether a call returns in a timed block what it returns outside one: who does less work when measured is not faster."""

from __future__ import annotations

from typing import Any, NamedTuple

from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.devices.device import Device
from perfgate.measuring.timing.blocks import FEWEST_CALLS, run_block
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.worker.outputs import agree
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload

# As many as the blocks of a call of 1 ms have; fewer where a call is long.
MOST_CALLS = 20
BLOCK_SECONDS = 0.25
OTHER_OUTPUT = (
    "the last call of a timed block does not return what the same call returns outside one; the code does other work "
    "when it is measured"
)


class TimedOutput(NamedTuple):
    """The output of the last call of a block, on the host, the inputs it was given, and its tensors as they were then."""

    output: Any
    inputs: Any
    tensors: list[Any]


def last_of_block(workload: BoundWorkload, device: Device, shape: str) -> TimedOutput | None:
    """Run a block as those that are timed and return what its last call returned; None where the workload trains."""
    if workload.workload.train_step is not None:
        return None
    pool = workload.pool(shape)
    seconds = timed_call(lambda: workload.invoke(pool[0]), device) / 1e9
    calls = max(FEWEST_CALLS, min(MOST_CALLS, int(BLOCK_SECONDS / max(seconds, 1e-9))))
    last: Any = None
    call_number, last_tensors = 0, list[Any]()

    def call() -> Any:
        nonlocal call_number, last, last_tensors
        output = workload.invoke(pool[call_number % POOL_SIZE])
        if call_number == calls:  # the unrecorded call comes first
            last = device.to_host(output)
            last_tensors = _copies(last, device)
        call_number += 1
        return output

    run_block(call, device, calls=calls)
    return TimedOutput(last, pool[calls % POOL_SIZE], last_tensors)


def differs_when_timed(workload: BoundWorkload, device: Device, timed: TimedOutput) -> str | None:
    """What is wrong where a timed block changes the output; None where nothing is, or it cannot be told.

    It cannot where copies are no tensors, and where the same input does not give the same output each time.
    """

    def untimed() -> list[Any]:
        return _copies(device.to_host(workload.invoke(timed.inputs)), device)

    expected = untimed()
    if not expected or not agree(expected, untimed()) or agree(expected, timed.tensors):
        return None
    # Once more: a model that changes with every call would otherwise look as if timing changed it.
    return OTHER_OUTPUT if agree(expected, untimed()) else None


def _copies(on_host: Any, device: Device) -> list[Any]:
    device.synchronize()
    return [tensor.detach().clone() for tensor in tensors(on_host)]
