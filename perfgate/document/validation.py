"""Values checked by jsonschema (draft 2020-12), without a call of it for each text and number.

Five of six values in a document are texts, numbers, booleans and nulls, and jsonschema takes ten microseconds to start on
each. So the keywords for members of objects and arrays compare such a value with its schema. What they do not plainly allow
they hand on to jsonschema, so every refusal and its words are jsonschema's. benchmarks/document/validate.py measures what
that saves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
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
_ANNOTATIONS = frozenset({"title", "description", "default"})
_CHECKED = frozenset({"type", "enum", "minimum", "maximum", "maxLength"})
_REFERENCE = "#/$defs/"

Errors = Iterator[ValidationError]


class PlainSchema(dict[str, Any]):
    """A schema of plain values, with only the keywords type, enum, minimum, maximum and maxLength."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        super().__init__(schema)
        words = schema.get("type", list(_TYPES))
        types: set[type] = set()
        for word in [words] if isinstance(words, str) else words:
            types.update(_TYPES[word])
        self._types = frozenset(types)
        self._allowed = frozenset(schema["enum"]) if "enum" in schema else None
        self._lowest: float = schema.get("minimum", -math.inf)
        self._highest: float = schema.get("maximum", math.inf)
        self._longest: float = schema.get("maxLength", math.inf)

    def allows(self, value: Any) -> bool:
        """Whether a value is plainly allowed. False for some that the draft allows too: to it 1.0 is an integer."""
        kind = type(value)
        if kind not in self._types:
            return False
        if self._allowed is not None:
            return kind is not bool and value in self._allowed
        if kind is str:
            return len(value) <= self._longest
        if kind is int or kind is float:
            return bool(self._lowest <= value <= self._highest)
        return True


def validator_of(schema: Mapping[str, Any]) -> Validator:
    """Return a validator of one of our schemas, with references to its own definitions only."""
    # An empty registry: by default jsonschema fetches the target of a $ref over the network.
    validator: Validator = _quick_validator(
        _prepared(schema, {}, schema.get("$defs", {})), registry=referencing.Registry()
    )
    return validator


def _prepared(schema: Any, made: dict[str, dict[str, Any]], definitions: Mapping[str, Any]) -> Any:
    """Return a schema with its definitions in place of the references to them, and its schemas of plain values as such."""
    if isinstance(schema, list):
        return [_prepared(inner, made, definitions) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref", "").removeprefix(_REFERENCE)
    if name:
        if name not in made:
            made[name] = {}  # a definition that refers to itself finds this while it is prepared
            made[name].update(_prepared(definitions[name], made, definitions))
        return made[name]
    if _is_plain(schema):
        return PlainSchema(schema)
    prepared = {key: inner for key, inner in schema.items() if key not in ("$defs", "properties")}
    for key in ("anyOf", "items", "prefixItems", "additionalProperties", "propertyNames"):
        if key in schema:
            prepared[key] = _prepared(schema[key], made, definitions)
    if "properties" in schema:
        members = schema["properties"].items()
        prepared["properties"] = {member: _prepared(inner, made, definitions) for member, inner in members}
    return prepared


def _is_plain(schema: Mapping[str, Any]) -> bool:
    keywords = schema.keys() - _ANNOTATIONS
    words = schema.get("type", [])
    words = {words} if isinstance(words, str) else set(words)
    return bool(keywords) and keywords <= _CHECKED and words <= _TYPES.keys()


def _members(validator: Draft202012Validator, members: Iterable[tuple[Any, Any]], schema: Any) -> Errors:
    """The errors of members of one schema, each with its name or index."""
    allows = schema.allows if isinstance(schema, PlainSchema) else None
    for place, value in members:
        if allows is None or not allows(value):
            yield from validator.descend(value, schema, path=place)


def _properties(validator: Draft202012Validator, properties: Mapping[str, Any], instance: Any, _: Any) -> Errors:
    if not isinstance(instance, dict):
        return
    for name, schema in properties.items():
        if name in instance:
            value = instance[name]
            if not (isinstance(schema, PlainSchema) and schema.allows(value)):
                yield from validator.descend(value, schema, path=name, schema_path=name)


def _additional_properties(
    validator: Draft202012Validator, others: Any, instance: Any, schema: Mapping[str, Any]
) -> Errors:
    if not isinstance(others, dict):
        yield from _DRAFT["additionalProperties"](validator, others, instance, schema)
    elif isinstance(instance, dict):
        known = schema.get("properties", {})
        members = ((name, value) for name, value in instance.items() if name not in known)
        yield from _members(validator, members, others)


def _property_names(validator: Draft202012Validator, names: Any, instance: Any, _: Any) -> Errors:
    if isinstance(instance, dict):
        yield from _members(validator, ((None, name) for name in instance), names)


def _items(validator: Draft202012Validator, items: Any, instance: Any, schema: Mapping[str, Any]) -> Errors:
    if not isinstance(items, dict):
        yield from _DRAFT["items"](validator, items, instance, schema)
    elif isinstance(instance, list):
        first = len(schema.get("prefixItems", ()))
        yield from _members(validator, enumerate(instance[first:], start=first), items)


def _prefix_items(validator: Draft202012Validator, schemas: list[Any], instance: Any, _: Any) -> Errors:
    if isinstance(instance, list):
        for index, (value, schema) in enumerate(zip(instance, schemas)):
            if not (isinstance(schema, PlainSchema) and schema.allows(value)):
                yield from validator.descend(value, schema, path=index, schema_path=index)


def _any_of(
    validator: Draft202012Validator, alternatives: list[Any], instance: Any, schema: Mapping[str, Any]
) -> Errors:
    """The errors of an instance of no alternative; of records with a tag, the tagged alternative alone is tried first."""
    tag = schema.get("discriminator")
    if tag is not None and isinstance(instance, dict):
        kinds = dict(zip(tag["mapping"], alternatives))
        tagged = kinds.get(str(instance.get(tag["propertyName"])))
        if tagged is not None and validator.evolve(schema=tagged).is_valid(instance):
            return
    yield from _DRAFT["anyOf"](validator, alternatives, instance, schema)


_DRAFT = Draft202012Validator.VALIDATORS
_quick_validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "properties": _properties,
        "additionalProperties": _additional_properties,
        "propertyNames": _property_names,
        "items": _items,
        "prefixItems": _prefix_items,
        "anyOf": _any_of,
    },
)
