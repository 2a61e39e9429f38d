"""Read every event of a trace file: by the compiled scanner where it was built, else by decoding.

Both give the same columns. What the scanner cannot judge, a damaged file above all, is left to decoding, which says in words
what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perfgate.trace.scanner import library
from perfgate.trace.scanner.scanned import ScannedFile
from perfgate.trace.scanner.windows import UndecidedError, WindowedScan


def scan(
    path: Path, *, numbers: Iterable[str] = (), texts: Iterable[str] = (), advice: str = "record it again"
) -> ScannedFile:
    """Every event of a trace file. ``numbers`` and ``texts`` are the arguments to take.

    The file is an object with a list ``traceEvents``, or that list itself, compressed as the end of its name says. Raises
    DocumentError for a file that is cut off, too large, no trace, or holds what is no such event.
    """
    keys = {**dict.fromkeys(numbers, True), **dict.fromkeys(texts, False)}
    if library.load() is not None:
        try:
            return WindowedScan(path, keys, advice).file()
        except UndecidedError:
            pass  # decoding says what it is, and of which event
    from perfgate.trace.scanner.decoding import decode_events

    return decode_events(path, keys, advice=advice)
