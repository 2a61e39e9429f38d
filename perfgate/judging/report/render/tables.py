"""Tables in the terminal, also a narrow one: a number is never parted from its unit,
and no text is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table as RichTable
from rich.text import Text

from perfgate.judging.report.text.words import say

_BETWEEN = 3  # spaces between two columns
# Letters of a line of a long and of any folded text, and of a folded title.
_LONG_TEXT, _LEAST_TEXT, _LEAST_TITLE = 20, 8, 4


class _Letters(NamedTuple):
    """The letters of a column: of its longest cell, its title, and the longest word of
    the title.
    """

    is_number: bool
    cell: int
    title: int
    word: int

    def least(self, text: int | None, *, whole_words: bool) -> int:
        """The width to which the column may be folded, if texts may be folded to
        ``text`` letters or not at all.
        """
        if self.is_number and whole_words:
            return max(self.cell, self.word)
        folded = max(self.cell, min(self.title, _LEAST_TITLE))
        if self.is_number:
            return folded
        if text is None:
            return max(self.cell, self.title)
        return min(folded, text)


class Table:
    """Columns under titles; a title that ends in ``>`` marks a column of numbers.

    A cell may have several lines.
    """

    def __init__(self, *titles: str) -> None:
        self._titles: list[str] = []
        self._is_number: list[bool] = []
        for title in titles:
            name = title.removesuffix(">")
            self._titles.append(say(name))
            self._is_number.append(name != title)
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        texts = []
        for cell in cells:
            if isinstance(cell, str):
                texts.append(Text(cell))
            else:
                texts.append(cell)
        self._rows.append(texts)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RichTable | Text]:
        widths = self._widths(options.max_width)
        if _line_width(widths) > options.max_width:
            yield from self._records()
            return
        table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for title, number, width in zip(self._titles, self._is_number, widths):
            table.add_column(
                title,
                justify="right" if number else "left",
                width=width,
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*row)
        yield table

    def _records(self) -> Iterator[Text]:
        """Each row as lines of a title and a cell, for terminals too narrow for the
        numbers of all columns.
        """
        for row in self._rows:
            first = row[0].plain.strip()
            title = self._titles[0]
            if not first.startswith(title):
                first = f"{title} {first}".strip()
            yield Text(first)
            for title, cell in zip(self._titles[1:], row[1:]):
                plain = " · ".join(cell.plain.split("\n")).strip()
                if plain:
                    yield Text(f"  {f'{title} {plain}'.strip()}")

    def _widths(self, most: int) -> list[int]:
        """The widths of the columns in a line of ``most`` letters.

        If that is too short, titles of numbers are folded between their words first,
        then long texts, then titles within their words, then all texts: a number
        without its unit is another number.
        """
        columns = []
        for index, (title, is_number) in enumerate(zip(self._titles, self._is_number)):
            cell = max((_letters(row[index]) for row in self._rows), default=1)
            word = max(map(cell_len, title.split()), default=0)
            columns.append(_Letters(is_number, cell, cell_len(title), word))
        widths = [max(column.cell, column.title) for column in columns]
        for text, whole_words in (
            (None, True),
            (_LONG_TEXT, True),
            (_LONG_TEXT, False),
            (_LEAST_TEXT, False),
        ):
            _narrow(
                widths,
                [column.least(text, whole_words=whole_words) for column in columns],
                most,
            )
        return widths


def _letters(cell: Text) -> int:
    """The letters of the longest line of a cell."""
    return max(map(cell_len, cell.plain.split("\n")))


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * (len(widths) - 1)


def _narrow(widths: list[int], least: Sequence[int], most: int) -> None:
    """Take from the column with the most to spare until a line fits, or none has any."""
    while _line_width(widths) > most:
        spare = [wide - few for wide, few in zip(widths, least)]
        if max(spare) <= 0:
            return
        widths[spare.index(max(spare))] -= 1
