"""Which installed distributions this process has loaded files of: modules, and
libraries that are mapped into its memory.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a project computes with, and what measures it: neither computes anything from the
# text of the project.
_PLATFORM = ("torch", "torch_npu", "numpy", "perfgate")
# This module is loaded before any that perfgate.toml names.
_AT_START = frozenset(name.partition(".")[0] for name in sys.modules)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAPS = Path("/proc/self/maps")


def loaded_distributions() -> list[str]:
    """The names of the distributions that this process has loaded a file of, as their
    metadata write them.
    """
    return distributions_of(loaded_files(), importlib.metadata.distributions())


def loaded_sources() -> list[str]:
    """The Python files of the project's modules: not of Python and its start, torch and
    perfgate.
    """
    platform = {*sys.stdlib_module_names, *_modules_of(_PLATFORM), *_AT_START}
    stdlib = f"{sysconfig.get_path('stdlib')}/"
    sources = set()
    for name, file in module_files():
        is_of_python = file.startswith(stdlib) and "site-packages" not in file
        if (
            file.endswith(".py")
            and name.partition(".")[0] not in platform
            and not is_of_python
        ):
            sources.add(file)
    return sorted(sources)


def module_files() -> Iterator[tuple[str, str]]:
    """The modules that came from a file, and its path."""
    for name, module in list(sys.modules.items()):
        # From the dictionary of a module: asking a lazy module for an attribute would
        # import it.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str):
            yield name, file


def _modules_of(distributions: Sequence[str]) -> set[str]:
    """The top-level modules of distributions and of those that they require, extras
    aside.
    """
    modules = set()
    waiting = list(distributions)
    for name in waiting:  # grows
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        modules.update(_top_level(distribution, name))
        for requirement in distribution.requires or ():
            required = _NAME.match(requirement)
            if (
                required is not None
                and "extra ==" not in requirement
                and required[0] not in waiting
            ):
                waiting.append(required[0])
    return modules


def _top_level(distribution: Distribution, name: str) -> list[str]:
    if listed := distribution.read_text("top_level.txt"):
        return listed.split()
    modules = set()
    for file in distribution.files or ():
        module = file.parts[0].removesuffix(".py")
        if module.isidentifier():
            modules.add(module)
    return sorted(modules) or [name.replace("-", "_")]


def distributions_of(
    files: Iterable[str], distributions: Iterable[Distribution]
) -> list[str]:
    """The names of the distributions that a file of ``files`` belongs to."""
    paths = set(files)
    paths.update([os.path.realpath(file) for file in paths])
    names = set()
    loaded = []
    for distribution in distributions:
        name = distribution.metadata["Name"]
        # As on the import path: of several with one name only the first is imported.
        if not name or name in names:
            continue
        names.add(name)
        if _is_loaded(name, distribution, paths):
            loaded.append(name)
    return sorted(loaded)


def loaded_files() -> set[str]:
    """The paths of the files that modules came from, and of all files that are mapped
    into memory.
    """
    files = {file for _, file in module_files()}
    with suppress(OSError):  # not Linux
        for line in MAPS.read_text(
            encoding="utf-8", errors="surrogateescape"
        ).splitlines():
            # proc_pid_maps(5): the path is the sixth field and may hold spaces.
            fields = line.split(maxsplit=5)
            if len(fields) > 5 and fields[5].startswith("/"):
                files.add(fields[5])
    return files


def _is_loaded(name: str, distribution: Distribution, files: set[str]) -> bool:
    if (source := _editable_source(distribution)) and _any_below(source, files):
        return True
    if record := distribution.read_text("RECORD"):
        return not files.isdisjoint(_recorded_files(distribution, record))
    # Without a list of its files, as system packages and eggs are: by the names of its
    # modules.
    modules = (
        distribution.read_text("top_level.txt") or name.replace("-", "_")
    ).split()
    for folder in _locations(distribution):
        for module in modules:
            if f"{folder}/{module}.py" in files or _any_below(
                f"{folder}/{module}", files
            ):
                return True
    return False


def _recorded_files(distribution: Distribution, record: str) -> Iterator[str]:
    # "Recording installed projects": comma-separated, path first, relative to the
    # folder of the .dist-info.
    folders = _locations(distribution)
    for row in csv.reader(record.splitlines()):
        if not row:
            continue
        for folder in folders:
            path = f"{folder}/{row[0]}"
            if row[0].startswith(".."):
                path = os.path.normpath(path)
            yield path


def _locations(distribution: Distribution) -> set[str]:
    folder = Path(str(distribution.locate_file(""))).absolute()
    return {str(folder), str(folder.resolve())}


def _editable_source(distribution: Distribution) -> str | None:
    """The folder that an editable installation is imported from ("Recording the direct
    URL origin of distributions").
    """
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return os.path.realpath(unquote(urlsplit(origin["url"]).path))
    except (ValueError, KeyError, AttributeError):
        return None
    return None


def _any_below(folder: str, files: set[str]) -> bool:
    return any(file.startswith(f"{folder}/") for file in files)
