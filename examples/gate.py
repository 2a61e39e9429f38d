"""Gate a change of an example: ``python examples/gate.py serving layer`` plants it in a scratch repository and checks it.

Prints the comment that the change request would get, and ends as ``perfgate check`` does. Options behind the names go to it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("-c", "user.name=perfgate", "-c", "user.email=perfgate@example.invalid")


def main(arguments: list[str]) -> int:
    """Gate the change named."""
    if len(arguments) < 2 or not (patch := HERE / arguments[0] / "changes" / f"{arguments[1]}.patch").is_file():
        changes = [f"{file.parent.parent.name} {file.stem}" for file in sorted(HERE.glob("*/changes/*.patch"))]
        print(f"usage: gate.py EXAMPLE CHANGE; there are: {', '.join(changes)}", file=sys.stderr)
        return 2
    example, change, *options = arguments
    out = Path("perfgate-out", example, change).resolve()
    with tempfile.TemporaryDirectory(prefix=f"{example}-") as scratch:
        project = plant(HERE / example, patch, Path(scratch) / example)
        command = [sys.executable, "-m", "perfgate", "check", "--base", "main", "--out", str(out), *options]
        ended = subprocess.run(command, cwd=project, env=os.environ, check=False).returncode
    comment = out / "comment.md"
    if comment.is_file():
        print(f"\n{comment.read_text(encoding='utf-8')}\n{comment}")
    return ended


def plant(example: Path, patch: Path, project: Path) -> Path:
    """Make a repository with the example on main and the change on a branch, which is checked out."""
    shutil.copytree(example, project, ignore=shutil.ignore_patterns("changes", "README.md", "__pycache__"))
    subject = patch.read_text(encoding="utf-8").splitlines()[0]
    steps = (
        ["init", "--quiet", "--initial-branch", "main"],
        ["add", "--all"],
        [*NAMES, "commit", "--quiet", "--message", "The example"],
        ["checkout", "--quiet", "-b", "change"],
        ["apply", "--unidiff-zero", str(patch)],
        [*NAMES, "commit", "--quiet", "--all", "--message", subject],
    )
    for step in steps:
        subprocess.run(["git", *step], cwd=project, check=True)
    return project


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
