"""The JSON Schemas (draft 2020-12) of the documents and of perfgate.toml: generated
from the records, checked on reading.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perfgate.document.records import convert_record
from perfgate.document.strict_json import MAX_BYTES, MAX_INTEGER, MIN_INTEGER, refuse
from perfgate.errors import PerfgateError

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

# Enough for any honest document; bounds the cost of reading a hostile one.
MAX_TEXT = 64 * 1024
MAX_LONG_TEXT = 1024 * 1024
MAX_ITEMS = 1_000_000
MAX_KEYS = 10_000
# Demangled names of kernels have up to 5,160 characters (recordings of MI300).
MAX_KEY = 16 * 1024

LENGTHS = {
    ("PackedArray", "data"): MAX_BYTES,
    ("ErrorDetail", "message"): MAX_LONG_TEXT,
    ("ErrorDetail", "traceback"): MAX_LONG_TEXT,
    ("ErrorDetail", "log_tail"): MAX_LONG_TEXT,
}
_HERE = Path(__file__).resolve().parent
_FIELD = re.compile(r"    (?P<name>\w+): ")
# Parts of a JSON text without escapes that may break their bounds.
_LONG_KEY = re.compile(rb'"[^"]{%d,}":' % (MAX_KEY + 1))
_LONG_TEXT = re.compile(rb'"[^"]{%d,}"' % (MAX_TEXT + 1))
# What begins an integer, and then its digits, all as zeros: to look for them by a
# regular expression takes three times as long.
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGERS = [start + b"0" * 19 for start in (b":", b",", b"[", b"-")]
# Half of the shortest text that may break its bounds: each such text covers one of the
# pieces of this length.
_PIECE = MAX_KEY // 2
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLACES = (_HERE.parent / "schemas", _HERE.parent.parent / "schemas")


def schema_of(record: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """The schema of a record: closed objects, bounded texts and arrays, docstrings and
    comments of fields as descriptions.

    ``schema`` and ``schema_version`` must stand in every file, although the records
    give them defaults.
    """
    (reference,), components = msgspec.json.schema_components(
        [record], ref_template="#/$defs/{name}"
    )
    classes = {struct.__name__: struct for struct in _subclasses(msgspec.Struct)}
    for title, component in components.items():
        comments = field_comments(classes[title])
        paragraphs = inspect.cleandoc(component.get("description", "")).split("\n\n")
        component["description"] = "\n\n".join(
            " ".join(paragraph.split()) for paragraph in paragraphs
        )
        component["additionalProperties"] = False
        for field, schema in component["properties"].items():
            _bound(schema, LENGTHS.get((title, field), MAX_TEXT))
            if field in comments:
                schema.setdefault("description", comments[field])
    _pin(components[record.__name__])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:perfgate:schema:{name}",
        **reference,
        "$defs": dict(sorted(components.items())),
    }


def field_comments(record: type) -> dict[str, str]:
    """The comments above the fields of a record and of its bases, by field."""
    comments = {}
    for base in reversed(record.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            comments.update(_own_field_comments(inspect.getsource(base)))
    return comments


def _own_field_comments(source: str) -> dict[str, str]:
    comments: dict[str, str] = {}
    above = []
    for line in source.splitlines():
        text = line.strip()
        field = _FIELD.match(line)
        if text.startswith("#"):
            above.append(text.removeprefix("#").strip())
            continue
        if field and above:
            comments[field["name"]] = " ".join(above)
        above = []
    return comments


def _subclasses(record: type) -> Iterator[type]:
    direct: list[type] = record.__subclasses__()
    for subclass in direct:
        yield subclass
        yield from _subclasses(subclass)


def schema_text(record: type[msgspec.Struct], name: str) -> str:
    return (
        json.dumps(
            schema_of(record, name), indent=2, ensure_ascii=False, allow_nan=False
        )
        + "\n"
    )


def schema_path(name: str) -> Path:
    """The path of a schema: in the package as the wheel installs it, else next to it
    (an editable install).
    """
    for folder in _PLACES:
        path = folder / f"{name}.schema.json"
        if path.is_file():
            return path
    raise PerfgateError(
        "schema {name!r} is missing from {folder}; install perfgate again",
        name=name,
        folder=_PLACES[0],
    )


@cache
def load_schema(name: str) -> dict[str, Any]:
    """The schema ``run``, ``decision`` or ``config``; do not change it.

    Raises PerfgateError if missing.
    """
    schema: dict[str, Any] = json.loads(schema_path(name).read_text(encoding="utf-8"))
    return schema


def _bound(schema: dict[str, Any], length: int) -> None:
    kind = schema.get("type")
    if kind == "string":
        schema["maxLength"] = length
    elif kind == "integer":
        schema.update(minimum=MIN_INTEGER, maximum=MAX_INTEGER)
    elif kind == "number":
        schema.update(minimum=-sys.float_info.max, maximum=sys.float_info.max)
    elif kind == "array":
        schema.setdefault("maxItems", MAX_ITEMS)
    elif kind == "object":
        schema.update(maxProperties=MAX_KEYS, propertyNames={"maxLength": MAX_KEY})
    below = [*schema.get("anyOf", []), *schema.get("prefixItems", [])]
    for inner in [*below, schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(inner, dict):
            _bound(inner, length)
    _merge_null(schema)


def _merge_null(schema: dict[str, Any]) -> None:
    """Write "a text or null" as one schema: in an error, alternatives hide which of
    them was meant.
    """
    first, *rest = schema.get("anyOf", [{}])
    if rest != [{"type": "null"}] or not {"enum", "type"} & first.keys():
        return
    del schema["anyOf"]
    if "enum" in first:
        schema["enum"] = [*first["enum"], None]
    else:
        schema.update({**first, "type": [first["type"], "null"]})


def _pin(component: dict[str, Any]) -> None:
    """Require the name and the version of a document, and allow only the current one."""
    properties = component["properties"]
    if "schema_version" not in properties:
        return
    version: int | None = properties["schema_version"]["default"]
    properties["schema_version"] = {"const": version}
    properties["schema"] = {"const": properties["schema"]["default"]}
    component["required"] = ["schema", "schema_version", *component["required"]]


_Record = TypeVar("_Record", bound=msgspec.Struct)


def convert_checked(
    value: Any, record: type[_Record], schema: str, *, name: str, remedy: str
) -> _Record:
    """A value as a record if ``schema`` allows it.

    Raises DocumentError with the offending place otherwise.
    """
    check_schema(value, schema, name=name, remedy=remedy)
    try:
        return convert_record(value, record)
    except msgspec.ValidationError as invalid:
        refuse(name, "$", str(invalid), remedy)


def check_schema(value: Any, schema: str, *, name: str, remedy: str) -> None:
    """Raise DocumentError with the offending place of a value that ``schema`` does not
    allow.
    """
    error = next(_validator(schema).iter_errors(value), None)
    if error is None:
        return
    innermost = _innermost(error)
    message = innermost.message
    if len(message) > 300:  # it quotes the whole value, which may be the whole file
        message = f"{message[:150]} … {message[-150:]}"
    shown = "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message
    )
    # A JSONPath (RFC 9535) in ASCII, as much of it as fits into a line.
    names = (
        f".{step}" if _NAME.fullmatch(str(step)) else f"[{step!a}]"
        for step in innermost.absolute_path
    )
    refuse(name, f"${''.join(names)}"[:200], shown, remedy)


def keeps_bounds(data: bytes) -> bool:
    """Whether all parts of a JSON text are small enough for the bounds of `schema_of`,
    which records do not check.

    This takes a few passes over the bytes, and is False for some texts that keep the
    bounds, too.
    """
    unescaped = (
        data.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in data else data
    )
    zeros = unescaped.translate(_AS_ZEROS)
    return (
        (unescaped.count(b":") <= MAX_KEYS or unescaped.count(b'":') <= MAX_KEYS)
        and unescaped.count(b",") < MAX_ITEMS
        and not any(long in zeros for long in _LONG_INTEGERS)
        and (
            not _may_have_long_text(unescaped)
            or not (_LONG_KEY.search(unescaped) or _LONG_TEXT.search(unescaped))
        )
    )


def _may_have_long_text(data: bytes) -> bool:
    """Whether some piece of a JSON text has no quotation mark.

    To look for long texts themselves takes 50 times as long.
    """
    return any(
        data.find(b'"', start, start + _PIECE) < 0
        for start in range(0, len(data), _PIECE)
    )


def _innermost(error: ValidationError) -> ValidationError:
    """The most specific error.

    Of alternatives with a tag it is the tagged one's, else of the alternative that fits
    deepest, and not by its type alone.
    """
    tagged = _tagged_alternative(error)
    if tagged is not None:
        return _innermost(
            next(
                inner for inner in error.context or () if inner.schema_path[0] == tagged
            )
        )
    firsts: dict[Any, ValidationError] = {}
    for inner in error.context or ():
        firsts.setdefault(inner.schema_path[0], inner)
    causes = map(_innermost, firsts.values())
    return max(
        causes,
        key=lambda inner: (len(inner.absolute_path), inner.validator != "type"),
        default=error,
    )


def _tagged_alternative(error: ValidationError) -> int | None:
    """The index of the alternative that a record's tag names; None without a known tag."""
    tag = error.schema.get("discriminator") if isinstance(error.schema, dict) else None
    if tag is None or not isinstance(error.instance, dict):
        return None
    kinds, kind = list(tag["mapping"]), error.instance.get(tag["propertyName"])
    return kinds.index(kind) if kind in kinds else None


@cache
def _validator(name: str) -> Validator:
    # It takes longer to import than most commands that read no document.
    from perfgate.document.validation import validator_of

    return validator_of(load_schema(name))
