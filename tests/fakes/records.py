"""Build and change records by the names of their fields, wherever in the record's groups these are."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec

_Record = TypeVar("_Record", bound=msgspec.Struct)


def built(record: type[_Record], fields: dict[str, Any]) -> _Record:
    """Return a record with these fields; a name that the record lacks goes to the group that has it."""
    groups: dict[str, dict[str, Any]] = {}
    own = {}
    for name, value in fields.items():
        group = group_of(record, name)
        if group is None:
            own[name] = value
        else:
            groups.setdefault(group, {})[name] = value
    types = _types_of(record)
    for group, values in groups.items():
        own[group] = changed(own[group], **values) if group in own else types[group](**values)
    return record(**own)


def changed(record: _Record, **fields: Any) -> _Record:
    """Return the record with other values of these fields."""
    own = {}
    for name, value in fields.items():
        group = group_of(type(record), name)
        if group is None:
            own[name] = value
        else:
            own[group] = changed(own.get(group, getattr(record, group)), **{name: value})
    return msgspec.structs.replace(record, **own)


@cache
def _types_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(record)


@cache
def group_of(record: type[msgspec.Struct], name: str) -> str | None:
    """The field whose record has a field of this name; None if ``record`` itself or none of its groups has it."""
    if name in record.__struct_fields__:
        return None
    groups = []
    for field, annotation in _types_of(record).items():
        if (
            isinstance(annotation, type)
            and issubclass(annotation, msgspec.Struct)
            and name in annotation.__struct_fields__
        ):
            groups.append(field)
    assert len(groups) <= 1, f"{record.__name__} has {name} in {groups}"
    return next(iter(groups), None)
