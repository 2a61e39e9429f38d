"""What every device promises, over the real torch_npu on the software NPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_npu__device_contract__kept(npu_environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-k", "npu", "tests/contract/test_device_contract.py"]
    found = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "contract")],
        check=False, cwd=ROOT, env=npu_environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    assert found.returncode == 0, found.stdout + found.stderr
    # Twenty promises, and none of them skipped because the device could not be opened.
    assert "skipped" not in found.stdout
    assert int(found.stdout.rstrip().rpartition("\n")[2].split()[0]) >= 20
