"""What the exit code of a command tells when a test did not expect it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.exit_code import ExitCode


def code_of(folder: Path, *arguments: str, **documents: Any) -> ExitCode:
    (folder / "out" / "head").mkdir(parents=True)
    for name, document in documents.items():
        where = folder / "out" / "head" if name == "run" else folder / "out"
        (where / f"{name}.json").write_text(document if isinstance(document, str) else json.dumps(document))
    done = subprocess.CompletedProcess(["perfgate", *arguments], 4, "printed\n", "warned\n")
    return ExitCode.of(done, folder, time.time())


def test_explanation__command_that_failed__its_output_and_the_errors_of_its_documents(tmp_path: Path) -> None:
    error = {"kind": "timeout", "message": "loading took longer than 60 s"}
    run = {"workloads": [{"name": "small", "error": error}], "steps": [{"number": 3, "status": "ok", "error": None}]}
    decision = {"verdict": "INCONCLUSIVE", "failures": [{"what": "load"}], "comparisons": [{"metric": "latency.low"}]}
    code = code_of(tmp_path, "check", run=run, decision=decision)

    assert code == 4
    told = code.explanation()
    for wanted in ("perfgate check: exit code 4", "printed", "warned", "loading took longer", "INCONCLUSIVE", '"load"'):
        assert wanted in told
    assert "latency.low" not in told


@pytest.mark.parametrize("document", ["{", "[1, 2]", "null"])
def test_explanation__document_of_any_kind__no_error(tmp_path: Path, document: str) -> None:
    assert "run.json" in code_of(tmp_path, "run", "--reason", "x" * 5000, run=document).explanation()


def test_explanation__documents_in_a_named_folder_elsewhere__found_and_older_ones_left_out(tmp_path: Path) -> None:
    code = code_of(tmp_path / "elsewhere", run={}, decision={"verdict": "FAIL"})
    done = subprocess.CompletedProcess(["perfgate", "gate", str(tmp_path / "elsewhere" / "out")], 1, "", "")

    assert '"FAIL"' in ExitCode.of(done, tmp_path / "absent", code._started).explanation()
    assert '"FAIL"' not in ExitCode.of(done, tmp_path / "absent", time.time() + 60).explanation()
