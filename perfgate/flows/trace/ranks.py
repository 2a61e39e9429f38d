"""``perfgate trace ranks``: a pool of processes reduces each rank's folder; only the small tables are brought together."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate import trace
from perfgate.document.files import write_atomically
from perfgate.document.trace import (
    DelayRow,
    EarlyEnd,
    LeftOutRecording,
    RankRow,
    RanksDocument,
    SkewRow,
    SlowLinkRow,
    SlowRankRow,
    SlowStageRow,
)
from perfgate.errors import DocumentError, PerfgateError, UsageError
from perfgate.locale import sentence
from perfgate.trace.analysis.delays import Delay, delays
from perfgate.trace.analysis.links import links_between, slow_links
from perfgate.trace.analysis.rank_table import RankTable, reduce_timeline
from perfgate.trace.analysis.ranks import Arrivals, arrivals, slow_ranks, slow_stages
from perfgate.trace.model.communication import add_communication, added_communication
from perfgate.trace.readers.ascend.folder import read_rank
from perfgate.trace.readers.ascend.layout import analysed_folders
from perfgate.trace.scanner.compressed import named
from perfgate.version import __version__

# Written beside its recording; in a read-only folder, it is made anew each time.
KEPT = ".perfgate-rank.msgpack"
# Increased with every change to the contents of a table.
_LAYOUT = 3
# Parameters of glibc's mallopt(3): below these sizes the process keeps freed memory, which the next recording needs again.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _HELD_BYTES = -1, -3, 32 << 20
_KINETO = named("*.pt.trace.json")
_NS = 1e9
_MOST_DIGITS = 7
_MISSING = 64  # the most missing ranks to name
_SKEWS = 100  # the most collectives to list


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of one recording, and the state of its files when they were made."""

    version: str
    files: list[tuple[str, int, int]]
    tables: list[RankTable]


class Ranks(NamedTuple):
    """The tables of all ranks, ordered by rank, their arrivals at collectives, and the resulting document."""

    tables: list[RankTable]
    arrivals: Arrivals
    document: RanksDocument


def trace_ranks(path: Path, *, workers: int | None, say: Callable[[str], None], strict: bool = False) -> Ranks:
    """All ranks below a folder, and the slow ones among them; unreadable recordings are listed.

    Raises UsageError without a recording, and DocumentError if none can be read, or any cannot and ``strict`` is set.
    """
    reduced = _reduced(path, workers, say)
    left_out = [one for one in reduced if isinstance(one, LeftOutRecording)]
    if left_out and (strict or len(left_out) == len(reduced)):
        raise DocumentError(left_out[0].reason)
    tables = [table for one in reduced if not isinstance(one, LeftOutRecording) for table in one.tables]
    tables.sort(key=lambda table: (table.rank is None, table.rank or 0, table.device or 0))
    arrived = arrivals(tables)
    return Ranks(tables, arrived, ranks_document(path, tables, arrived, left_out))


class ReducedFolder(NamedTuple):
    """The paths of the stored tables, and the recordings that could not be read."""

    tables: list[Path]
    left_out: list[LeftOutRecording]


def trace_reduce(
    path: Path, *, workers: int | None, say: Callable[[str], None], out: Path | None = None
) -> ReducedFolder:
    """Write the small table of every recording below a folder beside it, or into ``out``.

    Raises UsageError without a recording, or if the folder of one is read-only, and DocumentError if none can be read.
    """
    reduced = _reduced(path, workers, say)
    left_out = [one for one in reduced if isinstance(one, LeftOutRecording)]
    read = [one for one in reduced if not isinstance(one, LeftOutRecording)]
    if not read:
        raise DocumentError(left_out[0].reason)
    if out is not None:
        return ReducedFolder([_keep_in(out, path, one) for one in read], left_out)
    if unkept := next((one for one in read if not one.kept), None):
        raise UsageError("{path} cannot be written; name a folder with --out", path=unkept.kept_at)
    return ReducedFolder([one.kept_at for one in read], left_out)


def _keep_in(out: Path, path: Path, reduced: _Reduced) -> Path:
    """Write the tables of a recording below another folder, under the recording's own path."""
    recorded = reduced.kept_at.relative_to(path)
    name = (
        recorded.parent.as_posix().replace("/", "__")
        if recorded.name == KEPT
        else recorded.as_posix().replace("/", "__")
    )
    file = out / (name if name.endswith(KEPT) else f"{name}{KEPT}")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(file, msgspec.msgpack.encode(_Kept(version=_kept_by(), files=[], tables=reduced.tables)))
    return file


class _Reduced(NamedTuple):
    """The tables of one recording, their path, and whether they could be written there."""

    tables: list[RankTable]
    kept_at: Path
    kept: bool


def _reduced(path: Path, workers: int | None, say: Callable[[str], None]) -> list[_Reduced | LeftOutRecording]:
    recordings = _recordings(path)
    if not recordings:
        raise UsageError(
            "{path}: holds no recordings of ranks; name the folder in which the *_ascend_pt folders or the *.pt.trace.json "
            "files lie",
            path=path,
        )
    found: dict[Path, _Reduced | LeftOutRecording] = {
        recording: kept for recording in recordings if (kept := _kept(recording)) is not None
    }
    new = [recording for recording in recordings if recording not in found]
    if new:
        processes = max(1, min(workers or os.cpu_count() or 1, len(new)))
        with ProcessPoolExecutor(processes, initializer=_begin_worker, initargs=(added_communication(),)) as pool:
            for recording, reduced in zip(new, pool.map(_reduce, new)):
                found[recording] = reduced
                say(sentence("{count} of {total} recordings", count=len(found), total=len(recordings)))
    return [found[recording] for recording in recordings]


def _begin_worker(patterns: tuple[str, ...]) -> None:
    add_communication(patterns)
    # Otherwise the kernel zeroes every page anew for each recording: a third of the time for a recording of 5 MB.
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for threshold in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(threshold, _HELD_BYTES)


def _kept_by() -> str:
    """The origin of a table: version of the program, and the patterns of communication kernels."""
    patterns = added_communication()
    return f"{__version__}, layout {_LAYOUT}" + (f", --comm {' '.join(patterns)}" if patterns else "")


def _recordings(path: Path) -> list[Path]:
    """The recordings below a folder, and stored tables of recordings that are not there."""
    if not path.is_dir():
        return []
    recordings = analysed_folders(path) or sorted(file for pattern in _KINETO for file in path.rglob(pattern))
    there = {_kept_at(recording) for recording in recordings}
    return [*recordings, *sorted(kept for kept in path.rglob(f"*{KEPT}") if kept not in there)]


def _kept_at(recording: Path) -> Path:
    return recording / KEPT if recording.is_dir() else recording.with_name(f"{recording.name}{KEPT}")


def _kept(recording: Path) -> _Reduced | LeftOutRecording | None:
    """The stored tables of a recording; None if they are missing or outdated."""
    if recording.name.endswith(KEPT):
        try:
            kept = _read_kept(recording)
        except (OSError, DocumentError) as error:
            return LeftOutRecording(path=str(recording), reason=str(error))
        if kept.version != _kept_by():
            reason = f"{recording}: made by perfgate {kept.version}, this is {_kept_by()}; reduce the recording again"
            return LeftOutRecording(path=str(recording), reason=reason)
        return _Reduced(kept.tables, recording, kept=True)
    kept_at = _kept_at(recording)
    with suppress(OSError, DocumentError):
        kept = _read_kept(kept_at)
        if (kept.version, kept.files) == (_kept_by(), _state(recording)):
            return _Reduced(kept.tables, kept_at, kept=True)
    return None


def _reduce(recording: Path) -> _Reduced | LeftOutRecording:
    try:
        return _reduced_anew(recording)
    except (OSError, PerfgateError) as error:
        return LeftOutRecording(path=str(recording), reason=str(error))


def _reduced_anew(recording: Path) -> _Reduced:
    kept_at, files = _kept_at(recording), _state(recording)
    # An analysed folder has tables, which take a fraction of the time to read that its timeline takes.
    read = read_rank(recording, tables_suffice=True) if recording.is_dir() else trace.read(recording)
    size = read.settings.get("world_size", "")
    world = int(size) if size.isdecimal() and len(size) < _MOST_DIGITS else None
    tables = [reduce_timeline(timeline, str(recording), world=world) for timeline in read.timelines]
    try:
        write_atomically(kept_at, msgspec.msgpack.encode(_Kept(version=_kept_by(), files=files, tables=tables)))
    except PerfgateError:
        return _Reduced(tables, kept_at, kept=False)
    return _Reduced(tables, kept_at, kept=True)


def _read_kept(path: Path) -> _Kept:
    """Raises OSError, and DocumentError for a damaged file or one of another perfgate version."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentError(
            "{path}: not a table of a rank ({error}); remove it, or reduce the recording again", path=path, error=error
        ) from error


def _state(recording: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of every file that is read."""
    files: Iterable[Path] = recording.iterdir() if recording.is_dir() else [recording]
    stats = [(file.name, file.stat()) for file in files if file.is_file() and not file.name.endswith(KEPT)]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def ranks_document(
    path: Path, tables: list[RankTable], arrived: Arrivals, left_out: Sequence[LeftOutRecording] = ()
) -> RanksDocument:
    """The answers about the ranks below a folder."""
    worst = np.argsort(-arrived.skew, kind="stable")[:_SKEWS]
    links = links_between(tables)
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
                operation=slow.link.operation,
                group=slow.link.group,
                size=slow.link.size,
                bandwidth=slow.link.bandwidth,
                middle=slow.middle,
            )
            for slow in slow_links(links)
        ],
        links=len(links),
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
        delays=[_delay_row(delay) for delay in delays(tables, arrived)],
        slow_stages=[
            SlowStageRow(stage=slow.stage, behind=slow.behind - 1.0, computing=slow.computing / _NS)
            for slow in slow_stages(tables)
        ],
        unjoined=arrived.unjoined,
        left_out=list(left_out),
        missing=_missing(tables),
        ended_early=list(_ended_early(tables)),
    )


def _delay_row(delay: Delay) -> DelayRow:
    return DelayRow(
        rank=delay.table.rank,
        device=delay.table.device,
        total=delay.total / _NS,
        share=delay.share,
        per_step=_seconds(delay.per_step),
        steps=delay.steps,
        of=delay.of,
        once=delay.is_once,
        worst=delay.worst / _NS,
        step=delay.step,
        collective=delay.collective,
        waiting=delay.waiting,
        why=delay.why,
    )


def _missing(tables: Sequence[RankTable]) -> list[int]:
    """The first missing ranks of the job, if at least half of its ranks were recorded: else a selection was intended."""
    recorded = {table.rank for table in tables if table.rank is not None}
    world = max((table.world or 0 for table in tables), default=0)
    if 2 * len(recorded) < world:
        return []
    return [rank for rank in range(world) if rank not in recorded][:_MISSING]


def _ended_early(tables: Sequence[RankTable]) -> Iterator[EarlyEnd]:
    """The ranks with an earlier last step than most."""
    ends = [(table, max(numbers)) for table in tables if (numbers := _numbers(table))]
    usual, count = Counter(last for _, last in ends).most_common(1)[0] if ends else (0, 0)
    for table, last in ends:
        if last < usual and count > 1:
            yield EarlyEnd(rank=table.rank, device=table.device, last=last)


def _numbers(table: RankTable) -> list[int]:
    return [step.number for step in table.steps if step.number is not None]


def _arrival(arrived: Arrivals, place: int) -> tuple[float | None, float | None]:
    """A rank's mean delay behind the first rank at its collectives, and the share of them that it reaches last."""
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
        fused=_seconds(table.fused) or None,
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
