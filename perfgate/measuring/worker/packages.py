"""Which installed distributions this process has loaded files of: modules, and libraries that are mapped into its memory."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a project computes with, and what measures it: neither computes anything from the text of the project.
_PLATFORM = ("torch", "torch_npu", "numpy", "perfgate")
# This module is loaded before any that perfgate.toml names.
_AT_START = frozenset(name.partition(".")[0] for name in sys.modules)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAPS = Path("/proc/self/maps")


def loaded_distributions() -> list[str]:
    """The names of the distributions that this process has loaded a file of, as their metadata write them."""
    return distributions_of(loaded_files(), importlib.metadata.distributions())


def loaded_sources() -> list[str]:
    """The Python files that modules came from, but for those of Python and its start, of torch and of perfgate."""
    known = {*sys.stdlib_module_names, *_modules_of(_PLATFORM), *_AT_START}
    origins = {
        vars(module).get("__file__")
        for name, module in list(sys.modules.items())
        if hasattr(module, "__dict__") and name.partition(".")[0] not in known
    }
    files = (origin for origin in origins if isinstance(origin, str) and origin.endswith(".py"))
    return sorted(file for file in files if not _is_of_python(file))


def _is_of_python(file: str) -> bool:
    return file.startswith(f"{sysconfig.get_path('stdlib')}/") and "site-packages" not in file


def _modules_of(distributions: Sequence[str]) -> set[str]:
    """The top-level modules of distributions and of those that they require, extras aside."""
    modules: set[str] = set()
    waiting = list(distributions)
    for name in waiting:  # grows
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        modules.update(_top_level(distribution, name))
        for requirement in distribution.requires or ():
            required = _NAME.match(requirement)
            if required is not None and "extra ==" not in requirement and required[0] not in waiting:
                waiting.append(required[0])
    return modules


def _top_level(distribution: Distribution, name: str) -> list[str]:
    if listed := distribution.read_text("top_level.txt"):
        return listed.split()
    first = {file.parts[0].removesuffix(".py") for file in distribution.files or ()}
    return sorted(part for part in first if part.isidentifier()) or [name.replace("-", "_")]


def distributions_of(files: Iterable[str], distributions: Iterable[Distribution]) -> list[str]:
    """The names of the distributions that one of ``files`` belongs to."""
    paths = set(files)
    paths.update([os.path.realpath(file) for file in paths])
    first: dict[str, Distribution] = {}
    for distribution in distributions:
        # As on the import path: of several with one name only the first is imported.
        if name := distribution.metadata["Name"]:
            first.setdefault(name, distribution)
    return sorted(name for name, distribution in first.items() if _is_loaded(name, distribution, paths))


def loaded_files() -> set[str]:
    """The paths of the files that modules came from, and of those mapped into memory."""
    # From the dictionary of a module: asking a lazy one for an attribute would import it.
    origins = {vars(module).get("__file__") for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    return {origin for origin in origins if isinstance(origin, str)} | _mapped_files()


def _mapped_files() -> set[str]:
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return set()
    # proc_pid_maps(5): the path is the sixth field and may hold spaces.
    fields = [line.split(maxsplit=5) for line in lines]
    return {line[5] for line in fields if len(line) > 5 and line[5].startswith("/")}


def _is_loaded(name: str, distribution: Distribution, files: set[str]) -> bool:
    if (source := _editable_source(distribution)) and _any_below(source, files):
        return True
    if record := distribution.read_text("RECORD"):
        return any(path in files for path in _recorded_files(distribution, record))
    # Without a list of its files, as system packages and eggs are: by the names of its modules.
    modules = (distribution.read_text("top_level.txt") or name.replace("-", "_")).split()
    for folder in _locations(distribution):
        for module in modules:
            if f"{folder}/{module}.py" in files or _any_below(f"{folder}/{module}", files):
                return True
    return False


def _recorded_files(distribution: Distribution, record: str) -> Iterator[str]:
    # "Recording installed projects": comma-separated, path first, relative to the folder of the .dist-info.
    paths = [row[0] for row in csv.reader(record.splitlines()) if row]
    for folder in _locations(distribution):
        yield from (
            os.path.normpath(f"{folder}/{path}") if path.startswith("..") else f"{folder}/{path}" for path in paths
        )


def _locations(distribution: Distribution) -> set[str]:
    folder = Path(str(distribution.locate_file(""))).absolute()
    return {str(folder), str(folder.resolve())}


def _editable_source(distribution: Distribution) -> str | None:
    """The folder that an editable installation is imported from ("Recording the direct URL origin of distributions")."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        is_editable = bool(origin.get("dir_info", {}).get("editable"))
        return os.path.realpath(unquote(urlsplit(origin["url"]).path)) if is_editable else None
    except (ValueError, KeyError, AttributeError):
        return None


def _any_below(folder: str, files: set[str]) -> bool:
    return any(file.startswith(f"{folder}/") for file in files)
