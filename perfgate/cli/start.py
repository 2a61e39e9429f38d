"""The entry point: runs the command line, and ends a short one without the work that Python does at its end."""

from __future__ import annotations

import atexit
import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with the documented code."""
    # Imports create many objects and no garbage: Python's default threshold costs a
    # tenth of a short command's time.
    gc.set_threshold(100_000)
    from perfgate.cli.main import main as run

    try:
        run()
    except SystemExit as end:
        if sys.argv[1:2] == ["trace"] and isinstance(end.code, int):
            _exit_at_once(end.code)
        raise


def _exit_at_once(code: int) -> None:
    """End as Python does, without destroying every module and object: that takes a fifth of a short question's time.

    Returns if the last of the output cannot be written, for which Python has a code.
    """
    from perfgate.errors import PerfgateError

    if threading := sys.modules.get("threading"):
        threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (
        AttributeError,
        OSError,
        PerfgateError,
        ValueError,
    ):  # no stream, a full disk, a closed stream
        return
    os._exit(code)
