"""Every expression of operators.py gives the value and the gradients of the CPU, without the CPU's help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "operators.py"


def test_operators__each_expression__value_and_gradients_of_the_cpu(
    npu_environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, str(PROGRAM)]
    result = subprocess.run(
        command, cwd=tmp_path, env=npu_environment, capture_output=True, text=True, timeout=600, check=False
    )
    outcomes = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "same"} == {}
    assert result.returncode == 0, result.stderr
    assert len(outcomes) > 100
