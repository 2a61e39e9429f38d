"""Detect changes of base and head while they are measured: of their checkouts, imports
and linked files.

Code of the head runs as the same user as base's workers, so it can write wherever these
read. Sealed files are compared with their state before any code of the change ran. Base
may write files into its own checkout while only base runs; while code of the head can
run too, every file that base reads must stay. The head may write into its own checkout
at any time, because base does not read it. A file of the commit never changes. A file
that only got another name, as a hard link, is unchanged if the kernel reports no write
to it. Of everything shared with other programs (installed packages, libraries,
programs) only changes count that concern a side (``in_use``).
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.workers.in_use import (
    FolderInUse,
    Holds,
    UsedFiles,
    libraries_by_name,
    starts_python,
)
from perfgate.conductor.workers.load_log import LoadLog, Loads
from perfgate.document.run import Side
from perfgate.document.seal import Seal
from perfgate.system.logs import one_line
from perfgate.system.stamps import (
    Stamp,
    Stamps,
    folder_itself,
    is_folder,
    is_link,
    stamp_of,
    stamps_below,
    without_change_time,
)
from perfgate.system.writes import WriteWatch

# More files than an environment with torch and CANN has (30,000 to 60,000); each takes
# 10 µs.
MOST_ENTRIES = 200_000
# Of the time that pairs take, the part that comparing may take.
_SHARE = 0.02
_NAMED = 5
_LOCK = ".lock"


@dataclass(frozen=True)
class SealedFolder:
    """A folder that must stay as it is. ``name`` is the prefix of its files in reports.

    Only code of ``own`` may write there, and not to files that are ``committed``; no
    code if ``own`` is None. Reports do not name files that match ``results``. ``stamp``
    reads the state, None if it is too large. ``root`` is set if a change below it can
    be undone without a trace in two ways only, both of which change the result of
    ``folders``: another folder replaces it or a link's target for a while; or a file
    exists for a while and ``stamp`` leaves out folders. ``holds`` decides which changes
    count, and ``covers`` which paths below ``root`` are sealed.
    """

    name: str
    stamp: Callable[[], Stamps | None]
    own: Side | None = None
    committed: frozenset[str] = frozenset()
    results: tuple[str, ...] = ()
    root: Path | None = None
    folders: Callable[[Path], Stamps] = folder_itself
    holds: Holds = "everything"
    covers: Callable[[str], bool] = bool  # all: no name is empty


class SealedCode(NamedTuple):
    """The folders whose code a side can load, and the files that its interpreter maps:
    itself and its libraries.
    """

    folders: list[SealedFolder]
    libraries: list[Path]


@cache  # Environments share installed packages: what is the same is sealed once.
def sealed_tree(name: str, root: Path) -> SealedFolder:
    """A folder or file that may not change."""
    return SealedFolder(name, partial(stamps_below, root, most=MOST_ENTRIES), root=root)


def sealed_files(name: str, root: Path, *, own: Side | None = None) -> SealedFolder:
    """A folder in which programs may add files: those that are there must stay, and
    none may run at a start of Python.
    """
    first_files: frozenset[str] | None = None

    def stamp() -> Stamps | None:
        nonlocal first_files
        entries = stamps_below(root, most=MOST_ENTRIES)
        if entries is None:
            return None
        files = {
            file: stamp
            for file, stamp in entries.items()
            if not is_folder(stamp) and not file.endswith(_LOCK)
        }
        if first_files is None:
            first_files = frozenset(files)
        stamps = {}
        for file, stamp in files.items():
            last = file.rpartition("/")[2]
            runs_at_start = last.endswith(".pth") or starts_python(last)
            if file in first_files or runs_at_start:
                stamps[file] = stamp
        return stamps

    return SealedFolder(name, stamp, own=own)


@dataclass
class _State:
    """The expected and the current state of a folder that ``sides`` read, and the files
    that its own side wrote there.

    ``wrong`` are the names that have differed once: they stay wrong even if the files
    are put back.
    """

    folder: SealedFolder
    expected: Stamps
    sides: set[Side]
    writes: WriteWatch
    own: dict[str, None] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.digest = _digest(self.expected)
        self.current = dict(self.expected)
        self._links: list[Path] = []
        root = self.folder.root
        if root is not None:
            links = [
                root / name for name, stamp in self.expected.items() if is_link(stamp)
            ]
            self._links = list(filter(_leads_away, links))
        self._passing = self._stamp_passing()
        if root is not None and self.folder.own is None:
            for path in map(self._path_of, self.expected):
                with suppress(OSError):
                    status = os.stat(path)  # noqa: PTH116 - of every sealed file
                    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                        self.writes.add(path)

    def may_have_changed(self) -> bool:
        """Whether something has changed that a later comparison may not see: it can be
        put back without a trace.
        """
        return self.folder.root is None or self._stamp_passing() != self._passing

    def _stamp_passing(self) -> tuple[Stamps, list[Stamp | None]]:
        """The state of folders and links that changes when something is put in the
        place of something else.
        """
        root = self.folder.root
        if root is None:
            return {}, []
        return self.folder.folders(root), list(map(stamp_of, self._links))

    def compare(self, *, alone: Side | None) -> None:
        """Look at the folder again.

        ``alone`` is the side that ran since the last time, if it was only one.
        """
        folder, before = self.folder, self.current
        # Before the files: what changes while they are read shows the next time.
        self._passing = self._stamp_passing()
        self.current = folder.stamp() or {}
        # The head's files in its own checkout affect only the head.
        if folder.own is not None and folder.own in (alone, "head"):
            self._accept(set(_differing(before, self.current)) - folder.committed)
        for name in _differing(self.expected, self.current):
            if not self._has_other_names_only(name):
                self.wrong.add(name)

    def _accept(self, written: set[str]) -> None:
        """Expect the files that their own side wrote; an earlier change by another side
        stays wrong.
        """
        for name in sorted(written - self.wrong):
            stamp = self.current.get(name)
            if stamp is None:
                del self.expected[name]
                continue
            self.expected[name] = stamp
            if not is_folder(stamp) and not any(
                fnmatch(name, pattern) for pattern in self.folder.results
            ):
                self.own[name] = None
        if written:
            self.digest = _digest(self.expected)

    def _has_other_names_only(self, name: str) -> bool:
        """Whether a file only got, or lost, another name."""
        before, after = self.expected.get(name, ()), self.current.get(name, ())
        return without_change_time(before) == without_change_time(
            after
        ) and self.is_unwritten(name)

    def is_unwritten(self, name: str) -> bool:
        """Whether a file, which had several names when it was sealed, is known not to
        have been written since.
        """
        return self.writes.is_unwritten(self._path_of(name))

    def _path_of(self, name: str) -> str:
        root = str(self.folder.root)
        return root if name == "." else f"{root}/{name}"

    def changed_files(self) -> set[str]:
        """The changed files, without folders that only reflect changes in them."""
        parents = {name.rpartition("/")[0] or "." for name in self.wrong if name != "."}
        return self.wrong - parents


class _InUse(NamedTuple):
    """The files that the sides use by their reports until now, and those that they
    loaded in another than the sealed state.
    """

    loads: Loads
    folders: dict[SealedFolder, FolderInUse]
    unsealed: dict[SealedFolder, set[str]]


class Seals:
    """Everything that base and head run and read, sealed when it is added.

    ``loads`` receives what their processes load; without it every change counts.
    ``libraries`` of interpreters, and ``texts``, the files of the checkouts, name
    further files that are in use.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        loads: LoadLog | None,
    ) -> None:
        self.loads = loads
        self.libraries: list[Path] = []
        self.texts: list[Path] = []
        self._clock = clock
        self._states: dict[SealedFolder, _State] = {}
        self._left_out: list[str] = []
        self._running: frozenset[Side] = frozenset()
        self._looked = clock()
        self._took = 0.0
        self._seals: dict[Side, Seal] = {}
        self._in_use: _InUse | None = None
        self._writes = WriteWatch()

    def add(self, folders: Iterable[SealedFolder], *sides: Side) -> None:
        """Seal folders that code of the ``sides`` reads."""
        for folder in folders:
            if state := self._states.get(folder):
                state.sides.update(sides)
            elif (stamps := folder.stamp()) is None:
                self._left_out.append(folder.name)
            else:
                self._states[folder] = _State(folder, stamps, set(sides), self._writes)
        self._seals.clear()
        self._in_use = None

    def add_code(self, code: SealedCode, *sides: Side) -> None:
        """Seal the code that an interpreter of the ``sides`` can load."""
        self.libraries += code.libraries
        self.add(code.folders, *sides)

    def begin(self, *sides: Side) -> None:
        """Code of these sides, and of no other, is about to run: compare changes by
        others before.

        Changes that last are left to the check at the end, since installed packages are
        most of all files.
        """
        running = frozenset(sides)
        if self._running and self._running != running:
            self._compare(self._changeable())
        self._running = running

    def check(self) -> None:
        """Compare everything."""
        self._look(self._states.values())

    def check_if_due(self) -> None:
        """Compare what may be put back without a trace, unless that was done a moment
        ago.
        """
        if self._took <= _SHARE * (self._clock() - self._looked):
            self._look(self._changeable())

    def _changeable(self) -> Iterator[_State]:
        return (state for state in self._states.values() if state.may_have_changed())

    def _look(self, states: Iterable[_State]) -> None:
        began = self._clock()
        self._compare(states)
        self._looked = self._clock()
        self._took = self._looked - began

    def _compare(self, states: Iterable[_State]) -> None:
        alone: Side | None = None
        if len(self._running) == 1:
            (alone,) = self._running
        for state in states:
            state.compare(alone=alone)
        self._seals.clear()

    def seal_of(self, side: Side) -> Seal:
        """The seal of a side for its document, by the last comparison."""
        if side not in self._seals:
            self._seals[side] = self._make_seal(side)
        return self._seals[side]

    def _make_seal(self, side: Side) -> Seal:
        states = [state for state in self._states.values() if side in state.sides]
        changed = self._changes_in_use(states)
        entries = 0
        before, after = sha256(), sha256()
        changed_paths = []
        own_paths = []
        for state in states:
            folder = state.folder
            entries += len(state.expected)
            before.update(state.digest.encode())
            after.update(_digest_with(state, changed[folder]).encode())
            changed_paths += _paths(folder, sorted(changed[folder]))
            own_paths += _paths(folder, state.own)
        return Seal(
            entries=entries,
            before=before.hexdigest(),
            after=after.hexdigest(),
            changed=_first(changed_paths),
            own=_first(own_paths),
            left_out=self._left_out,
        )

    def _changes_in_use(self, states: list[_State]) -> dict[SealedFolder, set[str]]:
        """The changed files of each folder that concern a side, and those that a side
        loaded in another state.
        """
        loads = None
        if self.loads is not None:
            loads = self.loads.read()
        if loads is None:
            return {state.folder: state.changed_files() for state in states}
        if self._in_use is None or self._in_use.loads != loads:
            self._in_use = self._find_use(loads)
        changed = {}
        for state in states:
            folder = self._in_use.folders[state.folder]
            concerning = set(filter(folder.concerns, state.changed_files()))
            changed[state.folder] = concerning | self._in_use.unsealed.get(
                state.folder, set()
            )
        return changed

    def _find_use(self, loads: Loads) -> _InUse:
        used = UsedFiles(loads, tuple(self.libraries), tuple(self.texts))
        folders = self._folders_in_use(used)
        modules = {
            str(folder.root): folder
            for folder in folders
            if folder.root and folder.holds == "modules"
        }
        unsealed: dict[SealedFolder, set[str]] = defaultdict(set)
        for path, stamps in used.resolved.items():
            root = _nearest_folder(path, modules)
            if root is None:
                continue
            folder, name = modules[root], path.removeprefix(f"{root}/")
            if folder.covers(name) and not folders[folder].is_sealed(name, stamps):
                unsealed[folder].add(name)
        return _InUse(loads, folders, unsealed)

    def _folders_in_use(self, used: UsedFiles) -> dict[SealedFolder, FolderInUse]:
        shared = []
        programs: set[str] = set()
        for folder, state in self._states.items():
            if folder.root and folder.holds != "everything":
                shared.append((folder.root, state.expected))
                if folder.holds == "programs":
                    programs.update(state.expected)

        @cache
        def library_names() -> frozenset[str]:
            return used.library_names(libraries_by_name(shared))

        in_use = {}
        for folder, state in self._states.items():
            in_use[folder] = FolderInUse(
                folder.root or Path(),
                folder.holds,
                state.expected,
                used,
                library_names,
                state.is_unwritten,
                frozenset(programs),
            )
        return in_use


def _nearest_folder(path: str, folders: Container[str]) -> str | None:
    """The innermost of the folders that a file is in.

    Texts, because 4,000 files take a tenth of a second as ``Path``.
    """
    parent = path.rpartition("/")[0]
    while parent and parent not in folders:
        parent = parent.rpartition("/")[0]
    return parent or None


def _leads_away(link: Path) -> bool:
    """Whether a link leads out of its folder.

    Replacing a file in the same folder changes that folder.
    """
    try:
        return "/" in str(link.readlink())
    except OSError:
        return True


def _paths(folder: SealedFolder, names: Iterable[str]) -> list[str]:
    return [folder.name if name == "." else f"{folder.name}/{name}" for name in names]


def _first(paths: list[str]) -> list[str]:
    """The first paths, and the number of the others."""
    lines = list(map(one_line, paths[:_NAMED]))
    if len(paths) > _NAMED:
        lines.append(f"… ({len(paths) - _NAMED})")
    return lines


def _differing(before: Stamps, after: Stamps) -> list[str]:
    if before == after:
        return []
    return sorted(
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    )


def _digest(stamps: Stamps) -> str:
    entries = [(os.fsencode(name), stamp) for name, stamp in sorted(stamps.items())]
    return sha256(msgspec.msgpack.encode(entries)).hexdigest()


def _digest_with(state: _State, names: set[str]) -> str:
    """The digest of the expected state with the current state of these files."""
    if not names:
        return state.digest
    stamps = dict(state.expected)
    for name in names:
        stamps.pop(name, None)
        if name in state.current:
            stamps[name] = state.current[name]
    return _digest(stamps)
