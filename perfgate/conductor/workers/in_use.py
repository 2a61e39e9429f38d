"""Which changes outside the checkouts concern a side: changes of files that it loads,
or could load instead.

An installed package, a library or a program that no side uses may come and go while a
check measures. A change concerns a side if it is

- a file that an interpreter reads before it imports anything: ``*.pth``,
  ``sitecustomize``, ``usercustomize``;
- a module that a process of a side has loaded, or any other file of its package; every
  load is reported before the module's code runs (``perfgate.system.loads``), with the
  state of the file: one that was not there before code of the change ran, or was
  another, concerns it although it is gone again. So a new file that is found instead of
  what a side imports, or for a name that it could not import before, shows as soon as
  it is loaded;
- a new module with the name of one that a side loads: it could be loaded before
  anything can report it;
- a library that a library, program or module in use names: by its own name, with any
  version;
- a program that a module in use which starts programs, or a file of a checkout, names;
  or an interpreter. Python names one in quotes.

Modules that are loaded without the import system are not reported; modules of packages
in use are covered all the same.
"""

from __future__ import annotations

import mmap
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from perfgate.conductor.workers.load_log import Loads
from perfgate.system.folders import PACKAGE
from perfgate.system.stamps import (
    STATE_LENGTH,
    Stamp,
    Stamps,
    is_library,
    without_change_time,
)

# What a folder holds for a side: everything (a checkout, a linked folder), modules,
# libraries or programs.
Holds = Literal["everything", "modules", "libraries", "programs"]

_STARTUP_NAMES = frozenset({"sitecustomize", "usercustomize"})
_STARTUP_ENDINGS = (".pth", ".egg-link")
_INTERPRETERS = re.compile(r"(python|pypy)[\d.]*|sh|bash|dash|env")
_BYTECODE = "__pycache__"
_QUOTED = re.compile(rb"""["']([\w.+-]+)""")
# The texts of a Python file: a line from its first quote to its last, and all lines of
# a long text.
_TEXT = re.compile(rb"""(?s:\"{3}.*?\"{3}|'{3}.*?'{3})|["'].*["']""")
_STARTS_PROGRAMS = re.compile(
    rb"subprocess|pexpect|[Pp]open|spawn|\bexec[lv]|\bsystem\b|\bwhich\b"
)
_FUNCTION = re.compile(rb"\b([A-Za-z_]\w*)\s*\(")
_WORD = re.compile(rb"[\w.+-]+")
_LIBRARY = re.compile(rb"[\w+-][\w.+-]*\.so$")
_LONGEST_NAME = 80
_MOST_TEXT = 1 << 20


@dataclass(frozen=True)
class UsedFiles:
    """The files that processes of the sides loaded, and the files in which to look for
    names of libraries and programs.

    ``libraries`` are the files where the search for libraries begins, ``texts`` the
    files of the checkouts.
    """

    loads: Loads
    libraries: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()

    @cached_property
    def resolved(self) -> dict[str, frozenset[Stamp]]:
        """The loads by the path without links to folders."""
        resolved = {}
        for path, states in self.loads.states.items():
            folder, slash, name = path.rpartition("/")
            resolved[f"{_real_folder(folder + slash)}/{name}"] = states
        return resolved

    @cached_property
    def module_names(self) -> frozenset[str]:
        """The names of loaded modules that are in no package."""
        return frozenset(module.partition(".")[0] for module in self.loads.modules)

    @cached_property
    def words(self) -> frozenset[str]:
        """Names that a loaded module or perfgate has in quotes, and the words of the
        checkouts.
        """
        return self._words_of_checkouts.union(*map(_quoted_words, self._modules))

    @cached_property
    def programs(self) -> frozenset[str]:
        """The words that may name a program: of modules that start programs, and of the
        checkouts.
        """
        return self._words_of_checkouts.union(*map(_quoted_words, self._starting))

    @cached_property
    def absent_programs(self) -> frozenset[str]:
        """The words that may name a program that was not there before: a function of
        the same file does not count.
        """
        words: set[str] = set()
        for file in self._starting:
            words |= _quoted_words(file) - _functions_in(file)
        for file in self.texts:
            words |= _words_of_checkout(file) - _functions_in(file)
        return frozenset(words)

    @cached_property
    def _starting(self) -> list[Path]:
        return list(filter(_starts_programs, self._modules))

    @cached_property
    def _modules(self) -> frozenset[Path]:
        loaded = {Path(path) for path in self.resolved if path.endswith(".py")}
        return frozenset(loaded | set(PACKAGE.rglob("*.py")))

    @cached_property
    def _words_of_checkouts(self) -> frozenset[str]:
        return frozenset[str]().union(*map(_words_of_checkout, self.texts))

    def library_names(self, installed: Mapping[str, list[Path]]) -> frozenset[str]:
        """The names up to ``.so`` of libraries that files in use name; libraries found
        in ``installed`` are in use too.
        """
        waiting = [*self.libraries, *map(Path, filter(is_library, self.resolved))]
        for word in self.programs:
            waiting += installed.get(word, [])
        names = set()
        for word in self.words:
            if is_library(word):
                names.add(_library_name(word))
            if f"lib{word}.so" in installed:  # of ctypes.util.find_library
                names.add(f"lib{word}.so")
        for name in names:
            waiting += installed.get(name, [])
        read = set()
        while waiting:
            file = waiting.pop()
            if file in read:
                continue
            read.add(file)
            new = _libraries_named_in(file) - names
            names |= new
            for name in new:
                waiting += installed.get(name, [])
        return frozenset(names)


@dataclass
class FolderInUse:
    """A sealed folder by its resolved path, and which of its files the sides use.

    ``expected`` is its state before the change ran, ``is_unwritten`` whether a file has
    not been written to since, and ``programs`` are the names of all programs that were
    there before, in any folder.
    """

    root: Path
    holds: Holds
    expected: Stamps
    used: UsedFiles
    library_names: Callable[[], frozenset[str]]
    is_unwritten: Callable[[str], bool] = lambda _name: False
    programs: frozenset[str] = frozenset()
    _units: frozenset[str] = field(init=False)
    _entries: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        prefix = f"{self.root}/"
        units = set()
        for path in self.used.resolved:
            if path.startswith(prefix):
                units.add(self._unit(path.removeprefix(prefix)))
        self._units = frozenset(units)
        self._entries = frozenset(name.partition("/")[0] for name in self.expected)

    def concerns(self, name: str) -> bool:
        """Whether a change of a file of the folder, by its path in it, concerns a side."""
        if self.holds == "everything":
            return True
        if self.holds == "programs":
            words = (
                self.used.programs
                if name in self.programs
                else self.used.absent_programs
            )
            return bool(_INTERPRETERS.fullmatch(name)) or name in words
        if self.holds == "libraries":
            return _library_name(name) in self.library_names()
        return self._is_module_in_use(name)

    def _is_module_in_use(self, name: str) -> bool:
        first = name.partition("/")[0]
        file = name.rpartition("/")[2]
        if first.endswith(_STARTUP_ENDINGS) or starts_python(file):
            return True
        if f"{self.root}/{name}" in self.used.resolved:
            return True
        if _BYTECODE in name.split("/"):
            # New bytecode that a side has not loaded, and the times of the folder.
            return (
                name in self.expected
                and name.endswith(".pyc")
                and self._unit(name) in self._units
            )
        if is_library(file) and _library_name(file) in self.library_names():
            return True
        if self._unit(name) in self._units:
            return True
        return (
            first not in self._entries
            and first.partition(".")[0] in self.used.module_names
        )

    def _unit(self, name: str) -> str:
        """The package or module that a file belongs to, by its path: two folders of a
        package without ``__init__.py``.
        """
        parts = name.split("/")
        if parts[0] == _BYTECODE:
            return f"{parts[-1].partition('.')[0]}.py"
        is_shared = len(parts) > 1 and f"{parts[0]}/__init__.py" not in self.expected
        if is_shared and not parts[1].startswith(_BYTECODE):
            return "/".join(parts[:2])
        return parts[0]

    def is_sealed(self, name: str, states: frozenset[Stamp]) -> bool:
        """Whether a side has loaded a file of the folder only in its sealed state,
        under however many names.
        """
        sealed = self.expected.get(name, ())[-STATE_LENGTH:]
        if states <= {sealed}:
            return True
        same_but_names = all(
            without_change_time(state) == without_change_time(sealed)
            for state in states
        )
        return same_but_names and self.is_unwritten(name)


def libraries_by_name(roots: Iterable[tuple[Path, Stamps]]) -> dict[str, list[Path]]:
    """The libraries and programs in folders: libraries by their name up to ``.so``,
    programs by their own.
    """
    files: dict[str, list[Path]] = defaultdict(list)
    for root, stamps in roots:
        for path in stamps:
            name = path.rpartition("/")[2]
            if is_library(name):
                name = _library_name(name)
            files[name].append(root / path)
    return files


def starts_python(file: str) -> bool:
    """Whether Python imports a file of this name at its start."""
    return file.partition(".")[0] in _STARTUP_NAMES


@cache
def _real_folder(folder: str) -> str:
    return str(Path(folder).resolve()).rstrip("/")


def _library_name(name: str) -> str:
    return name.rpartition("/")[2].partition(".so")[0] + ".so"


@cache
def _words_in(
    file: Path, pattern: re.Pattern[bytes], *, within: re.Pattern[bytes] | None = None
) -> frozenset[str]:
    text = _text_of(file)
    if within is not None:
        text = b"\n".join(within.findall(text))
    return frozenset(word.decode(errors="replace") for word in pattern.findall(text))


def _quoted_words(file: Path) -> frozenset[str]:
    return _words_in(file, _QUOTED)


def _text_of(file: Path) -> bytes:
    """The text of a file; none if it is too large to be one, or cannot be read."""
    with suppress(OSError):
        if file.stat().st_size <= _MOST_TEXT:
            return file.read_bytes()
    return b""


def _words_of_checkout(file: Path) -> frozenset[str]:
    """All words of a file; of a Python file only the words within texts."""
    return _words_in(file, _WORD, within=_TEXT if file.suffix == ".py" else None)


@cache
def _functions_in(file: Path) -> frozenset[str]:
    """The names that a Python file defines or calls as functions."""
    if file.suffix != ".py":
        return frozenset()
    return _words_in(file, _FUNCTION)


@cache
def _starts_programs(file: Path) -> bool:
    return bool(_STARTS_PROGRAMS.search(_text_of(file)))


@cache
def _libraries_named_in(file: Path) -> frozenset[str]:
    """The libraries that a file names, as its dependencies or to open them later: up to
    ``.so``, without versions.
    """
    names = set()
    with suppress(OSError, ValueError), file.open("rb") as opened:
        if opened.read(4) != b"\x7fELF":
            return frozenset()
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(b".so")
            while at >= 0:
                if name := _LIBRARY.search(data[max(0, at - _LONGEST_NAME) : at + 3]):
                    names.add(name.group().decode())
                at = data.find(b".so", at + 3)
    return frozenset(names)
