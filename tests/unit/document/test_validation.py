"""Our validator refuses what jsonschema itself refuses, in the same words, on documents and on altered ones."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import jsonschema
import msgspec
import pytest

from perfgate.document.schema import load_schema
from perfgate.document.validation import PlainSchema, validator_of
from tests.fakes.documents import make_decision, make_run

ODD: tuple[Any, ...] = (None, True, 0, -1, 1.0, 1.5, 10**30, float("inf"), "", "base", [], [0], {}, {"odd": 1})
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
        "$ref": {"type": "string", "maxLength": 2},
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
    "additionalProperties": {"type": ["string", "null"], "maxLength": 3},
    "propertyNames": {"maxLength": 7},
    "maxProperties": 3,
}


def errors(validator: Any, value: Any) -> list[tuple[str, str]]:
    return [(error.json_path, error.message) for error in validator.iter_errors(value)]


def both(schema: Mapping[str, Any], value: Any) -> list[tuple[str, str]]:
    """Return the errors of a value, which are the same of our validator and of jsonschema's."""
    ours = errors(validator_of(schema), value)
    assert ours == errors(jsonschema.Draft202012Validator(schema), value)
    return ours


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ({"node": {"name": None, "below": {"name": "b"}}}, 0),
        ({"node": {"name": "a", "below": {"name": "c"}}}, 1),
        ({"node": {"below": {"name": "b"}}}, 1),
        ({"node": {"name": "a", "other": 1}}, 1),
        ({"node": None, "pair": [1, "x"]}, 0),
        ({"pair": [1]}, 1),
        ({"pair": [1, "x", 2]}, 1),
        ({"pair": [True, "x"]}, 1),
        ({"share": 0}, 0),
        ({"share": 1}, 1),
        ({"share": True}, 1),
        ({"samples": [0, 9, 1.0]}, 0),
        ({"samples": [0, 9.5, -1]}, 3),
        ({"samples": [0, 10]}, 1),
        ({"samples": [0, 1, 2, 3]}, 1),
        ({"version": 1, "more": "abc", "less": None}, 0),
        ({"version": "1"}, 1),
        ({"$ref": "ab"}, 0),
        ({"$ref": "abc"}, 1),
        ({"more": "abcd"}, 1),
        ({"too long": None}, 1),
        (dict.fromkeys("abcd"), 1),
        ([], 1),
    ],
)
def test_validator__every_keyword__errors_of_jsonschema(value: Any, refused: int) -> None:
    assert len(both(SCHEMA, value)) == refused


# How many of the places are altered: jsonschema takes a hundredth of a second for each run document.
@pytest.mark.parametrize(
    ("name", "stride"), [("decision", 1), ("run", 4), pytest.param("run", 1, marks=pytest.mark.slow)]
)
def test_validator__document_altered_in_every_place__errors_of_jsonschema(name: str, stride: int) -> None:
    record = make_decision("FAIL") if name == "decision" else make_run()
    document = json.loads(msgspec.json.encode(record))
    schema = load_schema(name)
    ours, theirs = validator_of(schema), jsonschema.Draft202012Validator(schema)
    assert errors(ours, document) == []
    refused = 0
    for altered in islice(_altered(document), 0, None, stride):
        found = errors(ours, altered)
        assert found == errors(theirs, altered)
        refused += bool(found)
    assert refused > 50 // stride


def test_plain_schema__value_of_another_type__left_to_jsonschema() -> None:
    whole = PlainSchema({"type": "integer", "minimum": 0, "maximum": 9})
    assert [whole.allows(value) for value in (0, 9, 10, 1.0, True, None, "1", [1])] == [True, True, *[False] * 6]
    text = PlainSchema({"type": ["string", "null"], "maxLength": 2})
    assert [text.allows(value) for value in ("ab", None, "abc", 1)] == [True, True, False, False]
    one = PlainSchema({"enum": ["a", 1]})
    assert [one.allows(value) for value in ("a", 1, True, "b", [])] == [True, True, False, False, False]


def _altered(document: Any) -> Iterator[Any]:
    """The document with one value replaced or one key left out or added: every kind of place once, in one of the ways."""
    draw = random.Random(0)
    seen = set()
    for place in _places(document, ()):
        kind = tuple("*" if isinstance(part, int) else part for part in place)
        if not place or kind in seen:
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
