"""Say what was raised, so that a conductor without torch can read it."""

from __future__ import annotations

import traceback

from perfgate.document.run import ErrorDetail
from perfgate.errors import PerfgateError
from perfgate.measuring.devices.device import Device

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 20_000


def describe_error(error: BaseException, device: Device | None = None) -> ErrorDetail:
    """What a conductor needs to know of an exception: the kind, one line, the traceback.

    User code's exceptions may fail to print themselves; the traceback module survives that.
    """
    line = "".join(traceback.format_exception_only(type(error), error)).strip()
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-MAX_TRACEBACK:]
    if isinstance(error, SystemExit):
        return ErrorDetail(
            kind="exit", message=f"the workload ended its process ({line})"[:MAX_MESSAGE], traceback=text
        )
    if isinstance(error, MemoryError) or (device is not None and device.is_out_of_memory(error)):
        return ErrorDetail(kind="memory", message=f"out of memory: {line}"[:MAX_MESSAGE], traceback=text)
    message = str(error) if isinstance(error, PerfgateError) else line
    return ErrorDetail(kind="exception", message=message[:MAX_MESSAGE], traceback=text)
