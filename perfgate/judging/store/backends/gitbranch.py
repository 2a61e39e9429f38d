"""The store in a branch of the project's own git repository: any git server will do,
and no database is needed.

The branch shares no history with the code. A write is one commit, pushed only if the
branch has not moved since it was read; if it has moved, the change is planned again on
the new tip, so that no concurrent write is lost.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import cast

from perfgate.document.history import (
    Acceptance,
    Confirmation,
    GateRecord,
    StoredRun,
    Triage,
)
from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store import layout
from perfgate.judging.store.remote import (
    PREFIX,
    RemoteBranch,
    find_link,
    parse_location,
)
from perfgate.judging.store.scratch import (
    MAX_FILE_BYTES,
    Scratch,
    StoreChange,
    Tip,
    open_scratch,
)
from perfgate.judging.store.store import (
    ALL_RUNS,
    ENTRIES,
    LOCAL,
    NO_DOCUMENTS,
    Entry,
    LogEntry,
    Page,
    RunEntry,
    StoredDocument,
    StoredProjects,
    StorePlace,
    kept_already,
    newest_first,
    the_only_run,
    unknown_run,
    utc_now,
)
from perfgate.locale import Activity

# The history is squashed at this length, or it would outgrow the content.
MAX_COMMITS = 200
TRIES = 40
MAX_WAIT_SECONDS = 2.0

ChangePlan = Callable[[Tip], StoreChange | None]

# The subjects of the commits that add statements.
_SUBJECTS: Mapping[type[object], str] = {
    Acceptance: "accept a regression",
    Triage: "triage a regression",
    Confirmation: "confirm a change point",
    GateRecord: "keep a verdict",
}


def accepts(location: str) -> bool:
    return location.startswith(PREFIX)


def open_backend(location: str, place: StorePlace) -> GitBranchStore:
    """The store at a location, opened on first use."""
    return GitBranchStore(location, place)


class GitBranchStore:
    """The Store in one branch.

    It reads the branch once: later writes of others are visible only to a new instance.
    """

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
        self._contents: BranchContents | None = None

    def append(
        self,
        project: str,
        entries: Sequence[LogEntry],
        documents: Mapping[str, bytes] = NO_DOCUMENTS,
        *,
        actor: str = LOCAL,  # noqa: ARG002 - git notes the author of a push
    ) -> list[str]:
        """Add entries in one commit, all or none; return the ids of the new runs."""
        packed = {
            run_id: layout.pack_document(data) for run_id, data in documents.items()
        }
        new: list[str] = []

        def plan(tip: Tip) -> StoreChange | None:
            new.clear()
            write: dict[str, bytes] = {}
            removed: set[str] = set()
            for entry in entries:
                prefix = layout.key_prefix(project, entry)
                present = [
                    file for file in (*tip.files, *write) if file.startswith(prefix)
                ]
                if not isinstance(entry, RunEntry):
                    removed.update(present)
                elif present:
                    _refuse_other(entry.run, present[0])
                    continue
                else:
                    new.append(entry.run.id)
                    write[layout.document_path(entry.run.id)] = packed[entry.run.id]
                write[layout.entry_path(project, entry)] = layout.encode(entry)
            if not write:
                return None
            removed.update(_oldest_gates(project, {*tip.files, *write} - removed))
            return StoreChange(
                _subject(entries), write, frozenset(removed - write.keys())
            )

        if entries:
            self._write(plan)
        return new

    def entries(
        self, project: str, kind: type[Entry], page: Page = ALL_RUNS
    ) -> list[Entry]:
        """The entries of a kind, newest first; ``page`` selects runs."""
        contents = self._read()
        if kind is not RunEntry:
            return newest_first(contents.statements(project, kind))
        runs = sorted(
            contents.runs(project), key=lambda entry: (-entry.started, entry.run.id)
        )
        if page.testbed is not None:
            runs = [entry for entry in runs if entry.run.fingerprint == page.testbed]
        if page.before is not None:
            try:
                before = [entry.run.id for entry in runs].index(page.before)
            except ValueError:
                raise unknown_run(page.before, name=self._link.name) from None
            runs = runs[before + 1 :]
        return cast("list[Entry]", runs[: page.limit])

    def documents(self, project: str, run_ids: Sequence[str]) -> list[StoredDocument]:
        """The documents of runs as they were recorded, by their ids or the beginnings
        of these.
        """
        try:
            return self._documents(project, run_ids)
        except StoreRefusedError:
            # The branch was rewritten since it was read, or the server is gone.
            self._contents = None
            return self._documents(project, run_ids)

    def remove(
        self,
        project: str,
        run_ids: Sequence[str],
        *,
        actor: str = LOCAL,  # noqa: ARG002 - as `append`
    ) -> int:
        """Remove runs with their documents; return how many were there.

        The history is squashed to the remaining files, so that the server can discard
        the rest.
        """
        prefix, unwanted = layout.entries_prefix(RunEntry, project), set(run_ids)
        removed: set[str] = set()

        def plan(tip: Tip) -> StoreChange | None:
            removed.clear()
            for path in tip.files:
                if path.startswith(prefix) and layout.parse_run_path(path) in unwanted:
                    removed.add(path)
            if not removed:
                return None
            unused = layout.orphans(tip.files.keys() - removed)
            return StoreChange(
                f"prune {_runs(len(removed))}",
                remove=frozenset(removed | unused),
                alone=True,
            )

        if run_ids:
            self._write(plan)
        return len(removed)

    def projects(self) -> list[str]:
        return self._read().projects()

    def stored_projects(self) -> StoredProjects:
        return self._read().stored_projects()

    def revision(self, project: str) -> str:  # noqa: ARG002 - a branch changes as a whole
        """The commit of the branch."""
        return self._read().tip.commit or ""

    def damaged(self, project: str) -> list[str]:
        return self._read().damaged(project)

    def ledger(self) -> None:
        """None: every reader of the branch could read it."""

    def clock_ahead(self) -> timedelta:
        """Zero: the time of recording is this machine's."""
        return timedelta()

    @property
    def name(self) -> str:
        """The branch with its repository, as messages name it. Raises StoreError if
        there is none.
        """
        return self._link.name

    @cached_property
    def _link(self) -> RemoteBranch:
        return find_link(self._branch, self._remote, self._place)

    def _documents(self, project: str, run_ids: Sequence[str]) -> list[StoredDocument]:
        stored = [entry.run.id for entry in self._read().runs(project)]
        paths: list[str] = []
        for beginning in run_ids:
            matches = [
                run_id for run_id in stored if run_id.startswith(beginning.lower())
            ]
            paths.append(
                layout.document_path(
                    the_only_run(matches, beginning, name=self._link.name)
                )
            )
        with open_scratch(self._link) as scratch:
            packed = _read_files(scratch, self._read().tip, paths)
        return [self._document(path, packed) for path in paths]

    def _document(self, path: str, packed: Mapping[str, bytes]) -> StoredDocument:
        run_id = layout.parse_document_path(path) or ""
        name = f"{self._link.name}: {path}"
        data, fault = b"", ""
        try:
            if path not in packed:
                raise StoreError(
                    "{name} is missing; {remedy}", name=name, remedy=layout.REMEDY
                )
            data = layout.unpack_document(packed[path], name=name)
        except StoreError as error:
            fault = str(error)
        return StoredDocument(
            id=run_id, name=name, data=data, fault=fault, remedy=layout.REMEDY
        )

    def _write(self, plan: ChangePlan) -> None:
        """Push the commit of a plan, planned again whenever another writer was faster."""
        with open_scratch(self._link) as scratch:
            for attempt in range(TRIES):
                tip = self._fetch(scratch)
                change = plan(tip)
                if change is None or self._push(scratch, tip, change):
                    self._contents = None
                    return
                self._sleep(
                    random.uniform(0.0, min(MAX_WAIT_SECONDS, 0.05 * 2**attempt))
                )
        raise StoreRefusedError(
            "{name} cannot be written: other writers were faster {tries} times; run the command again",
            name=self._link.name,
            tries=TRIES,
        )

    def _push(self, scratch: Scratch, tip: Tip, change: StoreChange) -> bool:
        """Push a change unless the branch has moved; squash a history that has grown
        long.
        """
        seconds = int(self._clock().timestamp())
        if tip.commit is None:
            change = replace(change, write={**layout.first_files(), **change.write})
        elif change.alone or tip.commits % self._max_commits == 0:
            # The server may forbid rewriting a branch; then the history continues.
            with suppress(StoreRefusedError):
                return scratch.push(
                    tip, replace(change, alone=True), seconds_since_1970=seconds
                )
        return scratch.push(
            tip, replace(change, alone=False), seconds_since_1970=seconds
        )

    def _fetch(self, scratch: Scratch) -> Tip:
        tip = scratch.fetch()
        if tip.commit is not None:
            layout.check_mark(tip.files, name=self._link.name)
        return tip

    def _read(self) -> BranchContents:
        """Everything except the documents."""
        if self._contents is None:
            with open_scratch(self._link) as scratch:
                tip = self._fetch(scratch)
                paths = [
                    path for path in tip.files if not path.startswith(layout.DOCUMENTS)
                ]
                files = _read_files(scratch, tip, paths, most=layout.MAX_SMALL_BYTES)
                self._contents = BranchContents(self._link.name, tip, files)
        return self._contents


class BranchContents:
    """The files of a branch except the documents, decoded on demand."""

    def __init__(self, name: str, tip: Tip, files: Mapping[str, bytes]) -> None:
        self.tip = tip
        self._name = name
        self._files = files
        # The runs below a prefix, and a message for each unreadable one.
        self._runs: dict[str, tuple[list[RunEntry], list[str]]] = {}

    def runs(self, project: str) -> list[RunEntry]:
        return self._decode(layout.entries_prefix(RunEntry, project))[0]

    def damaged(self, project: str) -> list[str]:
        """One message per unreadable run; it does not hide the other runs."""
        return self._decode(layout.entries_prefix(RunEntry, project))[1]

    def projects(self) -> list[str]:
        """The projects of all readable runs."""
        folders = {
            path.rpartition("/")[0]
            for path in self._files
            if layout.parse_run_path(path)
        }
        names: set[str] = set()
        for folder in folders:
            for entry in self._decode(f"{folder}/")[0]:
                names.add(entry.run.project)
        return sorted(names)

    def stored_projects(self) -> StoredProjects:
        names = self.projects()
        keys = set(map(layout.project_key, names))
        entries: Counter[str] = Counter()
        has_runs: set[str] = set()
        for path in self._files:
            kind, _, rest = path.partition("/")
            key, slash, _ = rest.partition("/")
            if kind in ENTRIES and slash and key not in keys:
                entries[key] += 1
                if ENTRIES[kind] is RunEntry:
                    has_runs.add(key)
        unreadable: list[str] = []
        unnamed: list[str] = []
        for key, count in sorted(entries.items()):
            if key in has_runs:
                reason = Activity(
                    "{name}: the project in the folders {folder} has no run that can be read; {remedy}",
                    name=self._name,
                    folder=key,
                    remedy=layout.REMEDY,
                )
                unreadable.append(str(reason))
            else:
                reason = Activity(
                    "{name}: the project in the folders {folder} has no run that names it; give its name by --project "
                    "(files: {count})",
                    name=self._name,
                    folder=key,
                    count=count,
                )
                unnamed.append(str(reason))
        return StoredProjects(names, tuple(unreadable), tuple(unnamed))

    def statements(self, project: str, kind: type[Entry]) -> list[Entry]:
        """The statements of a kind. Raises StoreError for an unreadable one."""
        prefix = layout.entries_prefix(kind, project)
        statements: list[Entry] = []
        for path, data in self._files.items():
            if path.startswith(prefix):
                statements.append(
                    layout.decode(data, kind, name=f"{self._name}: {path}")
                )
        return statements

    def _decode(self, prefix: str) -> tuple[list[RunEntry], list[str]]:
        if prefix not in self._runs:
            runs: list[RunEntry] = []
            damaged: list[str] = []
            for path, data in self._files.items():
                if path.startswith(prefix):
                    try:
                        runs.append(
                            layout.decode_run(data, path, name=f"{self._name}: {path}")
                        )
                    except StoreError as error:
                        damaged.append(str(error))
            self._runs[prefix] = runs, damaged
        return self._runs[prefix]


def _read_files(
    scratch: Scratch, tip: Tip, paths: Iterable[str], *, most: int = MAX_FILE_BYTES
) -> dict[str, bytes]:
    """The files of a tip at these paths; paths that it lacks are left out."""
    names = {path: tip.files[path] for path in paths if path in tip.files}
    contents = scratch.read(list(names.values()), most=most)
    return {path: contents[name] for path, name in names.items()}


def _refuse_other(run: StoredRun, path: str) -> None:
    """Raise SessionKeptError if the session of a run is stored, at this path, with
    another document.
    """
    stored = layout.parse_run_path(path) or ""
    if stored != run.id:
        raise kept_already(run.session, stored)


def _oldest_gates(project: str, paths: Iterable[str]) -> list[str]:
    """The verdicts of a project above the most that are kept."""
    prefix = layout.entries_prefix(GateRecord, project)
    gates = [path for path in paths if path.startswith(prefix)]
    gates.sort(key=layout.statement_time)
    return gates[: -layout.MOST_GATES]


def _subject(entries: Sequence[LogEntry]) -> str:
    """The subject of the commit that adds entries."""
    first = entries[0]
    if not isinstance(first, RunEntry):
        return _SUBJECTS[type(first)]
    if len(entries) > 1:
        return f"record {_runs(len(entries))}"
    subject = f"record run {first.run.id[:12]}"
    commit = first.run.commit
    if commit and commit.isalnum():
        subject += f" of {commit[:12]}"
    return subject


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
