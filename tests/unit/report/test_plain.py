"""Lines and tables without rich: the same letters as rich prints into a pipe."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from perfgate.judging.report.render.plain import Table, TerminalOutput, Text

_words = st.text(st.sampled_from("abc XYZ<>[b].0129…µ表"), max_size=30)
_rows = st.integers(1, 4).flatmap(
    lambda columns: st.lists(st.lists(_words, min_size=columns, max_size=columns), max_size=5).map(
        lambda rows: ([f"title{number}{'>' * (number % 2)}" for number in range(columns)], rows)
    )
)


def by_rich(item: Text | Table) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=80, emoji=False).print(item)
    return stream.getvalue().split("\n")[:-1]


@given(_words, _words)
def test_text__lines__those_of_rich_or_none(first: str, second: str) -> None:
    text = Text(first, "bold") + Text(second, "dim")
    assert text.lines(80) in (None, by_rich(text))
    assert (text.lines(80) is None) == ("表" in first + second)


@given(_rows)
def test_table__lines__those_of_rich_or_none(table: tuple[list[str], list[list[str]]]) -> None:
    titles, rows = table
    ours = Table(*titles)
    for row in rows:
        ours.add_row(*map(Text, row))
    assert ours.lines(80) in (None, by_rich(ours))
    assert ours.lines(200) is not None or any("表" in cell for row in rows for cell in row)


def test_output__wide_letters_and_plain_ones__in_their_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output = TerminalOutput()
    for line in ("plain", "表 " * 30, "plain again"):
        output.print(Text(line))
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("plain", "plain again", 5)
    assert "rich" in sys.modules


def test_table__wider_than_the_terminal__titles_are_folded_and_no_number_loses_its_unit() -> None:
    table = Table(
        "step", *(f"{title}>" for title in ("length", "computing", "communication", "exposed", "preparation", "free"))
    )
    for row in (["0 decode × 32", *["463 ms"] * 6], ["1 decode × 32", *["60.0 µs"] * 6]):
        table.add_row(*map(Text, row))
    lines = by_rich(table)
    assert table.lines(80) is None
    assert max(map(len, lines)) <= 80
    assert [(line.count("463 ms"), line.count("60.0 µs")) for line in lines[-2:]] == [(6, 0), (0, 6)]


def test_table__long_texts_beside_a_title_of_one_word__texts_are_folded_and_the_title_is_whole() -> None:
    table = Table("change", "operator", "difference>", "runs>", "line")
    table.add_row(
        *map(
            Text,
            ("faster", "autograd::engine::evaluate_function", "-793 us", "3 to 3", "models/layers/attention.py:112"),
        )
    )

    lines = by_rich(table)

    assert table.lines(80) is None
    assert "difference" in lines[0]
    assert max(map(len, lines)) <= 80
