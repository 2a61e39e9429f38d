"""What the tables of an export share: names by number, spans, threads."""

from __future__ import annotations

from perfgate.trace.readers._ascend.database import Database
from perfgate.trace.readers._ascend.kernels import shapes

_THREAD_BITS = (1 << 32) - 1


class Words:
    """The database with its STRING_IDS."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._strings = {
            database.whole(number): str(value) for number, value in database.rows("STRING_IDS", ("id", "value"))
        }
        # What the task queue takes out again is an operator, as on the timeline.
        self.queued = {text[len("Dequeue@") :] for text in self._strings.values() if text.startswith("Dequeue@")}

    def span(self, start: object, end: object) -> tuple[int, int]:
        """Return start and length; startNs of PYTORCH_API is text, and a mark may have no end."""
        begin = self.database.whole(start)
        if begin is None:
            raise self.database.wrong("holds an event without a start; export the profile again")
        last = self.database.whole(end)
        return begin, max((begin if last is None else last) - begin, 0)

    def thread(self, number: object) -> int:
        """Return the thread of a globalTid: process in the upper, thread in the lower 32 bits."""
        return number & _THREAD_BITS if isinstance(number, int) else 0

    def text(self, number: object) -> str:
        """Return a name by its number, the number itself where it has none."""
        found = self._strings.get(number) if isinstance(number, int) else None
        return str(number) if found is None else found

    def cell(self, number: object) -> str | None:
        """Return a name as a cell of a table: without quotes, None for N/A."""
        found = None if number is None else self.text(number).strip('"')
        return None if found in (None, "N/A") else found

    def shapes(self, cell: str | None) -> tuple[tuple[int, ...], ...]:
        """Return one shape a tensor."""
        try:
            return () if cell is None else shapes(cell)
        except ValueError:
            raise self.database.wrong(f"{cell!r} is no list of shapes; export the profile again") from None
