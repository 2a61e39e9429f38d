"""Find all members of a plug-in folder; an import error in one of them is raised, never swallowed."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def member_names(package: ModuleType) -> list[str]:
    """Return the module names in a package's folder, sorted, without importing them."""
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))


def load_member(package: ModuleType, name: str) -> ModuleType:
    """Import one member of a plug-in folder."""
    return importlib.import_module(f"{package.__name__}.{name}")


def load_members(package: ModuleType) -> list[ModuleType]:
    """Import every member of a plug-in folder, in name order."""
    return [load_member(package, name) for name in member_names(package)]
