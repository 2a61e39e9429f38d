"""Real `perfgate` processes on small projects; each test has its own lock, store and temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
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
"latency.mean" = 9.0
"latency.stalls" = 9999.0
"throughput.gap" = 1.0
"throughput.turnaround" = 1.0
"hardware.instructions" = 1.0
"""
# Exit code and verdict where the machine was too busy to tell, or so busy that the times prove nothing.
UNDECIDED = ((3, "INCONCLUSIVE"), (4, "INCONCLUSIVE"))


@dataclass(frozen=True)
class LiveProcess:
    """A process that has not ended; its number alone may be given to another one later."""

    pid: int
    started: int
    parent: int = field(compare=False)


def live_processes() -> list[LiveProcess]:
    """Return all processes of the machine, parents before their children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # proc(5): the fields behind the name of the program, which may hold blanks.
            state, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state not in "ZX":
            found.append(LiveProcess(int(folder.name), int(rest[17]), int(parent)))
    return sorted(found, key=lambda process: (process.started, process.pid))


@dataclass
class Perfgate:
    """Runs the command as a process of its own."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    # All that ``processes`` has found, and what ``start`` started.
    seen: set[LiveProcess] = field(default_factory=set)

    def start(self, *arguments: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen([*COMMAND, *arguments], cwd=cwd, env=self.environment, text=True, **options)
        self.seen |= {one for one in live_processes() if one.pid == process.pid}
        return process

    def __call__(self, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_perfgate(*arguments, cwd=cwd, environment={**self.environment, **environment}, timeout=SECONDS)

    @property
    def scratch_folders(self) -> list[str]:
        """What is left of scratch homes in the temporary folder."""
        return sorted(path.name for path in self.folder.glob("perfgate-*") if path.is_dir())

    def processes(self) -> list[str]:
        """Return the commands of this test's processes: their environment names its folder, or they descend from such ones.

        An ordinary user cannot read the environment of a process that protects itself, as the conductor does.
        """
        found: dict[int, str] = {}
        for process in live_processes():
            if process in self.seen or process.parent in found or self._names_folder(process):
                self.seen.add(process)
                with suppress(OSError):
                    command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                    found[process.pid] = command.replace(b"\0", b" ").decode()
        return list(found.values())

    def _names_folder(self, process: LiveProcess) -> bool:
        with suppress(OSError):
            return os.fsencode(self.folder) in Path(f"/proc/{process.pid}/environ").read_bytes()
        return False


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


def make_clone(root: Path) -> Clone:
    """Commit the model to main of a new clone, and check out a branch for a change."""
    root.mkdir()
    (root / "perf").mkdir()
    shutil.copy(WORKLOADS / "small_model.py", root / "model.py")
    shutil.copy(WORKLOADS / "small_workload.py", root / "perf" / "workload.py")
    (root / "perfgate.toml").write_text('project = "small"\nworkload = "perf/workload.py:small"\n' + SMALL_GATE)
    clone = Clone(root)
    clone.git("init", "-q", "-b", "main")
    clone.commit("the model")
    clone.git("checkout", "-q", "-b", "feature")
    return clone


@pytest.fixture(scope="session")
def made_clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The clone that tests copy: to make it takes five commands of git."""
    return make_clone(tmp_path_factory.mktemp("made") / "clone")


@pytest.fixture
def clone(made_clone: Clone, tmp_path: Path) -> Clone:
    shutil.copytree(made_clone.root, tmp_path / "clone")
    return Clone(tmp_path / "clone")
