"""A check on a machine whose container refuses Landlock: it measures all the same, and says what that means."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import COMMAND
from tests.end_to_end.conftest import SECONDS, Clone, Perfgate

# As a container's filter does: landlock_create_ruleset (444) is unknown (ENOSYS) to this process and its children.
_WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys

code = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
def test_check__container_refuses_landlock__measured_with_a_note_in_the_comment(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    clone.commit("slower", model=("torch.relu(y)", "torch.relu(y.clone())"))
    out = tmp_path / "out"
    arguments = ["check", "--base", "main", "--out", str(out), "--steps", "4"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_LANDLOCK, *COMMAND, *arguments],
        cwd=clone.root,
        env=perfgate.environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    run = json.loads((out / "head" / "run.json").read_text())
    assert "notes.no-walls" in {note["code"] for note in run["warnings"]}
    sealed = json.loads((out / "base" / "run.json").read_text())["source"]["seal"]
    assert sealed["changed"] == []
    comment = (out / "comment.md").read_text()
    assert "this machine has no Landlock" in comment
