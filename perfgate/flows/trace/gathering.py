"""Bring the small tables of all recordings together: each is reduced in place, and only
its tables are transferred.
"""

from __future__ import annotations

import itertools
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from perfgate.document.message import Message, distinct
from perfgate.document.trace import LeftOutRecording
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.trace.executors import (
    Cluster,
    Executor,
    Task,
    completed,
    open_executor,
)
from perfgate.flows.trace.reducing import (
    KEPT,
    Reduced,
    ReducedRecording,
    TaskAnswer,
    keep_tables,
    kept_tables,
    list_task,
    read_answer,
    recordings_below,
    reduce_task,
)
from perfgate.locale import sentence
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.model.communication import added_communication


class Place(NamedTuple):
    """A path, and the node of a cluster if it is on a disk of that node alone; without
    one, every worker sees the path.
    """

    path: Path
    host: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.host is None else f"file://{self.host}{self.path}"


def place_of(text: str) -> Place:
    """A path, or file://HOST/PATH (RFC 8089). Raises UsageError for any other URL."""
    if "://" not in text:
        return Place(Path(text))
    url = urlsplit(text)
    if url.scheme != "file" or not url.path:
        raise UsageError(
            "{text}: write a path, or file://HOST/PATH for a folder on a node of the cluster",
            text=text,
        )
    host = None if url.netloc in ("", "localhost") else url.netloc
    return Place(Path(unquote(url.path)), host)


# The recordings below a folder, or why it has none.
Listed = list[Place] | LeftOutRecording


class Gathered(NamedTuple):
    """The tables of the recordings that were read, and the others; both in their order
    below the folders.
    """

    reduced: list[ReducedRecording]
    left_out: list[LeftOutRecording]


class ReducedFiles(NamedTuple):
    """The places of the tables, the recordings that could not be read, and the signs of
    loss in the others.
    """

    files: list[str]
    left_out: list[LeftOutRecording]
    notes: list[Message]


def doubts_about(tables: Iterable[RankTable]) -> list[Message]:
    """The signs of loss in each recording, and its other notes."""
    notes = []
    for table in tables:
        for doubt in table.doubts:
            notes.append(Message("verdict.about", {"place": table.path, "what": doubt}))
    return distinct(notes)


def trace_reduce(
    places: Sequence[Place],
    *,
    say: Callable[[str], None],
    workers: int | None,
    on: Cluster | None,
    out: Path | None,
) -> ReducedFiles:
    """``perfgate trace reduce``: write the small table of every recording next to it,
    or into ``out``.

    Raises UsageError without a recording, or if the folder of one is read-only,
    ClusterRefusedError if the cluster ``on`` cannot be used, and DocumentError if no
    recording can be read.
    """
    reduced, left_out = gather_tables(
        places, workers=workers, on=on, say=say, keeps=out is None
    )
    if not reduced:
        raise DocumentError(left_out[0].reason)
    files = []
    names: set[str] = set()
    for recording in reduced:
        if out is not None and _is_in(out, recording):
            # Of an earlier time, if the folder lies among the recordings.
            files.append(str(_kept_place(recording)))
        elif out is not None:
            name = _unused(_name_in(recording, places), names)
            names.add(name)
            files.append(str(_keep_in(out, name, recording)))
        elif recording.kept:
            files.append(str(_kept_place(recording)))
        else:
            raise UsageError(
                "{path} cannot be written; name a folder with --out",
                path=_kept_place(recording),
            )
    tables = itertools.chain.from_iterable(recording.tables for recording in reduced)
    distinct_files = list(dict.fromkeys(files))
    return ReducedFiles(distinct_files, left_out, doubts_about(tables))


def _is_in(folder: Path, reduced: ReducedRecording) -> bool:
    """Whether the tables of a recording lie in a folder already."""
    kept_in = Path(reduced.kept_at).absolute().parent
    return reduced.kept and reduced.host is None and kept_in == folder.absolute()


def _kept_place(reduced: ReducedRecording) -> Place:
    return Place(Path(reduced.kept_at), reduced.host)


def _unused(name: str, used: Collection[str]) -> str:
    """The name, with a number if another recording has it: ``a__b`` and ``a/b`` would
    share one.
    """
    numbered = name
    number = 2
    while numbered in used:
        numbered = f"{number}__{name}"
        number += 1
    return numbered


def _keep_in(out: Path, name: str, reduced: ReducedRecording) -> Path:
    """Write the tables of a recording into another folder."""
    file = out / name
    out.mkdir(parents=True, exist_ok=True)
    keep_tables(file, reduced.tables, [])
    return file


def _name_in(reduced: ReducedRecording, places: Sequence[Place]) -> str:
    """The name of a table in a folder of tables: the path of its recording, and the
    number of the folder that it is below.
    """
    kept_at = Path(reduced.kept_at).absolute()
    recorded_in: dict[int, Path] = {}
    for place_number, (path, host) in enumerate(places):
        folder = path.absolute()
        if path.is_file():
            folder = folder.parent
        if host == reduced.host and kept_at.is_relative_to(folder):
            recorded_in[place_number] = kept_at.relative_to(folder)
    number, recorded = next(iter(recorded_in.items()))
    if recorded.name == KEPT:
        recorded = recorded.parent
    name = recorded.as_posix().replace("/", "__").removesuffix(KEPT)
    if len(places) > 1:
        name = f"{number}__{name}"
    return name + KEPT


def gather_tables(
    places: Sequence[Place],
    *,
    workers: int | None,
    on: Cluster | None,
    say: Callable[[str], None],
    keeps: bool = False,
) -> Gathered:
    """The tables of all recordings below folders, read by ``workers`` processes or by
    the cluster ``on``.

    New tables are written next to their recordings if it ``keeps`` them. Raises
    UsageError without a recording, and ClusterRefusedError if the cluster cannot be
    used.
    """
    if on is not None:
        # A worker of a cluster has another current folder.
        places = [place._replace(path=place.path.absolute()) for place in places]
    on_nodes = [place for place in places if place.host is not None]
    _require_usable(on_nodes, workers, on)
    listed = _listed_here(places)
    tables = _kept(_all(listed))
    if on_nodes or len(tables) < len(_all(listed)):
        with open_executor(on, workers) as executor:
            listed |= _listed_there(on_nodes, executor)
            recordings = _all(listed)
            new = [recording for recording in recordings if recording not in tables]
            for recording, reduced in _reduced(new, executor, keeps=keeps):
                tables[recording] = reduced
                say(
                    sentence(
                        "{count} of {total} recordings",
                        count=len(tables),
                        total=len(recordings),
                    )
                )
    if not tables:
        raise UsageError(
            "{path}: holds no recordings of ranks; name the folder in which the *_ascend_pt folders or the traces of "
            "torch.profiler lie",
            path=", ".join(map(str, places)),
        )
    ordered = [tables[recording] for recording in _all(listed)]
    left_out = [
        entry
        for entry in [*listed.values(), *ordered]
        if isinstance(entry, LeftOutRecording)
    ]
    return Gathered(
        [entry for entry in ordered if isinstance(entry, ReducedRecording)], left_out
    )


def _require_usable(
    on_nodes: Sequence[Place], workers: int | None, on: Cluster | None
) -> None:
    """Raises UsageError for options that contradict each other."""
    if on is None and on_nodes:
        raise UsageError(
            "{place} is on a node of a cluster; name the cluster with --on",
            place=on_nodes[0],
        )
    if on is not None and workers is not None:
        raise UsageError(
            "--workers counts processes of this machine; with --on the cluster decides how many tasks run"
        )


def _listed_here(places: Sequence[Place]) -> dict[Place, Listed]:
    """The recordings below the folders that this machine sees."""
    listed = {}
    for place in places:
        if place.host is None:
            below = [Place(path) for path in recordings_below(place.path)]
            listed[place] = _or_none_below(place, below)
    return listed


def _kept(recordings: Sequence[Place]) -> dict[Place, Reduced]:
    """The recordings with stored tables."""
    tables = {}
    for recording in recordings:
        kept = kept_tables(recording.path)
        if kept is not None:
            tables[recording] = kept
    return tables


def _or_none_below(place: Place, recordings: list[Place]) -> Listed:
    return recordings or LeftOutRecording(
        path=str(place), reason=f"{place}: holds no recordings of ranks"
    )


def _listed_there(places: Sequence[Place], executor: Executor) -> dict[Place, Listed]:
    """The recordings below folders on nodes, each listed by its node."""
    tasks = {
        Task(partial(list_task, place.path), place.host): place for place in places
    }
    listed = {}
    for task, encoded in completed(executor, list(tasks)):
        place = tasks[task]
        answer = _answer_about(place, encoded)
        below = [Place(Path(path), place.host) for path in answer.recordings]
        listed[place] = answer.left_out or _or_none_below(place, below)
    return {place: listed[place] for place in places}


def _all(listed: Mapping[Place, Listed]) -> list[Place]:
    """The recordings below all folders, each once."""
    every = {}
    for recordings in listed.values():
        if not isinstance(recordings, LeftOutRecording):
            every.update(dict.fromkeys(recordings))
    return list(every)


def _reduced(
    recordings: Sequence[Place], executor: Executor, *, keeps: bool
) -> Iterator[tuple[Place, Reduced]]:
    """Each recording with its tables, as they are done."""
    patterns = added_communication()
    tasks = {}
    for recording in recordings:
        call = partial(reduce_task, recording.path, patterns, keeps=keeps)
        tasks[Task(call, recording.host)] = recording
    for task, answer in completed(executor, list(tasks)):
        recording = tasks[task]
        content = _answer_about(recording, answer)
        if content.left_out is not None:
            yield (
                recording,
                LeftOutRecording(path=str(recording), reason=content.left_out.reason),
            )
        elif content.reduced is not None:
            yield recording, _on_host(content.reduced, recording.host)


def _answer_about(place: Place, answer: bytes | None) -> TaskAnswer:
    if answer is not None:
        return read_answer(answer)
    reason = f"{place}: the process that read it was killed, and so was the next one; it may need more memory"
    return TaskAnswer(left_out=LeftOutRecording(path=str(place), reason=reason))


def _on_host(reduced: ReducedRecording, host: str | None) -> ReducedRecording:
    """The same with the node in its paths."""
    if host is None:
        return reduced
    tables = []
    for table in reduced.tables:
        place = Place(Path(table.path), host)
        tables.append(msgspec.structs.replace(table, path=str(place)))
    return msgspec.structs.replace(reduced, tables=tables, host=host)
