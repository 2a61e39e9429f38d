"""``perfgate trace ranks``: every rank's folder is read by a process of a pool and reduced; only the small tables meet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate import trace
from perfgate.document.files import write_atomically
from perfgate.document.trace import RankRow, RanksDocument, SlowLinkRow, SlowRankRow
from perfgate.errors import DocumentError, PerfgateError, UsageError
from perfgate.trace.ascend.layout import analysed_folders
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
    tables = [table for reduced in _reduced(path, workers, say) for table in reduced.tables]
    tables.sort(key=lambda table: (table.rank is None, table.rank or 0, table.device or 0))
    return _document(path, tables)


def trace_reduce(path: Path, *, workers: int | None, say: Callable[[str], None]) -> list[Path]:
    """Write the small table of every recording below a folder beside it, and say where they are.

    Raises UsageError where there is no recording, or where nobody may write beside one, and DocumentError for a damaged one.
    """
    reduced = _reduced(path, workers, say)
    if unkept := next((one for one in reduced if not one.kept), None):
        raise UsageError(f"{unkept.kept_at} cannot be written; copy the recordings to where you may write")
    return [one.kept_at for one in reduced]


class _Reduced(NamedTuple):
    """The tables of one recording, where they are kept, and whether they could be."""

    tables: list[RankTable]
    kept_at: Path
    kept: bool


def _reduced(path: Path, workers: int | None, say: Callable[[str], None]) -> list[_Reduced]:
    recordings = _recordings(path)
    if not recordings:
        raise UsageError(
            f"{path}: holds no recordings of ranks; name the folder in which the *_ascend_pt folders or the *.pt.trace.json "
            "files lie"
        )
    found = []
    with ProcessPoolExecutor(max(1, min(workers or os.cpu_count() or 1, len(recordings)))) as pool:
        for reduced in pool.map(_reduce, recordings):
            found.append(reduced)
            say(f"{len(found)} of {len(recordings)} recordings")
    return found


def _recordings(path: Path) -> list[Path]:
    """What was recorded below a folder, and the tables of what lies elsewhere."""
    if not path.is_dir():
        return []
    recordings = analysed_folders(path) or sorted(file for pattern in _KINETO for file in path.rglob(pattern))
    there = {_kept_at(recording) for recording in recordings}
    return [*recordings, *sorted(kept for kept in path.rglob(f"*{KEPT}") if kept not in there)]


def _kept_at(recording: Path) -> Path:
    return recording / KEPT if recording.is_dir() else recording.with_name(f"{recording.name}{KEPT}")


def _reduce(recording: Path) -> _Reduced:
    """Reduce one recording, or take what was kept, where nothing has changed since."""
    if recording.name.endswith(KEPT):
        return _Reduced(_read_kept(recording).tables, recording, kept=True)
    kept_at, files = _kept_at(recording), _state(recording)
    with suppress(OSError, DocumentError):
        kept = _read_kept(kept_at)
        if (kept.version, kept.files) == (__version__, files):
            return _Reduced(kept.tables, kept_at, kept=True)
    tables = [reduce_timeline(timeline, str(recording)) for timeline in trace.read(recording).timelines]
    try:
        write_atomically(kept_at, msgspec.json.encode(_Kept(version=__version__, files=files, tables=tables)))
    except PerfgateError:
        return _Reduced(tables, kept_at, kept=False)
    return _Reduced(tables, kept_at, kept=True)


def _read_kept(path: Path) -> _Kept:
    """Raises OSError, and DocumentError for a file that is damaged or of another perfgate."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentError(
            f"{path}: is no table of a rank ({error}); remove it, or reduce the recording again"
        ) from error


def _state(recording: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of every file that is read."""
    files: Iterable[Path] = recording.iterdir() if recording.is_dir() else [recording]
    stats = [(file.name, file.stat()) for file in files if file.is_file() and not file.name.endswith(KEPT)]
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
