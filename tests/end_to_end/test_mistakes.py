"""What beginners get wrong: each ends in seconds, with one line that says what, where and what to do, and nothing measured."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import load_config
from perfgate.errors import SetUpError
from perfgate.flows.shared.preflight import preflight
from tests.end_to_end.conftest import WORKLOADS, Clone, Perfgate
from tests.shared_bench import SharedBench

WORKLOAD = """import torch
from model import build

from perfgate import Workload


def inputs(batch, seed):
    return torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed))


small = Workload(build=lambda device: build().to(device), inputs=inputs, batch=8)
"""
BUILT = "build=lambda device: build().to(device)"


def write_project(root: Path) -> Path:
    """Write a project with a model and a workload that is well."""
    (root / "perf").mkdir(parents=True)
    shutil.copy(WORKLOADS / "small_model.py", root / "model.py")
    (root / "perf" / "workload.py").write_text(WORKLOAD)
    (root / "perfgate.toml").write_text('workload = "perf/workload.py:small"\n')
    return root


@pytest.fixture
def beginner(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, shared_bench: SharedBench) -> Iterator[Bench]:
    """One bench for all mistakes that `run` and `local` find by trying the workload on theirs."""
    config = load_config(write_project(tmp_path_factory.mktemp("well") / "project"))
    with shared_bench.configured(config) as bench:
        yield bench


def _refused(bench: Bench, root: Path) -> str:
    """The one line of the error when the workload is tried."""
    with pytest.raises(SetUpError) as refused:
        preflight(bench, Checkout(root, root), load_config(root).selected(()))
    (line,) = str(refused.value).splitlines()
    return line


def _said(perfgate: Perfgate, root: Path, *arguments: str) -> str:
    """The one line of an error, behind what was said of the progress."""
    done = perfgate(*arguments, cwd=root)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(root.rglob("run.json"))
    *_, last = done.stderr.rstrip("\n").splitlines()
    return last


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "\nsmall = ",
            "\nsmaller = ",
            "workload 'small' cannot be loaded: perf/workload.py has no 'small'; did you mean 'smaller'? "
            "workloads in it: smaller",
        ),
        (
            "from model",
            "from modle",
            "workload 'small' cannot be loaded: ModuleNotFoundError: No module named 'modle' (at perf/workload.py:2); "
            "there is model; if modle is a package, install it for ",
        ),
        (
            BUILT,
            "build=lambda device: build().to('cuda')",
            "(at perf/workload.py:11); it is measured on cpu: write .to(device) with the device that build(device) gets, or "
            'set device = "cuda" in perfgate.toml',
        ),
        (
            BUILT,
            f"{BUILT}, check=lambda output, inputs: output.shape == (7, 64)",
            "workload 'small' fails its own check: check returned False (at perf/workload.py:11); correct the model, or what "
            "check expects",
        ),
        (
            "batch, 64",
            "batch, 63",
            "workload 'small' cannot be called: RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x63 and 64x64) "
            "(at model.py:12)",
        ),
        (
            "from model import build\n",
            "import argparse\nfrom model import build\nparser = argparse.ArgumentParser(prog='train')\n"
            "parser.add_argument('--config', required=True)\nparser.parse_args([])\n",
            "workload 'small' cannot be loaded: the workload ended its process (SystemExit: 2) after it printed `train: error: "
            "the following arguments are required: --config` (at perf/workload.py:6); a module that is imported must neither "
            'exit nor read the command line: move that below `if __name__ == "__main__":`',
        ),
        (
            BUILT,
            "build=lambda device: exit('no weights')",
            "workload 'small' cannot be loaded: the workload ended its process (SystemExit: no weights) "
            "(at perf/workload.py:11)",
        ),
    ],
)
def test_preflight__mistake_in_the_workload__one_line_with_the_remedy(
    bench: Bench, beginner: Path, old: str, new: str, said: str
) -> None:
    file = beginner / "perf" / "workload.py"
    file.write_text(file.read_text().replace(old, new))
    assert said in _refused(bench, beginner)


def test_preflight__workload_file_that_is_not_there__one_line_that_names_the_one_that_is(
    bench: Bench, beginner: Path
) -> None:
    (beginner / "perfgate.toml").write_text('workload = "perf/workloads.py:small"')
    assert (
        "workload file perf/workloads.py does not exist, did you mean perf/workload.py?; correct `workload` in "
        "perfgate.toml" in _refused(bench, beginner)
    )


def test_run__device_that_is_not_known__one_line(perfgate: Perfgate, beginner: Path) -> None:
    (beginner / "perfgate.toml").write_text('workload = "perf/workload.py:small"\ndevice = "gpu"')
    said = "perfgate: device 'gpu' is not known; known kinds: cpu, cuda, npu (set device in perfgate.toml"
    assert said in _said(perfgate, beginner, "run")


def test_run__preloaded_package_that_is_not_there__one_line(perfgate: Perfgate, beginner: Path) -> None:
    settings = 'workload = "perf/workload.py:small"\n[measure]\npreload = ["nowhere_installed"]\n'
    (beginner / "perfgate.toml").write_text(settings)
    done = perfgate("run", cwd=beginner)
    assert done.returncode == 4
    assert "No module named 'nowhere_installed'; install it there, or leave it out\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_run__package_in_another_folder__names_python_path(perfgate: Perfgate, beginner: Path) -> None:
    (beginner / "python").mkdir()
    (beginner / "model.py").rename(beginner / "python" / "model.py")
    assert _said(perfgate, beginner, "run") == (
        "perfgate: workload 'small' cannot be loaded: ModuleNotFoundError: No module named 'model' (at perf/workload.py:2); "
        'model lies in python/: write python_path = [".", "src", "python"] under [measure] in perfgate.toml'
    )


@pytest.mark.slow
def test_local__weights_that_git_ignores__found_by_run_and_link_is_named(perfgate: Perfgate, clone: Clone) -> None:
    model = ("torch.manual_seed(0)", "open('weights/m.pt').close()\n    torch.manual_seed(0)")
    (clone.root / ".gitignore").write_text("weights/\n")
    (clone.root / "weights").mkdir()
    (clone.root / "weights" / "m.pt").touch()
    clone.commit("weights", model=model)
    assert _said(perfgate, clone.root, "local") == (
        "perfgate: workload 'small' cannot be loaded: FileNotFoundError: [Errno 2] No such file or directory: 'weights/m.pt' "
        "(at model.py:17); weights/m.pt is not in the checkout, the base of relative paths; to include a file "
        "that git ignores, "
        'write link = ["weights/m.pt"] under [measure] in perfgate.toml'
    )
    done = perfgate("run", "--quick", "--steps", "3", cwd=clone.root)
    assert done.returncode == 0, done.stderr


def test_local__no_perfgate_toml_and_a_main_of_another_name__what_to_write(perfgate: Perfgate, clone: Clone) -> None:
    (clone.root / "perfgate.toml").unlink()
    clone.git("branch", "-m", "main", "stable")
    assert "perfgate.toml does not exist; `perfgate init` writes one" in _said(perfgate, clone.root, "local")
    clone.git("checkout", "-q", "stable", "--", "perfgate.toml")
    assert 'set main_branch = "stable" under [store] in perfgate.toml' in _said(perfgate, clone.root, "local")
