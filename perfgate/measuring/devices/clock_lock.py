"""Lock the clock of a GPU while it is measured, and unlock it after every end, also if
perfgate is killed.

A shell waits for the end of a pipe whose other end only perfgate has: the kernel closes
it with the process, however that ends. It runs in a new session, so a Ctrl-C or the end
of a terminal does not reach it. The end of a whole container kills it too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from perfgate.errors import MeasuringError
from perfgate.locale import sentence
from perfgate.measuring.devices.cells import quoted
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import clock_commands

# What nvidia-smi prints once it did: GPU clocks set to "(gpuClkMin 1200, gpuClkMax
# 1200)" for GPU 00000000:1B:00.0
LOCKED = "clocks set to"
_UNLOCK = 'trap "" INT TERM HUP; cat >/dev/null; exec "$@" >/dev/null 2>&1'
# nvidia-smi takes a second where its driver is not kept loaded.
_UNLOCK_SECONDS = 30.0


@contextmanager
def locked_clock(
    device: str, megahertz: int, *, say: Callable[[str], None]
) -> Iterator[None]:
    """Lock the clock of a device such as ``cuda:1``; with 0 MHz, or where that is not
    possible, only say so.
    """
    if not megahertz:
        yield
        return
    host = Host()
    try:
        commands = clock_commands(device, megahertz, host)
    except MeasuringError as error:
        say(sentence("the clock is not locked: {error}", error=error))
        yield
        return
    program = host.find_program(commands.unlock[0], host.environ)
    with _unlocking([str(program), *commands.unlock[1:]]):
        printed = host.run(commands.lock)
        if LOCKED not in printed.lower():
            # For example: "The current user does not have permission to change clocks
            # for GPU ..."
            say(sentence("the clock is not locked: {error}", error=quoted(printed)))
        yield


@contextmanager
def _unlocking(command: Sequence[str]) -> Iterator[None]:
    """Run a command after the block, or once this process has ended in any way."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _UNLOCK, "sh", *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    try:
        yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(_UNLOCK_SECONDS)
