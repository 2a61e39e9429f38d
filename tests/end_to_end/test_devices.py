"""A device that is not here, and an NPU's software half installed: torch_npu without CANN, so that `import torch` fails.

The package stands in for torch_npu 2.13.0 in what matters here: its entry point `torch.backends`, which torch since 2.5
imports by itself, and the error of the dynamic linker. The real wheel without CANN gave the same messages.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from tests.end_to_end.conftest import Clone, Perfgate

WORKLOAD = """
import torch
from perfgate import Workload

small = Workload(build=lambda device: torch.nn.Linear(4, 4).to(device), inputs=lambda batch, seed: torch.ones(batch, 4))
"""


@pytest.fixture
def torch_npu(tmp_path: Path) -> str:
    """Install torch_npu into a folder of its own; return that folder."""
    folder = tmp_path / "packages"
    release = importlib.metadata.version("torch").partition("+")[0]
    info = folder / f"torch_npu-{release}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch_npu\nVersion: {release}\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    (folder / "torch_npu").mkdir()
    linker = "libhccl.so: cannot open shared object file: No such file or directory"
    (folder / "torch_npu" / "__init__.py").write_text(f"raise ImportError({linker!r})\n")
    return str(folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "perf").mkdir(parents=True)
    (root / "perf" / "workload.py").write_text(WORKLOAD)
    (root / "perfgate.toml").write_text('workload = "perf/workload.py:small"\n')
    return root


@pytest.mark.slow  # tests/unit/conductor/test_environment.py asserts the variable that turns the entry point off
def test_run__cpu_with_torch_npu_but_no_cann__as_if_it_were_not_installed(
    perfgate: Perfgate, project: Path, torch_npu: str
) -> None:
    done = perfgate("run", "--steps", "3", cwd=project, PYTHONPATH=torch_npu)
    assert done.returncode == 0, done.stdout + done.stderr


def test_run__npu_with_torch_npu_but_no_cann__exit_4_with_what_is_missing(
    perfgate: Perfgate, project: Path, torch_npu: str
) -> None:
    done = perfgate("run", "--steps", "3", "--device", "npu", cwd=project, PYTHONPATH=torch_npu)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "what stands in the way of device 'npu':" in done.stderr
    assert "npu libraries: the dynamic linker finds no libascendcl.so, libhccl.so" in done.stderr
    assert "source /usr/local/Ascend/ascend-toolkit/set_env.sh" in done.stderr
    assert "ImportError: libhccl.so: cannot open shared object file" in done.stderr


def test_run__npu_on_a_machine_without_one__exit_4_and_names_what_is_missing(perfgate: Perfgate, project: Path) -> None:
    done = perfgate("run", "--steps", "3", "--device", "npu", cwd=project)
    assert done.returncode == 4
    assert "no Ascend device: neither torch_npu nor /dev/davinci* nor npu-smi is here" in done.stderr
    if not importlib.util.find_spec("torch_npu"):
        assert "device 'npu' needs torch_npu, which" in done.stderr
        assert "leave it out" not in done.stderr


@pytest.mark.parametrize(
    "command", ["run", *(pytest.param(name, marks=pytest.mark.slow) for name in ("local", "check"))]
)
def test_measuring__gpu_that_is_not_here__exit_4_and_names_what_this_torch_has(
    perfgate: Perfgate, clone: Clone, command: str
) -> None:
    clone.commit("the head", model=("return torch.relu(y)", "return torch.relu(y + 0)"))
    base = ["--base", "main"] if command != "run" else []
    done = perfgate(command, *base, "--device", "cuda:64", cwd=clone.root)
    assert done.returncode == 4, done.stdout + done.stderr
    if torch.version.cuda is None:
        expected = f"device 'cuda:64' cannot be opened: this torch {torch.__version__} has no CUDA; install a build"
    elif not torch.cuda.device_count():
        expected = "torch sees no GPU"
    else:
        expected = "cuda:64 does not exist, torch sees"
    assert expected in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("device", "code", "status"), [("cpu", 0, "attention"), ("npu", 4, "unfit")])
def test_doctor__torch_npu_but_no_cann__unfit_only_where_an_npu_is_configured(
    perfgate: Perfgate, project: Path, torch_npu: str, device: str, code: int, status: str
) -> None:
    done = perfgate("doctor", "--fitness", "--json", cwd=project, PYTHONPATH=torch_npu, PERFGATE_DEVICE=device)
    assert done.returncode == code, done.stdout + done.stderr
    found = {check["name"]: check for check in json.loads(done.stdout)["fitness"]}
    assert found["npu libraries"]["status"] == status
    assert found["device cpu"]["status"] == "ok"
    assert found["device npu"]["status"] == ("unfit" if device == "npu" else "unavailable")
