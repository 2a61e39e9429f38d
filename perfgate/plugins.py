"""The members of a plug-in area: the modules of our folder, then those that installed packages name as entry points."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from perfgate.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# What a distribution's pyproject.toml may name: [project.entry-points."perfgate.readers"] name = "package.module".
DEVICES, READERS, STEPS = "perfgate.devices", "perfgate.readers", "perfgate.steps"
FORGES, STORES = "perfgate.forges", "perfgate.stores"


def member_names(package: ModuleType, group: str | None = None) -> list[str]:
    """Sorted, without importing any: the modules of a folder, and the entry points of a group."""
    modules = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    return sorted([*modules, *_entry_points(package, group)])


def load_member(package: ModuleType, name: str, group: str | None = None) -> ModuleType:
    """Raises PluginError, which names the distribution, where the member of another package cannot be imported."""
    entry = _entry_points(package, group).get(name)
    if entry is None:
        return importlib.import_module(f"{package.__name__}.{name}")
    try:
        return importlib.import_module(entry.value)
    except Exception as error:
        raise PluginError(
            f"{_described(entry)} cannot be imported: {type(error).__name__}: {error}; "
            "repair the package, or uninstall it"
        ) from error


def load_members(package: ModuleType, group: str | None = None) -> list[ModuleType]:
    """In name order. Raises as ``load_member`` does."""
    return [load_member(package, name, group) for name in member_names(package, group)]


def files_beside(package: ModuleType, group: str, suffix: str) -> list[Path]:
    """The files that lie beside the modules of a group's entry points and have their names; no such module is imported."""
    files = []
    for entry in _entry_points(package, group).values():
        try:
            spec = importlib.util.find_spec(entry.value)
        except Exception as error:
            raise PluginError(
                f"{_described(entry)} cannot be found: {type(error).__name__}: {error}; "
                "repair the package, or uninstall it"
            ) from error
        if spec is None or spec.origin is None:
            raise PluginError(f"{_described(entry)} cannot be found; repair the package, or uninstall it")
        files.append(Path(spec.origin).with_suffix(suffix))
    return files


@cache
def _entry_points(package: ModuleType, group: str | None) -> Mapping[str, EntryPoint]:
    """By name. Raises PluginError where two members of an area have one name."""
    if group is None:
        return {}
    from importlib.metadata import entry_points  # takes 20 ms, and most commands need no plug-in

    ours = {info.name for info in pkgutil.iter_modules(package.__path__)}
    members: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        # `python -m perfgate` puts the current folder on the path, which may be the checkout of a change to be judged.
        if entry.dist is not None and Path(str(entry.dist.locate_file(""))).resolve() == Path.cwd():
            continue
        if entry.name in ours or entry.name in members:
            owner = _described(members[entry.name]) if entry.name in members else "perfgate itself"
            raise PluginError(f"{_described(entry)} has the name of a member of {owner}; uninstall one of them")
        members[entry.name] = entry
    return members


def _described(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"
    return f"plug-in {entry.name} of {package} (entry point {entry.value} of {entry.group})"
