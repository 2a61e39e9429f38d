"""Tables in a narrow terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from perfgate.judging.report.render.tables import Table


def by_rich(item: Table) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=80, emoji=False).print(item)
    return stream.getvalue().split("\n")[:-1]


def test_table__wider_than_the_terminal__titles_are_folded_and_no_number_loses_its_unit() -> None:
    table = Table(
        "step", *(f"{title}>" for title in ("length", "computing", "communication", "exposed", "preparation", "free"))
    )
    for row in (["0 decode × 32", *["463 ms"] * 6], ["1 decode × 32", *["60.0 µs"] * 6]):
        table.add_row(*map(Text, row))
    lines = by_rich(table)
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

    assert "difference" in lines[0]
    assert max(map(len, lines)) <= 80


def test_table__cells_of_two_lines__are_as_wide_as_the_longest_line() -> None:
    table = Table("metric", "base>")
    table.add_row(Text("fast-path latency of a call\nencoder/long-enough-to-matter"), "1")
    assert [line.rstrip() for line in by_rich(table)][-2:] == [
        "fast-path latency of a call        1",
        "encoder/long-enough-to-matter",
    ]
