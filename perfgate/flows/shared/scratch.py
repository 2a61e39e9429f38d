"""A git repository of our own in a scratch folder, for the gates of the demo and the
doctor.
"""

from __future__ import annotations

from pathlib import Path

from perfgate.errors import RepositoryError
from perfgate.git.commands import run_git


class ScratchRepository:
    """A repository at ``root``; its commits are always by "perfgate NAME"."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self._author: dict[str, str] = {}
        for role in ("AUTHOR", "COMMITTER"):
            self._author[f"GIT_{role}_NAME"] = f"perfgate {name}"
            self._author[f"GIT_{role}_EMAIL"] = f"{name}@perfgate.invalid"

    def start(self, message: str) -> None:
        """Make a repository of the folder, with all its files in the first commit on
        main.
        """
        self.git("init", "--quiet")
        # git before 2.28 has no --initial-branch.
        self.git("symbolic-ref", "HEAD", "refs/heads/main")
        self.commit(message)

    def branch(self, name: str) -> None:
        """Create a branch from main and check it out."""
        self.git("checkout", "--quiet", "-b", name, "main")

    def commit(self, message: str) -> None:
        """Commit all changes."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--no-gpg-sign", "--message", message)

    def git(self, *arguments: str) -> str:
        """Run git and return its output. Raises RepositoryError when it fails."""
        result = run_git(self.root, arguments, self._author)
        if result.code:
            raise RepositoryError(
                "git {command} failed in {root}: {errors}",
                command=arguments[0],
                root=self.root,
                errors=result.errors,
            )
        return result.output
