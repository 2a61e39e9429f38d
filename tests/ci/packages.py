"""What stands for the package index in the jobs of a test: the wheel of this checkout, and what it needs, there already."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Installing numpy and the like takes 14 s, and every job with a token makes an environment of its own.
PYTHON = """#!/bin/sh
"{python}" "$@" || exit
case " $* " in
  *" -m venv "*)
    for environment; do :; done
    for packages in "$environment"/lib/python3*/site-packages; do echo "{installed}" > "$packages/needed.pth"; done ;;
esac
"""
NPU_PYTHON, NPU_SETUP = ROOT / ".venv-npu" / "bin" / "python", ROOT / "build" / "softnpu" / "set_env.sh"


def software_npu(setup: Callable[[str], object]) -> Any:
    """Return the further testbeds of a matrix: the software NPU, with its shell line as ``setup`` makes an input of it."""
    testbed = {"name": "soft-npu", "python": str(NPU_PYTHON), "setup": setup(f". {NPU_SETUP}")}
    is_there = NPU_PYTHON.exists() and NPU_SETUP.exists()
    return pytest.param([testbed], marks=pytest.mark.skipif(not is_there, reason="make test-npu builds a software NPU"))


@dataclass(frozen=True)
class Packages:
    """``wheels`` has the wheel; ``programs`` a python3 in whose environments the packages lie that this interpreter has."""

    wheels: Path
    programs: Path

    @classmethod
    def build(cls, folder: Path) -> Packages:
        """Build the wheel of this checkout."""
        made = cls(folder / "wheels", folder / "programs")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made.wheels, ROOT]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        installed = folder / "installed"
        for made_here in (installed, made.programs):
            made_here.mkdir()
        for package in Path(sysconfig.get_path("purelib")).iterdir():
            if not package.name.startswith(("perfgate", "_editable", "pip", "setuptools")):
                (installed / package.name).symlink_to(package)
        # As actions/setup-python leaves it: the Python of the tests, which has torch.
        there = made.programs / "python"
        there.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        there.chmod(0o755)
        python = made.programs / "python3"
        base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        python.write_text(PYTHON.format(python=base, installed=installed))
        python.chmod(0o755)
        return made

    def environ(self, path: str) -> dict[str, str]:
        """Return what a job's environment needs; ``path`` is where its programs are looked for besides."""
        return {
            "PATH": f"{self.programs}:{path}",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_COMPILE": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }
