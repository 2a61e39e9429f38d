"""The call stacks of kept recordings: a file of columns for each timeline beside those of the recording."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np

from perfgate.trace.cache.columns import ColumnFile, ColumnWriter, DamagedColumnsError
from perfgate.trace.cache.entries import STACKS, EntryFolder
from perfgate.trace.cache.state import EntryState
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.stacks import Stacks, selected

if TYPE_CHECKING:
    from perfgate.document.flame import FlameUnit

# Nearly all times are below 4 s; longer ones take eight bytes.
_SHORT = np.iinfo(np.uint32).max


class _StoredStacks(msgspec.Struct, frozen=True, array_like=True):
    """As ``Stacks``, with numbers of columns in place of the columns; ``of`` is the entry of the recording."""

    of: EntryState
    rows: int | None
    around: int
    called_by: int
    track: int
    own: int
    unit: str
    units: int
    unlaunched: int
    cut: int


class KeptStacks:
    """The stacks of one timeline of a kept recording, which ``of`` identifies."""

    def __init__(self, entries: EntryFolder, name: str, of: EntryState) -> None:
        self._entries, self._name, self._of = entries, name, of

    def recall(self, events: EventTable, *, whole: bool) -> Stacks | None:
        """None if they are not kept, or not of the recording as it is now."""
        file = self._entries.file(self._file_name(whole=whole))
        try:
            columns = ColumnFile(file)
            if columns.owner != os.geteuid():
                return None  # another user with write access to the folder could forge entries
            kept = msgspec.msgpack.decode(columns.content, type=_StoredStacks)
            if kept.of != self._of:
                return None
            rows = None if kept.rows is None else columns.column(kept.rows)
            found = Stacks(
                events=selected(events, rows),
                rows=rows,
                around=columns.column(kept.around),
                called_by=columns.column(kept.called_by),
                track=columns.column(kept.track),
                own=columns.column(kept.own).astype(np.int64, copy=False),
                unit=cast("FlameUnit", kept.unit),
                units=kept.units,
                unlaunched=kept.unlaunched,
                cut=kept.cut,
            )
        except OSError:
            return None
        except (DamagedColumnsError, msgspec.MsgspecError, ValueError, IndexError):
            self._entries.note_damage(file)
            return None
        self._entries.note_use(file)
        return found

    def keep(self, stacks: Stacks, *, whole: bool) -> None:
        """Does nothing if they cannot be written."""
        columns = ColumnWriter()
        fits = stacks.own.max(initial=0) <= _SHORT
        with suppress(OSError, ValueError):
            stored = _StoredStacks(
                of=self._of,
                rows=None if stacks.rows is None else columns.add(stacks.rows),
                around=columns.add(stacks.around),
                called_by=columns.add(stacks.called_by),
                track=columns.add(stacks.track),
                own=columns.add(stacks.own.astype(np.uint32) if fits else stacks.own),
                unit=stacks.unit,
                units=stacks.units,
                unlaunched=stacks.unlaunched,
                cut=stacks.cut,
            )
            self._entries.keep(self._file_name(whole=whole), list(columns.pieces(msgspec.msgpack.encode(stored))))

    def _file_name(self, *, whole: bool) -> str:
        return f"{self._name}{'-whole' if whole else ''}{STACKS}"
