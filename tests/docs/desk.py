"""Where the shell blocks of the pages run: a developer's desk, with a clone, its origin and a release of perfgate in git."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from perfgate.flows.pin import TAG

SECONDS = 300
MODEL = "https://github.com/team/model"
PERFGATE = "https://github.com/perfgate/perfgate"


class Desk:
    """A clone of team/model on main, its one commit pushed. Both addresses lead to repositories in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "model"
        self.environment = self._environment()
        for address in (MODEL, PERFGATE):
            self._git(folder, "init", "-q", "--bare", "-b", "main", str(self._place(address)))
        self._git(folder, "clone", "-q", PERFGATE, "release")
        self._commit(folder / "release", "a release")
        self._git(folder / "release", "tag", TAG)
        self._git(folder / "release", "push", "-q", "origin", "HEAD", TAG)
        self._git(folder, "clone", "-q", MODEL, "model")
        (self.clone / "README.md").write_text("a model\n")
        self._commit(self.clone, "a model")
        self._git(self.clone, "push", "-q", "origin", "HEAD")

    def run(self, script: str, *, seconds: int = SECONDS) -> subprocess.CompletedProcess[str]:
        """Run the lines of a block in the clone, as somebody would who stops at the first that fails."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.clone,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        settings = [(f"url.{self._place(address)}.insteadOf", address) for address in (MODEL, PERFGATE)]
        settings += [("protocol.file.allow", "always"), ("init.defaultBranch", "main")]
        git = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, value) in enumerate(settings):
            git.update({f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value})
        return {
            **{name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ},
            **who,
            **git,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.folder),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PERFGATE_LOCK": str(self.folder / "lock"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INDEX": "1",
        }

    def _place(self, address: str) -> Path:
        return self.folder / "server" / address.rpartition("github.com/")[2]

    def _commit(self, clone: Path, message: str) -> None:
        self._git(clone, "add", "--all")
        self._git(clone, "commit", "--quiet", "--allow-empty", "--message", message)

    def _git(self, folder: Path, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=folder, env=self.environment, check=True, capture_output=True)
