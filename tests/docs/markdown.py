"""What tables of our pages are made of."""

from __future__ import annotations


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), ""])


def code(text: str) -> str:
    return f"`{text}`"
