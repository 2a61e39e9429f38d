"""The first pull request of projects of every kind, by what `perfgate init` wrote, in a Python that lacks their packages.

The setup line and the inputs come from the workflow that `init` wrote, the script from action.yml. Only the package index, the
checkout of the forge and the program `git lfs` are stood in for.
"""

from __future__ import annotations

import hashlib
import json
import os
import site
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from perfgate.flows.init.lock import lock_project
from perfgate.flows.init.project import read_declared
from perfgate.git.contents import LFS_LINE
from tests.end_to_end.conftest import SMALL_GATE, Perfgate
from tests.fakes.package_index import installed_wheels, offline, serve_index, write_wheel
from tests.installed import write_distribution
from tests.unit.git.test_contents import ALLOWED
from tests.unit.git.test_repository import git

ROOT = Path(__file__).resolve().parents[2]
ACTION = f"tools/perfgate@{'a' * 40}"
MODEL = """\
import torch
{imports}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter({weight})

    def forward(self, x):
        return {call}(x @ self.weight)
"""
WORKLOAD = """\
import torch
from model import Net

from perfgate import Workload

example = Workload(
    build=lambda device: Net().eval(),
    inputs=lambda batch, seed: torch.randn(batch, 8, generator=torch.Generator().manual_seed(seed)),
    batch=2,
)
"""
# What is slower: an operator more in every call.
CODE = "def norm(x):\n    return x / x.abs().sum()\n"
SLOWER = CODE.replace("x.abs()", "x.clone().abs()")
SETUP_PY = """\
from setuptools import setup
setup(name="model", version="1", py_modules=["model"], install_requires=["probe_norm"])
"""
POETRY = (
    '[tool.poetry]\nname = "model"\nversion = "1"\n[tool.poetry.dependencies]\npython = ">=3.10"\nprobe-norm = "^1"\n'
)
DECLARED = {
    "setup.py": {"setup.py": SETUP_PY},
    "setup.cfg": {"setup.cfg": "[metadata]\nname = model\n[options]\ninstall_requires =\n  probe-norm\n"},
    "environment.yml": {"environment.yml": "dependencies:\n  - pytorch\n  - cudatoolkit\n  - probe_norm=1.5\n"},
    "pyproject.toml": {
        "pyproject.toml": '[project]\nname = "model"\nversion = "1"\ndependencies = ["probe-norm>=1"]\n'
    },
    "poetry": {"pyproject.toml": POETRY},
    "nothing but the import": {},
}


class Site:
    """A repository on its forge, the desk of whoever runs `init`, and a runner that is new."""

    def __init__(self, folder: Path, perfgate: Perfgate) -> None:
        self.folder, self.perfgate = folder, perfgate
        self.desk = folder / "desk"
        self.desk.mkdir()
        git(self.desk, "init", "-q", "-b", "main")
        git(self.desk, "remote", "add", "origin", "https://github.com/team/model.git")
        self.wheels, self.installed = folder / "wheels", folder / "installed"

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.desk / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def provide(self, name: str, code: str) -> None:
        """Put a package into the index, and install it where `init` runs."""
        with zipfile.ZipFile(write_wheel(self.wheels, name, "1.5", code=code)) as wheel:
            wheel.extractall(self.installed)

    def commit(self, message: str) -> None:
        git(self.desk, "add", "--all")
        git(self.desk, "commit", "-qm", message)

    def init(self) -> Any:
        """Write the user's own workload and the CI files into a branch; return the inputs of the called workflow."""
        git(self.desk, "checkout", "-q", "-b", "add-perfgate")
        self.write(**{"perf/workload.py": WORKLOAD})
        (self.desk / "perfgate.toml").write_text('workload = "perf/workload.py:example"\n' + SMALL_GATE)
        self.wheels.mkdir(exist_ok=True)
        settings = offline(installed_wheels(), self.wheels)
        settings["UV_NO_BUILD_ISOLATION"] = "1"  # setuptools has no wheel with its code here
        done = self.perfgate(
            "init",
            "--ci-only",
            "--github",
            "--action",
            ACTION,
            cwd=self.desk,
            PYTHONPATH=str(self.installed),
            **settings,
        )
        assert done.returncode == 0, done.stderr
        assert "tested: the workload loads, runs" in done.stdout
        workflow = yaml.safe_load((self.desk / ".github" / "workflows" / "perfgate.yml").read_text())
        return workflow["jobs"]["gate"]["with"]

    def measure(self, inputs: Any, fetch: Callable[[Path], None]) -> dict[str, Any]:
        """Run the measuring step of the pull request in a new clone and a new Python; return its decision."""
        runner = self.folder / "runner"
        git(self.folder, "clone", "-q", str(self.desk), str(runner))
        if inputs.get("submodules") == "recursive":
            git(runner, *ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
        if inputs.get("lfs"):
            fetch(runner)
        (action,) = (
            s for s in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if s["name"] == "Measure"
        )
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", action["run"]],
            cwd=runner,
            env={
                **self.perfgate.environment,
                "PATH": f"{self._python()}:{os.environ['PATH']}",
                "RUNNER_TEMP": str(self.folder),
                "GITHUB_OUTPUT": str(self.folder / "output"),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
                "GITHUB_EVENT_NAME": "pull_request",
                "PIP_FIND_LINKS": str(self.wheels),
                "PERFGATE_SETUP": inputs["setup"],
                "PERFGATE_PYTHON": "python",
                "PERFGATE_PACKAGE": "perfgate",  # it is there already
                "PERFGATE_DIRECTORY": inputs.get("directory", "."),
                "PERFGATE_BASE": "origin/main",
                "PERFGATE_OUT": str(self.folder / "out"),
                "PERFGATE_FAIL_ON": inputs["fail-on"],
            },
            capture_output=True,
            text=True,
            check=False,
        )
        document = self.folder / "out" / "decision.json"
        assert document.is_file(), done.stdout + done.stderr
        decision: dict[str, Any] = json.loads(document.read_bytes())
        assert decision["verdict"] in ("FAIL", "INCONCLUSIVE"), done.stdout
        return decision

    def _python(self) -> Path:
        """A Python as actions/setup-python leaves it, but for what the tests have: the index here has no torch."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder / "python")], check=True)
        (packages,) = (self.folder / "python" / "lib").glob("python3*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
        (packages / "parent.pth").write_text("".join(lines))
        return self.folder / "python" / "bin"


@pytest.fixture
def place(tmp_path: Path, perfgate: Perfgate) -> Site:
    return Site(tmp_path, perfgate)


def grown(decision: dict[str, Any]) -> bool:
    """Whether both sides ran, and the copy more that the head makes in a call was counted."""
    copies = [
        (entry["base"], entry["head"]) for entry in decision["comparisons"] if entry["metric"] == "counters.copies"
    ]
    return len(copies) == 1 and copies[0][1] == copies[0][0] + 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", DECLARED)
def test_init__project_with_dependencies__its_first_pull_request_is_measured(place: Site, kind: str) -> None:
    place.provide("probe-norm", CODE)
    model = MODEL.format(imports="import probe_norm", weight="torch.eye(8)", call="probe_norm.norm")
    place.write(**DECLARED[kind], **{"model.py": model})
    place.commit("the model")
    inputs = place.init()
    assert inputs["setup"] == "python -m pip install -r perf/requirements.txt"
    place.write(**{"model.py": model.replace("x @ self.weight", "x.clone() @ self.weight")})
    place.commit("gate performance")
    assert grown(place.measure(inputs, lambda _: None))


@pytest.mark.slow
def test_init__model_in_a_submodule__its_first_pull_request_is_measured(place: Site) -> None:
    third = place.folder / "third"
    third.mkdir()
    git(third, "init", "-q", "-b", "main")
    (third / "third_norm.py").write_text(CODE)
    git(third, "add", ".")
    git(third, "commit", "-qm", "norm")
    git(place.desk, *ALLOWED, "submodule", "--quiet", "add", str(third), "libs/third")
    imports = "import sys\nsys.path.insert(0, __file__.replace('model.py', 'libs/third'))\nimport third_norm"
    place.write(**{"model.py": MODEL.format(imports=imports, weight="torch.eye(8)", call="third_norm.norm")})
    place.commit("the model")
    inputs = place.init()
    assert inputs["submodules"] == "recursive"
    (place.desk / "libs" / "third" / "third_norm.py").write_text(SLOWER)
    git(place.desk / "libs" / "third", "commit", "-qam", "slower")
    git(place.desk / "libs" / "third", "push", "-q", "origin", "HEAD:refs/heads/slower")
    place.commit("gate performance")
    assert grown(place.measure(inputs, lambda _: None))


@pytest.mark.slow
def test_init__weights_in_git_lfs__its_first_pull_request_is_measured(place: Site) -> None:
    weights = place.desk / "net.pt"
    torch.save(torch.eye(8), weights)
    content = weights.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    text = f"{LFS_LINE}\noid sha256:{digest}\nsize {len(content)}\n"

    def fetch(clone: Path) -> None:
        """As `git lfs install` and `git lfs pull` do: the filter, and the content in the store and in place of the pointer."""
        (place.folder / "pointer").write_text(text)
        git(clone, "config", "filter.lfs.clean", f"cat > /dev/null; cat {place.folder / 'pointer'}")
        kept = clone / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
        kept.parent.mkdir(parents=True)
        kept.write_bytes(content)
        (clone / "net.pt").write_bytes(content)
        git(clone, "add", "net.pt")  # git learns that the file of another size is its pointer's

    model = MODEL.format(imports="", weight="torch.load('net.pt')", call="")
    place.write(**{".gitattributes": "*.pt filter=lfs -text\n", "model.py": model, "net.pt": text})
    place.commit("the model")
    weights.write_bytes(content)
    inputs = place.init()
    assert inputs["lfs"] is True
    weights.write_text(text)
    place.write(**{"model.py": model.replace("x @ self.weight", "x.clone() @ self.weight")})
    place.commit("gate performance")
    assert grown(place.measure(inputs, fetch))


@pytest.mark.slow
def test_lock__hashes__pip_installs_these_files_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "torch", "9.9", "probe-norm")
    write_wheel(wheels, "probe-norm", "1.5", code=CODE)
    for name, needs in (("torch", ["probe-norm"]), ("probe-norm", [])):
        write_distribution(tmp_path / "installed", name, "9.9" if needs else "1.5", *needs)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # it may constrain torch
    monkeypatch.setenv("UV_NO_CACHE", "1")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "python")], check=True)
    with serve_index(wheels) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index)
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        lock = lock_project(read_declared(tmp_path / "model"), tmp_path / "model", python=running)
        (tmp_path / "requirements.txt").write_text(lock.text)
        command = [tmp_path / "python" / "bin" / "python", "-I", "-m", "pip", "--isolated", "install", "--no-cache-dir"]
        command += ["--index-url", index, "--force-reinstall", "-r", tmp_path / "requirements.txt"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Successfully installed probe-norm-1.5 torch-9.9" in done.stdout, done.stderr
        write_wheel(wheels, "probe-norm", "1.5", code=SLOWER)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, "DO NOT MATCH THE HASHES" in done.stderr) == (1, True), done.stderr
