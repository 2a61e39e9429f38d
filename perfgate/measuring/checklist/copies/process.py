"""``python -m perfgate.measuring.checklist.copies.process FD NANOSECONDS PARENT``: a
copy in a separate process.

It ends when the other end of its socket is closed, and with the process that started
it.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from perfgate import protocol
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.timing.blocks import run_block
from perfgate.measuring.timing.calls import (
    CallBudget,
    find_steady_state,
    time_calls,
    timed_call,
)
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.load import load_workload
from perfgate.protocol import FEWEST_CALLS
from perfgate.stats.summary import low_location
from perfgate.system.processes import die_with_parent


class Go(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make calls from ``begin_ns`` of the monotonic clock, which processes of a machine
    share, until ``end_ns``.
    """

    begin_ns: int
    end_ns: int


class TimeLevel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make calls for ``warm_up_seconds``, and time calls for ``seconds`` after that by
    the device's clock.
    """

    warm_up_seconds: float
    seconds: float


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of a call that nothing disturbed."""

    seconds: float


class Stands(msgspec.Struct, frozen=True, kw_only=True):
    """A copy is ready: nanoseconds from its process's start to an imported framework,
    of loading, and of the first call.
    """

    import_ns: int
    load_ns: int
    first_call_ns: int
    error: str = ""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds of every call."""

    walls_ns: list[int]


def time_copy(call: Call, wait: Callable[[], object], go: Go) -> list[int]:
    """Make calls, each waited for, from the moment that all copies begin; one at least."""
    clock = time.monotonic_ns
    time.sleep(max(0, go.begin_ns - clock()) / 1e9)
    walls: list[int] = []
    ended = clock()
    while not walls or ended < go.end_ns:
        began = clock()
        call()
        wait()
        ended = clock()
        walls.append(ended - began)
    return walls


def main(descriptor: int, spawned_ns: int) -> None:
    """Load the workload, call it once, and then for as long and as often as is asked
    for.
    """
    connection = socket.socket(fileno=descriptor)
    try:
        _serve(connection, spawned_ns)
    except protocol.ConnectionClosed:
        return
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        protocol.send(
            connection,
            Stands(import_ns=0, load_ns=0, first_call_ns=0, error=text[:500]),
        )
        raise


def _serve(connection: socket.socket, spawned_ns: int) -> None:
    request = msgspec.json.decode(
        protocol.receive(connection), type=protocol.LoadRequest
    )
    random.seed(request.seed)
    import torch

    torch.manual_seed(request.seed)
    torch.set_num_threads(request.threads)
    device = open_device(request.device)
    imported_ns = time.monotonic_ns()
    os.chdir(request.root)
    root = Path(request.root)
    workload = load_workload(
        Path(request.file),
        request.attribute,
        root=root,
        python_path=request.python_path,
    )
    bound = BoundWorkload(request.name, workload, device, seed=request.seed, root=root)
    loaded_ns = time.monotonic_ns()
    call = bound.caller(bound.shapes[0])
    first_call_ns = timed_call(call, device)
    find_steady_state(call, device, cap_seconds=1.0)
    stands = Stands(
        import_ns=imported_ns - spawned_ns,
        load_ns=loaded_ns - imported_ns,
        first_call_ns=first_call_ns,
    )
    protocol.send(connection, stands)
    while True:
        order = msgspec.json.decode(protocol.receive(connection), type=Go | TimeLevel)
        if isinstance(order, TimeLevel):
            protocol.send(connection, Level(seconds=_level(call, device, order)))
        else:
            protocol.send(
                connection, Times(walls_ns=time_copy(call, device.synchronize, order))
            )


def _level(call: Call, device: Device, order: TimeLevel) -> float:
    walls = time_calls(
        call, device, CallBudget(1, order.warm_up_seconds, order.warm_up_seconds)
    ).wall
    calls = max(FEWEST_CALLS, round(order.seconds * 1e9 / float(np.median(walls))))
    block = run_block(call, device, calls=calls)
    return low_location(block.calls.cpu / 1e9)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    # `-m` puts the current folder first; the project's own folders are named in the
    # request.
    del sys.path[0]
    main(int(sys.argv[1]), int(sys.argv[2]))
