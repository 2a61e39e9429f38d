"""``python -m perfgate.measuring.worker.about``: import a worker's dependencies, and
print this interpreter's packages.
"""

from __future__ import annotations

import platform
import sys

import msgspec

# Imported only to prove that it can be: a worker that lacks a dependency would fail
# later, and less clearly.
import perfgate.measuring.worker.server  # noqa: F401
from perfgate.document.testbed import Environment
from perfgate.measuring.checklist.runner import find_steps
from perfgate.system.packages import installed_packages


def main() -> None:
    find_steps()
    about = Environment(
        kind="running", python=platform.python_version(), packages=installed_packages()
    )
    sys.stdout.write("\n" + msgspec.json.encode(about).decode() + "\n")


if __name__ == "__main__":
    main()
