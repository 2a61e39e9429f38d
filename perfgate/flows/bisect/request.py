"""What to bisect besides commits: packages in new versions, the releases of one, or
environments in a given order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from perfgate.errors import UsageError
from perfgate.locale import Activity

_PACKAGE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ENTRY = re.compile(rf"({_PACKAGE})==([^.\s](?:(?!\.\.)\S)*)(?:\.\.(\S+))?")
_EXAMPLES = Activity(
    "write e.g. 'torch==2.13,attrs==26.1', or 'attrs==23.1..26.1' for the releases of one package"
)
# Stands for the version in the shell lines that make an environment; a shell reads a
# version as it stands.
PLACEHOLDER = "{}"
_VERSION = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@+=~-]*")
_FEWEST = 2
_LISTS = Activity(
    "write e.g. 'torch==2.7.1 torch-npu==2.7.1, torch==2.8.0 torch-npu==2.8.0', 'attrs==23.1..26.1', "
    "'old/bin/python, new/bin/python', or versions and --environment"
)


# Packages by their normalized names, each with its version.
Pins = dict[str, str]


class ReleaseRange(NamedTuple):
    """The releases of one package between two versions, both included."""

    package: str
    first: str
    last: str


class InterpreterList(NamedTuple):
    """Interpreters of existing environments in their order, the old one first."""

    pythons: Sequence[Path]


class PackageSets(NamedTuple):
    """Sets of packages in their order, the old one first."""

    sets: Sequence[Pins]


class LaunchedVersions(NamedTuple):
    """Versions in their order, the old one first, each with the environment that the
    shell ``lines`` give Python.
    """

    versions: Sequence[str]
    lines: str


EnvironmentList = InterpreterList | PackageSets | LaunchedVersions


def parse_bisect(text: str) -> Pins | ReleaseRange:
    """Read the value of ``--bisect``: new versions.

    Raises UsageError that shows how to write it.
    """
    versions: Pins = {}
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise UsageError("--bisect names no package; {examples}", examples=_EXAMPLES)
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise UsageError(
                "--bisect does not understand {entry!r}; {examples}",
                entry=entry,
                examples=_EXAMPLES,
            )
        if match[3] is not None:
            if len(entries) > 1:
                raise UsageError(
                    "--bisect takes releases of one package, or one version each of several; {examples}",
                    examples=_EXAMPLES,
                )
            return _releases(match)
        name = canonicalize_name(match[1])
        if name in versions:
            raise UsageError("--bisect names {name} twice", name=name)
        versions[name] = _version(match[2])
    return versions


def parse_between(text: str, lines: str | None) -> EnvironmentList | ReleaseRange:
    """Read the values of ``--between`` and ``--environment``.

    Raises UsageError that shows how to write them.
    """
    entries = [" ".join(entry.split()) for entry in text.split(",") if entry.strip()]
    if (
        lines is None
        and len(entries) == 1
        and (match := _ENTRY.fullmatch(entries[0]))
        and match[3] is not None
    ):
        return _releases(match)
    if len(entries) < _FEWEST:
        raise UsageError(
            "--between needs an old and a new environment; {examples}", examples=_LISTS
        )
    for entry in entries:
        if entries.count(entry) > 1:
            raise UsageError("--between names {name} twice", name=entry)
    if lines is not None:
        return _launched(entries, lines)
    if all("/" in entry for entry in entries):
        return InterpreterList([Path(entry) for entry in entries])
    return PackageSets([_packages(entry) for entry in entries])


def _launched(versions: Sequence[str], lines: str) -> LaunchedVersions:
    if PLACEHOLDER not in lines:
        raise UsageError(
            "--environment {lines!r} has no {place} for the version; write e.g. {example!r}",
            lines=lines,
            place=PLACEHOLDER,
            example="source /usr/local/Ascend/{}/set_env.sh",
        )
    for version in versions:
        if not _VERSION.fullmatch(version):
            raise UsageError(
                "--between: {entry!r} is not a version for --environment; it takes letters, digits and ./:@+=~_-",
                entry=version,
            )
    return LaunchedVersions(versions, lines)


def _packages(entry: str) -> Pins:
    pins: Pins = {}
    words = entry.split()
    for word in words:
        match = _ENTRY.fullmatch(word)
        if match and match[3] is None:
            pins[canonicalize_name(match[1])] = _version(match[2])
    if len(pins) < len(words):
        raise UsageError(
            "--between does not understand {entry!r}; {examples}",
            entry=entry,
            examples=_LISTS,
        )
    return pins


def _releases(match: re.Match[str]) -> ReleaseRange:
    first, last = _version(match[2]), _version(match[3])
    if Version(first) >= Version(last):
        raise UsageError(
            "{entry!r}: the first version must be older than the second", entry=match[0]
        )
    return ReleaseRange(canonicalize_name(match[1]), first, last)


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        raise UsageError(
            "{text!r} is not a version; {examples}", text=text, examples=_EXAMPLES
        ) from error
    return text
