"""Which index .ci/torch_index.py names for torch, and that the Makefile follows it or what it is told instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "torch_index.py"
CONFIGURED = ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"]


def of(system: str, machine: str, configured: str = "") -> str:
    code = (
        f"import torch_index, sys; sys.stdout.write(torch_index.torch_index({system!r}, {machine!r}, {configured!r}))"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=SCRIPT.parent, capture_output=True, text=True, check=True).stdout


def test_torch_index__linux_on_x86_64__cpu_builds_as_init_writes_them() -> None:
    assert of("Linux", "x86_64", "global.timeout='60'\n").endswith("/whl/cpu")


@pytest.mark.parametrize(
    ("system", "machine", "configured"),
    [
        ("Darwin", "arm64", ""),
        ("Linux", "aarch64", ""),
        ("Linux", "x86_64", "global.index-url='https://mirror.example/simple'\n"),
        ("Linux", "x86_64", "global.timeout='60'\n:env:.extra-index-url='file:///wheels'\n"),
        ("Linux", "x86_64", "install.find-links='/wheels'\n"),
        ("Linux", "x86_64", ":env:.no-index='1'\n"),
    ],
)
def test_torch_index__other_system_or_pip_with_a_source_of_its_own__is_left_to_pip(
    system: str, machine: str, configured: str
) -> None:
    assert of(system, machine, configured) == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"TORCH_INDEX": "https://mirror.example/cpu"},
            ".ci/install.py --index-url https://mirror.example/cpu torch==9",
        ),
        ({"TORCH_INDEX": ""}, ".ci/install.py torch==9"),
        # pip has a source of its own.
        ({"PIP_FIND_LINKS": "/wheels"}, ".ci/install.py torch==9"),
    ],
)
def test_makefile__torch__comes_from_the_index_that_is_given_or_pips_own(
    tmp_path: Path, given: dict[str, str], expected: str
) -> None:
    (tmp_path / "bin").mkdir()
    # It stands for the environment that the rule makes: it shows what would be installed, and is Python otherwise.
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncase "$1 $3" in *install*) echo "$@" ;; *) exec {sys.executable} "$@" ;; esac\n')
    python.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name not in CONFIGURED}
    command = [
        "make",
        "--no-print-directory",
        f"VENV={tmp_path}",
        "PYTHON=true",
        "TORCH=torch==9",
        f"{tmp_path}/.torch",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**environ, **given}, capture_output=True, text=True, timeout=120, check=True
    )
    installed = [line for line in done.stdout.splitlines() if line.startswith(".ci/install.py")]
    assert installed == [expected]
