"""`uv pip compile`, which resolves and pins requirements: where it is, the indexes that
it asks, and its errors.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perfgate.errors import UsageError
from perfgate.locale import Activity

# Metadata of a package without a wheel is built.
SECONDS = 600.0
# GitHub's and GitLab's hosted runners: x86-64 with a glibc of at least 2.28.
_PLATFORM = "x86_64-manylinux_2_28"
# A version of Python, in contrast to the name or path of an interpreter.
PYTHON_VERSION = re.compile(r"3\.\d+(?:\.\d+)?")
# Options of a requirements file that uv and pip share, by the name of pip's setting.
_INDEX_SETTINGS = ("index-url", "extra-index-url", "find-links")


def find_uv() -> str:
    """The path of uv: next to the running Python, else on the PATH.

    Raises UsageError if it is not installed.
    """
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    if path := shutil.which("uv", path=os.pathsep.join(folders)):
        return path
    raise UsageError(
        "uv is not installed, which pins the packages for CI; run `python -m pip install uv`, or {remedy}",
        remedy=setup_remedy(),
    )


def compile_requirements(
    lines: Sequence[str],
    files: Sequence[Path],
    folder: Path,
    *,
    python: str,
    versions: Sequence[str],
    hidden: Sequence[str],
) -> str:
    """Pin requirements and all their dependencies for a hosted runner, with the hashes
    of their files if there are any.

    ``lines`` are lines of a requirements file, relative to ``folder``; ``files`` are
    pyproject.toml or setup.py with more requirements. ``python`` is the runner's
    version, or a path, then the running version counts; ``versions`` are constraints,
    and ``hidden`` packages are left out. Raises UsageError if uv fails.
    """
    options = ["--generate-hashes", "--python-platform", _PLATFORM]
    if PYTHON_VERSION.fullmatch(python):
        options += ["--python-version", python]
    for name in hidden:
        options += ["--no-emit-package", name]
    with tempfile.TemporaryDirectory(prefix="perfgate-uv-") as scratch:
        constraints = Path(scratch) / "installed.txt"
        constraints.write_text("\n".join(versions), encoding="utf-8")
        options += ["--constraint", str(constraints)]
        return _run([*options, *map(str, files), "-"], folder, "\n".join(lines))


def names_requirements(file: Path) -> bool:
    """Whether a pyproject.toml or setup.py has requirements.

    Raises UsageError if uv cannot build its metadata.
    """
    return bool(
        _run(
            ["--no-deps", str(file), "-"], file.parent, "\n".join(pip_indexes())
        ).strip()
    )


def pip_indexes() -> list[str]:
    """The indexes and folders that pip is configured to use here, as options of a
    requirements file; uv does not read them.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    settings = {}
    # SECTION.OPTION='VALUE', the environment last.
    for line in process.stdout.splitlines():
        option, _, value = line.partition("=")
        settings[option.rpartition(".")[2]] = str(ast.literal_eval(value))
    options: list[str] = []
    for name in _INDEX_SETTINGS:
        options += [f"--{name} {place}" for place in settings.get(name, "").split()]
    if "no-index" in settings:
        options.append("--no-index")
    return options


def setup_remedy() -> Activity:
    """The way to do without a lock file."""
    return Activity(
        'give the install command for CI, e.g. --setup "python -m pip install -r requirements.lock"'
    )


def _run(options: Sequence[str], folder: Path, lines: str) -> str:
    command = [
        find_uv(),
        "pip",
        "compile",
        "--quiet",
        "--color",
        "never",
        "--no-header",
        "--no-annotate",
    ]
    command += [
        "--index-strategy",
        "unsafe-best-match",
        "--python",
        sys.executable,
        *options,
    ]
    try:
        process = subprocess.run(
            command,
            cwd=folder,
            input=lines,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            "uv did not pin the packages for CI within {seconds:.0f} s; {remedy}",
            seconds=SECONDS,
            remedy=setup_remedy(),
        ) from error
    if process.returncode:
        complaint = " ".join(line.strip() for line in process.stderr.splitlines())
        raise UsageError(
            "uv cannot pin the packages for CI ({complaint}); install the project and its packages here, or {remedy}",
            complaint=complaint.removeprefix("error: "),
            remedy=setup_remedy(),
        )
    return process.stdout
