"""Values checked by jsonschema (draft 2020-12), without a call of it for each text,
number, object and array.

jsonschema takes ten microseconds to start on each of them. So schemas with common
keywords compare a value with themselves. What they do not plainly allow they hand on to
jsonschema, so every refusal and its words are jsonschema's.
benchmarks/document/validate.py measures what that saves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import referencing
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_ANNOTATIONS = frozenset({"title", "description", "default", "discriminator"})
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength"}
)
_OF_PLAIN = _BOUNDS | {"type", "enum", "const"}
_OF_ARRAYS = frozenset({"type", "items", "prefixItems", "minItems", "maxItems"})
_OF_OBJECTS = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "maxProperties",
    }
)
_REFERENCE = "#/$defs/"

Errors = Iterator[ValidationError]


class QuickSchema(dict[str, Any]):
    """A schema that tells whether it plainly allows a value. It says no to some that
    the draft allows.
    """

    def allows(self, value: Any) -> bool:  # noqa: ARG002 - the members' parameter
        return False


class PlainSchema(QuickSchema):
    """A schema of texts, numbers, booleans and nulls."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema)
        types: set[type] = set()
        for word in _words(schema) or _TYPES:
            types.update(_TYPES[word])
        self._types = frozenset(types)
        self._allowed: frozenset[Any] | None = None
        if "enum" in schema or "const" in schema:
            self._allowed = frozenset(schema.get("enum", [schema.get("const")]))
        self._lowest: float = schema.get("minimum", -math.inf)
        self._highest: float = schema.get("maximum", math.inf)
        self._above: float | None = schema.get("exclusiveMinimum")
        self._below: float | None = schema.get("exclusiveMaximum")
        self._longest: float = schema.get("maxLength", math.inf)

    def allows(self, value: Any) -> bool:
        """Whether a value is plainly allowed. To the draft 1.0 is an integer, too."""
        kind = type(value)
        if kind not in self._types:
            return False
        if self._allowed is not None:
            return kind is not bool and value in self._allowed
        if kind is str:
            return len(value) <= self._longest
        if kind is int or kind is float:
            is_above = self._above is None or value > self._above
            is_below = self._below is None or value < self._below
            return bool(
                self._lowest <= value <= self._highest and is_above and is_below
            )
        return True


class ArraySchema(QuickSchema):
    """A schema of arrays, or of arrays and null."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema)
        self._or_null = "null" in _words(schema)
        self._first = [_quick(inner) for inner in schema.get("prefixItems", [])]
        self._others = _quick(schema.get("items"))
        self._least: float = schema.get("minItems", 0)
        self._most: float = schema.get("maxItems", math.inf)

    def allows(self, value: Any) -> bool:
        if type(value) is not list:
            return value is None and self._or_null
        if not self._least <= len(value) <= self._most:
            return False
        for item, schema in zip(value, self._first):
            if not schema.allows(item):
                return False
        allows = self._others.allows
        return all(allows(item) for item in value[len(self._first) :])


class ObjectSchema(QuickSchema):
    """A schema of objects."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema)
        self._required: list[str] = schema.get("required", [])
        self._properties = {
            name: _quick(inner) for name, inner in schema.get("properties", {}).items()
        }
        self._others = _quick(schema.get("additionalProperties"))
        self._names = (
            _quick(schema["propertyNames"]) if "propertyNames" in schema else None
        )
        self._most: float = schema.get("maxProperties", math.inf)

    def allows(self, value: Any) -> bool:
        if type(value) is not dict or len(value) > self._most:
            return False
        if not all(name in value for name in self._required):
            return False
        if self._names is not None and not all(map(self._names.allows, value)):
            return False
        properties, others = self._properties, self._others
        return all(
            properties.get(name, others).allows(member)
            for name, member in value.items()
        )


class AlternativesSchema(QuickSchema):
    """A schema of several, one of which a value must match."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema)
        self._alternatives = [_quick(inner) for inner in schema["anyOf"]]

    def allows(self, value: Any) -> bool:
        return any(alternative.allows(value) for alternative in self._alternatives)


_NOTHING = QuickSchema()


def _quick(schema: Any) -> QuickSchema:
    """The schema itself; if it does not tell what it plainly allows, one that plainly
    allows nothing.
    """
    return schema if isinstance(schema, QuickSchema) else _NOTHING


def _words(schema: Mapping[str, Any]) -> list[str]:
    words: str | list[str] = schema.get("type", [])
    return [words] if isinstance(words, str) else words


def validator_of(schema: Mapping[str, Any]) -> Validator:
    """Return a validator of one of our schemas, with references to its own definitions
    only.
    """
    # An empty registry: by default jsonschema fetches the target of a $ref over the
    # network.
    validator: Validator = _quick_validator(
        _prepared(schema, {}, schema.get("$defs", {})), registry=referencing.Registry()
    )
    return validator


def _prepared(
    schema: Any, made: dict[str, dict[str, Any]], definitions: Mapping[str, Any]
) -> Any:
    """Return a schema with its definitions in place of the references to them, and
    quick schemas where there are some.
    """
    if isinstance(schema, list):
        return [_prepared(inner, made, definitions) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").removeprefix(_REFERENCE)
    if name:
        if name not in made:
            # A definition that refers to itself finds this while it is prepared, and is
            # not quick there.
            itself: dict[str, Any] = {}
            made[name] = itself
            made[name] = _prepared(definitions[name], made, definitions)
            itself.update(made[name])
        return made[name]
    prepared = {
        key: inner
        for key, inner in schema.items()
        if key not in ("$defs", "properties")
    }
    for key in (
        "anyOf",
        "items",
        "prefixItems",
        "additionalProperties",
        "propertyNames",
    ):
        if key in schema:
            prepared[key] = _prepared(schema[key], made, definitions)
    if "properties" in schema:
        members = schema["properties"].items()
        prepared["properties"] = {
            member: _prepared(inner, made, definitions) for member, inner in members
        }
    quick = _quick_schema(prepared)
    if quick is None:
        return prepared
    return quick


def _quick_schema(schema: Mapping[str, Any]) -> QuickSchema | None:
    """Return the schema as one that tells what it plainly allows; None if its keywords
    do not let it.
    """
    keywords, words = schema.keys() - _ANNOTATIONS, set(_words(schema))
    if keywords == {"anyOf"}:
        return AlternativesSchema(schema)
    if keywords and keywords <= _OF_PLAIN and words <= _TYPES.keys():
        return PlainSchema(schema)
    if "array" in words and words <= {"array", "null"} and keywords <= _OF_ARRAYS:
        return ArraySchema(schema)
    if words == {"object"} and keywords <= _OF_OBJECTS:
        return ObjectSchema(schema)
    return None


def _properties(
    validator: Draft202012Validator,
    properties: Mapping[str, Any],
    instance: Any,
    _: Any,
) -> Errors:
    if not isinstance(instance, dict):
        return
    for name, schema in properties.items():
        if name in instance and not _quick(schema).allows(instance[name]):
            yield from validator.descend(
                instance[name], schema, path=name, schema_path=name
            )


def _items(
    validator: Draft202012Validator,
    items: Any,
    instance: Any,
    schema: Mapping[str, Any],
) -> Errors:
    if not isinstance(items, dict):
        yield from _DRAFT["items"](validator, items, instance, schema)
    elif isinstance(instance, list):
        first = len(schema.get("prefixItems", ()))
        allows = _quick(items).allows
        for index, item in enumerate(instance[first:], start=first):
            if not allows(item):
                yield from validator.descend(item, items, path=index)


_DRAFT = Draft202012Validator.VALIDATORS
_quick_validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"properties": _properties, "items": _items},
)
