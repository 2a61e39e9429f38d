"""Read every event of a trace file: by the compiled scanner if it was built, else by decoding.

Both give the same columns. Input that the scanner cannot handle, above all a damaged file, is left to decoding, which reports
the exact error.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perfgate.locale import Activity
from perfgate.trace.scanner import library
from perfgate.trace.scanner.scanned import ScannedFile
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
            return WindowedScan(path, keys, advice or Activity("record it again"), arrows=arrows).file()
        except UndecidedError:
            pass  # decoding reports the error and its event
    from perfgate.trace.scanner.decoding import decode_events

    return decode_events(path, keys, advice=advice)
