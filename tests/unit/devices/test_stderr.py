import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
os.write(2, b"before\\n")
from perfgate.measuring.devices.backends.npu import OwnErrors
errors = OwnErrors()
os.write(2, b"The operator 'aten::lgamma.out'\\n")
if "cut" in sys.argv:
    os.truncate("errors", 3)
read = errors.read()
sys.stdout.write(repr(read))
"""


def run(tmp_path, *arguments, stderr):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=True, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ).stdout  # fmt: skip


def test_own_errors__file__what_was_written_since(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("ab") as log:
        assert run(tmp_path, stderr=log) == repr(b"The operator 'aten::lgamma.out'\n")


def test_own_errors__file_cut_short__what_is_left(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("ab") as log:
        assert run(tmp_path, "cut", stderr=log) == repr(b"bef")


def test_own_errors__pipe__nobody_can_tell(tmp_path: Path) -> None:
    assert run(tmp_path, stderr=subprocess.PIPE) == "None"
