"""Detect changes of base and head while they are measured: of their checkouts, imports and linked files.

Code of the head runs as the user that base's workers run as, so it can write wherever these read. Sealed files are compared
with their state before any code of the change ran. A file that base writes into its own checkout is base's own while only
base runs; while code of the head can run too, nothing that base reads may change. The head's files in its own checkout are
its own at any time: base reads nothing there. A file of the commit never changes. A file that only got another name, as a
hard link, is unchanged if the kernel reports no write to it. Of what others share with the sides
(installed packages, libraries, programs) only changes count that concern a side (``in_use``).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.conductor.workers.in_use import FolderInUse, Holds, UsedFiles, libraries_by_name
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

# More files than an environment with torch and CANN has (30,000 to 60,000); each takes 10 µs.
MOST_ENTRIES = 200_000
# Of the time that pairs take, the part that comparing may take.
_SHARE = 0.02
_NAMED = 5
_LOCK = ".lock"


@dataclass(frozen=True)
class SealedFolder:
    """A folder that must stay as it is. ``name`` is the prefix of its files in reports.

    Only code of ``own`` may write there, and not to files that are ``committed``; no code if ``own`` is None. ``results`` are
    patterns of files that it is told to write, which no report names. ``stamp``
    reads its state, None if that is too large. ``root`` is given if a change below it can be put back without a trace in two
    ways only: another folder stands in its place, or in that of a link's target, for a while; or, if ``stamp`` leaves out
    folders, a file is there for a while. Both change what ``folders`` reads. ``holds`` tells which changes count, and
    ``covers`` which paths below ``root`` are sealed.
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
    """The folders whose code a side can load, and the files that its interpreter maps: itself and its libraries."""

    folders: list[SealedFolder]
    libraries: list[Path]


@cache  # Environments share installed packages: what is the same is sealed once.
def sealed_tree(name: str, root: Path) -> SealedFolder:
    """A folder or file in which nothing may change."""
    return SealedFolder(name, partial(stamps_below, root, most=MOST_ENTRIES), root=root)


def sealed_files(name: str, root: Path, *, own: Side | None = None) -> SealedFolder:
    """A folder in which programs may add files: those that are there must stay, and none may run at a start of Python."""
    known: frozenset[str] | None = None

    def stamp() -> Stamps | None:
        nonlocal known
        found = stamps_below(root, most=MOST_ENTRIES)
        if found is None:
            return None
        files = {file: stamp for file, stamp in found.items() if not is_folder(stamp) and not file.endswith(_LOCK)}
        if known is None:
            known = frozenset(files)
        return {file: stamp for file, stamp in files.items() if file in known or _runs_at_start(file)}

    return SealedFolder(name, stamp, own=own)


def _runs_at_start(file: str) -> bool:
    last = file.rpartition("/")[2]
    return last.endswith(".pth") or last.partition(".")[0] in ("sitecustomize", "usercustomize")


@dataclass
class _State:
    """The expected and the last seen state of a folder that ``sides`` read, and the files that its own side wrote there.

    ``wrong`` are the names that have differed once: they stay wrong though they were put back.
    """

    folder: SealedFolder
    expected: Stamps
    sides: set[Side]
    writes: WriteWatch
    own: dict[str, None] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.digest = _digest(self.expected)
        self.found = dict(self.expected)
        root = self.folder.root
        links = [root / name for name, stamp in self.found.items() if is_link(stamp)] if root else []
        self._links = list(filter(_leads_away, links))
        self._passing = self._stamp_passing()
        if root and self.folder.own is None:
            for path in filter(_has_several_names, map(self._path_of, self.expected)):
                self.writes.add(path)

    def may_have_changed(self) -> bool:
        """Whether something has changed that a later comparison may not see: it can be put back without a trace."""
        return self.folder.root is None or self._stamp_passing() != self._passing

    def _stamp_passing(self) -> tuple[Stamps, list[Stamp | None]]:
        """The state of folders and links that changes when something is put in the place of something else."""
        root = self.folder.root
        return self.folder.folders(root) if root else {}, [stamp_of(link) for link in self._links]

    def compare(self, *, alone: Side | None) -> None:
        """Look at the folder again. ``alone`` is the side that ran since the last time, if it was only one."""
        folder, seen = self.folder, self.found
        # Before the files: what changes while they are read shows the next time.
        self._passing = self._stamp_passing()
        self.found = folder.stamp() or {}
        # The head's files in its own checkout affect nothing else.
        may_write = folder.own is not None and folder.own in (alone, "head")
        written = [name for name in _differing(seen, self.found) if name not in folder.committed] if may_write else []
        for name in written:
            # An earlier change by another side stays one.
            if name in self.wrong:
                continue
            stamp = self.found.get(name)
            if stamp is None:
                del self.expected[name]
                continue
            self.expected[name] = stamp
            if not is_folder(stamp) and not any(fnmatch(name, pattern) for pattern in folder.results):
                self.own[name] = None
        if written:
            self.digest = _digest(self.expected)
        differing = _differing(self.expected, self.found)
        self.wrong.update(name for name in differing if not self._has_other_names_only(name))

    def _has_other_names_only(self, name: str) -> bool:
        """Whether all that happened to a file is that it got, or lost, another name."""
        before, after = self.expected.get(name, ()), self.found.get(name, ())
        return without_change_time(before) == without_change_time(after) and self.is_unwritten(name)

    def is_unwritten(self, name: str) -> bool:
        """Whether a file, which had several names when it was sealed, is known not to have been written since."""
        return self.writes.is_unwritten(self._path_of(name))

    def _path_of(self, name: str) -> str:
        root = str(self.folder.root)
        return root if name == "." else f"{root}/{name}"

    def changed_files(self) -> set[str]:
        """The changed files, without folders that only reflect changes in them."""
        parents = {name.rpartition("/")[0] or "." for name in self.wrong if name != "."}
        return self.wrong - parents


class _InUse(NamedTuple):
    """What the sides use by their reports until now, and files that they loaded in another state than the sealed one."""

    loads: Loads
    folders: dict[SealedFolder, FolderInUse]
    unsealed: dict[SealedFolder, set[str]]


class Seals:
    """Everything that base and head run and read, sealed when it is added.

    ``loads`` receives what their processes load; without it every change counts. ``libraries`` are those of interpreters,
    and ``texts`` the files of the checkouts: what these name is in use.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, loads: LoadLog | None = None) -> None:
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
        """Code of these sides, and of no other, is about to run: compare changes by others before.

        Changes that last are left to the check at the end, since installed packages are most of all files.
        """
        running = frozenset(sides)
        if self._running and self._running != running:
            self._compare(self._changeable())
        self._running = running

    def check(self) -> None:
        """Compare everything."""
        self._look(self._states.values())

    def check_if_due(self) -> None:
        """Compare what may be put back without a trace, unless that was done a moment ago."""
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
        alone = next(iter(self._running)) if len(self._running) == 1 else None
        for state in states:
            state.compare(alone=alone)
        self._seals.clear()

    def seal_of(self, side: Side) -> Seal:
        """The seal of a side for its document, by the last comparison."""
        if side not in self._seals:
            self._seals[side] = self._make_seal([state for state in self._states.values() if side in state.sides])
        return self._seals[side]

    def _make_seal(self, states: list[_State]) -> Seal:
        changed = self._changes_in_use(states)
        return Seal(
            entries=sum(len(state.expected) for state in states),
            before=_together(state.digest for state in states),
            after=_together(_digest_with(state, changed[state.folder]) for state in states),
            changed=_names([(state.folder, sorted(changed[state.folder])) for state in states]),
            own=_names([(state.folder, list(state.own)) for state in states]),
            left_out=self._left_out,
        )

    def _changes_in_use(self, states: list[_State]) -> dict[SealedFolder, set[str]]:
        """The changed files of each folder that concern a side, and those that a side loaded in another state."""
        loads = self.loads.read() if self.loads else None
        if loads is None:
            return {state.folder: state.changed_files() for state in states}
        if self._in_use is None or self._in_use.loads != loads:
            self._in_use = self._find_use(loads)
        changed = {}
        for state in states:
            folder = self._in_use.folders[state.folder]
            concerning = {name for name in state.changed_files() if folder.concerns(name)}
            changed[state.folder] = concerning | self._in_use.unsealed.get(state.folder, set())
        return changed

    def _find_use(self, loads: Loads) -> _InUse:
        used = UsedFiles(loads, tuple(self.libraries), tuple(self.texts))
        folders = self._folders_in_use(used)
        by_root = {str(folder.root): folder for folder in folders if folder.root and folder.holds == "modules"}
        unsealed: dict[SealedFolder, set[str]] = {}
        for path, stamps in used.resolved.items():
            parent = next((parent for parent in Path(path).parents if str(parent) in by_root), None)
            if parent is None:
                continue
            folder, name = by_root[str(parent)], path.removeprefix(f"{parent}/")
            if folder.covers(name) and not folders[folder].is_sealed(name, stamps):
                unsealed.setdefault(folder, set()).add(name)
        return _InUse(loads, folders, unsealed)

    def _folders_in_use(self, used: UsedFiles) -> dict[SealedFolder, FolderInUse]:
        shared = [state for state in self._states.values() if state.folder.root and state.folder.holds != "everything"]

        @cache
        def library_names() -> frozenset[str]:
            known = libraries_by_name((state.folder.root or Path(), state.expected) for state in shared)
            return used.library_names(known)

        of_programs = [state.expected for state in shared if state.folder.holds == "programs"]
        programs = frozenset(name for expected in of_programs for name in expected)
        return {
            folder: FolderInUse(
                folder.root or Path(), folder.holds, state.expected, used, library_names, state.is_unwritten, programs
            )
            for folder, state in self._states.items()
        }


def _has_several_names(path: str) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116 - of every sealed file
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _leads_away(link: Path) -> bool:
    """Whether a link leads out of its folder. To put another file in the place of one beside it changes that folder."""
    try:
        return "/" in str(link.readlink())
    except OSError:
        return True


def _names(files: Sequence[tuple[SealedFolder, list[str]]]) -> list[str]:
    paths = [folder.name + ("" if name == "." else f"/{name}") for folder, names in files for name in names]
    more = [f"… ({len(paths) - _NAMED})"] if len(paths) > _NAMED else []
    return [*map(one_line, paths[:_NAMED]), *more]


def _differing(before: Stamps, after: Stamps) -> list[str]:
    if before == after:
        return []
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _digest(stamps: Stamps) -> str:
    entries = [(os.fsencode(name), stamp) for name, stamp in sorted(stamps.items())]
    return sha256(msgspec.msgpack.encode(entries)).hexdigest()


def _digest_with(state: _State, names: set[str]) -> str:
    """The digest of the expected state with the last seen one of these files."""
    if not names:
        return state.digest
    last_seen = {name: state.found[name] for name in names if name in state.found}
    unchanged = {name: stamp for name, stamp in state.expected.items() if name not in names}
    return _digest({**unchanged, **last_seen})


def _together(digests: Iterable[str]) -> str:
    return sha256("".join(digests).encode()).hexdigest()
