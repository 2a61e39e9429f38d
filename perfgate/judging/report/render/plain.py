"""Lines and tables for the terminal that rich draws; into a pipe or a file they go without it if they are as simple as most.

Importing rich takes as long as answering a question from what is kept of a recording.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from perfgate.locale import translate

if TYPE_CHECKING:
    from rich.console import Console

_BETWEEN = 3  # spaces between two columns
_NO_TERMINAL_WIDTH = 80
# With one of these rich styles what goes into a pipe too.
_STYLING = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_NARROW = frozenset("…–—·×µ−")  # each takes one place, though it is no ASCII


class Text:
    """A line in styles of rich."""

    def __init__(self, plain: str, style: str = "") -> None:
        self.parts = [(plain, style)]

    @property
    def plain(self) -> str:
        return "".join(part for part, _ in self.parts)

    def __add__(self, other: Text) -> Text:
        both = Text("")
        both.parts = [*self.parts, *other.parts]
        return both

    def __rich__(self) -> Any:
        from rich.text import Text as RichText

        return RichText.assemble(*self.parts)

    def lines(self, width: int) -> list[str] | None:
        """Without rich; None if it has to be wrapped, or has wide letters."""
        return [self.plain] if _is_simple(self.plain) and len(self.plain) <= width else None


class Table:
    """Columns under titles; a title that ends in ``>`` is that of numbers. Cells are lines, of rich or of this module."""

    def __init__(self, *titles: str) -> None:
        self._titles = [translate(title.rstrip(">")) for title in titles]
        self._is_number = [title.endswith(">") for title in titles]
        self._rows: list[tuple[Any, ...]] = []

    def add_row(self, *cells: Any) -> None:
        self._rows.append(cells)

    def __rich__(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for title, number in zip(self._titles, self._is_number):
            table.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold")
        for row in self._rows:
            table.add_row(*row)
        return table

    def lines(self, width: int) -> list[str] | None:
        """Without rich; None if it is too wide, or has wide letters."""
        rows = [self._titles, *([cell.plain for cell in row] for row in self._rows)]
        if not all(map(_is_simple, (cell for row in rows for cell in row))) or len({len(row) for row in rows}) > 1:
            return None
        widths = [max(map(len, column)) for column in zip(*rows)]
        whole = sum(widths) + _BETWEEN * (len(widths) - 1)
        if whole > width:
            return None
        lines = [
            (" " * _BETWEEN).join(
                cell.rstrip().rjust(wide) if number else cell.ljust(wide)
                for cell, wide, number in zip(row, widths, self._is_number)
            )
            for row in rows
        ]
        return [lines[0], "─" * whole, *lines[1:]]


class TerminalOutput:
    """Prints as a console of rich does."""

    def __init__(self) -> None:
        self._console: Console | None = None
        self._is_plain = not sys.stdout.isatty() and not any(name in os.environ for name in _STYLING)

    @property
    def width(self) -> int:
        return self._plain_width() if self._is_plain else self._rich().width

    def print(self, item: Any) -> None:
        is_ours = self._is_plain and isinstance(item, (Text, Table))
        lines = item.lines(self.width) if is_ours else None
        if lines is None:
            self._rich().print(item)
        else:
            sys.stdout.write("".join(f"{line}\n" for line in lines))

    def _rich(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(emoji=False)  # loading the emoji names takes longer than printing a table
        return self._console

    @staticmethod
    def _plain_width() -> int:
        """That of the terminal, if any of the standard streams is one, as rich looks for it."""
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit():
            return int(columns)
        for descriptor in range(3):
            try:
                return os.get_terminal_size(descriptor).columns or _NO_TERMINAL_WIDTH
            except (OSError, ValueError):
                continue
        return _NO_TERMINAL_WIDTH


def _is_simple(text: str) -> bool:
    """Whether each letter takes one place, and none breaks the line."""
    return text.isprintable() and (text.isascii() or all(letter.isascii() or letter in _NARROW for letter in text))
