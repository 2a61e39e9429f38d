"""Report every module that this process imports, with the state of its file, before any
code of the module runs.

The conductor compares the reports with the files as they were before code of the change
ran. A report is one datagram to an abstract socket of the conductor: only its holder
can receive there, so a report cannot be withdrawn. Only what every interpreter has is
imported here, because programs of a project report too.
"""

from __future__ import annotations

import _socket
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

# The name of the conductor's socket, without the leading zero byte of abstract
# addresses (unix(7)).
LOADS_VARIABLE = "PERFGATE_LOADS"

# TYPE_CHECKING of typing would import it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class ReportingFinder(PathFinder):
    """The finder of modules on the import path; reports each module that it finds."""

    address = b""

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.has_location:
            cls.report(fullname, spec.origin, spec.cached)
        return spec

    @classmethod
    def report(cls, module: str, *files: object) -> None:
        """Send the name of a module, and the paths of its source and bytecode with
        their states; a missing file has none.
        """
        fields: list[str] = []
        for file in files:
            if isinstance(file, str):
                fields += (file, _state_of(file))
        if not fields:
            return
        message = "\0".join([module, *fields]).encode(errors="surrogateescape")
        # A new socket each time: a program may close every descriptor that it did not
        # open.
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            sender.sendto(message, cls.address)
        except OSError:  # the conductor is gone, or in another network namespace
            return
        finally:
            sender.close()


def report_loads() -> None:
    """Report what this process has imported and, from now on, what it imports, if a
    conductor listens.
    """
    name = os.environ.get(LOADS_VARIABLE)
    if not name or PathFinder not in sys.meta_path:
        return
    ReportingFinder.address = b"\0" + os.fsencode(name)
    sys.meta_path[sys.meta_path.index(PathFinder)] = ReportingFinder
    for module, *files in loaded_modules():
        ReportingFinder.report(module, *files)


def loaded_modules() -> list[tuple[str, object, object]]:
    """The modules of this process by name, each with the paths of its source and its
    bytecode, if it has them.
    """
    # From the dictionary of a module: asking a lazy module for an attribute would
    # import it.
    modules = []
    for name, module in list(sys.modules.items()):
        values = getattr(module, "__dict__", {})
        modules.append((name, values.get("__file__"), values.get("__cached__")))
    return modules


def _state_of(file: str) -> str:
    try:
        status = os.stat(file)  # noqa: PTH116 - pathlib is not imported in every program
    except OSError:
        return ""
    return f"{status.st_ino} {status.st_mode} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
