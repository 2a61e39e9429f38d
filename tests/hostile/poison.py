"""Any document with foreign text in every field that takes free text: fields of closed words keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import (
    CustomType,
    DataclassType,
    DictType,
    Field,
    ListType,
    LiteralType,
    NamedTupleType,
    StrType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

Rename = Callable[[str], str]
Document = TypeVar("Document")


def poisoned(document: Document, rename: Rename) -> Document:
    """A copy in which ``rename`` has replaced each free text; a function of the text keeps equal texts equal."""
    return _walk(document, type_info(type(document)), rename)


def _walk(value: Any, kind: Type, rename: Rename) -> Any:
    kind = _alternative(value, kind)
    if isinstance(value, str):
        return value if isinstance(kind, LiteralType) else rename(value)
    if isinstance(value, msgspec.Struct):
        return _walk_fields(value, _fields_of(kind, value), rename, msgspec.structs.replace)
    if is_dataclass(value):
        return _walk_fields(value, _fields_of(kind, value), rename, replace)
    if isinstance(value, Mapping):
        key_kind, value_kind = (
            (kind.key_type, kind.value_type) if isinstance(kind, DictType) else (StrType(), StrType())
        )
        return {_walk(key, key_kind, rename): _walk(item, value_kind, rename) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, _item_kind(kind), rename) for item in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_walk(item, _item_kind(kind), rename) for item in value)
    return value


def _alternative(value: Any, kind: Type) -> Type:
    """The member of a union that the value is of."""
    if not isinstance(kind, UnionType):
        return kind
    for member in kind.types:
        if isinstance(member, StructType) and type(value) is member.cls:
            return member
        if isinstance(member, LiteralType) and value in member.values:
            return member
        if isinstance(member, (ListType, VarTupleType, TupleType)) and isinstance(value, (list, tuple)):
            return member
        if isinstance(member, DictType) and isinstance(value, Mapping):
            return member
    return StrType()


def _fields_of(kind: Type, value: Any) -> tuple[Field, ...]:
    if not isinstance(kind, (StructType, DataclassType, NamedTupleType)):
        kind = type_info(type(value))
    assert not isinstance(kind, CustomType)
    return kind.fields  # type: ignore[attr-defined]


def _walk_fields(value: Any, inspected: tuple[Field, ...], rename: Rename, rebuild: Callable[..., Any]) -> Any:
    changes: dict[str, Any] = {}
    for field in inspected:
        old = getattr(value, field.name)
        new = _walk(old, field.type, rename)
        if new is not old:
            changes[field.name] = new
    return rebuild(value, **changes)


def _item_kind(kind: Type) -> Type:
    if isinstance(kind, (ListType, VarTupleType)):
        return kind.item_type
    if isinstance(kind, TupleType):
        return kind.item_types[0]
    return StrType()
