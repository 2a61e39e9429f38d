"""The store in a branch of the project's own git repository: any git server will do, and no database is needed.

The branch shares no history with the code. A write is one commit, pushed only if the branch has not moved since it was read;
if it has moved, the change is planned again on the new tip, so that concurrent writers lose nothing.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby, repeat

from perfgate.document.gates import GateRecord
from perfgate.document.history import Acceptance, Confirmation, StoredRun, Triage, moment
from perfgate.document.run import RunDocument
from perfgate.errors import StoreError, StoreRefusedError, UnknownRunError
from perfgate.judging.store import layout
from perfgate.judging.store.contents import BranchContents
from perfgate.judging.store.layout import RunFile
from perfgate.judging.store.remote import PREFIX, RemoteBranch, find_link, parse_location
from perfgate.judging.store.scratch import Scratch, StoreChange, Tip, open_scratch
from perfgate.judging.store.store import (
    HistoryValue,
    RecentRun,
    RecentValues,
    RunEntry,
    Series,
    SeriesPlace,
    Statement,
    StoredDocument,
    StorePlace,
    intact_run,
    kept_already,
    labels_text,
    pack_document,
    recent_values,
    recorded_document,
    refuse_unfit,
    utc_now,
)

# After so many commits the history is squashed, or it would outgrow the content.
MAX_COMMITS = 200
TRIES = 40
MAX_WAIT_SECONDS = 2.0

Plan = Callable[[Scratch, Tip], StoreChange | None]

# The subjects of the commits in the branch.
_MESSAGES: Mapping[type[object], str] = {
    Acceptance: "accept a regression",
    Triage: "triage a regression",
    Confirmation: "confirm a change point",
    GateRecord: "keep a verdict",
}


def accepts(location: str) -> bool:
    return location.startswith(PREFIX)


def open_backend(location: str, place: StorePlace) -> GitBranchStore:
    """The store at a location; nothing is opened before its first use."""
    return GitBranchStore(location, place)


class GitBranchStore:
    """The Store in one branch. It reads the branch once: later writes of others are visible only to a new instance."""

    def __init__(
        self,
        location: str,
        place: StorePlace,
        *,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], None] = time.sleep,
        max_commits: int = MAX_COMMITS,
    ) -> None:
        self._branch, self._remote = parse_location(location)
        self._place = place
        self._clock = clock
        self._sleep = sleep
        self._max_commits = max_commits
        self._seen: BranchContents | None = None

    def record(self, run: RunDocument, *, allow_dirty: bool = False) -> str:
        """Store a run and return its id; repeating it changes nothing. Raises StoreError for an unfit run."""
        packed = self._pack(run, allow_dirty)
        self._add([packed])
        return packed[0].run.id

    def record_all(
        self, runs: Iterable[RunDocument], *, allow_dirty: bool = False, data: Sequence[bytes] | None = None
    ) -> list[str]:
        """Store several runs in one write, all or none; return the ids of the new ones. Raises StoreError for an unfit run."""
        return self._add([self._pack(run, allow_dirty, one) for run, one in zip(runs, data or repeat(None))])

    def restore(self, documents: Iterable[StoredDocument]) -> None:
        """Store the runs of another store in one write, all or none, under their ids; those that are there stay."""
        self._add([layout.pack_run(intact_run(document), document) for document in documents])

    def revision(self, project: str) -> str:  # noqa: ARG002 - a branch changes as a whole
        """The commit of the branch."""
        return self._read().tip.commit or ""

    def runs(self, project: str, *, limit: int | None = None, before: StoredRun | None = None) -> list[StoredRun]:
        """The runs of a project, newest session first; with ``before`` those that follow it in this order."""
        listed = sorted((-file.started, file.run.id, file.run) for file in self._read().runs(project))
        if before is not None:
            last = (-moment(before.started_at).timestamp(), before.id)
            listed = [entry for entry in listed if entry[:2] > last]
        return [run for _, _, run in listed[:limit]]

    def find(self, project: str, run_id: str) -> StoredRun | None:
        return next((file.run for file in self._read().runs(project) if file.run.id == run_id), None)

    def damaged(self, project: str) -> list[str]:
        return self._read().damaged(project)

    def show(self, run_id: str) -> RunDocument:
        ((path, packed),) = self._packed(lambda tip: [self._path_of(run_id, tip)]).items()
        name = f"{self._link.name}: {path}"
        data = layout.unpack_document(packed, name=name)
        return recorded_document(data, layout.parse_document_path(path) or "", name=name, remedy=layout.REMEDY)

    def documents(self, runs: Sequence[StoredRun]) -> list[StoredDocument]:
        paths = [layout.document_path(run.id) for run in runs]
        packed = self._packed(lambda tip: [path for path in paths if path in tip.files])
        return [self._document(run, packed) for run in runs]

    def entries(self, runs: Sequence[StoredRun]) -> list[RunEntry]:
        entries: dict[str, RunEntry] = {}
        for project in {run.project for run in runs}:
            entries.update(self._read().entries(project))
        return [entries[run.id] for run in runs]

    def projects(self) -> list[str]:
        return self._read().projects()

    def history(
        self,
        project: str,
        workload: str,
        fingerprint: str,
        metric: str,
        shape: str,
        *,
        labels: Mapping[str, str] | None = None,
        newest: int | None = None,
    ) -> list[HistoryValue]:
        """One metric of a series, oldest session first; ``labels`` are those beside the shape (e.g. batch)."""
        place = SeriesPlace(workload, shape, metric, labels_text(labels or {}), fingerprint)
        stored = self._read().histories(project).get(place, [])
        return [
            HistoryValue(
                run_id=file.run.id,
                session=file.run.session,
                commit=file.run.commit,
                started_at=file.run.started_at,
                value=value,
            )
            for file, value in (stored if newest is None else stored[-newest:])
        ]

    def recent(self, project: str, places: Sequence[SeriesPlace], *, newest: int) -> RecentValues:
        """The values of the newest sessions in each of several series of one testbed, in the order of ``places``."""
        histories = self._read().histories(project)
        return recent_values(
            [
                (RecentRun(id=file.run.id, commit=file.run.commit, conditions=file.conditions), value)
                for file, value in histories.get(place, [])[-newest:]
            ]
            for place in places
        )

    def series(self, project: str) -> list[Series]:
        return [
            Series(
                workload=place.workload,
                shape=place.shape,
                metric=place.metric,
                fingerprint=place.fingerprint,
                device_kind=max(file.run.device_kind for file, _ in history),
                labels=json.loads(place.labels) if place.labels else {},
                runs=len(history),
            )
            for place, history in sorted(self._read().histories(project).items())
        ]

    def append(self, project: str, statements: Sequence[Statement]) -> None:
        """Store statements of one kind in one write; each replaces an earlier one with the same key."""
        if not statements:
            return
        kind = type(statements[0])
        path = layout.list_path(kind, project)
        most = layout.MOST_GATES if kind is GateRecord else None

        def plan(scratch: Scratch, tip: Tip) -> StoreChange | None:
            data = layout.EMPTY_LIST
            if path in tip.files:
                data = scratch.read([tip.files[path]], most=layout.MAX_SMALL_BYTES)[tip.files[path]]
            stored = layout.decode_list(data, kind, name=f"{self._link.name}: {path}")
            replaced = {statement.key for statement in statements}
            rest = [statement for statement in stored if statement.key not in replaced]
            by_age = sorted([*rest, *statements], key=lambda statement: statement.stated_at)
            return StoreChange(_MESSAGES[kind], {path: layout.encode_list(by_age[-most:] if most else by_age)})

        self._write(plan)

    def statements(self, project: str, kind: type[Statement]) -> list[Statement]:
        """The statements of a kind about a project, newest first."""
        path = layout.list_path(kind, project)
        stored = layout.decode_list(self._read().file(path), kind, name=f"{self._link.name}: {path}")
        by_key = sorted(stored, key=lambda statement: statement.key)
        return sorted(by_key, key=lambda statement: statement.stated_at, reverse=True)

    def prune(self, project: str, *, keep: int) -> int:
        """Remove all but the newest ``keep`` runs of each testbed of a project; return how many were removed.

        The history is squashed to the remaining files, so that the server can discard the rest.
        """
        if keep < 0:
            raise StoreError("the number of runs to keep must be 0 or more, found {keep}", keep=keep)
        removed: list[RunFile] = []

        def plan(scratch: Scratch, tip: Tip) -> StoreChange | None:
            removed[:] = _too_old(self._load(scratch, tip).runs(project), keep)
            gone = {layout.run_path(file) for file in removed}
            if not gone:
                return None
            unspoken = layout.orphans(path for path in tip.files if path not in gone)
            words = f"prune {len(removed)} {'run' if len(removed) == 1 else 'runs'}"
            return StoreChange(words, remove=frozenset(gone | unspoken), alone=True)

        self._write(plan)
        return len(removed)

    def ledger(self) -> None:
        """None: everyone with read access to the branch could read it."""

    def clock_ahead(self) -> timedelta:
        """Zero: the time of recording is this machine's."""
        return timedelta()

    def acting_as(self, actor: str) -> GitBranchStore:  # noqa: ARG002 - git notes the author of a push
        return self

    @cached_property
    def _link(self) -> RemoteBranch:
        return find_link(self._branch, self._remote, self._place)

    def _pack(self, run: RunDocument, allow_dirty: bool, data: bytes | None = None) -> tuple[RunFile, bytes]:
        refuse_unfit(run, allow_dirty=allow_dirty, now=self._clock())
        return layout.pack_run(run, pack_document(run, self._clock(), data))

    def _add(self, packed: Sequence[tuple[RunFile, bytes]]) -> list[str]:
        """Add runs that are not there, and return their ids."""
        write: dict[str, bytes] = {}

        def plan(_scratch: Scratch, tip: Tip) -> StoreChange | None:
            write.clear()
            for file, document in packed:
                there = _kept(file, [*tip.files, *write])
                if there is None:
                    write[layout.run_path(file)] = layout.encode(file)
                    write[layout.document_path(file.run.id)] = document
                elif there != file.run.id:
                    raise kept_already(file.run.session, there)
            if not write:
                return None
            first = packed[0][0].run
            of = f" of {first.commit[:12]}" if first.commit and first.commit.isalnum() else ""
            one = f"record run {first.id[:12]}{of}"
            return StoreChange(one if len(packed) == 1 else f"record {len(packed)} runs", write)

        if packed:
            self._write(plan)
        return [file.run.id for file, _ in packed if layout.run_path(file) in write]

    def _packed(self, find: Callable[[Tip], list[str]]) -> dict[str, bytes]:
        """Files by path, of the tip that was read before; if the branch was rewritten since, of the present one."""
        with open_scratch(self._link) as scratch:
            if self._seen is not None:
                with suppress(StoreRefusedError):
                    return _files(scratch, self._seen.tip, find)
            return _files(scratch, self._fetch(scratch), find)

    def _document(self, run: StoredRun, packed: Mapping[str, bytes]) -> StoredDocument:
        path = layout.document_path(run.id)
        name = f"{self._link.name}: {path}"
        data, fault = b"", ""
        try:
            if path not in packed:
                raise StoreError("{name} is missing; {remedy}", name=name, remedy=layout.REMEDY)
            data = layout.unpack_document(packed[path], name=name)
        except StoreError as error:
            fault = str(error)
        return StoredDocument(id=run.id, recorded_at=run.recorded_at, data=data, fault=fault)

    def _write(self, plan: Plan) -> None:
        """Push the commit of a plan, planned again whenever another writer was faster."""
        with open_scratch(self._link) as scratch:
            for attempt in range(TRIES):
                tip = self._fetch(scratch)
                change = plan(scratch, tip)
                if change is None or self._push(scratch, tip, change):
                    self._seen = None
                    return
                self._sleep(random.uniform(0.0, min(MAX_WAIT_SECONDS, 0.05 * 2**attempt)))
        raise StoreRefusedError(
            "{name} cannot be written: other writers were faster {tries} times; run the command again",
            name=self._link.name,
            tries=TRIES,
        )

    def _push(self, scratch: Scratch, tip: Tip, change: StoreChange) -> bool:
        """Push a change unless the branch has moved; squash a history that has grown long."""
        seconds = int(self._clock().timestamp())
        if tip.commit is None:
            change = replace(change, write={**layout.first_files(), **change.write})
        elif change.alone or tip.commits % self._max_commits == 0:
            # The server may forbid rewriting a branch; then the history continues.
            with suppress(StoreRefusedError):
                return scratch.push(tip, replace(change, alone=True), seconds_since_1970=seconds)
        return scratch.push(tip, replace(change, alone=False), seconds_since_1970=seconds)

    def _path_of(self, run_id: str, tip: Tip) -> str:
        beginning = layout.document_path(run_id.lower()).partition(".")[0]
        matches = [
            path for path in tip.files if run_id and path.startswith(beginning) and layout.parse_document_path(path)
        ]
        if not matches:
            raise UnknownRunError(
                "{name} holds no run {run_id!a}; `perfgate baseline list` shows what there is",
                name=self._link.name,
                run_id=run_id,
            )
        if len(matches) > 1:
            raise UnknownRunError(
                "{name} holds several runs that begin with {run_id!a}; give more of the id",
                name=self._link.name,
                run_id=run_id,
            )
        return matches[0]

    def _fetch(self, scratch: Scratch) -> Tip:
        tip = scratch.fetch()
        if tip.commit is not None:
            layout.check_mark(tip.files, name=self._link.name)
        return tip

    def _read(self) -> BranchContents:
        if self._seen is None:
            with open_scratch(self._link) as scratch:
                self._seen = self._load(scratch, self._fetch(scratch))
        return self._seen

    def _load(self, scratch: Scratch, tip: Tip) -> BranchContents:
        """Read everything except the documents."""
        paths = [path for path in tip.files if not path.startswith(layout.DOCUMENTS)]
        contents = scratch.read([tip.files[path] for path in paths], most=layout.MAX_SMALL_BYTES)
        return BranchContents(self._link.name, tip, {path: contents[tip.files[path]] for path in paths})


def _files(scratch: Scratch, tip: Tip, find: Callable[[Tip], list[str]]) -> dict[str, bytes]:
    paths = find(tip)
    contents = scratch.read([tip.files[path] for path in paths])
    return {path: contents[tip.files[path]] for path in paths}


def _kept(file: RunFile, paths: Iterable[str]) -> str | None:
    """The id of the stored run of a run's session; None if there is none."""
    prefix = layout.session_prefix(file.run.project, file.run.session)
    return next((path[len(prefix) :].partition(".")[0] for path in paths if path.startswith(prefix)), None)


def _too_old(files: Iterable[RunFile], keep: int) -> list[RunFile]:
    """All but the newest ``keep`` of each testbed."""
    newest_first = sorted(files, key=lambda file: (file.run.fingerprint, -file.started, file.run.id))
    by_testbed = groupby(newest_first, key=lambda file: file.run.fingerprint)
    return [file for _, group in by_testbed for file in list(group)[keep:]]
