"""A quick test of whether one of our schemas accepts a value; jsonschema takes many times as long, and gives the reason.

An accepted value satisfies the schema (draft 2020-12). A refused one may satisfy it too, since a type is taken more strictly
than in the draft, where 1.0 is an integer. Only the keywords that our schemas use are known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Check = Callable[[Any], bool]
Schema = Mapping[str, Any]

# ``discriminator`` stands beside the ``anyOf`` that it describes.
_ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description", "default", "discriminator"})
_TYPES: Mapping[str, Sequence[type]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_NUMBERS = frozenset({int, float})
_LIMITS = frozenset({"minimum", "maximum"})


def compile_check(schema: Schema) -> Check:
    """Raises ValueError for a keyword that is not known here."""
    return _Compiler(schema.get("$defs", {})).check(schema)


class _Compiler:
    """Turns schemas into functions. ``definitions`` may refer to each other."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._checks: dict[str, Check] = {}
        self._makers: Mapping[frozenset[str], Callable[[Schema], Check]] = {
            frozenset({"$ref"}): self._reference,
            frozenset({"type"}): _type,
            frozenset({"enum"}): _enum,
            frozenset({"const"}): _const,
            frozenset({*_LIMITS, "exclusiveMinimum", "exclusiveMaximum"}): _bounds,
            frozenset({"minLength", "maxLength", "minItems", "maxItems", "maxProperties"}): _sizes,
            frozenset({"properties", "required", "additionalProperties", "propertyNames"}): self._properties,
            frozenset({"prefixItems", "items"}): self._items,
            frozenset({"anyOf"}): self._any,
        }

    def check(self, schema: Schema) -> Check:
        keywords = schema.keys() - _ANNOTATIONS
        if unknown := keywords - frozenset().union(*self._makers):
            raise ValueError(f"a schema has the unknown keywords {sorted(unknown)}")
        checks = [make(schema) for group, make in self._makers.items() if group & keywords]
        return checks[0] if len(checks) == 1 else _all(checks)

    def _reference(self, schema: Schema) -> Check:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name not in self._checks:
            # A definition that refers to itself finds this while it is made.
            self._checks[name] = lambda value: self._checks[name](value)  # noqa: PLW0108 - looked up when it is called
            self._checks[name] = self.check(self._definitions[name])
        return self._checks[name]

    def _any(self, schema: Schema) -> Check:
        checks = [self.check(one) for one in schema["anyOf"]]
        return lambda value: any(check(value) for check in checks)

    def _properties(self, schema: Schema) -> Check:
        known = {name: self.check(inner) for name, inner in schema.get("properties", {}).items()}
        required = frozenset(schema.get("required", ()))
        names = self.check(schema.get("propertyNames", {}))
        others = self._others(schema.get("additionalProperties", True))

        def accepts(value: Any) -> bool:
            if type(value) is not dict:
                return True
            if not required <= value.keys():
                return False
            for name, inner in value.items():
                check = known.get(name, others)
                if not (names(name) and check(inner)):
                    return False
            return True

        return accepts

    def _items(self, schema: Schema) -> Check:
        first = [self.check(inner) for inner in schema.get("prefixItems", ())]
        others = schema.get("items", True)
        rest = _numbers(others) if isinstance(others, dict) and others.keys() == _LIMITS | {"type"} else None
        if rest is None:
            check = self._others(others)
            rest = lambda values: all(map(check, values))  # noqa: E731 - a check of many values instead of one

        def accepts(value: Any) -> bool:
            if type(value) is not list:
                return True
            return all(check(inner) for check, inner in zip(first, value)) and rest(value[len(first) :])

        return accepts

    def _others(self, schema: Schema | bool) -> Check:
        return self.check(schema) if isinstance(schema, dict) else lambda _: bool(schema)


def _all(checks: Sequence[Check]) -> Check:
    def accepts(value: Any) -> bool:
        for check in checks:  # noqa: SIM110 - a generator takes twice as long
            if not check(value):
                return False
        return True

    return accepts


def _types_of(schema: Schema) -> frozenset[type]:
    words = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return frozenset(kind for word in words for kind in _TYPES[word])


def _type(schema: Schema) -> Check:
    types = _types_of(schema)
    return lambda value: type(value) in types


def _enum(schema: Schema) -> Check:
    allowed = frozenset(schema["enum"])
    types = frozenset(map(type, allowed))
    return lambda value: type(value) in types and value in allowed


def _const(schema: Schema) -> Check:
    only = schema["const"]
    return lambda value: type(value) is type(only) and value == only


def _bounds(schema: Schema) -> Check:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    if "exclusiveMinimum" not in schema and "exclusiveMaximum" not in schema:
        return lambda value: type(value) not in _NUMBERS or low <= value <= high
    return lambda value: type(value) not in _NUMBERS or (low <= value <= high and above < value < below)


def _sizes(schema: Schema) -> Check:
    limits: dict[type, tuple[float, float]] = {
        str: (schema.get("minLength", 0), schema.get("maxLength", math.inf)),
        list: (schema.get("minItems", 0), schema.get("maxItems", math.inf)),
        dict: (0, schema.get("maxProperties", math.inf)),
    }

    def accepts(value: Any) -> bool:
        limit = limits.get(type(value))
        return limit is None or limit[0] <= len(value) <= limit[1]

    return accepts


def _numbers(schema: Schema) -> Check:
    """Whether all elements of a list fit a schema of numbers: samples are most of a document."""
    types, low, high = _types_of(schema), schema["minimum"], schema["maximum"]
    return lambda values: (
        not values or (types.issuperset(map(type, values)) and low <= min(values) and max(values) <= high)
    )
