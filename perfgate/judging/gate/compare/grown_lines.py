"""The lines of the head at which an amount of work grew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from perfgate.document.alignment import AlignedWork, Work, align
from perfgate.document.explanation import Part
from perfgate.document.lines import split_line
from perfgate.judging.gate.evidence.values import rounded

MAX_LINES = 6


def grown_lines(
    before: Iterable[Work], after: Iterable[Work], base_code: Collection[str]
) -> list[Part]:
    """The lines of ``after`` with a higher amount, most relevant first.

    The same code on both sides is the same line, even if its number differs. A line of edited code replaces the line that was
    removed from there. ``base_code`` is the text of every known line of the base, even if it runs other operators: a line that
    the base has too was not added by the change, though it may behave differently now. So new code comes before it, unless it
    adds less than half the most.
    """
    grown = [
        pair
        for pair in _aligned_by_code(before, after, base_code)
        if pair.head and pair.delta > 0
    ]
    most = max((pair.delta for pair in grown), default=0.0)

    def order(pair: AlignedWork) -> tuple[bool, float, str, int]:
        is_second = pair.row.code in base_code or pair.delta < most / 2
        return is_second, -pair.delta, *split_line(pair.row.line or "")

    parts = []
    for pair in sorted(grown, key=order):
        row = pair.row
        if row.line:
            base = rounded(row.amount - pair.delta)
            parts.append(
                Part(
                    line=row.line,
                    base=base,
                    head=rounded(row.amount),
                    tensor=row.inputs,
                )
            )
    return parts[:MAX_LINES]


def most_grown(parts: Iterable[Part]) -> list[Part]:
    """The parts in the order of their growth, the largest first."""
    return sorted(parts, key=lambda part: part.base - part.head)


def _aligned_by_code(
    before: Iterable[Work], after: Iterable[Work], base_code: Collection[str]
) -> list[AlignedWork]:
    """The rows of both sides, line by line: by their code, and removed lines with the new lines in their place."""
    old = _by_code(before)
    new = _by_code(after)
    pairs: list[AlignedWork] = []
    removed: list[Work] = []
    added: list[Work] = []
    for code in old.keys() | new.keys():
        if code in old and code in new:
            pairs += align(old[code], new[code])
        elif code in old:
            removed += old[code]
        elif code in base_code:
            pairs += [AlignedWork(None, row) for row in new[code]]
        else:
            added += new[code]
    return pairs + align(removed, added)


def _by_code(rows: Iterable[Work]) -> dict[str, list[Work]]:
    groups: dict[str, list[Work]] = defaultdict(list)
    for row in rows:
        groups[row.code or row.line or ""].append(row)
    return groups
