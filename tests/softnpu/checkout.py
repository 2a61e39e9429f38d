"""A git repository with a small model, and perfgate run in it as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent / "project"
# The fixture on_npu: runs a program with torch and torch_npu imported.
OnNpu = Callable[..., subprocess.CompletedProcess[str]]


class Project:
    """A git repository with the small model, its commit on main, and perfgate as a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.root = folder / "project"
        shutil.copytree(PROJECT, self.root)
        temporary = folder / "tmp"
        temporary.mkdir()
        who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self.environment = {
            **environment,
            **who,
            "HOME": str(folder),
            "TMPDIR": str(temporary),
            "PERFGATE_LOCK": str(folder / "lock"),
            "PERFGATE_STORE": str(folder / "store.sqlite"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "-q", "-b", "main")
        self.commit("the model")
        self.git("checkout", "-q", "-b", "feature")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, env=self.environment, check=True, capture_output=True)

    def commit(self, message: str, *changes: tuple[str, str]) -> None:
        """Commit the work tree with texts of the model replaced."""
        model = self.root / "model.py"
        text = model.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        model.write_text(text)
        self.git("add", "--all")
        self.git("commit", "-qm", message)

    def line(self, text: str) -> str:
        """Return the one line of the model with this text, as documents name it."""
        (number,) = (at for at, line in enumerate((self.root / "model.py").read_text().splitlines(), 1) if text in line)
        return f"model.py:{number}"

    def perfgate(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "perfgate.cli.main", *arguments],
            cwd=self.root,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )

    def check(self, **variables: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], str]:
        """Gate the feature branch; return the process, the decision and the comment."""
        done = self.perfgate("check", "--base", "main", "--out", "out", "--steps", "1,4", **variables)
        assert (self.root / "out" / "decision.json").exists(), done.stdout + done.stderr
        decision = json.loads((self.root / "out" / "decision.json").read_text())
        return done, decision, (self.root / "out" / "comment.md").read_text()

    def run(self, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Run the checklist; return the process and the run document."""
        done = self.perfgate("run", "--quick", "--out", "out", *arguments, **variables)
        assert (self.root / "out" / "run.json").exists(), done.stdout + done.stderr
        return done, json.loads((self.root / "out" / "run.json").read_text())
