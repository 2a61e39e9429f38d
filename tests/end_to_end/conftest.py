"""Real `perfgate` processes on small projects; each test has its own lock, store and temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.command import COMMAND, run_perfgate
from tests.end_to_end.publishing import enterprise, github, gitlab, job, project  # noqa: F401 - fixtures

# So long a command may take where many others run beside it; it ends one that would never end.
SECONDS = 600
WORKLOADS = Path(__file__).parents[1] / "data" / "workloads"

# Small enough that a whole check takes seconds; large enough that its statistics are defined. Blocks so short say nothing
# of speed on a busy machine, so every clock is given all the room there is: what these tests plant, counters find.
SMALL_GATE = """
[gate]
strict = true
looks = [8]
checklist_budget = 0
aa_pairs = 5
quads = 2
block_seconds = 0.002
[gate.tolerance]
"latency.low" = 1.0
"latency.p50" = 1.0
"latency.p99" = 1.0
"throughput.gap" = 1.0
"throughput.turnaround" = 1.0
"hardware.instructions" = 1.0
"""
# Exit code and verdict where the machine was too busy to tell, or so busy that the times prove nothing.
UNDECIDED = ((3, "INCONCLUSIVE"), (4, "INCONCLUSIVE"))


@dataclass
class Perfgate:
    """Runs the command as a process of its own."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([*COMMAND, *arguments], cwd=cwd, env=self.environment, text=True, **options)

    def __call__(self, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_perfgate(*arguments, cwd=cwd, environment={**self.environment, **environment}, timeout=SECONDS)

    @property
    def scratch_folders(self) -> list[str]:
        """What is left of scratch homes in the temporary folder."""
        return sorted(path.name for path in self.folder.glob("perfgate-*") if path.is_dir())

    def processes(self) -> list[str]:
        """Processes whose environment names the temporary folder of this test."""
        marker = os.fsencode(self.folder)
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if marker in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture
def perfgate(tmp_path: Path) -> Perfgate:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LD_LIBRARY_PATH")}
    environment = {
        **kept,
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(temporary),
        "PERFGATE_LOCK": str(tmp_path / "lock"),
        "PERFGATE_STORE": str(tmp_path / "store.sqlite"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PIP_NO_INDEX": "1",
    }
    return Perfgate(temporary, environment)


@pytest.fixture
def failing(tmp_path: Path) -> Callable[..., Path]:
    """Make a project (no git) with the named workloads of failing.py."""

    def make(*names: str, settings: str = "") -> Path:
        root = tmp_path / "project"
        (root / "perf").mkdir(parents=True)
        shutil.copy(WORKLOADS / "failing.py", root / "perf")
        lines = [f'{name} = "perf/failing.py:{name}"' for name in names]
        (root / "perfgate.toml").write_text("\n".join(["[workloads]", *lines, settings]) + "\n")
        return root

    return make


class Clone:
    """A git clone of a small model project, with a commit on main."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "perf").mkdir()
        shutil.copy(WORKLOADS / "small_model.py", root / "model.py")
        shutil.copy(WORKLOADS / "small_workload.py", root / "perf" / "workload.py")
        (root / "perfgate.toml").write_text('project = "small"\nworkload = "perf/workload.py:small"\n' + SMALL_GATE)
        self.git("init", "-q", "-b", "main")
        self.commit("the model")
        self.git("checkout", "-q", "-b", "feature")

    def git(self, *arguments: str) -> str:
        who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        clean = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        environment = {**os.environ, **who, **clean}
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, message: str, **changes: tuple[str, str]) -> str:
        """Commit; ``changes`` are file (without .py, ``__`` for a slash) -> (old text, new text)."""
        for name, (old, new) in changes.items():
            file = self.root / f"{name.replace('__', '/')}.py"
            text = file.read_text()
            assert old in text
            file.write_text(text.replace(old, new))
        self.git("add", "--all")
        self.git("commit", "--allow-empty", "-qm", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone")
