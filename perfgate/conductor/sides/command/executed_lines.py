"""How many lines of Python a command runs, in all its processes: counted in a separate run, because counting takes time."""

from __future__ import annotations

import os
import shlex
import struct
from collections.abc import Mapping
from pathlib import Path

from perfgate.system import line_counter

FOLDER_VARIABLE = "PERFGATE_LINES"
_COUNT = struct.Struct("=Q")


def counting(line: str, environment: Mapping[str, str], folder: Path) -> str:
    """A shell line that runs ``line`` so that every Python counts the lines that it runs into a file of ``folder``.

    Not an environment: the keeper of the program is a Python too.
    """
    (hook,) = line_counter.__path__
    path = os.pathsep.join([str(hook), *filter(None, [environment.get("PYTHONPATH")])])
    return f"export {FOLDER_VARIABLE}={shlex.quote(str(folder))} PYTHONPATH={shlex.quote(path)}; {line}"


def counted_lines(folder: Path) -> int:
    """The total over all processes; 0 if none of them ran Python or counted."""
    contents = [file.read_bytes() for file in folder.iterdir()]
    return sum(
        _COUNT.unpack(content)[0] for content in contents if len(content) == _COUNT.size
    )
