"""What the clone around a folder knows of commits."""

from __future__ import annotations

from pathlib import Path

from perfgate.git.commands import COMMIT_ID, NAMES_OF_CHANGED, run_git


def prefix_of(root: Path) -> str:
    """Where a folder lies in its clone, empty or with a slash at the end; outside a clone it is the root."""
    return run_git(root, ["rev-parse", "--show-prefix"], {}).output


def has_commit(root: Path, commit: str) -> bool:
    """Whether the clone around a folder has a commit, without asking any server."""
    return run_git(root, ["cat-file", "-e", f"{commit}^{{commit}}"], {"GIT_NO_LAZY_FETCH": "1"}).code == 0


def merge_base(root: Path, first: str, second: str) -> str | None:
    """The common ancestor that the clone around a folder knows; None where it does not know enough."""
    if run_git(root, ["rev-parse", "--is-shallow-repository"], {}).output != "false":
        return None
    commits = [fetched_tip(root, name) or _commit(root, name) for name in (first, second)]
    present = [commit for commit in commits if commit is not None]
    result = run_git(root, ["merge-base", *present], {"GIT_NO_LAZY_FETCH": "1"}) if len(present) == 2 else None
    return result.output if result and result.code == 0 else None


def files_between(root: Path, base: str, head: str) -> list[str] | None:
    """The paths that differ between two commits of the clone, counted from where they parted; None without them."""
    if not (has_commit(root, base) and has_commit(root, head)):
        return None
    result = run_git(root, [*NAMES_OF_CHANGED, f"{base}...{head}", "--"], {})
    return [name for name in result.output.split("\0") if name] if result.code == 0 else None


def is_behind(root: Path, commit: str, tip: str = "HEAD") -> bool:
    """Whether a commit is the tip, which is what the clone has checked out, or one before it, as far as it knows."""
    return run_git(root, ["merge-base", "--is-ancestor", commit, tip], {"GIT_NO_LAZY_FETCH": "1"}).code == 0


def fetched_tip(root: Path, branch: str) -> str | None:
    """The newest commit of a branch as the clone has fetched it.

    A tag of the same name is no branch, and an id names a commit, whatever a branch is called.
    """
    return None if COMMIT_ID.fullmatch(branch) else _commit(root, f"refs/remotes/origin/{branch}")


def checked_out(root: Path) -> str | None:
    """The commit that the clone around a folder has checked out; None outside a clone."""
    return _commit(root, "HEAD")


def _commit(root: Path, revision: str) -> str | None:
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    result = run_git(root, arguments, {})
    return result.output if result.code == 0 else None
