"""Tools at pinned versions, each in an environment of its own below ``build/tools``."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "build" / "tools"
UNREACHABLE = re.compile(r"No matching distribution|Max retries|NameResolution|ConnectionError|timed out")


def installed(package: str, *options: str) -> Path:
    """The folder with the programs of a tool. It sees our torch and transformers, so that they are not fetched again."""
    folder = TOOLS / re.sub(r"\W+", "-", package)
    programs, ready = folder / "bin", folder / ".installed"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        (packages,) = folder.glob("lib/python3*/site-packages")
        ours = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "ours.pth").write_text("\n".join(ours), encoding="utf-8")
        done = subprocess.run(
            [programs / "python", "-m", "pip", "install", "--quiet", *options, package],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and UNREACHABLE.search(done.stderr):
            pytest.skip(f"{package} cannot be installed here: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        ready.touch()
    return programs
