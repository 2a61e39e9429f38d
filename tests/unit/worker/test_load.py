from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.document.message import WorkloadError
from perfgate.measuring.workload.load import MODULE_NAME, load_workload


@pytest.fixture(autouse=True)
def _same_imports_afterwards() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in (MODULE_NAME, "beside", "model_of_project"):
        sys.modules.pop(name, None)


def _load(root: Path, text: str, attribute: str = "w") -> object:
    (root / "perf").mkdir(exist_ok=True)
    file = root / "perf" / "workload.py"
    file.write_text(text)
    return load_workload(file, attribute, root=root, python_path=[".", "src"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("build=1, inputs=print", "build must be a function, found int"),
        ("build=print, inputs=None", "inputs must be a function, found NoneType"),
        ("build=print, inputs=print, check=True", "check must be a function or left out, found bool"),
        ("build=print, inputs=print, sla=0.1", r"sla must be an SLA, e.g. SLA\(p99=0.05\), found 0.1"),
        (
            "build=print, inputs=print, sla=SLA(p99=0.1, rate=0)",
            "sla.rate must be a number of calls per second above 0",
        ),
        ("build=print, inputs=print, preprocess=3", "preprocess must be a function, or functions by name"),
        ("build=print, inputs=print, preprocess={}", "preprocess must be a function, or functions by name"),
        ("build=print, inputs=print, preprocess={'resize': 3}", "preprocess must be a function, or functions by name"),
        (
            "build=print, inputs=print, traffic=50",
            r"traffic must be a Traffic, found 50; write e.g. Traffic\(rate=50\)",
        ),
        ("build=print, inputs=print, traffic=Traffic()", "traffic needs either a rate or arrivals"),
        ("build=print, inputs=print, traffic=Traffic(rate=1, arrivals=[0, 1])", "either a rate or arrivals"),
        ("build=print, inputs=print, traffic=Traffic(rate=-1)", "rate and burstiness of traffic must be above 0"),
        ("build=print, inputs=print, traffic=Traffic(rate=1, burstiness=0)", "rate and burstiness of traffic must be"),
        (
            "build=print, inputs=print, traffic=Traffic(rate=1, max_wait=-1)",
            "max_wait of traffic must be a number of seconds",
        ),
        ("build=print, inputs=print, traffic=Traffic(arrivals=[1, 0])", "two or more ascending times in seconds"),
        ("build=print, inputs=print, batch=0", "batch must be a positive integer, found 0"),
        ("build=print, inputs=print, batch=True", "batch must be a positive integer, found True"),
        (
            "build=print, inputs=print, batch_sizes=8",
            r"batch_sizes must be positive integers, e.g. \[1, 8, 64\], found 8",
        ),
        ("build=print, inputs=print, batch_sizes=(2, 0)", "batch_sizes must be positive integers"),
        ("build=print, inputs=print, batch_sizes=['2']", "batch_sizes must be positive integers"),
        ("build=print, inputs=print, batch_sizes=iter([2])", "batch_sizes must be positive integers"),
        ("build=print, inputs=print, ranks='2'", "ranks must be a number of processes, or 0"),
        ("build=print, inputs=print, ranks=-1", "ranks must be a number of processes, or 0"),
        ("build=print, inputs=print, sla=SLA(p99='50ms')", "sla.p99 must be a number of seconds above 0, found '50ms'"),
        (
            "build=print, inputs=print, sla=SLA(p99=float('nan'))",
            "sla.p99 must be a number of seconds above 0, found nan",
        ),
        ("build=print, inputs=print, sla=SLA(p99=0)", "sla.p99 must be a number of seconds above 0, found 0"),
        ("build=print, inputs=print, shapes={'a': {1: 2}}", "shape 'a' must be a name with keyword arguments"),
        ("build=print, inputs=print, shapes={}", "shapes must name at least one shape"),
        ("build=print, inputs=print, shapes=['a']", "shapes must name at least one shape"),
        ("build=print, inputs=print, shapes={'a': 3}", "shape 'a' must be a name with keyword arguments"),
    ],
)
def test_load_workload__wrong_field__says_which(tmp_path: Path, fields: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        _load(tmp_path, f"from perfgate import SLA, Traffic, Workload\nw = Workload({fields})")


def test_load_workload__traffic_and_stages__taken(tmp_path: Path) -> None:
    fields = "build=print, inputs=print, preprocess={'decode': print}, traffic=Traffic(arrivals=[0, 0.5, 0.5])"
    _load(tmp_path, f"from perfgate import Traffic, Workload\nw = Workload({fields})")


def test_load_workload__folder__says_so(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="is a folder; name the Python file in it"):
        load_workload(tmp_path, "w", root=tmp_path, python_path=[])


def test_load_workload__not_python__says_so(tmp_path: Path) -> None:
    (tmp_path / "workload.txt").touch()
    with pytest.raises(WorkloadError, match=r"its name must end in \.py"):
        load_workload(tmp_path / "workload.txt", "w", root=tmp_path, python_path=[])


def test_load_workload__file_beside_is_called_like_one_of_the_standard_library__not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "colorsys.py").write_text("raise RuntimeError('beside the workload')")
    _load(tmp_path, "from perfgate import Workload\nimport colorsys\nw = Workload(build=print, inputs=print)")


def test_load_workload__imports_from_project_and_from_beside__both_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model_of_project.py").write_text("NAME = 'model'")
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "beside.py").write_text("SIZE = 7")
    text = (
        "from perfgate import Workload\nfrom model_of_project import NAME\nfrom beside import SIZE\n"
        "w = Workload(build=lambda device: NAME, inputs=print, batch=SIZE)"
    )
    assert getattr(_load(tmp_path, text), "batch", None) == 7
