"""The quick test of a schema accepts what jsonschema accepts, and nothing else, on documents and on altered ones."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from perfgate.document.acceptance import compile_check
from perfgate.document.schema import load_schema
from tests.fakes.documents import make_decision, make_run

ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**30, "", "base", [], [0], {}, {"odd": 1})
SCHEMA = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"enum": ["a", "b", None]}, "below": {"$ref": "#/$defs/Node"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
    "type": "object",
    "properties": {
        "node": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
        "pair": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "items": False,
            "minItems": 2,
        },
        "share": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "samples": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 3},
        "version": {"const": 1},
    },
    "additionalProperties": {"type": ["string", "null"], "minLength": 1, "maxLength": 3},
    "propertyNames": {"maxLength": 7},
    "maxProperties": 3,
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"node": {"name": None, "below": {"name": "b"}}}, True),
        ({"node": {"name": "a", "below": {"name": "c"}}}, False),
        ({"node": {"below": {"name": "b"}}}, False),
        ({"node": {"name": "a", "other": 1}}, False),
        ({"node": None, "pair": [1, "x"]}, True),
        ({"pair": [1]}, False),
        ({"pair": [1, "x", 2]}, False),
        ({"pair": [True, "x"]}, False),
        ({"share": 0}, True),
        ({"share": 1}, False),
        ({"share": True}, False),
        ({"samples": [0, 9]}, True),
        ({"samples": [0, 9.5]}, False),
        ({"samples": [0, 10]}, False),
        ({"samples": [0, 1, 2, 3]}, False),
        ({"version": 1, "more": "abc", "less": None}, True),
        ({"version": "1"}, False),
        ({"more": ""}, False),
        ({"more": "abcd"}, False),
        ({"too long": None}, False),
        (dict.fromkeys("abcd"), False),
        ([], False),
    ],
)
def test_compile_check__every_keyword__as_jsonschema(value: Any, expected: bool) -> None:
    assert compile_check(SCHEMA)(value) is expected
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(value) is expected


def test_compile_check__keyword_that_is_not_known__refused() -> None:
    with pytest.raises(ValueError, match="unknown keywords \\['pattern'\\]"):
        compile_check({"properties": {"name": {"pattern": "a"}}})


@pytest.mark.parametrize("name", ["bisection", "config", "decision", "run", "trend"])
def test_compile_check__our_schemas__have_known_keywords_alone(name: str) -> None:
    assert compile_check(load_schema(name))(1) is False


@pytest.mark.parametrize("name", ["decision", "run"])
def test_compile_check__document_altered_in_every_place__as_jsonschema(name: str) -> None:
    record = make_decision("FAIL") if name == "decision" else make_run()
    document = json.loads(msgspec.json.encode(record))
    check, judge = compile_check(load_schema(name)), jsonschema.Draft202012Validator(load_schema(name))
    assert check(document)
    for altered in _altered(document):
        assert check(altered) == judge.is_valid(altered), altered


def _altered(document: Any) -> Iterator[Any]:
    """The document with one value replaced or one key left out or added: every key once, in one of the ways."""
    draw = random.Random(0)
    places = [place for place in _places(document, ()) if place]
    seen = set()
    for place in places:
        kind = tuple("*" if isinstance(part, int) else part for part in place)
        if kind in seen:
            continue
        seen.add(kind)
        altered = copy.deepcopy(document)
        holder = altered
        for part in place[:-1]:
            holder = holder[part]
        how = draw.randrange(3)
        if how == 0 and isinstance(holder, dict):
            del holder[place[-1]]
        elif how == 1 and isinstance(holder[place[-1]], dict):
            holder[place[-1]]["odd"] = 1
        else:
            holder[place[-1]] = draw.choice(ODD)
        yield altered


def _places(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*place, key))
