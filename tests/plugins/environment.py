"""An interpreter with perfgate, our packages, and a plug-in package that pip installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(package: Path, folder: Path) -> Path:
    """Make an environment in ``folder``, install the source folder ``package`` into it, and return its interpreter."""
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "ours.pth").write_text("\n".join([*ours, sysconfig.get_paths()["purelib"]]) + "\n")
    source = folder / "source"
    source.mkdir()
    for path in package.rglob("*"):
        if path.suffix in (".py", ".toml"):
            (source / path.relative_to(package)).parent.mkdir(exist_ok=True)
            (source / path.relative_to(package)).write_bytes(path.read_bytes())
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, str(source)], check=True)
    return interpreter


def perfgate(
    python: Path, *arguments: str, folder: Path, code: int = 0, variables: Mapping[str, str] | None = None
) -> str:
    """Run a command in ``folder`` and return what it printed; it must end with ``code``."""
    done = subprocess.run(
        [str(python), "-m", "perfgate", *arguments],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
