"""What a trial sees of the code that a workload runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
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
# Forks a worker for every folder that it reads, as a fork server does; the worker loads and tries the workload there, as the
# conductor asks it to.
RUNNER = """
import gc, json, os, socket, sys, traceback
import msgspec
import torch
from perfgate import protocol
from perfgate.conductor.code.executed_lines import collected_lines
from perfgate.measuring.worker.worker import WorkerLoop

def work(root, seconds):
    ours, theirs = socket.socketpair()
    worker = WorkerLoop(theirs, cpus=[0], built=None)
    with collected_lines() as (reports, lines):
        worker.reports = reports
        watch = protocol.Watched(files=[root + "/model.py", root + "/notes.md"], roots=[root], groups=[[(0, 34)]])
        loaded = worker.answer(protocol.LoadRequest(
            name="small", file=root + "/perf/workload.py", attribute="small", root=root, python_path=["."], device="cpu",
            seed=0, threads=1, watch=watch,
        ))
        assert isinstance(loaded, protocol.Loaded), loaded
        tried = worker.answer(protocol.TryRequest(seconds=seconds))
        assert isinstance(tried, protocol.Tried) and tried.error is None, tried
    with open(root + "/seen.json", "w") as file:
        json.dump([sorted(lines), msgspec.to_builtins(tried.watching)], file)

gc.freeze()  # a collection in a child would copy every page of torch
for order in sys.stdin:
    if (child := os.fork()) == 0:
        try:
            work(*json.loads(order))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)  # to destroy torch takes half a second
"""
Trial = Callable[..., tuple[set[int], Any]]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    log = tmp_path_factory.mktemp("runner") / "stderr"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def try_workload(runner: subprocess.Popen[str], tmp_path: Path) -> Trial:
    """Return a function that tries the workload; it returns the executed lines of the model, and what else was seen."""

    def try_it(*, extra: str = "", more: str = "", fields: str = "", seconds: float = 20.0) -> tuple[set[int], Any]:
        (tmp_path / "perf").mkdir()
        (tmp_path / "model.py").write_text(MODEL)
        (tmp_path / "notes.md").write_text("words")
        (tmp_path / "perf" / "workload.py").write_text(WORKLOAD.format(extra=extra, more=more, fields=fields))
        assert runner.stdin is not None
        assert runner.stdout is not None
        print(json.dumps([str(tmp_path), seconds]), file=runner.stdin, flush=True)
        assert runner.stdout.readline() == "0\n"
        lines, watching = json.loads((tmp_path / "seen.json").read_text())
        return {line for index, line in lines if index == 0}, watching

    return try_it


def test_try__a_thread_a_rare_call_and_a_large_batch__all_but_what_never_runs(try_workload: Trial) -> None:
    lines, watching = try_workload()
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
def test_try__code_may_run_unseen__doubted(try_workload: Trial, fields: str, more: str, doubt: str) -> None:
    if doubt == "coverage.tracer-replaced" and hasattr(sys, "monitoring"):
        more = (
            "import sys\nfor tool in range(6):\n"
            "    if sys.monitoring.get_tool(tool):\n        sys.monitoring.free_tool_id(tool)\n"
        )
    _, watching = try_workload(more=more, fields=fields, seconds=0.1)
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
def test_try__processes_texts_and_code_that_is_read__told(
    try_workload: Trial, more: str, seen: tuple[str, object]
) -> None:
    _, watching = try_workload(more=more, seconds=0.1)
    name, value = seen
    assert watching[name] == value


def test_try__code_in_a_forked_child__its_lines_are_seen(try_workload: Trial) -> None:
    child = "import os, model\nif os.fork() == 0:\n    model.never(1)\n    os._exit(0)\nos.wait()\n"
    lines, _ = try_workload(more=child, seconds=0.1)
    assert NEVER + 1 in lines
