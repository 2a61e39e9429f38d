"""``perfgate trace ranks``: every rank's folder is read by a process of a pool and reduced; only the small tables meet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate import trace
from perfgate.document.files import write_atomically
from perfgate.document.trace import RankRow, RanksDocument, SkewRow, SlowLinkRow, SlowRankRow
from perfgate.errors import DocumentError, PerfgateError, UsageError
from perfgate.locale import sentence
from perfgate.trace.ascend.folder import read_rank
from perfgate.trace.ascend.layout import analysed_folders
from perfgate.trace.compressed import named
from perfgate.trace.rank_table import RankTable, reduce_timeline
from perfgate.trace.ranks import Arrivals, arrivals, slow_links, slow_ranks
from perfgate.version import __version__

# Beside what it is made of; where nobody may write, it is made anew each time.
KEPT = ".perfgate-rank.msgpack"
# The number rises with every change of what a table holds.
_KEPT_BY = f"{__version__}, layout 2"
_KINETO = named("*.pt.trace.json")
_NS = 1e9
_SKEWS = 100  # so many collectives are listed


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one recording, and what it was when they were made."""

    version: str
    files: list[tuple[str, int, int]]
    tables: list[RankTable]


class Ranks(NamedTuple):
    """The tables of all ranks, by rank, how they came to their collectives, and what there is to say of them."""

    tables: list[RankTable]
    arrivals: Arrivals
    document: RanksDocument


def trace_ranks(path: Path, *, workers: int | None, say: Callable[[str], None]) -> Ranks:
    """All ranks below a folder, and which is slow. Raises UsageError where there is none, DocumentError for a damaged one."""
    tables = [table for reduced in _reduced(path, workers, say) for table in reduced.tables]
    tables.sort(key=lambda table: (table.rank is None, table.rank or 0, table.device or 0))
    arrived = arrivals(tables)
    return Ranks(tables, arrived, ranks_document(path, tables, arrived))


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
    found = {recording: kept for recording in recordings if (kept := _kept(recording)) is not None}
    new = [recording for recording in recordings if recording not in found]
    if new:
        with ProcessPoolExecutor(max(1, min(workers or os.cpu_count() or 1, len(new)))) as pool:
            for recording, reduced in zip(new, pool.map(_reduce, new)):
                found[recording] = reduced
                say(sentence("{count} of {total} recordings", count=len(found), total=len(recordings)))
    return [found[recording] for recording in recordings]


def _recordings(path: Path) -> list[Path]:
    """What was recorded below a folder, and the tables of what lies elsewhere."""
    if not path.is_dir():
        return []
    recordings = analysed_folders(path) or sorted(file for pattern in _KINETO for file in path.rglob(pattern))
    there = {_kept_at(recording) for recording in recordings}
    return [*recordings, *sorted(kept for kept in path.rglob(f"*{KEPT}") if kept not in there)]


def _kept_at(recording: Path) -> Path:
    return recording / KEPT if recording.is_dir() else recording.with_name(f"{recording.name}{KEPT}")


def _kept(recording: Path) -> _Reduced | None:
    """What was kept of a recording, where nothing has changed since."""
    if recording.name.endswith(KEPT):
        kept = _read_kept(recording)
        if kept.version != _KEPT_BY:
            raise DocumentError(
                f"{recording}: was made by perfgate {kept.version}, and this is {_KEPT_BY}; reduce the recording with this one"
            )
        return _Reduced(kept.tables, recording, kept=True)
    kept_at = _kept_at(recording)
    with suppress(OSError, DocumentError):
        kept = _read_kept(kept_at)
        if (kept.version, kept.files) == (_KEPT_BY, _state(recording)):
            return _Reduced(kept.tables, kept_at, kept=True)
    return None


def _reduce(recording: Path) -> _Reduced:
    kept_at, files = _kept_at(recording), _state(recording)
    # A folder that is analysed has tables, which are read in a fraction of the time of its timeline.
    timelines = (
        read_rank(recording, tables_suffice=True).timelines if recording.is_dir() else trace.read(recording).timelines
    )
    tables = [reduce_timeline(timeline, str(recording)) for timeline in timelines]
    try:
        write_atomically(kept_at, msgspec.msgpack.encode(_Kept(version=_KEPT_BY, files=files, tables=tables)))
    except PerfgateError:
        return _Reduced(tables, kept_at, kept=False)
    return _Reduced(tables, kept_at, kept=True)


def _read_kept(path: Path) -> _Kept:
    """Raises OSError, and DocumentError for a file that is damaged or of another perfgate."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentError(
            f"{path}: is no table of a rank ({error}); remove it, or reduce the recording again"
        ) from error


def _state(recording: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of every file that is read."""
    files: Iterable[Path] = recording.iterdir() if recording.is_dir() else [recording]
    stats = [(file.name, file.stat()) for file in files if file.is_file() and not file.name.endswith(KEPT)]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def ranks_document(path: Path, tables: list[RankTable], arrived: Arrivals) -> RanksDocument:
    """What there is to say of the ranks below a folder."""
    worst = np.argsort(-arrived.skew, kind="stable")[:_SKEWS]
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
        collectives=len(arrived.names),
        skew=float(np.median(arrived.skew)) / _NS if arrived.names else None,
        skews=[
            SkewRow(
                number=number,
                name=arrived.names[number],
                skew=int(arrived.skew[number]) / _NS,
                last=tables[int(arrived.last[number])].rank,
            )
            for number in worst.tolist()
        ],
        ranks=[_row(table, *_arrival(arrived, place)) for place, table in enumerate(tables)],
    )


def _arrival(arrived: Arrivals, place: int) -> tuple[float | None, float | None]:
    """How long after the first a rank comes to its collectives (mean), and the share of them to which it comes last."""
    own = arrived.rank == place
    if not own.any():
        return None, None
    last = arrived.last[arrived.collective[own]] == place
    return float(arrived.late[own].mean()) / _NS, float(last.mean())


def _row(table: RankTable, late: float | None, last: float | None) -> RankRow:
    waiting = table.waiting
    wait, transit, idle = (
        part / waiting.elapsed if waiting.elapsed and part is not None else None
        for part in (waiting.wait, waiting.transit, waiting.idle)
    )
    return RankRow(
        rank=table.rank,
        device=table.device,
        path=table.path,
        steps=len(table.steps),
        own=_seconds(table.own),
        computing=_seconds(table.computing),
        exposed=_seconds(table.exposed),
        free=_seconds(table.free),
        bubble=_seconds(table.bubble),
        wait_share=wait,
        transit_share=transit,
        idle_share=idle,
        late=late,
        last=last,
        stage=table.stage,
        experts=_seconds(table.experts),
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS
