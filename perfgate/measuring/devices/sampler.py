"""Read a device's heat, clock and power while another process is measured: the process
that ``perfgate.sampling`` starts.

``sampler npu:1`` reads all of its sensors about once a second.
``sampler npu:1 --watch`` sends single queries in quick succession, so that each answer
covers a short time; ``--watch GPU-…`` names the device independently of the order of
devices. One line of JSON a reading on standard output, until standard input is closed;
torch is never imported.
"""

from __future__ import annotations

import itertools
import select
import sys
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter_ns

import msgspec

from perfgate.document.message import reason_of
from perfgate.document.telemetry import Sensor, TelemetryReading
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import open_sensor, open_watch
from perfgate.sampling import SampledLine

PERIOD_SECONDS = 1.0
WATCH_PAUSE_SECONDS = 0.1
# A clock may fall at any moment; another process stays for a while.
STATES_PER_PROCESSES = 3


def main(arguments: list[str]) -> int:
    device = arguments[0]
    watch = arguments[1:2] == ["--watch"]
    identity = "".join(arguments[2:3])
    sensors: Iterator[Sensor]
    try:
        if watch:
            opened = open_watch(device, Host(), identity)
            sensors = itertools.cycle(
                [opened.processes, *[opened.state] * STATES_PER_PROCESSES]
            )
        else:
            sensors = itertools.repeat(open_sensor(device, Host()))
    except MeasuringError as error:
        _print(SampledLine(failure=reason_of(error)))
        return MeasuringError.exit_code
    for read in sensors:
        began = perf_counter_ns()
        with suppress(MeasuringError):  # one answer that did not come; the next may
            telemetry = read()
            _print(
                SampledLine(
                    reading=TelemetryReading(
                        began_ns=began, ended_ns=perf_counter_ns(), telemetry=telemetry
                    )
                )
            )
        seconds = (perf_counter_ns() - began) / 1e9
        pause = WATCH_PAUSE_SECONDS if watch else max(0.0, PERIOD_SECONDS - seconds)
        if select.select([sys.stdin], [], [], pause)[
            0
        ]:  # the other end of standard input was closed
            break
    return 0


def _print(line: SampledLine) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
