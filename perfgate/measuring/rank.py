"""``perfgate.turn()``: how a rank of a training or inference script takes turns with the other side of a comparison.

The conductor listens on the Unix socket that ``PERFGATE_TURN`` names. Lines of JSON go both
ways: a rank begins with ``{"rank", "pid"}``, is granted ``{"steps"}``, reports them when they are done, and waits again.
Only the standard library is imported: the script's environment may lack perfgate's dependencies.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
import time
from typing import Any, NoReturn, SupportsFloat

from perfgate.measuring.operator_recorder import started_profiler
from perfgate.system.turns import MAX_LINE, TURN_VARIABLE

_BACKENDS = ("npu", "cuda")

_rank: _Rank | None = None


def turn(loss: SupportsFloat | None = None, samples: int | None = None) -> None:
    """Mark the end of one step of a loop. Call it once per step, in every rank, at the same place.

    Outside of perfgate it is a no-op. In a check it returns at once within a turn; at the end of a turn it waits for the
    device, reports, and returns when the next turn is granted. When the check is over it ends the process.

    Args:
        loss: A number or a tensor of one element. Base and head must compute equal losses. It is read at the end of a turn, so
            no step waits for the device.
        samples: The number of samples that this rank processed in the step. It must be equal in base and head.

    Example:
        for inputs, labels in loader:
            loss = train_step(inputs, labels)
            turn(loss, samples=len(labels))
    """
    global _rank  # noqa: PLW0603 - a process is one rank
    if _rank is not None:
        _rank.step(loss, samples)
    elif address := os.environ.get(TURN_VARIABLE):
        _rank = _Rank(address)


class _Rank:
    """The connection to the conductor, and the results of the current turn's steps."""

    def __init__(self, address: str) -> None:
        self._number = int(os.environ.get("RANK", "0"))
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connection.connect(address)
        except OSError:
            _end()
        self._lines = self._connection.makefile("rb")
        # Work before the first turn does not count.
        _wait_for_device()
        self._send({"rank": self._number, "pid": os.getpid()})
        self._begin()

    def step(self, loss: SupportsFloat | None, samples: int | None) -> None:
        if loss is not None:
            # A copy: the script may go on writing into this tensor.
            self._losses.append(
                loss.detach().clone() if hasattr(loss, "detach") else loss
            )
        self._samples += samples or 0
        if len(self._ends) + 1 < self._granted:
            self._ends.append(time.perf_counter())
            return
        # Within a turn steps may be launched ahead of the device, as they are without perfgate.
        device = _wait_for_device()
        self._ends.append(time.perf_counter())
        cpu = time.process_time() - self._cpu_began
        # getrusage(2): ru_maxrss is the memory that this process held at most, in KiB.
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if device is not None:
            memory = int(device.max_memory_allocated())
        if self._profile is not None:
            self._profile.__exit__(None, None, None)
            self._profile.export_chrome_trace(self._trace)
        self._send(
            {
                "rank": self._number,
                "steps": [
                    end - begin
                    for begin, end in zip([self._began, *self._ends], self._ends)
                ],
                "cpu": cpu,
                "memory": memory,
                "on_device": device is not None,
                "losses": [float(value).hex() for value in self._losses],
                "samples": self._samples,
                "profiled": self._profile is not None,
            }
        )
        self._begin()

    def _begin(self) -> None:
        """Wait for the next turn and begin it."""
        try:
            line = self._lines.readline(MAX_LINE)
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            _end()
        granted = json.loads(line)
        self._granted = int(granted["steps"])
        self._trace = granted["trace"]
        self._profile = started_profiler(record_shapes=True) if self._trace else None
        self._losses: list[Any] = []
        self._ends: list[float] = []
        self._samples = 0
        self._cpu_began = time.process_time()
        self._began = time.perf_counter()

    def _send(self, message: dict[str, object]) -> None:
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            _end()


def _wait_for_device() -> Any:
    """Wait until the device has done all work of this process; return its torch module, None if none is in use."""
    torch = sys.modules.get("torch")
    for name in _BACKENDS:
        device = getattr(torch, name, None)
        if device is not None and device.is_initialized():
            device.synchronize()
            return device
    return None


def _end() -> NoReturn:
    """Exit at once: the check is over, and Python's exit handlers may wait for other ranks."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(0)
