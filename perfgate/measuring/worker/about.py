"""``python -m perfgate.measuring.worker.about``: import a worker's dependencies, and print this interpreter's packages."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

import msgspec

# Imported for nothing but the proof that it can be: a worker that lacks one of these would fail later, and less clearly.
import perfgate.measuring.worker.server  # noqa: F401
from perfgate.measuring.checklist.runner import find_steps
from perfgate.protocol import InterpreterAbout


def main() -> None:
    find_steps()
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # The first on the import path is the one that is imported. A half-removed package has no name.
        if name := distribution.metadata["Name"]:
            packages.setdefault(name, distribution.version)
    about = InterpreterAbout(python=platform.python_version(), packages=dict(sorted(packages.items())))
    sys.stdout.write("\n" + msgspec.json.encode(about).decode() + "\n")


if __name__ == "__main__":
    main()
