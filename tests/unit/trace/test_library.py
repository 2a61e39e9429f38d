"""``perfgate.trace`` as other programs use it: its documented example, its names, and what it does not import."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate import trace
from tests.docs.blocks import DOCS, read_blocks
from tests.fakes.kineto import TraceLog, write_trace


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TraceLog()
    log.kernel("aten::sgemm", 0, 1_000, 2_000, 5_000, stream="compute")
    log.launch(500, 600)
    log.kernel("aten::relu", 6_000, 7_000, 8_000, 9_000, stream="compute")
    (tmp_path / "profile").mkdir()
    write_trace(log, tmp_path / "profile" / "one.pt.trace.json")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("profile")
def test_docs__example_of_the_library__prints_what_the_device_did(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for block in read_blocks("traces.md") if block.language == "python"]

    exec(compile(block.text, block.name, "exec"), {})

    assert capsys.readouterr().out.splitlines() == [
        "device 0 2 events on the device",
        "sgemm_kernel 1 3e-06",
        "relu_kernel 1 1e-06",
        "idle 0.0 s for the host",
    ]


@pytest.mark.usefixtures("profile")
def test_docs__examples_with_numpy__print_the_longest_runs_and_the_delay_of_launches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = [block for block in read_blocks("trace-library.md") if "import numpy" in block.text]

    for block in blocks:
        exec(compile(block.text, block.name, "exec"), {})

    assert capsys.readouterr().out.splitlines() == ["2000 ns: 3000 ns long", "median 1500.0 ns; longest 1500 ns"]


@pytest.mark.usefixtures("profile")
def test_columns__words_for_numbers_of_names() -> None:
    kernels = trace.read(Path("profile")).timelines[0].events.of_kind("compute")

    columns = kernels.columns()

    assert list(columns["duration_ns"]) == [3_000, 1_000]
    assert {name: column for name, column in columns.items() if isinstance(column, list)} == {
        "name": ["sgemm_kernel", "relu_kernel"],
        "type": ["sgemm_kernel", "relu_kernel"],
        "kind": ["compute", "compute"],
        "process": ["0", "0"],
        "thread": ["7", "7"],
        "request": [None, None],
        "shape": [None, None],
    }


@pytest.mark.usefixtures("profile")
def test_module__its_own_example__is_true() -> None:
    assert doctest.testmod(trace).failed == 0


def test_names__each_that_is_public__stands_on_the_page_or_is_part_of_what_does() -> None:
    page = (DOCS / "traces.md").read_text()

    assert [name for name in ("read", "top", "device_gaps", "stacks_of", "flame_tree") if f"`{name}(" not in page] == []
    assert all(hasattr(trace, name) for name in trace.__all__)


def test_import__needs_neither_torch_nor_the_rest_of_perfgate() -> None:
    code = (
        "import sys; import perfgate.trace; from perfgate.trace.readers.reader import all_readers; all_readers(); "
        "print(*sorted(name for name in sys.modules if name.startswith('perfgate.') or name in ('torch', 'scipy', 'click')))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    rooms = {name.split(".")[1] for name in printed.split() if "." in name}
    assert rooms <= {"trace", "document", "catalogue", "errors", "locale", "plugins", "toml", "version"}
    assert not {"torch", "scipy", "click"} & set(printed.split())
