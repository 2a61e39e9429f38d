"""Lines and tables for the terminal that rich draws; into a pipe or a file they go without it if they are as simple as most.

Importing rich takes as long as reading a short recording.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from perfgate.judging.report.text.words import say

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

_BETWEEN = 3  # spaces between two columns
# Letters of a line of a long and of any folded text, and of a folded title.
_LONG_TEXT, _LEAST_TEXT, _LEAST_TITLE = 20, 8, 4
_NO_TERMINAL_WIDTH = 80
# With one of these, rich styles piped output too.
_STYLING = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_NARROW = frozenset("…–—·×µ−")  # each takes one place, though it is not ASCII


class Text:
    """A line in styles of rich."""

    def __init__(self, plain: str, style: str = "") -> None:
        self.parts = [(plain, style)]

    @property
    def plain(self) -> str:
        return "".join(part for part, _ in self.parts)

    def __add__(self, text: Text) -> Text:
        both = Text("")
        both.parts = [*self.parts, *text.parts]
        return both

    def __rich__(self) -> Any:
        from rich.text import Text as RichText

        return RichText.assemble(*self.parts)

    def lines(self, width: int) -> list[str] | None:
        """Without rich; None if it has to be wrapped, or has wide letters."""
        if not _is_simple(self.plain) or len(self.plain) > width:
            return None
        return [self.plain]


class _Letters(NamedTuple):
    """The letters of a column: of its longest cell, its title, and the longest word of the title."""

    is_number: bool
    cell: int
    title: int
    word: int

    def least(self, text: int | None, *, whole_words: bool) -> int:
        """The width to which the column may be folded, if texts may be folded to ``text`` letters or not at all."""
        if self.is_number and whole_words:
            return max(self.cell, self.word)
        folded = max(self.cell, min(self.title, _LEAST_TITLE))
        if self.is_number:
            return folded
        if text is None:
            return max(self.cell, self.title)
        return min(folded, text)


class Table:
    """Columns under titles; a title that ends in ``>`` marks a column of numbers."""

    def __init__(self, *titles: str) -> None:
        self._titles: list[str] = []
        self._is_number: list[bool] = []
        for title in titles:
            name = title.removesuffix(">")
            self._titles.append(say(name))
            self._is_number.append(name != title)
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        texts: list[Text] = []
        for cell in cells:
            if isinstance(cell, Text):
                texts.append(cell)
            else:
                texts.append(Text(cell))
        self._rows.append(texts)

    def __rich_console__(self, console: Any, options: ConsoleOptions) -> Iterator[Any]:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        widths = self._widths(options.max_width)
        if _line_width(widths) > options.max_width:
            yield from self._records()
            return
        table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for title, number, width in zip(self._titles, self._is_number, widths):
            table.add_column(title, justify="right" if number else "left", width=width, overflow="fold")
        for row in self._rows:
            table.add_row(*row)
        yield table

    def _records(self) -> Iterator[Text]:
        """Each row as lines of a title and a cell, for terminals too narrow for the numbers of all columns."""
        for row in self._rows:
            first, title = row[0].plain.strip(), self._titles[0]
            if not first.startswith(title):
                first = f"{title} {first}".strip()
            yield Text(first)
            for title, cell in zip(self._titles[1:], row[1:]):
                plain = cell.plain.strip()
                if plain:
                    yield Text(f"  {f'{title} {plain}'.strip()}")

    def _widths(self, most: int) -> list[int]:
        """The widths of the columns in a line of ``most`` letters.

        If that is too short, titles of numbers are folded between their words first, then long texts, then titles within their
        words, then all texts: a number without its unit is another number.
        """
        from rich.cells import cell_len

        columns = []
        for index, (title, is_number) in enumerate(zip(self._titles, self._is_number)):
            cell = max((cell_len(row[index].plain) for row in self._rows), default=1)
            word = max(map(cell_len, title.split()), default=0)
            columns.append(_Letters(is_number, cell, cell_len(title), word))
        widths = [max(column.cell, column.title) for column in columns]
        for text, whole_words in ((None, True), (_LONG_TEXT, True), (_LONG_TEXT, False), (_LEAST_TEXT, False)):
            _narrow(widths, [column.least(text, whole_words=whole_words) for column in columns], most)
        return widths

    def lines(self, width: int) -> list[str] | None:
        """Without rich; None if it is too wide, or has wide letters."""
        rows: list[Sequence[str]] = [self._titles]
        for row in self._rows:
            rows.append([cell.plain for cell in row])
        if not all(len(row) == len(self._titles) and all(map(_is_simple, row)) for row in rows):
            return None
        widths = [max(map(len, column)) for column in zip(*rows)]
        whole = _line_width(widths)
        if whole > width:
            return None
        first, *rest = [self._line(row, widths) for row in rows]
        return [first, "─" * whole, *rest]

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = []
        for cell, wide, is_number in zip(row, widths, self._is_number):
            if is_number:
                cells.append(cell.rstrip().rjust(wide))
            else:
                cells.append(cell.ljust(wide))
        return (" " * _BETWEEN).join(cells)


class TerminalOutput:
    """Prints as a console of rich does."""

    def __init__(self) -> None:
        self._console: Console | None = None
        self._is_plain = not sys.stdout.isatty() and not any(name in os.environ for name in _STYLING)

    @property
    def width(self) -> int:
        if self._is_plain:
            return self._plain_width()
        return self._rich().width

    def print(self, item: Any) -> None:
        lines = None
        if self._is_plain and isinstance(item, (Text, Table)):
            lines = item.lines(self.width)
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
        """The width of the terminal behind any of the standard streams, as rich determines it."""
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit():
            return int(columns)
        for descriptor in range(3):
            try:
                return os.get_terminal_size(descriptor).columns or _NO_TERMINAL_WIDTH
            except (OSError, ValueError):
                continue
        return _NO_TERMINAL_WIDTH


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * (len(widths) - 1)


def _narrow(widths: list[int], least: Sequence[int], most: int) -> None:
    """Take from the column with the most to spare until a line fits, or none has any."""
    while _line_width(widths) > most:
        spare = [wide - few for wide, few in zip(widths, least)]
        if max(spare) <= 0:
            return
        widths[spare.index(max(spare))] -= 1


def _is_simple(text: str) -> bool:
    """Whether each letter takes one place, and none breaks the line."""
    return text.isprintable() and (text.isascii() or all(letter.isascii() or letter in _NARROW for letter in text))
