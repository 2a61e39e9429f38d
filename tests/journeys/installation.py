"""perfgate as people get it: a wheel built from this checkout, installed into a new virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the build reads, from a copy: it compiles the scanner, and other tests, which gate meanwhile, would see the change.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py", "perfgate", "schemas")
TORCH = "torch==2.13.0"
# Of the packages of the tests: perfgate comes from the wheel, and its plug-ins are not what people install first.
NOT_BORROWED = ("perfgate", "_perfgate", "_editable", "__editable__", "pip", "setuptools", "distutils")


@dataclass(frozen=True)
class Installation:
    """A virtual environment with perfgate; journeys share it and install nothing into it."""

    folder: Path
    wheel: Path

    @property
    def programs(self) -> Path:
        """The folder with `perfgate` and `python`."""
        return self.folder / "bin"


def build_wheel(folder: Path, change: Callable[[Path], None] = lambda _: None) -> None:
    """Build the wheel from a copy of the checkout into ``wheels``, with the hatchling of the tests.

    ``change`` may change the copy.
    """
    copy = folder / "sources"
    copy.mkdir(parents=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, copy)
    change(copy)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")], copy)


def install_with_borrowed_packages(installation: Installation) -> None:
    """Install the wheel alone; pip, torch, numpy and the others are those of the tests' own environment."""
    _make_environment(installation, "--without-pip")
    borrowed = installation.folder.parent / "borrowed"
    borrowed.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(NOT_BORROWED):
            (borrowed / package.name).symlink_to(package)
    (packages,) = installation.folder.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(installation.programs / "python"), "install", "--quiet"]
    # The few commands of the quick tests compile what they import.
    _run([*pip, "--no-deps", "--no-index", "--no-compile", str(installation.wheel)], installation.folder)


def install_everything(installation: Installation) -> None:
    """Install the wheel with its extras and torch from the package index, as pip is configured on this machine."""
    _make_environment(installation)
    # torch by its exact version, as the Makefile does: with a range pip may choose a build with gigabytes of CUDA.
    pip = [str(installation.programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, f"{installation.wheel}[cpu,serve,postgres,artifacts]", TORCH], installation.folder)


def _make_environment(installation: Installation, *options: str) -> None:
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    _run([str(python), "-m", "venv", *options, str(installation.folder)], installation.folder.parent)


def _run(command: list[str], folder: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
