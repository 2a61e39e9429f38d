"""Scratch folders: removed at the end, and by the next where their process was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.conductor.workers.cleanup import scratch_folder
from perfgate.errors import MeasuringError

HOLD = """
import sys, time
from perfgate.conductor.workers.cleanup import scratch_folder
with scratch_folder() as scratch:
    (scratch / "half").write_text("written")
    print(scratch, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_scratch_folder__process_killed__the_next_sweeps_its_folder_and_no_other(temporary: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        killed, alive = [Path(process.stdout.readline().strip()) for process in processes if process.stdout]
        (temporary / "perfgate-scratch-link").symlink_to("/usr")
        processes[0].kill()
        processes[0].wait()
        assert killed.is_dir()
        with scratch_folder() as scratch:
            assert not killed.exists()
            assert (alive / "half").exists()
            assert scratch.parent == temporary
            assert scratch.name.startswith("perfgate-scratch-")
        assert not scratch.exists()
        assert (temporary / "perfgate-scratch-link").is_symlink()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_scratch_folder__no_folder_to_write_in__says_what_to_set(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(MeasuringError, match=r"no scratch folder can be made .*set TMPDIR"), scratch_folder():
        pass
