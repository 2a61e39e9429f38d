"""The variables with which a process finds a software NPU where it would look for CANN and the driver."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Searched before what is there already; the others are set.
SEARCHED = ("LD_LIBRARY_PATH", "PATH")


def variables(library: Path) -> dict[str, str]:
    """Return what CANN's set_env.sh would set, for the library in this folder."""
    return {
        "ASCEND_HOME_PATH": str(HERE / "cann"),
        "ASCEND_OPP_PATH": str(HERE / "cann" / "opp"),
        "LD_LIBRARY_PATH": str(library),
        "PATH": os.pathsep.join([str(HERE / "cann/tools/profiler/bin"), str(HERE / "bin")]),
    }


def extended(environment: Mapping[str, str], library: Path) -> dict[str, str]:
    """Return an environment with these variables, and without any switch of the software NPU."""
    kept = {name: value for name, value in environment.items() if not name.startswith("SOFTNPU_")}
    for name, value in variables(library).items():
        before = kept.get(name) if name in SEARCHED else None
        kept[name] = os.pathsep.join(filter(None, [value, before]))
    return kept


def script(library: Path) -> str:
    """Return the lines of a set_env.sh."""
    lines = []
    for name, value in variables(library).items():
        after = f'"${{{name}:+:${name}}}"' if name in SEARCHED else ""
        lines.append(f"export {name}={shlex.quote(value)}{after}\n")
    return "".join(lines)
