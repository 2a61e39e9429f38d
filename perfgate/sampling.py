"""Readings of a device during a measurement: started here, taken by a separate process
that never imports torch.

That process is ``python -m perfgate.measuring.devices.sampler``. If the process that
started it is killed, it ends by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns, sleep
from typing import IO

import msgspec

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import TelemetryReading

SAMPLER = "perfgate.measuring.devices.sampler"
# npu-smi takes up to three seconds on a machine with eight cards.
FIRST_SECONDS = 5.0
_END_SECONDS = 2.0
_POLL_SECONDS = 0.02


class SampledLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the process: a reading, or why there are none."""

    reading: TelemetryReading | None = None
    failure: Message | None = None


class Sampler:
    """Readings of a process that runs concurrently."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        self._process = process
        self._output = output

    def readings(self) -> list[TelemetryReading]:
        """The readings so far, in order."""
        return [line.reading for line in self._lines() if line.reading is not None]

    def failure(self) -> Message | None:
        """Why there are no readings, None if there are some or it is not known yet."""
        return next(
            (line.failure for line in self._lines() if line.failure is not None), None
        )

    def end(self) -> None:
        """End the process when the answer it waits for has come, or has not come for a
        while.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # A vendor's tool that does not answer; it has its own time limit.
            self._process.kill()
            self._process.wait()

    def _lines(self) -> list[SampledLine]:
        # The process writes at an offset that both share: to seek here would send its
        # next line elsewhere.
        descriptor = self._output.fileno()
        complete = os.pread(descriptor, os.fstat(descriptor).st_size, 0).split(b"\n")[
            :-1
        ]
        return [msgspec.json.decode(line, type=SampledLine) for line in complete]


@contextmanager
def sampling(
    device: str,
    options: Sequence[str] = (),
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    patience: float = FIRST_SECONDS,
) -> Iterator[Sampler]:
    """Start the process for a device such as ``npu:1`` and wait for its first line; it
    ends with the context.

    ``folder`` takes a file without a name, ``patience`` is in seconds. Raises
    UnmeasuredError if the device has no sensor, or none that answers.
    """
    with tempfile.TemporaryFile(dir=folder) as output:
        process = subprocess.Popen(
            [sys.executable, "-s", "-m", SAMPLER, device, *options],
            cwd="/",  # -m imports from the folder it starts in: never from a checkout
            env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        sampler = Sampler(process, output)
        try:
            _wait_for_first(sampler, process, patience)
            yield sampler
        finally:
            sampler.end()


def _wait_for_first(
    sampler: Sampler, process: subprocess.Popen[bytes], patience: float
) -> None:
    latest = perf_counter_ns() + int(patience * 1e9)
    while not sampler.readings():
        ended = process.poll() is not None
        if failure := sampler.failure():
            raise UnmeasuredError(failure)
        if ended or perf_counter_ns() > latest:
            if ended:
                raise UnmeasuredError(
                    Message("system.sensor-exited", {"status": process.returncode})
                )
            raise UnmeasuredError(
                Message("system.sensor-silent", {"seconds": patience})
            )
        sleep(_POLL_SECONDS)
