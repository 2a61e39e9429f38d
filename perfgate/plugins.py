"""The members of a plug-in area: the modules of our folder, then those that installed
packages name as entry points.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from perfgate.errors import PluginError
from perfgate.locale import Activity

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# The entry points in a distribution's pyproject.toml:
# [project.entry-points."perfgate.readers"] name = "package.module".
DEVICES, READERS, STEPS = "perfgate.devices", "perfgate.readers", "perfgate.steps"
FORGES, STORES, RESULTS = "perfgate.forges", "perfgate.stores", "perfgate.results"
ADVISORS = "perfgate.advisors"
# The packages in plugins/ of this repository, and the forges that one of them adds.
FORGES_PACKAGE, ADVISOR_PACKAGE = "perfgate-forges", "perfgate-advisor"
PACKAGED_FORGES = ("gitcode", "gitea", "gitee")


def member_names(package: ModuleType, group: str | None = None) -> list[str]:
    """Sorted, without importing any: the modules of a folder, and the entry points of a
    group.
    """
    return sorted([*_module_names(package), *_entry_points(package, group)])


def load_member(package: ModuleType, name: str, group: str | None = None) -> ModuleType:
    """Raises PluginError, which names the distribution, if the member of another
    package cannot be imported.
    """
    entry = _entry_points(package, group).get(name)
    if entry is None:
        return importlib.import_module(f"{package.__name__}.{name}")
    return _load(entry)


def load_members(package: ModuleType, group: str | None = None) -> list[ModuleType]:
    """In name order. Raises as ``load_member`` does."""
    return [load_member(package, name, group) for name in member_names(package, group)]


def load_plugins(group: str) -> list[ModuleType]:
    """The members of a group without a folder of ours, in name order.

    Raises as ``load_member`` does.
    """
    return [_load(entry) for _, entry in sorted(_group(group).items())]


def files_beside(group: str, suffix: str) -> list[Path]:
    """The files next to the modules of a group's entry points, with the same names; the
    modules are not imported.
    """
    files = []
    for entry in _group(group).values():
        try:
            spec = importlib.util.find_spec(entry.module)
        except Exception as error:
            raise _broken(
                entry, f"cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if spec is None or spec.origin is None:
            raise _broken(entry, "cannot be imported: there is no such module")
        files.append(Path(spec.origin).with_suffix(suffix))
    return files


def _load(entry: EntryPoint) -> ModuleType:
    try:
        return importlib.import_module(entry.module)
    except Exception as error:
        raise _broken(
            entry, f"cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _module_names(package: ModuleType) -> tuple[str, ...]:
    return _modules_in(*package.__path__)


@cache
def _modules_in(*folders: str) -> tuple[str, ...]:
    return tuple(
        info.name
        for info in pkgutil.iter_modules(folders)
        if not info.name.startswith("_")
    )


def _entry_points(package: ModuleType, group: str | None) -> Mapping[str, EntryPoint]:
    """Raises PluginError if one of them has the name of a module of ours."""
    if group is None:
        return {}
    entries = _group(group)
    for name in _module_names(package):
        if name in entries:
            raise _broken(
                entries[name],
                f"has the name of perfgate's own {package.__name__}.{name}",
            )
    return entries


@cache
def _group(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by their names.

    Raises PluginError if two packages use one name.
    """
    if not _may_be_named(group):
        return {}
    from importlib.metadata import (
        entry_points,
    )  # slow to import, and `perfgate --help` needs no plug-in

    members: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        # `python -m perfgate` puts the current folder on the path, which may be the
        # checkout of a change to be judged.
        if (
            entry.dist is not None
            and Path(str(entry.dist.locate_file(""))).resolve() == Path.cwd()
        ):
            continue
        if entry.name in members:
            raise _broken(
                entry,
                Activity(
                    "has the same name as the plug-in of {other}",
                    other=_distribution(members[entry.name]),
                ),
            )
        members[entry.name] = entry
    return members


@cache
def _may_be_named(group: str) -> bool:
    """Whether a file of entry points names the group; a look at them takes a fraction
    of the time of ``importlib.metadata``.

    A path entry that is not a folder, such as an archive, may have entry points that
    this does not see.
    """
    heading = f"[{group}]".encode()
    for place in dict.fromkeys(sys.path):
        if os.path.isfile(place):  # noqa: PTH113 - this is on the way of every command that reads a trace
            return True
        with suppress(OSError), os.scandir(place or ".") as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info")):
                    with (
                        suppress(OSError),
                        open(f"{entry.path}/entry_points.txt", "rb") as file,  # noqa: PTH123
                    ):
                        if heading in file.read().replace(b" ", b""):
                            return True
    return False


def _broken(entry: EntryPoint, reason: str) -> PluginError:
    return PluginError(
        "{package}: its plug-in {name} = {value!r} of {group} {reason}; repair the package, or uninstall it",
        package=_distribution(entry),
        name=entry.name,
        value=entry.value,
        group=entry.group,
        reason=reason,
    )


def _distribution(entry: EntryPoint) -> str:
    if entry.dist is not None:
        return f"package {entry.dist.name} {entry.dist.version}"
    return "a package without a name"
