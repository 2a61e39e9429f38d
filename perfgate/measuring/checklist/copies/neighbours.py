"""Other processes that worked while copies ran: on a device as its sensor names them, on a CPU by the kernel's accounting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import monitored_kinds, open_sensor
from perfgate.system.processes import cpu_seconds, name_of

# Mean share of one CPU; less does not disturb.
_AT_WORK = 0.05
_MOST = 5


@contextmanager
def neighbours(device: Device) -> Iterator[list[str]]:
    """A list that is filled at the end, the busiest process first; empty if there was none or none is visible."""
    found: list[str] = []
    before, began = cpu_seconds(), time.monotonic()
    yield found
    elapsed, after = time.monotonic() - began, cpu_seconds()
    # Processes started meanwhile may be copies of ours.
    shares = {pid: (after[pid] - before[pid]) / elapsed for pid in before.keys() & after.keys() - {os.getpid()}}
    found += _on_device(device)
    found += [
        f"{name_of(pid)} ({shares[pid]:.2f} CPUs)"
        for pid in sorted(shares, key=lambda pid: -shares[pid])[:_MOST]
        if shares[pid] > _AT_WORK
    ]


def _on_device(device: Device) -> list[str]:
    if device.kind == "cpu" or device.kind not in monitored_kinds():
        return []
    try:
        telemetry = open_sensor(f"{device.kind}:{device.index}", Host())()
    except MeasuringError:
        return []
    others = [one for one in telemetry.foreign_processes or () if one.pid != os.getpid()]
    return [f"{one.name or name_of(one.pid) or one.pid} (on the device)" for one in others[:_MOST]]
