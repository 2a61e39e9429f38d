"""What a question about recordings printed: the same command line prints it again before anything else is imported.

Loading click, msgspec and the command takes longer than starting Python, so this imports only what Python has at hand.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib

TYPE_CHECKING = False  # for mypy it is true; typing takes longer to import than all of the above
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Size, times of the last change of content and of inode, and the inode of a file; empty for a missing one.
State = tuple[int, ...]
# A longer output takes longer to print than the commands take to load.
MOST_PRINTED_BYTES = 1 << 20
_SUM_BYTES = 4
# The parts of the package that answer questions about recordings, and print the answers.
_PARTS = ("catalogue", "cli", "document", "flows", "judging/report", "locale", "trace")
_PACKAGE = os.path.dirname(os.path.dirname(__file__))


class AskedQuestion:
    """A command line of ``perfgate trace``, with all that its output depends on besides the recordings.

    These are the current folder and its settings, the environment, the terminal, Python and perfgate. The environment holds
    secrets: its checksum is stored, not its content.
    """

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self.folder = _cache_folder(arguments, environ)
        try:
            current = os.getcwd()
        except OSError:  # it was removed
            current = ""
        settings = _state(os.path.join(current, "perfgate.toml"))
        variables = _checksum(*(f"{name}={environ[name]}" for name in sorted(environ)))
        self._question = (*arguments, current, repr(settings), variables, *_terminal_sizes(), sys.version, _program())
        self.entry_name = f"printed-{_checksum(*self._question)}.answer"

    def printed(self) -> bytes | None:
        """The output of the last time; None if it was not kept, or anything has changed since."""
        if self.folder is None:
            return None
        path = os.path.join(self.folder, self.entry_name)
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None  # another user with write access to the folder could forge entries
                content = file.read()
            if zlib.crc32(content[_SUM_BYTES:]).to_bytes(_SUM_BYTES, "little") != content[:_SUM_BYTES]:
                return None
            question, files, output = marshal.loads(content[_SUM_BYTES:])  # noqa: S302 - this user wrote it, as it is
            if question != self._question or any(_state(file) != state for file, state in files):
                return None
            os.utime(path)  # the least recently used entries are removed first
        except OSError:
            return None
        return bytes(output)

    def entry(self, files: Iterable[tuple[str, State]], output: bytes) -> bytes:
        """The content of the file ``entry_name`` in the cache; ``files`` are those of the recordings, as they were read."""
        body = marshal.dumps((self._question, list(files), output))
        return zlib.crc32(body).to_bytes(_SUM_BYTES, "little") + body


def default_folder(environ: Mapping[str, str]) -> str | None:
    """By the XDG Base Directory Specification 0.8, which ignores a relative XDG_CACHE_HOME; None without a home."""
    root = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(root):
        home = environ.get("HOME", "")
        if not home:
            return None
        root = os.path.join(home, ".cache")
    return os.path.join(root, "perfgate", "recordings")


def _cache_folder(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The folder that the options and variables of ``perfgate trace`` choose; None if nothing is to be kept."""
    if "--no-cache" in arguments or environ.get("PERFGATE_NO_TRACE_CACHE"):
        return None
    for argument, following in zip(arguments, [*arguments[1:], None]):
        if argument == "--cache":
            return following
        if argument.startswith("--cache="):
            return argument.partition("=")[2]
    return environ.get("PERFGATE_TRACE_CACHE") or default_folder(environ)


def _state(path: str) -> State:
    # NFS answers stat from its cache until a process opens the file (nfs(5), "Close-to-open cache consistency").
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        stat = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _terminal_sizes() -> Iterator[str]:
    """Of the standard streams; empty for one that is no terminal."""
    for descriptor in range(3):
        try:
            yield repr(tuple(os.get_terminal_size(descriptor)))
        except (OSError, ValueError):
            yield ""


def _program() -> str:
    """Which perfgate answers and prints: another version, or a checkout with other files, may do so otherwise."""
    total, folders = 0, [os.path.join(_PACKAGE, part) for part in _PARTS]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] if entry.name != "__pycache__" else []
                else:
                    stat = entry.stat()
                    total = zlib.crc32(f"{entry.name} {stat.st_size} {stat.st_mtime_ns}".encode(), total)
    return f"{total:08x}"


def _checksum(*texts: str) -> str:
    content = "\0".join(texts).encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"
