"""Record with torch.profiler (Kineto) into one gzipped file."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfgate.errors import MeasuringError
from perfgate.trace.events import CALL


def record_kineto(
    call: Callable[[], Any],
    *,
    calls: int,
    folder: Path,
    name: str,
    profiler: Any,
    synchronize: Callable[[], None],
) -> Path:
    """Profile ``calls`` calls with one of torch's profilers into ``name.json.gz``; each is waited for within its mark.

    The file appears under its name only when complete. Raises MeasuringError when the trace cannot be written.
    """
    from torch.autograd.profiler import record_function

    with profiler:
        for _ in range(calls):
            with record_function(CALL):
                call()
                synchronize()
    path = folder / f"{name}.json.gz"
    with _written_aside(path) as (plain, packed):
        profiler.export_chrome_trace(str(plain))
        if not plain.is_file() or not plain.stat().st_size:
            raise MeasuringError(f"{path}: the profiler wrote no trace; check that the disk has space and is writable")
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        packed.replace(path)
    return path


@contextmanager
def _written_aside(path: Path) -> Iterator[tuple[Path, Path]]:
    """Give two temporary names beside ``path`` and leave neither behind."""
    plain, packed = (path.with_name(f".{path.name}.{os.getpid()}.{word}") for word in ("json", "gz"))
    try:
        yield plain, packed
    except OSError as error:
        raise MeasuringError(f"{path} cannot be written: {error}; choose an --out folder with space") from error
    finally:
        for part in (plain, packed):
            part.unlink(missing_ok=True)
