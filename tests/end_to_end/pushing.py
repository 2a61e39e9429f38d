"""A clone that pushes to a bare remote beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.end_to_end.conftest import SECONDS, Clone, Perfgate

PREPARED = ("return torch.relu(y)", "return torch.relu(y.t().contiguous().t().contiguous())")
REWORDED = ("    def forward", "    unused = 1\n\n    def forward")


class Pushing:
    """A clone with a bare remote, whose pre-push hook is the two lines of docs/hook.md."""

    def __init__(self, clone: Clone, perfgate: Perfgate, remote: Path) -> None:
        self.clone = clone
        self._perfgate = perfgate
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
        clone.git("remote", "add", "origin", str(remote))
        clone.git("push", "-q", "origin", "main")

    def hook(self, *options: str) -> None:
        hook = self.clone.root / ".git" / "hooks" / "pre-push"
        hook.parent.mkdir(exist_ok=True)
        perfgate = f"{sys.executable} -m perfgate.cli.main"
        hook.write_text(f'#!/bin/sh\nexec {perfgate} local --hook {" ".join(options)} "$@"\n')
        hook.chmod(0o755)

    def push(self, *what: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", "push", "origin", *(what or ("feature",))],
            cwd=self.clone.root,
            env=self._perfgate.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def there(self) -> set[str]:
        """Return the branches that the remote has."""
        return {line.rpartition("/")[2] for line in self.clone.git("ls-remote", "--heads", "origin").splitlines()}
