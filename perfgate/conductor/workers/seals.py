"""Whether base and head stayed what they were while they were measured: their checkouts, what they import, what is linked in.

Code of the head runs as the user that base's workers run as, so it can write wherever these read. What is sealed is compared
with what it was before any code of the change ran. A file that base writes into its own checkout is base's own while only
base runs; while code of the head can run too, nothing that base reads may change, whoever did it. What the head writes into
its own checkout is its own at any time: base reads nothing there. A file of the commit never changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

from perfgate.conductor.workers.cleanup import one_line
from perfgate.document.run import Side
from perfgate.document.seal import Seal
from perfgate.system.stamps import Stamps, is_folder, stamps_below

# More files than an environment with torch and CANN has (30,000 to 60,000); each takes 10 µs.
MOST_ENTRIES = 200_000
# Of the time that pairs take, the part that comparing may take.
_SHARE = 0.02
_NAMED = 5


@dataclass(frozen=True)
class SealedFolder:
    """A folder that must stay as it is. ``name`` stands before the names of its files where people read them.

    Only code of ``own`` may write there, and not to files that are ``committed``; nobody where there is no such side.
    ``stamp`` finds what is there, None where that is too much.
    """

    name: str
    stamp: Callable[[], Stamps | None]
    own: Side | None = None
    committed: frozenset[str] = frozenset()


def sealed_tree(name: str, root: Path, *, without: frozenset[str] = frozenset()) -> SealedFolder:
    """A folder or file in which nothing may change; folders in it that are called as in ``without`` are left out."""
    return SealedFolder(name, partial(stamps_below, root, most=MOST_ENTRIES, without=without))


@dataclass
class _State:
    """A sealed folder as it should be and as it was found last, and what its own side wrote there."""

    folder: SealedFolder
    expected: Stamps
    found: Stamps
    own: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.digest = _digest(self.expected)

    def compare(self, *, alone: Side | None) -> None:
        """Look at the folder again. ``alone`` is the side of which code has run since the last time, where it is only one."""
        folder, seen, wrong = self.folder, self.found, set(self.changed())
        self.found = folder.stamp() or {}
        # What the head writes into its own checkout reaches nobody else.
        may_write = folder.own is not None and folder.own in (alone, "head")
        written = [name for name in _differing(seen, self.found) if name not in folder.committed] if may_write else []
        for name in written:
            # What somebody else has changed before stays that.
            if name in wrong:
                continue
            stamp = self.found.get(name)
            if stamp is None:
                del self.expected[name]
                continue
            self.expected[name] = stamp
            if not is_folder(stamp):
                self.own[name] = None
        if written:
            self.digest = _digest(self.expected)

    def changed(self) -> list[str]:
        return _differing(self.expected, self.found)

    def changed_files(self) -> list[str]:
        """What changed, without the folders that only show that something in them did."""
        names = self.changed()
        parents = {name.rpartition("/")[0] or "." for name in names if name != "."}
        return [name for name in names if name not in parents]


class Seals:
    """Everything that base and head run and read, sealed when it is added."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._states: list[tuple[tuple[Side, ...], _State]] = []
        self._left_out: list[str] = []
        self._running: tuple[Side, ...] = ()
        self._looked = clock()
        self._took = 0.0
        self._seals: dict[Side, Seal] = {}

    def add(self, folders: Iterable[SealedFolder], *sides: Side) -> None:
        """Seal folders that code of the ``sides`` reads."""
        for folder in folders:
            stamps = folder.stamp()
            if stamps is None:
                self._left_out.append(folder.name)
            else:
                self._states.append((sides, _State(folder, dict(stamps), stamps)))
        self._seals.clear()

    def begin(self, *sides: Side) -> None:
        """Code of these sides, and of no other, is about to run: compare what others may have changed before."""
        if self._running and self._running != sides:
            self.check()
        self._running = sides

    def check(self) -> None:
        began = self._clock()
        alone = self._running[0] if len(self._running) == 1 else None
        for _, state in self._states:
            state.compare(alone=alone)
        self._looked = self._clock()
        self._took = self._looked - began
        self._seals.clear()

    def check_if_due(self) -> None:
        """Compare unless that was done a moment ago: what is not seen now is seen later."""
        if self._took <= _SHARE * (self._clock() - self._looked):
            self.check()

    def seal_of(self, side: Side) -> Seal:
        """What the document of a side holds of it, by the last comparison."""
        if side not in self._seals:
            self._seals[side] = self._make_seal([state for sides, state in self._states if side in sides])
        return self._seals[side]

    def _make_seal(self, states: list[_State]) -> Seal:
        return Seal(
            entries=sum(len(state.expected) for state in states),
            before=_together(state.digest for state in states),
            after=_together(
                state.digest if state.expected == state.found else _digest(state.found) for state in states
            ),
            changed=_names(states, _State.changed_files),
            own=_names(states, lambda state: list(state.own)),
            left_out=self._left_out,
        )


def _names(states: Sequence[_State], of: Callable[[_State], list[str]]) -> list[str]:
    names = [one_line(_path(state.folder.name, name)) for state in states for name in of(state)]
    return names[:_NAMED] + ([f"… ({len(names) - _NAMED})"] if len(names) > _NAMED else [])


def _path(folder: str, name: str) -> str:
    return folder if name == "." else f"{folder}/{name}"


def _differing(before: Stamps, after: Stamps) -> list[str]:
    if before == after:
        return []
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _digest(stamps: Stamps) -> str:
    return sha256(repr(sorted(stamps.items())).encode(errors="surrogateescape")).hexdigest()


def _together(digests: Iterable[str]) -> str:
    return sha256("".join(digests).encode()).hexdigest()
