"""The entry point: a question about recordings that was asked before is answered without loading the command line."""

from __future__ import annotations

import atexit
import os
import sys

from perfgate.cli.printed import AskedQuestion


def main() -> None:
    """Run the command line and exit with the documented code."""
    asked = AskedQuestion(sys.argv[1:], os.environ) if sys.argv[1:2] == ["trace"] else None
    output = asked.printed() if asked is not None else None
    if output is not None and _written(output):
        return
    from perfgate.cli.main import main as run

    try:
        run(asked)
    except SystemExit as end:
        if asked is not None and isinstance(end.code, int):
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
    except (AttributeError, OSError, PerfgateError, ValueError):  # no stream, a full disk, a closed stream
        return
    os._exit(code)


def _written(output: bytes) -> bool:
    """Whether an output was written, or its reader has gone; if not, the command line reports the error."""
    rest = memoryview(output)
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except BrokenPipeError:
        return True
    except OSError:
        return False
    return True
