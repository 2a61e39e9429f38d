"""A measuring job of hostile code, as a process of its own and, where we are root, of an ordinary user."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.command import run_perfgate


@contextmanager
def project_for_all(name: str, workload: str) -> Iterator[Path]:
    """Make a project of one workload that every user may read and write."""
    folder = Path(tempfile.mkdtemp(prefix=f"perfgate-{name}-"))
    (folder / "perf").mkdir()
    (folder / "perf" / f"{name}.py").write_text(workload)
    (folder / "perfgate.toml").write_text(f'project = "{name}"\nworkload = "perf/{name}.py:{name}"\n')
    for path in (folder, folder / "perf"):
        path.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def as_user(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []


@cache
def _interpreter(user: int) -> tuple[str, dict[str, str]]:
    """Return an interpreter that a user may start, and what it needs to find our packages: ours may lie in root's home."""
    found = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *site.getsitepackages()])}
    again = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import msgspec, perfgate']))"
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        command = [*as_user(user), python, "-c", again]
        if shutil.which(python) and not subprocess.run(command, env=found, capture_output=True, check=False).returncode:
            return python, found
    pytest.skip("an ordinary user may start no interpreter that has our packages")


def run_job(
    project: Path, *options: str, out: str = "out", user: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    arguments = ["run", "--steps", "3", "--quick", "--out", out, *options]
    temporary = project / f"tmp-{user}"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o777)
    around = {
        "PATH": os.environ["PATH"],
        "HOME": str(project),
        "TMPDIR": str(temporary),
        "PERFGATE_LOCK": str(temporary / "lock"),
        "GIT_CEILING_DIRECTORIES": str(project.parent),
        **environment,
    }
    if not user:
        return run_perfgate(*arguments, cwd=project, environment=around)
    python, packages = _interpreter(user)
    return subprocess.run(
        [*as_user(user), python, "-m", "perfgate.cli.main", *arguments],
        cwd=project,
        env={**packages, **around},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
