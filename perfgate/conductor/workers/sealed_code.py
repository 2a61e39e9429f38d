"""The code of an interpreter and the programs next to it: the folders that a seal
covers besides the checkouts.
"""

from __future__ import annotations

import compileall
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path

import msgspec

from perfgate.conductor.workers.in_use import Holds
from perfgate.conductor.workers.interpreters import ANSWER_SECONDS, RUNNING
from perfgate.conductor.workers.seals import MOST_ENTRIES, SealedCode, SealedFolder
from perfgate.errors import MeasuringError
from perfgate.system.folders import PACKAGE
from perfgate.system.loader_cache import LOADER_CACHE, entries_of_loader_cache
from perfgate.system.logs import one_line
from perfgate.system.stamps import (
    folders_of_code,
    is_library,
    is_visible_code,
    stamps_below,
    stamps_in,
    stamps_of_code,
)

# An interpreter's import path, its own location, and the files that it maps: itself and
# its libraries.
_ASK = """
import json, os, sys
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
files = sorted(path for path in mapped if os.path.isfile(path))
print(json.dumps({"path": sys.path[1:], "prefixes": [sys.prefix, sys.base_prefix], "libraries": files}))
"""
# Folders of an environment's installed packages (PEP 370, site.getsitepackages).
_INSTALLED = ("site-packages", "dist-packages")
# In the folder of the standard library, but not part of its imports.
_NOT_STANDARD = frozenset({*_INSTALLED, "test", "lib-dynload"})
# Its libraries are loaded into every program (ld.so(8)).
_PRELOADED = "ld.so.preload"


class _Answer(msgspec.Struct):
    path: list[str]
    prefixes: list[str]
    libraries: list[str]


def compile_own_code() -> None:
    """Write missing bytecode of perfgate itself: a process that did so later would look
    like a change.
    """
    compileall.compile_dir(str(PACKAGE), quiet=2)


def sealed_code(
    python: Path | None, environment: Mapping[str, str], *, spare: Path | None
) -> SealedCode:
    """The code that a worker, or a program that finds ``python`` first, can load in a
    worker's environment.

    ``spare`` is a folder in use by people: a project installed in place there is not
    sealed.
    """
    answer = _ask(python or RUNNING, environment)
    prefixes = [Path(prefix).resolve() for prefix in dict.fromkeys(answer.prefixes)]
    folders = []
    for folder in dict.fromkeys(Path(path).resolve() for path in answer.path if path):
        if folder.name in _INSTALLED:
            folders.append(_modules_in(folder))
        elif any(prefix in folder.parents for prefix in prefixes):
            folders.append(_modules_in(folder, without=_NOT_STANDARD))
        elif folder == PACKAGE.parent:
            folders.append(_code_in(PACKAGE))
        elif spare is None or spare not in (folder, *folder.parents):
            folders.append(_code_in(folder))
    mapped = [*map(Path, answer.libraries), *_listed(environment, "LD_PRELOAD")]
    libraries = [
        *(file.parent for file in mapped),
        *_listed(environment, "LD_LIBRARY_PATH"),
    ]
    programs = [(python or RUNNING).parent, *_listed(environment, "PATH")]
    folders += [
        _files_in(folder, is_library, "libraries") for folder in _resolved(libraries)
    ]
    folders += [
        _files_in(folder, bool, "programs") for folder in _resolved(programs)
    ]  # all: no name is empty
    folders += [_files_in(Path("/etc"), _PRELOADED.__eq__), _libraries_in_cache()]
    folders += [_files_in(prefix, "pyvenv.cfg".__eq__) for prefix in prefixes]
    return SealedCode(folders, mapped)


def _ask(python: Path, environment: Mapping[str, str]) -> _Answer:
    """Ask an interpreter about itself.

    Raises MeasuringError without a readable answer.
    """
    command = [str(python), "-c", _ASK]
    try:
        process = subprocess.run(
            command,
            env=dict(environment),
            cwd="/",
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=True,
        )
        return msgspec.json.decode(
            process.stdout.strip().rpartition(b"\n")[2], type=_Answer
        )
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise MeasuringError(
            "{python} did not report its import path: {error}",
            python=python,
            error=one_line(str(error)),
        ) from error


@cache
def _code_in(folder: Path) -> SealedFolder:
    stamp = partial(stamps_of_code, folder, most=MOST_ENTRIES)
    return SealedFolder(
        str(folder),
        stamp,
        root=folder,
        folders=folders_of_code,
        holds="modules",
        covers=is_visible_code,
    )


@cache
def _modules_in(folder: Path, *, without: frozenset[str] = frozenset()) -> SealedFolder:
    """An installation's modules; folders directly in it that are called as in
    ``without`` are left out.
    """
    stamp = partial(stamps_below, folder, most=MOST_ENTRIES, without=without)
    return SealedFolder(
        str(folder),
        stamp,
        root=folder,
        holds="modules",
        covers=lambda name: name.partition("/")[0] not in without,
    )


@cache
def _files_in(
    folder: Path, is_sealed: Callable[[str], bool], holds: Holds = "everything"
) -> SealedFolder:
    return SealedFolder(
        str(folder), partial(stamps_in, folder, is_sealed), root=folder, holds=holds
    )


@cache
def _libraries_in_cache() -> SealedFolder:
    """The loader's cache by its entries: every installation of a library writes it anew
    (ldconfig(8)).
    """
    return SealedFolder(str(LOADER_CACHE), entries_of_loader_cache, holds="libraries")


def _listed(environment: Mapping[str, str], name: str) -> list[Path]:
    entries = map(Path, environment.get(name, "").split(os.pathsep))
    return [entry for entry in entries if entry.is_absolute()]


def _resolved(folders: Iterable[Path]) -> list[Path]:
    return sorted({folder.resolve() for folder in folders})
