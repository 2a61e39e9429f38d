"""The code of an interpreter and the programs beside it: the folders that a seal covers besides the checkouts."""

from __future__ import annotations

import compileall
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path

import msgspec

from perfgate.conductor.workers.cleanup import one_line
from perfgate.conductor.workers.interpreters import ANSWER_SECONDS, RUNNING
from perfgate.conductor.workers.seals import MOST_ENTRIES, SealedFolder, sealed_tree
from perfgate.errors import MeasuringError
from perfgate.system.folders import PACKAGE
from perfgate.system.stamps import folders_of_code, is_library, stamps_in, stamps_of_code

# An interpreter's import path, its own location, and the folders of its loaded libraries.
_ASK = """
import json, os, sys
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
folders = sorted({os.path.dirname(path) for path in mapped if os.path.isfile(path)})
print(json.dumps({"path": sys.path[1:], "prefixes": [sys.prefix, sys.base_prefix], "libraries": folders}))
"""
# Folders of an environment's installed packages (PEP 370, site.getsitepackages).
_INSTALLED = ("site-packages", "dist-packages")
# In the folder of the standard library, but not part of its imports.
_NOT_STANDARD = frozenset({*_INSTALLED, "test", "lib-dynload"})
# Libraries that the loader loads into every program (ld.so(8)).
_LOADER = ("ld.so.preload", "ld.so.cache")


class _Answer(msgspec.Struct):
    path: list[str]
    prefixes: list[str]
    libraries: list[str]


def compile_own_code() -> None:
    """Write missing bytecode of perfgate itself: a process that did so later would look like a change."""
    compileall.compile_dir(str(PACKAGE), quiet=2)


def sealed_code(python: Path | None, environment: Mapping[str, str], *, spare: Path | None) -> list[SealedFolder]:
    """The code that a worker, or a program that finds ``python`` first, can load in a worker's environment.

    ``spare`` is a folder in use by people: a project installed in place there is not sealed.
    """
    answer = _ask(python or RUNNING, environment)
    prefixes = [Path(prefix).resolve() for prefix in dict.fromkeys(answer.prefixes)]
    folders = []
    for folder in dict.fromkeys(Path(path).resolve() for path in answer.path if path):
        if folder.name in _INSTALLED:
            folders.append(sealed_tree(str(folder), folder))
        elif any(prefix in folder.parents for prefix in prefixes):
            folders.append(sealed_tree(str(folder), folder, without=_NOT_STANDARD))
        elif folder == PACKAGE.parent:
            folders.append(_code_in(PACKAGE))
        elif spare is None or spare not in (folder, *folder.parents):
            folders.append(_code_in(folder))
    libraries = [*map(Path, answer.libraries), *_listed(environment, "LD_LIBRARY_PATH")]
    libraries += [file.parent for file in _listed(environment, "LD_PRELOAD")]
    programs = [(python or RUNNING).parent, *_listed(environment, "PATH")]
    return [
        *folders,
        *(_files_in(folder, is_library) for folder in _resolved(libraries)),
        *(_files_in(folder, bool) for folder in _resolved(programs)),  # all: no name is empty
        _files_in(Path("/etc"), _LOADER.__contains__),
        *(_files_in(prefix, "pyvenv.cfg".__eq__) for prefix in prefixes),
    ]


def _ask(python: Path, environment: Mapping[str, str]) -> _Answer:
    """Ask an interpreter about itself. Raises MeasuringError without a readable answer."""
    command = [str(python), "-c", _ASK]
    try:
        done = subprocess.run(
            command, env=dict(environment), cwd="/", capture_output=True, timeout=ANSWER_SECONDS, check=True
        )
        return msgspec.json.decode(done.stdout.strip().rpartition(b"\n")[2], type=_Answer)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise MeasuringError(
            "{python} did not report its import path: {error}", python=python, error=one_line(str(error))
        ) from error


@cache
def _code_in(folder: Path) -> SealedFolder:
    stamp = partial(stamps_of_code, folder, most=MOST_ENTRIES)
    return SealedFolder(str(folder), stamp, root=folder, folders=folders_of_code)


@cache
def _files_in(folder: Path, wanted: Callable[[str], bool]) -> SealedFolder:
    return SealedFolder(str(folder), partial(stamps_in, folder, wanted), root=folder)


def _listed(environment: Mapping[str, str], name: str) -> list[Path]:
    entries = map(Path, environment.get(name, "").split(os.pathsep))
    return [entry for entry in entries if entry.is_absolute()]


def _resolved(folders: Iterable[Path]) -> list[Path]:
    return sorted({folder.resolve() for folder in folders})
