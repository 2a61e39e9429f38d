"""The dependencies in a project's metadata, if no file lists them: from its installation here, or from its build backend."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perfgate.errors import UsageError

# A backend may have to be downloaded and run.
BUILD_SECONDS = 180.0


def source_folder(distribution: importlib.metadata.Distribution) -> Path | None:
    """The folder that a distribution was installed from (PEP 610); None if from an index, a repository or an archive."""
    text = distribution.read_text("direct_url.json")
    record = json.loads(text) if text else {}
    return Path(unquote(urlsplit(record["url"]).path)) if "dir_info" in record else None


def requirements_of_installed(folder: Path) -> Sequence[str] | None:
    """The requirements of the project in ``folder`` as pip recorded them; None if pip has not installed that folder."""
    for distribution in importlib.metadata.distributions():
        source = source_folder(distribution)
        if source is not None and source.resolve() == folder.resolve():
            return distribution.requires or []
    return None


def built_requirements(folder: Path) -> Sequence[str]:
    """The project's requirements from its build backend.

    pip runs the backend installed here, or else one in an isolated environment. Raises UsageError if both fail.
    """
    complaint = ""
    for isolation in (["--no-build-isolation"], []):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--dry-run"]
        command += ["--no-deps", "--ignore-installed", *isolation, "--report", "-", "."]
        before = _made_by_backends(folder)
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            complaint = f"no answer in {BUILD_SECONDS:.0f} s"
            continue
        finally:
            for made in _made_by_backends(folder) - before:
                shutil.rmtree(made, ignore_errors=True)
        if done.returncode == 0:
            (report,) = json.loads(done.stdout)["install"]
            return [str(text) for text in report["metadata"].get("requires_dist", [])]
        complaint = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise UsageError(
        "the dependencies of the project in {folder} are known to its build backend alone, and that "
        "fails ({complaint}); install the project here (`python -m pip install --editable .`), or name "
        "CI's own line with --setup",
        folder=folder,
        complaint=complaint,
    )


def _made_by_backends(folder: Path) -> set[Path]:
    """Folders that setuptools leaves in a project after building metadata."""
    return {path for pattern in ("*.egg-info", "*/*.egg-info", "build") for path in folder.glob(pattern)}
