"""How long a newcomer waits for the first verdict: installation, `perfgate init`, a
workload, a change, `perfgate local`.

Three small repositories of different kinds, each in a new virtual environment; phases
of `local` by its own progress messages. Run it on a machine that does nothing else.
`--reuse` leaves the installation out and measures with this interpreter.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
GOAL_SECONDS = 180
# Every message, not one in three seconds.
LOCAL = """
import sys
import perfgate.cli.progress as progress
progress.SECONDS_BETWEEN_LINES = 0.0
from perfgate.cli.main import main
sys.argv = ["perfgate", *sys.argv[1:]]
main()
"""
# The first that matches a message names its phase.
PHASES = {
    "pairs": r"\bpair \d|base against",
    "checklist": r"\bstep \d",
    "loading and trying the workload": r"loading|trying|building|starting",
    "checking out": r"checking out",
    "environments": r"environment|install|pip",
    "counting and profiling": r"count|profil",
    "writing": r"drawing|deciding|writing",
}


Seconds = dict[str, float]


class Project(NamedTuple):
    """A small repository: its files, its workload, and the line of a change with what
    replaces it.
    """

    files: dict[str, str]
    workload: str
    changed: tuple[str, str, str]


MLP = Project(
    {
        "requirements.txt": f"{TORCH}\n",
        "model.py": """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64))
""",
    },
    "from perfgate import Workload\nimport torch\nfrom model import net\n\n"
    "example = Workload(build=lambda device: net().to(device).eval(),\n"
    "                   inputs=lambda batch, seed: torch.zeros(batch, 256), batch=32)\n",
    ("model.py", "nn.GELU()", "nn.GELU(), nn.Dropout(0.1), nn.GELU()"),
)
CONVOLUTION = Project(
    {
        "setup.py": "from setuptools import setup\n\n"
        f"setup(name='vision', version='1', packages=['vision'], install_requires=['{TORCH}'])\n",
        "vision/__init__.py": "",
        "vision/net.py": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, image):
        hidden = torch.relu(self.first(image))
        return torch.relu(self.second(hidden)).mean((2, 3))
""",
    },
    "from perfgate import Workload\nimport torch\nfrom vision.net import Net\n\n"
    "example = Workload(build=lambda device: Net().to(device).eval(),\n"
    "                   inputs=lambda batch, seed: torch.zeros(batch, 3, 64, 64), batch=4)\n",
    ("vision/net.py", "self.second(hidden)", "self.second(hidden.clone())"),
)
ENCODER = Project(
    {
        "pyproject.toml": f'[project]\nname = "reader"\nversion = "1"\ndependencies = ["{TORCH}"]\n',
        "reader.py": """
from torch import nn

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)

    def forward(self, tokens):
        return self.layers(tokens)
""",
    },
    "from perfgate import Workload\nimport torch\nfrom reader import Reader\n\n"
    "example = Workload(build=lambda device: Reader().to(device).eval(),\n"
    "                   inputs=lambda batch, seed: torch.zeros(batch, 64, 128), batch=8)\n",
    ("reader.py", "self.layers(tokens)", "self.layers(tokens * 1.0)"),
)
PROJECTS = {"requirements": MLP, "setup.py": CONVOLUTION, "pyproject": ENCODER}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default=",".join(PROJECTS), help="which of them, by commas"
    )
    parser.add_argument(
        "--reuse",
        action="store_true",
        help="measure with this interpreter, nothing is installed",
    )
    options = parser.parse_args()
    late = [
        name
        for name in options.only.split(",")
        if first_verdict(name, reuse=options.reuse) > GOAL_SECONDS
    ]
    sys.exit(f"above {GOAL_SECONDS} s: {', '.join(late)}" if late else 0)


def first_verdict(name: str, *, reuse: bool) -> float:
    """Play a newcomer and print each phase; the seconds of all of them."""
    project, seconds = PROJECTS[name], defaultdict[str, float](float)
    with tempfile.TemporaryDirectory(prefix="perfgate-first-") as folder:
        root = Path(folder) / name.partition(".")[0]
        for file, text in project.files.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text.lstrip())
        _git(root, "init", "--quiet", "--initial-branch", "main")
        python = sys.executable if reuse else _installed(Path(folder) / "venv", seconds)
        with _timed(seconds, "init"):
            _run([python, "-m", "perfgate", "init"], root)
        (root / "perf" / "workload.py").write_text(project.workload)
        _git(root, "add", "--all")
        _git(root, "commit", "--quiet", "--message", "with perfgate")
        file, old, new = project.changed
        (root / file).write_text((root / file).read_text().replace(old, new))
        verdict = _local(python, root, seconds)
    total = sum(seconds.values())
    print(f"\n{name}: {verdict} after {total:.0f} s")
    for phase, spent in sorted(seconds.items(), key=lambda entry: -entry[1]):
        print(f"  {spent:6.1f} s  {phase}")
    return total


def _installed(venv: Path, seconds: Seconds) -> str:
    python = str(venv / "bin" / "python")
    with _timed(seconds, "installing: virtual environment"):
        _run([sys.executable, "-m", "venv", str(venv)], venv.parent)
    for what in (TORCH, str(ROOT)):
        with _timed(
            seconds, f"installing: {Path(what).name if what == str(ROOT) else what}"
        ):
            _run(
                [
                    python,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    what,
                ],
                venv.parent,
            )
    return python


def _local(python: str, root: Path, seconds: Seconds) -> str:
    """Run ``perfgate local``, add up its seconds by phase, and return the verdict."""
    command = [python, "-c", LOCAL, "local"]
    phase, since = "starting Python", time.monotonic()
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        shown = []
        for line in process.stdout:
            now = time.monotonic()
            seconds[f"local: {phase}"] += now - since
            since, phase = (
                now,
                next(
                    (name for name, words in PHASES.items() if re.search(words, line)),
                    phase,
                ),
            )
            shown.append(line)
    seconds[f"local: {phase}"] += time.monotonic() - since
    verdict = re.search(
        r"^(PASS|WARN|FAIL|INCONCLUSIVE|SKIPPED)\b.*", "".join(shown), re.MULTILINE
    )
    if verdict is None:
        sys.exit(
            f"perfgate local ended with {process.returncode}:\n{''.join(shown[-20:])}"
        )
    return verdict[0]


@contextmanager
def _timed(seconds: Seconds, phase: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[phase] += time.monotonic() - began


def _git(root: Path, *arguments: str) -> None:
    author = ["-c", "user.name=newcomer", "-c", "user.email=newcomer@example.org"]
    _run([shutil.which("git") or "git", *author, *arguments], root)


def _run(command: list[str], root: Path) -> None:
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


if __name__ == "__main__":
    main()
