"""What a trial sees of the code that a workload runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODEL = """import threading

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.thread = threading.Thread(target=beside)

    def forward(self, x):
        self.calls += 1
        if self.calls == 40:
            return rare(x)
        if len(x) > 32:
            return many(x)
        return x + 1


def beside():
    return 1


def rare(x):
    return x + 2


def many(x):
    return x + 3


def never(x):
    return x
"""
NEVER = 33
WORKLOAD = """import torch
from model import Model
from perfgate import Workload
{extra}

def build(device):
    model = Model()
    model.thread.start()
    model.thread.join()
    return model


def inputs(batch, seed):
    return torch.full((batch, 1), float(seed))

{more}
small = Workload(build=build, inputs=inputs, batch=1{fields})
"""
# One worker that loads and tries the workload, as the conductor asks it to.
RUNNER = """
import json, socket, sys
import msgspec
from perfgate import protocol
from perfgate.conductor.sides.watched import collected_lines
from perfgate.measuring.worker.worker import WorkerLoop
root, seconds = sys.argv[1], float(sys.argv[2])
ours, theirs = socket.socketpair()
worker = WorkerLoop(theirs, cpus=[0])
with collected_lines() as (reports, lines):
    worker.reports = reports
    watch = protocol.Watched(files=[root + "/model.py", root + "/notes.md"], roots=[root], groups=[[(0, 34)]])
    worker._load(protocol.LoadRequest(
        name="small", file=root + "/perf/workload.py", attribute="small", root=root, python_path=["."], device="cpu",
        seed=0, threads=1, watch=watch,
    ))
    tried = worker._try(protocol.TryRequest(seconds=seconds))
    assert tried.error is None, tried
print(json.dumps([sorted(lines), msgspec.to_builtins(tried.watching)]))
"""


def _try(
    folder: Path, *, extra: str = "", more: str = "", fields: str = "", seconds: float = 20.0
) -> tuple[set[int], Any]:
    """The executed lines of the model, and what else was seen."""
    (folder / "perf").mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "notes.md").write_text("words")
    (folder / "perf" / "workload.py").write_text(WORKLOAD.format(extra=extra, more=more, fields=fields))
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, str(folder), str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    lines, watching = json.loads(ran.stdout)
    return {line for index, line in lines if index == 0}, watching


def test_try__a_thread_a_rare_call_and_a_large_batch__all_but_what_never_runs(tmp_path: Path) -> None:
    lines, watching = _try(tmp_path)
    statements = {number for number, line in enumerate(MODEL.splitlines(), 1) if line.strip()}
    assert statements - lines == {NEVER + 1}
    assert watching["doubts"] == []
    assert not watching["began_processes"]
    assert watching["calls"] == 1000
    assert watching["has_all_sizes"]
    assert "never" not in watching["names"]
    assert {"model.py:7", "model.py:12", "model.py:21", "model.py:25", "model.py:29"} <= set(watching["entered"])
    assert [Path(source).name for source in watching["sources"]] == ["model.py", "workload.py"]


@pytest.mark.parametrize(
    ("fields", "more", "doubt"),
    [
        (", preprocess_on_device=lambda raw: raw", "", "coverage.checklist"),
        (", reference=lambda x: x + 1", "", "coverage.checklist"),
        ("", "import sys\nsys.settrace(None)\n", "coverage.tracer-replaced"),
    ],
)
def test_try__code_may_run_unseen__doubted(tmp_path: Path, fields: str, more: str, doubt: str) -> None:
    if doubt == "coverage.tracer-replaced" and hasattr(sys, "monitoring"):
        more = (
            "import sys\nfor tool in range(6):\n"
            "    if sys.monitoring.get_tool(tool):\n        sys.monitoring.free_tool_id(tool)\n"
        )
    _, watching = _try(tmp_path, more=more, fields=fields, seconds=1.0)
    assert doubt in watching["doubts"]


@pytest.mark.parametrize(
    ("more", "seen"),
    [
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])\n", ("began_processes", True)),
        ("import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\n", ("began_processes", True)),
        ("import pathlib\n(pathlib.Path(__file__).parents[1] / 'notes.md').exists()\n", ("read_files", [])),
        ("import pathlib\n(pathlib.Path(__file__).parents[1] / 'notes.md').read_text()\n", ("read_files", [1])),
        ("import inspect, model\ninspect.getsource(model.never)\n", ("read_files", [0])),
        ("import model\nmodel.never.__code__\n", ("read_code", [[0, NEVER, NEVER + 1]])),
        ("import inspect, model\ninspect.isgeneratorfunction(model.never)\n", ("read_code", [])),
    ],
)
def test_try__processes_texts_and_code_that_is_read__told(tmp_path: Path, more: str, seen: tuple[str, object]) -> None:
    _, watching = _try(tmp_path, more=more, seconds=1.0)
    name, value = seen
    assert watching[name] == value


def test_try__code_in_a_forked_child__its_lines_are_seen(tmp_path: Path) -> None:
    child = "import os, model\nif os.fork() == 0:\n    model.never(1)\n    os._exit(0)\nos.wait()\n"
    lines, _ = _try(tmp_path, more=child, seconds=1.0)
    assert NEVER + 1 in lines
