"""Documents of a check that somebody damaged: rows gone, doubled, out of order; other types, numbers, texts and documents.

A mutation is drawn from a seed alone, so each one that is reported can be made again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tests.end_to_end.omission import GONE, Path_, alike, at, places, with_part

Documents = dict[str, Any]
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 0.0, -0.0, 0.5, 1e-308, 5e-324, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    "",
    "x",
    "a b",
    "\u0000",
    "\u202e",
    "a" * 5000,
    "../..",
    "{name}",
    "%s",
    "1",
    "nan",
    "aten::mm",
    "default",
    "9" * 5000,
    "model.py:",
    "model.py:x",
    "model.py:" + "9" * 5000,
    "@",
    "*",
    "[",
)
OTHER_TYPES: tuple[Any, ...] = (None, True, False, 7, 1.5, "text", [], {}, [None], [[]], {"": None}, {"a": [1]})
_MOST_EDITS = 3
_ROWS_ONLY: tuple[str, ...] = ("fewer rows", "gone", "emptied")


class Mutation(NamedTuple):
    """The damaged texts of documents by their names, what was done to them, and whether that only took something away."""

    texts: dict[str, bytes]
    done: list[str]
    is_removal: bool


def mutated(documents: Documents, others: Sequence[Documents], lot: random.Random) -> Mutation:
    """Damage documents of a check in one to three places; parts of ``others`` come into them."""
    only_removes = lot.random() < 0.25
    edited, done = dict(documents), list[str]()
    for _ in range(lot.randint(1, _MOST_EDITS)):
        name = lot.choice(sorted(edited))
        path = _drawn_path(edited[name], lot)
        how = lot.choice(_ROWS_ONLY if only_removes else tuple(_EDITS))
        in_column = lot.random() < 0.3
        sides = ["base", "head"] if name in ("base", "head") and lot.random() < 0.3 else [name]
        for side in sides:
            # From the last place on, so that the numbers of those before it stay true.
            for one in reversed(list(alike(edited[side], path)) if in_column else [path]):
                source = _Source(documents=edited, others=others, name=side, path=one, lot=lot)
                edited[side] = with_part(edited[side], one, partial(_EDITS[how], source))
        at_all = " and all like it" if in_column else ""
        done.append(f"{how} at {'/'.join(map(str, path))}{at_all} of {' and '.join(sides)}")
    texts = {name: json.dumps(value).encode() for name, value in edited.items()}
    if not only_removes and lot.random() < 0.08:
        name = lot.choice(sorted(texts))
        texts[name] = _damaged_text(texts[name], lot)
        done.append(f"text of {name} damaged")
    if not only_removes and lot.random() < 0.08:
        name, other = lot.choice(sorted(texts)), lot.choice(list(others))
        source_name = lot.choice(sorted(other))
        texts[name] = json.dumps(other[source_name]).encode()
        done.append(f"{name} is {source_name} of another check")
    return Mutation(texts, done, only_removes)


class _Source(NamedTuple):
    documents: Documents
    others: Sequence[Documents]
    name: str
    path: Path_
    lot: random.Random


def _drawn_path(document: Any, lot: random.Random) -> Path_:
    """A place, drawn by its kind first: a column of a thousand numbers is no likelier than one field."""
    kinds: dict[Path_, list[Path_]] = {}
    for path, _ in places(document):
        kinds.setdefault(tuple("*" if isinstance(step, int) else step for step in path), []).append(path)
    if not kinds:
        return ()
    return lot.choice(kinds[lot.choice(sorted(kinds, key=str))])


def _gone(_source: _Source, _value: Any) -> Any:
    return GONE


def _emptied(_source: _Source, value: Any) -> Any:
    return [] if isinstance(value, list) else {} if isinstance(value, dict) else None


def _other_number(source: _Source, value: Any) -> Any:
    if isinstance(value, (int, float)) and source.lot.random() < 0.5:
        return value * source.lot.choice((-1, 0, 2, 0.3, 1e6))
    return source.lot.choice(NUMBERS)


def _other_text(source: _Source, _value: Any) -> Any:
    return source.lot.choice(TEXTS)


def _other_type(source: _Source, _value: Any) -> Any:
    return source.lot.choice(OTHER_TYPES)


def _doubled(source: _Source, value: Any) -> Any:
    if isinstance(value, list) and value:
        index = source.lot.randrange(len(value))
        return [*value[:index], value[index], *value[index:]]
    if isinstance(value, dict) and value:
        return {**value, "another": source.lot.choice(list(value.values()))}
    return value


def _fewer_rows(source: _Source, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [row for row in value if source.lot.random() < 0.5]


def _other_order(source: _Source, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return source.lot.sample(value, len(value))


def _shifted(source: _Source, value: Any) -> Any:
    """A column with every number changed alike."""
    by, times = source.lot.choice((0, 1, -1, 1000, 2**40)), source.lot.choice((1, 1, -1, 0, 2, 1000))
    rows = value if isinstance(value, list) else [value]
    changed = [row * times + by if isinstance(row, int) and not isinstance(row, bool) else row for row in rows]
    return changed if isinstance(value, list) else changed[0]


def _of_the_other_side(source: _Source, value: Any) -> Any:
    found = at(source.documents["head" if source.name == "base" else "base"], source.path)
    return value if found is GONE else found


def _of_another_place(source: _Source, _value: Any) -> Any:
    document = source.documents[source.lot.choice(sorted(source.documents))]
    return at(document, _drawn_path(document, source.lot))


def _of_another_check(source: _Source, value: Any) -> Any:
    found = at(source.lot.choice(list(source.others)).get(source.name), source.path)
    return value if found is GONE else found


_EDITS: dict[str, Callable[[_Source, Any], Any]] = {
    "gone": _gone,
    "emptied": _emptied,
    "number": _other_number,
    "text": _other_text,
    "type": _other_type,
    "doubled": _doubled,
    "fewer rows": _fewer_rows,
    "other order": _other_order,
    "shifted": _shifted,
    "of the other side": _of_the_other_side,
    "of another place": _of_another_place,
    "of another check": _of_another_check,
}


def _damaged_text(text: bytes, lot: random.Random) -> bytes:
    at = lot.randrange(len(text))
    how = lot.randrange(4)
    if how == 0:
        return text[:at]
    if how == 1:
        return text[:at] + lot.choice((b"\xff", b'"', b"{", b"1e999", b"9" * 400, b"\\ud800")) + text[at + 1 :]
    if how == 2:
        return text + text
    return b""
