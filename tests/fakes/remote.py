"""A bare git repository that stands for the server, and a clone of it: both real."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

CLEAN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
WHO = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str, feed: str = "") -> str:
    """Run git with no configuration but a folder's own, and return what it prints."""
    environ = {**os.environ, **WHO, **CLEAN}
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, input=feed, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def empty_remote(folder: Path, *, partial: bool = True) -> Path:
    """Make a bare repository that answers like a forge's; one that knows no partial clones with ``partial`` false."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowFilter", "true" if partial else "false")
    return folder


def clone_of_empty_remote(tmp_path: Path, *, partial: bool = True) -> Path:
    """Make ``remote.git`` and ``clone``, whose origin it is, with one commit on main; return the clone."""
    template = _both_repositories(partial)
    for name in ("remote.git", "clone"):
        shutil.copytree(template / name, tmp_path / name)
    config = tmp_path / "clone" / ".git" / "config"
    config.write_text(config.read_text().replace(str(template), str(tmp_path)))
    return tmp_path / "clone"


@cache
def _both_repositories(partial: bool) -> Path:
    """The repositories that tests copy: to make them takes eight commands of git."""
    folder = Path(tempfile.mkdtemp(prefix="remote-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    remote = empty_remote(folder / "remote.git", partial=partial)
    clone = folder / "clone"
    clone.mkdir()
    git(clone, "init", "--quiet", "--initial-branch=main")
    git(clone, "remote", "add", "origin", str(remote))
    (clone / "model.py").write_text("pass\n")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "-m", "the model")
    git(clone, "push", "--quiet", "origin", "main")
    return folder
