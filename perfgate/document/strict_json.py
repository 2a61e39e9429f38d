"""Bytes from anywhere to JSON values, or one clear refusal: bounded memory, no value
that two readers read differently.

``json.loads`` alone takes NaN, 1e999, repeated keys and half surrogates, and falls over
deep nesting and huge integers; each of these is refused here with its place.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from perfgate.errors import DocumentError
from perfgate.locale import Activity

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32
# A value of two bytes in the file costs up to some 200 bytes of memory, so values are
# counted before parsing.
MAX_VALUES = 2_000_000
MAX_MARKS = 8_000_000
MAX_NUMBER_LENGTH = 64
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1

DAMAGED = Activity(
    "the file is damaged or not from perfgate; make it again, or fetch it again from its source"
)
TRUNCATED = Activity(
    "the file is truncated; its writer was cut off, or the copy is incomplete: make or fetch it again"
)


def parse_json(data: bytes, *, name: str, max_bytes: int = MAX_BYTES) -> Any:
    """The value of a JSON text.

    ``name`` stands for the file in errors. Raises only DocumentError.
    """
    if len(data) > max_bytes:
        refuse(
            name,
            "$",
            Activity(
                "more than {most} bytes; no perfgate document is that large",
                most=max_bytes,
            ),
            DAMAGED,
        )
    _scan(data, name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse(name, f"byte {error.start}", Activity("not UTF-8"), DAMAGED)
    refused: list[_Refused] = []
    value = _decode(text, name, refused)
    if refused or _MAYBE_SURROGATE.search(text):
        check_values(value, name)
    return value


def check_values(value: Any, name: str, *, remedy: str = DAMAGED) -> None:
    """Refuse, with its place, a number or text that does not survive JSON, e.g. NaN or
    half a surrogate pair.
    """
    if any(map(_fault, _items(value))):
        place, fault = next(
            (place, fault) for place, item in _walk(value) if (fault := _fault(item))
        )
        refuse(name, place, fault, remedy)


def _fault(item: Any) -> str | None:
    """Why a value that is not a list or table is refused."""
    if isinstance(item, str):
        return (
            None
            if item.isascii() or not _SURROGATE.search(item)
            else Activity("text with a lone surrogate")
        )
    if isinstance(item, float):
        return (
            None
            if math.isfinite(item)
            else Activity("{number} is not a finite number", number=item)
        )
    if isinstance(item, int):
        return (
            None
            if MIN_INTEGER <= item <= MAX_INTEGER
            else Activity("an integer beyond 64 bits")
        )
    return item.what if isinstance(item, _Refused) else None


def refuse(name: str, place: str, what: str, remedy: str) -> NoReturn:
    """Raise the DocumentError for one place of one file."""
    raise DocumentError(
        "{name}: at {place}: {what}; {remedy}",
        name=name,
        place=place,
        what=what,
        remedy=remedy,
    )


class _Refused:
    """Stands in the parsed value for a refused one, so that its place can be found."""

    def __init__(self, what: str) -> None:
        self.what = what


_SURROGATE = re.compile("[\ud800-\udfff]")
_MAYBE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"]*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TOKEN = re.compile(rb'"[^"]*"?|[\[\]{}]')


def has_few_values(data: bytes, most: int = MAX_VALUES) -> bool:
    """Whether parsing a text takes bounded memory."""
    return data.count(b",") + data.count(b"[") + data.count(b"{") <= most


def _scan(data: bytes, name: str) -> None:
    """Refuse texts that would cost the parser too much, and report a truncated text as
    such.
    """
    if not data.strip():
        refuse(name, "$", Activity("the file is empty"), TRUNCATED)
    if not has_few_values(data):
        _refuse_depth(data[: 64 * MAX_DEPTH], name)
        refuse(name, "$", Activity("more than {most} values", most=MAX_VALUES), DAMAGED)
    if data.count(b'"') > MAX_MARKS or data.count(b"\\") > MAX_MARKS:
        refuse(
            name,
            "$",
            Activity("more than {most} quotation marks or backslashes", most=MAX_MARKS),
            DAMAGED,
        )
    # A backslash escapes the next character: once pairs are removed from the left, one
    # before a quote escapes the quote.
    if _refuse_depth(data.replace(b"\\\\", b"").replace(b'\\"', b""), name):
        refuse(
            name,
            Activity("the end"),
            Activity("the text ends in the middle"),
            TRUNCATED,
        )


def _refuse_depth(data: bytes, name: str) -> bool:
    """Refuse deep nesting; return whether the text (without escapes) ends inside a
    string, an array or an object.
    """
    if (depth := _shallow_depth(data)) is not None:
        return depth > 0
    depth = 0
    for token in _TOKEN.finditer(data):
        start, end = token.span()
        first = data[start]
        if first == 0x22:
            if end - start == 1 or data[end - 1] != 0x22:
                return True
        elif first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                refuse(
                    name,
                    f"byte {start}",
                    Activity("nested deeper than {most}", most=MAX_DEPTH),
                    DAMAGED,
                )
        else:
            depth -= 1
    return depth > 0


def _shallow_depth(data: bytes) -> int | None:
    """How many arrays and objects are open at the end of a text; None if the tokens
    must tell.

    Most tokens are strings, which go here without a look at each.
    """
    outside = _STRING.sub(b"", data)
    if b'"' in outside:
        return None
    depth = 0
    for bracket in outside.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            return None
    return depth


def _decode(text: str, name: str, refused: list[_Refused]) -> Any:
    def stand_in(what: str) -> _Refused:
        refused.append(_Refused(what))
        return refused[-1]

    def integer(digits: str) -> Any:
        value = int(digits) if len(digits) <= MAX_NUMBER_LENGTH else None
        if value is None or not MIN_INTEGER <= value <= MAX_INTEGER:
            return stand_in(Activity("an integer beyond 64 bits"))
        return value

    def number(digits: str) -> Any:
        value = float(digits) if len(digits) <= MAX_NUMBER_LENGTH else math.inf
        return (
            value
            if math.isfinite(value)
            else stand_in(f"{digits[:20]} is not a finite number")
        )

    def table(pairs: list[tuple[str, Any]]) -> Any:
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        counts = Counter(key for key, _ in pairs)
        key = next(key for key in counts if counts[key] > 1)
        return stand_in(f"the key {key[:80]!a} stands twice")

    def constant(word: str) -> Any:
        return stand_in(f"{word} is not a finite number")

    try:
        return json.loads(
            text,
            parse_int=integer,
            parse_float=number,
            object_pairs_hook=table,
            parse_constant=constant,
        )
    except json.JSONDecodeError as error:
        refuse(
            name,
            f"line {error.lineno}, column {error.colno}",
            f"not JSON: {error.msg}",
            DAMAGED,
        )


def _items(value: Any) -> Iterator[Any]:
    """Yield what ``_walk`` does without the paths, which take most of its time."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += item
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
        else:
            yield item


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value, and every key as a value, with its JSON path."""
    waiting: list[tuple[str, Any]] = [("$", value)]
    while waiting:
        place, item = waiting.pop()
        yield place, item
        if isinstance(item, dict):
            for key, member in item.items():
                yield f"{place} (a key)", key
                waiting.append((f"{place}.{ascii(str(key)[:80])[1:-1]}", member))
        elif isinstance(item, (list, tuple)):
            waiting.extend(
                (f"{place}[{index}]", member) for index, member in enumerate(item)
            )
