"""Read a device's heat, clock and power about once a second, from a process of its own, while another is measured.

``python -m perfgate.measuring.devices.sampler npu:1`` is that process: without torch, one line of JSON a reading on standard
output, until its standard input is closed. Whoever started it may be killed; it then ends by itself.
"""

from __future__ import annotations

import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns, sleep
from typing import IO, Optional

import msgspec

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import open_sensor, sensor_kinds
from perfgate.measuring.devices.telemetry import Telemetry

PERIOD_SECONDS = 1.0
# npu-smi takes up to three seconds on a machine with eight cards.
_FIRST_SECONDS = 5.0
_END_SECONDS = 2.0
_POLL_SECONDS = 0.02


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a sensor said to a question that was asked at ``began_ns`` and answered at ``ended_ns``.

    The clock is that of ``Device.clock_ns``: on Linux all processes share it (CLOCK_MONOTONIC).
    """

    began_ns: int
    ended_ns: int
    telemetry: Telemetry


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the process: a reading, or why there are none."""

    reading: Optional[Reading] = None
    failure: Optional[str] = None


class Sampler:
    """Readings of a process that runs beside this one."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output

    def readings(self) -> list[Reading]:
        """Return what was read so far, in order."""
        return [line.reading for line in self._lines() if line.reading is not None]

    def failure(self) -> Optional[str]:
        """Return why nothing can be read, None where something can or nothing is known yet."""
        return next((line.failure for line in self._lines() if line.failure is not None), None)

    def _lines(self) -> list[_Line]:
        self._output.seek(0)
        complete = self._output.read().split(b"\n")[:-1]
        return [msgspec.json.decode(line, type=_Line) for line in complete]


@contextmanager
def sampling(kind: str, index: int, *, folder: Path) -> Iterator[Sampler]:
    """Start the process for ``kind:index`` and wait for its first line; it ends with the context.

    ``folder`` takes a file without a name. Raises MeasuringError where the device has no sensor, or none that answers.
    """
    if kind not in sensor_kinds():
        raise MeasuringError(f"nothing tells the temperature, clock or power of a {kind} device")
    with tempfile.TemporaryFile(dir=folder) as output:
        command = [sys.executable, "-m", __name__, f"{kind}:{index}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL)
        try:
            sampler = Sampler(output)
            _wait_for_first(sampler, process)
            yield sampler
        finally:
            _end(process)


def _wait_for_first(sampler: Sampler, process: subprocess.Popen[bytes]) -> None:
    latest = perf_counter_ns() + int(_FIRST_SECONDS * 1e9)
    while not sampler.readings():
        ended = process.poll() is not None
        if failure := sampler.failure():
            raise MeasuringError(failure)
        if ended or perf_counter_ns() > latest:
            why = f"ended with exit status {process.returncode}" if ended else f"said nothing for {_FIRST_SECONDS:g} s"
            raise MeasuringError(f"the process that reads temperature, clock and power {why}")
        sleep(_POLL_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        # A vendor's tool that does not answer; it has its own time limit.
        process.kill()
        process.wait()


def main(arguments: list[str]) -> int:
    """Print readings until standard input is closed; return the exit code."""
    try:
        read = open_sensor(arguments[0], Host())
    except MeasuringError as error:
        _print(_Line(failure=str(error)))
        return MeasuringError.exit_code
    ended = False
    while not ended:
        began = perf_counter_ns()
        try:
            telemetry: Optional[Telemetry] = read()
        except MeasuringError:
            telemetry = None  # one answer that did not come; the next may
        now = perf_counter_ns()
        if telemetry is not None:
            _print(_Line(reading=Reading(began_ns=began, ended_ns=now, telemetry=telemetry)))
        ended = _closed_within(max(0.0, PERIOD_SECONDS - (now - began) / 1e9))
    return 0


def _print(line: _Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _closed_within(seconds: float) -> bool:
    """Wait so long; return whether the other end of standard input was closed meanwhile."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
