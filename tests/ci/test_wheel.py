"""The package as users get it: built, installed into an environment that has nothing else, and used away from the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _run(command: list[str], cwd: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel__installed_alone__init_writes_its_files_and_every_command_has_help(tmp_path: Path) -> None:
    _run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)],
        tmp_path,
    )
    (wheel,) = tmp_path.glob("perfgate-*.whl")
    _run([sys.executable, "-m", "venv", str(tmp_path / "venv")], tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", str(wheel), "uv"], tmp_path)
    perfgate = str(python.with_name("perfgate"))
    model = tmp_path / "model"
    _run(["git", "init", "-q", str(model)], tmp_path)
    _run([perfgate, "init", "--gitlab", "--action", f"tools/perfgate@{'a' * 40}"], model)
    _run([perfgate, "init", "--github", "--ci-only", "--action", f"tools/perfgate@{'a' * 40}"], model)
    written = {str(path.relative_to(model)) for path in model.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert written == {
        ".github/workflows/perfgate-trusted.yml",
        ".github/workflows/perfgate.yml",
        ".gitlab-ci.yml",
        "perf/requirements.txt",
        "perf/workload.py",
        "perfgate.toml",
    }
    listed = re.findall(r"^  ([a-z]+)  ", _run([perfgate, "--help"], model).partition("Start:")[2], flags=re.MULTILINE)
    assert {"init", "publish", "trend"} <= set(listed)
    for name in listed:
        _run([perfgate, name, "--help"], model)
    # What is not Python and is read at run time: schemas, the templates of reports, the words in Chinese.
    assert "perfgate" in _run([perfgate, "explain", "7", "--lang", "zh"], model)
