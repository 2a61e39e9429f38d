"""``perfgate trace ranks``: every rank's folder is read by a process of a pool and reduced; only the small tables meet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from perfgate import trace
from perfgate.document.files import write_atomically
from perfgate.document.trace import RankRow, RanksDocument, SlowLinkRow, SlowRankRow
from perfgate.errors import PerfgateError, UsageError
from perfgate.trace.ascend.folder import analysed_folders
from perfgate.trace.ranks import RankTable, reduce_timeline, slow_links, slow_ranks
from perfgate.version import __version__

# Beside what it is made of; where nobody may write, it is made anew each time.
KEPT = ".perfgate-rank.json"
_KINETO = ("*.pt.trace.json", "*.pt.trace.json.gz")
_NS = 1e9


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one recording, and what it was when they were made."""

    version: str
    files: list[tuple[str, int, int]]
    tables: list[RankTable]


def trace_ranks(path: Path, *, workers: int | None, say: Callable[[str], None]) -> RanksDocument:
    """All ranks below a folder, and which is slow. Raises UsageError where there is none, DocumentError for a damaged one."""
    recordings = _recordings(path)
    if not recordings:
        raise UsageError(
            f"{path}: holds no recordings of ranks; name the folder in which the *_ascend_pt folders or the *.pt.trace.json "
            "files lie"
        )
    workers = max(1, min(workers or os.cpu_count() or 1, len(recordings)))
    tables: list[RankTable] = []
    with ProcessPoolExecutor(workers) as pool:
        for number, found in enumerate(pool.map(_tables_of, recordings), start=1):
            say(f"{number} of {len(recordings)} recordings")
            tables += found
    tables.sort(key=lambda table: (table.rank is None, table.rank or 0, table.device or 0))
    return _document(path, tables)


def _recordings(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return analysed_folders(path) or sorted(file for pattern in _KINETO for file in path.rglob(pattern))


def _tables_of(recording: Path) -> list[RankTable]:
    """The tables of one recording: those that were kept, where nothing has changed since."""
    kept_at = recording / KEPT if recording.is_dir() else recording.with_name(f"{recording.name}{KEPT}")
    files = _state(recording)
    with suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(kept_at.read_bytes(), type=_Kept)
        if (kept.version, kept.files) == (__version__, files):
            return kept.tables
    tables = [reduce_timeline(timeline, str(recording)) for timeline in trace.read(recording).timelines]
    with suppress(PerfgateError):
        write_atomically(kept_at, msgspec.json.encode(_Kept(version=__version__, files=files, tables=tables)))
    return tables


def _state(recording: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of every file that is read."""
    files: Iterable[Path] = recording.iterdir() if recording.is_dir() else [recording]
    stats = [(file.name, file.stat()) for file in files if file.is_file() and file.name != KEPT]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _document(path: Path, tables: list[RankTable]) -> RanksDocument:
    return RanksDocument(
        path=str(path),
        slow_ranks=[
            SlowRankRow(rank=slow.table.rank, device=slow.table.device, behind=slow.behind - 1.0, part=slow.part)
            for slow in slow_ranks(tables)
        ],
        slow_links=[
            SlowLinkRow(
                source=slow.link.source,
                target=slow.link.target,
                link=slow.link.link,
                bandwidth=slow.link.bandwidth,
                middle=slow.middle,
            )
            for slow in slow_links(tables)
        ],
        links=sum(len(table.links) for table in tables),
        ranks=[
            RankRow(
                rank=table.rank,
                device=table.device,
                path=table.path,
                steps=len(table.steps),
                own=_seconds(table.own),
                computing=_seconds(table.computing),
                exposed=_seconds(table.exposed),
                free=_seconds(table.free),
                wait_share=table.waiting.wait / table.waiting.elapsed if table.waiting.elapsed else None,
            )
            for table in tables
        ],
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS
