"""The value of ``--bisect``: several packages in new versions, or the releases of one between two versions."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from perfgate.errors import UsageError
from perfgate.locale import Activity

_ENTRY = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([^.\s](?:(?!\.\.)\S)*)(?:\.\.(\S+))?")
_EXAMPLES = Activity("write e.g. 'torch==2.13,attrs==26.1', or 'attrs==23.1..26.1' for the releases of one package")


class NewPackages(NamedTuple):
    """Packages by their normalized names, each with its new version."""

    versions: dict[str, str]


class ReleaseRange(NamedTuple):
    """The releases of one package between two versions, both included."""

    package: str
    first: str
    last: str


def parse_bisect(text: str) -> NewPackages | ReleaseRange:
    """Read the value of ``--bisect``. Raises UsageError that shows how to write it."""
    versions: dict[str, str] = {}
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise UsageError("--bisect names no package; {examples}", examples=_EXAMPLES)
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise UsageError("--bisect does not understand {entry!r}; {examples}", entry=entry, examples=_EXAMPLES)
        name, first, last = canonicalize_name(match[1]), _version(match[2]), match[3]
        if last is not None:
            if len(entries) > 1:
                raise UsageError(
                    "--bisect takes releases of one package, or one version each of several; {examples}",
                    examples=_EXAMPLES,
                )
            if Version(first) >= Version(_version(last)):
                raise UsageError("--bisect {entry!r}: the first version must be older than the second", entry=entry)
            return ReleaseRange(name, first, last)
        if name in versions:
            raise UsageError("--bisect names {name} twice", name=name)
        versions[name] = first
    return NewPackages(versions)


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        raise UsageError("--bisect: {text!r} is not a version; {examples}", text=text, examples=_EXAMPLES) from error
    return text
