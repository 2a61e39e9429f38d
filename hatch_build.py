"""Compiles the scanner of trace events into the wheel, or into the tree where perfgate is installed from it.

Where no C compiler is found the wheel is a pure one: perfgate then decodes traces without the scanner, some 40 times slower.
PERFGATE_WHEEL says otherwise: ``pure`` leaves the scanner out, ``manylinux_2_17`` demands it and is the wheel's platform.
``python hatch_build.py`` compiles it in the tree.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
FOLDER = Path("perfgate/trace/scanner")
LIBRARY = FOLDER / "_scanner.so"
SOURCES = ("events.c", "nesting.c", "packing.c", "table.c")
FLAGS = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=default",
    "-Wall",
    "-Wextra",
)


def compile_scanner(root: Path, *, required: bool = False) -> bool:
    """Compile the library beside its source; whether that could be done. It appears complete, or not at all.

    Raises CalledProcessError or FileNotFoundError where it is ``required`` and cannot be.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        if required:
            raise FileNotFoundError(
                f"the C compiler {compiler[0]} is not found; install one, or set CC"
            )
        return False
    made = root / f"{LIBRARY}.{os.getpid()}"
    command = [
        *compiler,
        *FLAGS,
        *(str(root / FOLDER / name) for name in SOURCES),
        "-o",
        str(made),
    ]
    done = subprocess.run(command, check=required, capture_output=not required)
    if done.returncode == 0:
        made.replace(root / LIBRARY)
    return done.returncode == 0


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class ScannerBuildHook(BuildHookInterface):  # type: ignore[type-arg]
        """Adds the library to a wheel, which then is of this platform and of every Python 3."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            wanted = os.environ.get("PERFGATE_WHEEL", "")
            if wanted == "pure" or not compile_scanner(
                Path(self.root), required=bool(wanted)
            ):
                return
            if version != "editable":
                system = (
                    f"{wanted}_{platform.machine()}"
                    if wanted
                    else sysconfig.get_platform()
                )
                build_data["artifacts"].append(str(LIBRARY))
                build_data["pure_python"] = False
                build_data["tag"] = (
                    f"py3-none-{system.replace('-', '_').replace('.', '_')}"
                )


if __name__ == "__main__":
    compile_scanner(ROOT, required=True)
    sys.stdout.write(f"{LIBRARY}\n")
