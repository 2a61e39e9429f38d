"""`make test` fails where more tests are skipped than it allows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Skipped on GitLab, run on GitHub.
ONE_SKIPPED = ("tests/contract/test_forge_contract.py", "-k", "repository_without_an_owner")


@pytest.mark.parametrize(("most", "exit_code"), [(0, 1), (1, 0)])
def test_most_skipped__one_test_skipped__fails_above_the_limit_only_and_names_it(most: int, exit_code: int) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--most-skipped",
        str(most),
        *ONE_SKIPPED,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert f"1 tests skipped, at most {most} may be" in done.stdout
    assert ("a GitLab project is named by a number too" in done.stdout) == (exit_code == 1)
