"""Bring the small tables of all recordings together: each is reduced where it lies, and only its tables come here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from perfgate.document.trace import LeftOutRecording
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.trace.executors import Cluster, Executor, Task, completed, open_executor
from perfgate.flows.trace.places import Place
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
from perfgate.trace.model.communication import added_communication

# The recordings below a folder, or why it has none.
Listed = list[Place] | LeftOutRecording


def trace_reduce(
    places: Sequence[Place],
    *,
    say: Callable[[str], None],
    workers: int | None = None,
    on: Cluster | None = None,
    out: Path | None = None,
) -> tuple[list[str], list[LeftOutRecording]]:
    """``perfgate trace reduce``: write the small table of every recording beside it, or into ``out``.

    Returns the places of the tables, and the recordings that could not be read. Raises UsageError without a recording, or if
    the folder of one is read-only, ClusterRefusedError if the cluster ``on`` cannot be used, and DocumentError if no
    recording can be read.
    """
    reduced, left_out = gather_tables(places, workers=workers, on=on, say=say, keeps=out is None)
    if not reduced:
        raise DocumentError(left_out[0].reason)
    if out is not None:
        return [str(_keep_in(out, one, places)) for one in reduced], left_out
    if unkept := next((one for one in reduced if not one.kept), None):
        raise UsageError("{path} cannot be written; name a folder with --out", path=_kept_place(unkept))
    return [str(_kept_place(one)) for one in reduced], left_out


def _kept_place(reduced: ReducedRecording) -> Place:
    return Place(Path(reduced.kept_at), reduced.host)


def _keep_in(out: Path, reduced: ReducedRecording, places: Sequence[Place]) -> Path:
    """Write the tables of a recording below another folder, under its own path, with the number of its folder if several."""
    kept_at = Path(reduced.kept_at).absolute()
    number, folder = next(
        (number, _folder_of(path))
        for number, (path, host) in enumerate(places)
        if host == reduced.host and kept_at.is_relative_to(_folder_of(path))
    )
    recorded = kept_at.relative_to(folder)
    name = (recorded.parent if recorded.name == KEPT else recorded).as_posix().replace("/", "__").removesuffix(KEPT)
    file = out / f"{f'{number}__' if len(places) > 1 else ''}{name}{KEPT}"
    out.mkdir(parents=True, exist_ok=True)
    keep_tables(file, reduced.tables, [])
    return file


def _folder_of(path: Path) -> Path:
    return path.absolute().parent if path.is_file() else path.absolute()


def gather_tables(
    places: Sequence[Place],
    *,
    workers: int | None,
    on: Cluster | None,
    say: Callable[[str], None],
    keeps: bool = False,
) -> tuple[list[ReducedRecording], list[LeftOutRecording]]:
    """The tables of all recordings below folders, read by ``workers`` processes or by the cluster ``on``.

    New tables are written beside their recordings if it ``keeps`` them. With them come the recordings that could not be read;
    both are in their order below the folders. Raises UsageError without a recording, and ClusterRefusedError if the cluster
    cannot be used.
    """
    elsewhere = next((place for place in places if place.host is not None), None)
    if on is None and elsewhere is not None:
        raise UsageError("{place} is on a node of a cluster; name the cluster with --on", place=elsewhere)
    if on is not None and workers is not None:
        raise UsageError("--workers counts processes of this machine; with --on the cluster decides how many tasks run")
    # A worker of a cluster has another current folder.
    places = places if on is None else [place._replace(path=place.path.absolute()) for place in places]
    listed: dict[Place, Listed] = {
        place: _or_none_below(place, [Place(path) for path in recordings_below(place.path)])
        for place in places
        if place.host is None
    }
    found = {recording: kept for recording in _all(listed) if (kept := kept_tables(recording.path)) is not None}
    if len(listed) < len(set(places)) or len(found) < len(_all(listed)):
        with open_executor(on, workers) as executor:
            listed |= _listed_there([place for place in places if place.host is not None], executor)
            recordings = _all(listed)
            new = [recording for recording in recordings if recording not in found]
            for recording, reduced in _reduced(new, executor, keeps=keeps):
                found[recording] = reduced
                say(sentence("{count} of {total} recordings", count=len(found), total=len(recordings)))
    if not found:
        raise UsageError(
            "{path}: holds no recordings of ranks; name the folder in which the *_ascend_pt folders or the traces of "
            "torch.profiler lie",
            path=", ".join(map(str, places)),
        )
    ordered = [found[recording] for recording in _all(listed)]
    left_out = [one for one in [*listed.values(), *ordered] if isinstance(one, LeftOutRecording)]
    return [one for one in ordered if isinstance(one, ReducedRecording)], left_out


def _or_none_below(place: Place, recordings: list[Place]) -> Listed:
    return recordings or LeftOutRecording(path=str(place), reason=f"{place}: holds no recordings of ranks")


def _listed_there(places: Sequence[Place], executor: Executor) -> dict[Place, Listed]:
    """The recordings below folders on nodes, each listed by its node."""
    tasks = {Task(partial(list_task, place.path), place.host): place for place in places}
    listed: dict[Place, Listed] = {}
    for task, encoded in completed(executor, list(tasks)):
        place = tasks[task]
        answer = _answer_about(place, encoded)
        below = [Place(Path(path), place.host) for path in answer.recordings]
        listed[place] = answer.left_out or _or_none_below(place, below)
    return {place: listed[place] for place in places}


def _all(listed: Mapping[Place, Listed]) -> list[Place]:
    """The recordings below all folders, each once."""
    below = (recordings for recordings in listed.values() if not isinstance(recordings, LeftOutRecording))
    return list(dict.fromkeys(recording for recordings in below for recording in recordings))


def _reduced(recordings: Sequence[Place], executor: Executor, *, keeps: bool) -> Iterator[tuple[Place, Reduced]]:
    """Each recording with its tables, as they are done."""
    patterns = added_communication()
    tasks = {Task(partial(reduce_task, one.path, patterns, keeps=keeps), one.host): one for one in recordings}
    for task, answer in completed(executor, list(tasks)):
        recording = tasks[task]
        read = _answer_about(recording, answer)
        if read.left_out is not None:
            yield recording, LeftOutRecording(path=str(recording), reason=read.left_out.reason)
        elif read.reduced is not None:
            yield recording, _on_host(read.reduced, recording.host)


def _answer_about(place: Place, answer: bytes | None) -> TaskAnswer:
    if answer is not None:
        return read_answer(answer)
    reason = f"{place}: the process that read it was killed, and so was the next one; it may need more memory"
    return TaskAnswer(left_out=LeftOutRecording(path=str(place), reason=reason))


def _on_host(reduced: ReducedRecording, host: str | None) -> ReducedRecording:
    """The same with the node, without which its paths mean nothing here."""
    if host is None:
        return reduced
    replace = msgspec.structs.replace
    tables = [replace(table, path=str(Place(Path(table.path), host))) for table in reduced.tables]
    return replace(reduced, tables=tables, host=host)
