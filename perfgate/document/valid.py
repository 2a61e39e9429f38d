"""Parsed values to records: our own JSON Schema first, then strict types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn, TypeVar

import jsonschema
import msgspec
import referencing
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

from perfgate.document.schema import load_schema
from perfgate.document.strict_json import refuse

_Record = TypeVar("_Record", bound=msgspec.Struct)


def convert_checked(value: Any, record: type[_Record], schema: str, *, name: str, remedy: str) -> _Record:
    """Return a value as a record when ``schema`` allows it. Raises DocumentError with the place where it does not."""
    error = next(_validator(schema).iter_errors(value), None)
    if error is not None:
        _refuse_invalid(error, name, remedy)
    try:
        return msgspec.convert(value, record)
    except msgspec.ValidationError as invalid:
        refuse(name, "$", str(invalid), remedy)


def _refuse_invalid(error: ValidationError, name: str, remedy: str) -> NoReturn:
    innermost = best_match([error]) or error
    message = innermost.message
    if len(message) > 300:  # jsonschema quotes the whole value, which may be the whole file
        message = f"{message[:150]} … {message[-150:]}"
    refuse(name, ascii(innermost.json_path)[1:-1][:200], message.encode("utf-8", "replace").decode(), remedy)


@cache
def _validator(name: str) -> Any:
    # An empty registry: jsonschema on its own fetches what a $ref points to over the network.
    return _FastValidator(load_schema(name), registry=referencing.Registry())


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check an array of integers at once, as jsonschema takes 6 us for each; leave all else, errors too, to it."""
    if not (isinstance(items, dict) and items.keys() == {"type", "minimum", "maximum"} and _integers(instance, items)):
        yield from _PLAIN_ITEMS(validator, items, instance, schema)


def _integers(instance: Any, items: dict[str, Any]) -> bool:
    if items["type"] != "integer" or not isinstance(instance, list) or set(map(type, instance)) - {int}:
        return False
    return not instance or bool(items["minimum"] <= min(instance) and max(instance) <= items["maximum"])


_PLAIN_ITEMS = jsonschema.Draft202012Validator.VALIDATORS["items"]
_FastValidator: Any = extend(jsonschema.Draft202012Validator, {"items": _items})  # type: ignore[no-untyped-call]
