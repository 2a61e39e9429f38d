"""Runs programs on the software NPU: always in processes of their own, because torch_npu needs the library at their start."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.softnpu.checkout import Project
from tests.softnpu.environment import extended, variables

HERE = Path(__file__).parent
LIBRARY = Path(os.environ.get("SOFTNPU_LIBRARY", HERE.parents[1] / "build" / "softnpu"))


def missing() -> str | None:
    """Say what keeps a software NPU from running here, or None."""
    if platform.machine() != "x86_64":
        return "the software NPU runs on x86-64 only"
    if importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed; `make test-npu` sets up an environment of its own"
    if not (LIBRARY / "libsoftnpu.so").exists():
        return f"no library in {LIBRARY}; `make test-npu` builds it"
    return None


@pytest.fixture(scope="session")
def npu_environment() -> dict[str, str]:
    """The environment of a process that finds a software NPU; one thread, so that the devices do not disturb each other."""
    if reason := missing():
        pytest.skip(reason)
    return {
        **extended(os.environ, LIBRARY),
        "PATH": os.pathsep.join([variables(LIBRARY)["PATH"], str(Path(sys.executable).parent), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def on_npu(npu_environment: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program of the text given with torch and torch_npu imported; switches are keyword arguments."""

    def run(program: str, *arguments: str, timeout: float = 600, **switches: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import torch, torch_npu\n" + program, *arguments]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**npu_environment, **switches},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def project(tmp_path: Path, npu_environment: dict[str, str]) -> Project:
    return Project(tmp_path, npu_environment)
