"""The examples of `docs/trace-library.md` with pandas and polars, run by the Python that has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import read_blocks
from tests.fakes.kineto import TraceLog, write_trace
from tests.formats.test_round_trips import READERS, ROOT
from tests.jobs.tools import installed

EXAMPLES = [block for block in read_blocks("trace-library.md") if "pandas" in block.text or "polars" in block.text]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    for name, longest in (("base", 3_000), ("head", 4_000), ("profile", 3_000)):
        log = TraceLog()
        log.kernel("aten::sgemm", 0, 1_000, 2_000, 2_000 + longest, stream="compute")
        log.kernel("aten::relu", 6_000, 7_000, 8_000, 9_000, stream="compute")
        (folder / name).mkdir()
        write_trace(log, folder / name / "one.pt.trace.json")
    return folder


def printed(example: str, folder: Path) -> list[list[str]]:
    """The words of each line that it prints."""
    *others, last = READERS
    python = installed(last, *others) / "python"
    done = subprocess.run(
        [str(python), "-c", example],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split() for line in done.stdout.splitlines()]


def test_examples__with_data_frames__four() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("nlargest(10", [["device", "0", "sgemm_kernel", "1", "3000", "3000"], ["relu_kernel", "1", "1000", "1000"]]),
        ('["wait_ns"]', []),
        ('{"base":', [["relu_kernel", "1000", "1000"], ["sgemm_kernel", "3000", "4000"]]),
        (
            "polars.DataFrame",
            [["│", "sgemm_kernel", "┆", "1", "┆", "3000", "│"], ["│", "relu_kernel", "┆", "1", "┆", "1000", "│"]],
        ),
    ],
)
def test_examples__prints_the_numbers_of_the_recording(example: str, expected: list[list[str]], folder: Path) -> None:
    (block,) = [block for block in EXAMPLES if example in block.text]
    lines = printed(block.text, folder)
    assert [line for line in expected if line not in lines] == []
