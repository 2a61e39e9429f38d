"""Read every event of a trace file: by the compiled scanner if it was built, else by decoding.

Both give the same columns. Input that the scanner cannot handle, above all a damaged file, is left to decoding, which reports
the exact error.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from perfgate.errors import DocumentError
from perfgate.locale import Activity
from perfgate.trace.scanner import library
from perfgate.trace.scanner.chrome_events import EVENTS_KEY, MAX_HEADER_BYTES
from perfgate.trace.scanner.scanned import ABSENT, ScannedFile
from perfgate.trace.scanner.windows import UndecidedError, WindowedScan


def scan(
    path: Path,
    *,
    numbers: Iterable[str] = (),
    texts: Iterable[str] = (),
    arrows: bool = False,
    advice: Activity | None = None,
) -> ScannedFile:
    """Every event of a trace file. ``numbers`` and ``texts`` are the arguments to take.

    Without ``arrows`` the file is read again for those if they are asked for.

    The file is an object with a list ``traceEvents``, or that list itself, compressed according to its suffix. Raises
    DocumentError for a file that is truncated, too large, not a trace, or contains an invalid event.
    """
    keys = {**dict.fromkeys(numbers, True), **dict.fromkeys(texts, False)}
    if library.load() is not None:
        try:
            file = WindowedScan(
                path, keys, advice or Activity("record it again"), arrows=arrows
            ).file()
        except UndecidedError:
            pass  # decoding reports the error and its event
        else:
            return _with_whole_document(path, file)
    from perfgate.trace.scanner.decoding import decode_events

    return _with_whole_document(path, decode_events(path, keys, advice=advice))


def _with_whole_document(path: Path, file: ScannedFile) -> ScannedFile:
    """The same file. Raises DocumentError if the text around its list of events is not JSON, or has a second list."""
    if len(file.around) >= MAX_HEADER_BYTES:
        return file  # it was not kept to its end
    if len(EVENTS_KEY.findall(file.around)) > 1:
        raise DocumentError(
            "{path}: several lists traceEvents, and JSON allows one of each name; record the trace again",
            path=path,
        )
    try:
        msgspec.json.decode(
            file.around, type=dict[str, msgspec.Raw] | list[msgspec.Raw]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "{path}: the text around its list of events is not JSON: {error}; record the trace again, or take its first "
            "document alone",
            path=path,
            error=error,
        ) from error
    if len(file.complete) == 0 and len(file.others) and not file.others.phase.any():
        raise DocumentError(
            "{path}: a list of other objects than trace events, which have a phase ph; name the output of a profiler",
            path=path,
        )
    timed = np.flatnonzero((file.others.phase == 0) & (file.others.start != ABSENT))
    if timed.size:
        row = int(timed[0])
        file.texts.refuse(
            int(file.others.event[row]),
            int(file.others.name[row]),
            Activity("it has no phase (ph)"),
        )
    return file
