"""`perfgate run`: what fails is kept beside what was measured, user code sees no secret, and one waits visibly."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import SECONDS, Perfgate
from tests.waiting import left_in_the_end

Project = Callable[..., Path]

SHOW = """
import json, os, resource, threading, torch
from perfgate import Workload

def environment_of(pid):
    try:
        return open(f"/proc/{pid}/environ").read()
    except PermissionError:
        return ""  # to an ordinary user it is shut

def build(device):
    seen = {
        "environment": dict(os.environ),
        "parent": environment_of(os.getppid()),
        "affinity": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "limit": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "home_is_folder": os.path.isdir(os.environ["HOME"]),
        "cwd": os.getcwd(),
        "stdin": os.read(0, 10).decode(),
        "session": os.getsid(0) == os.getpid(),
        "descriptors": sorted(os.readlink(f"/proc/self/fd/{n}").split(":")[0]
                              for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")),
    }
    with open(OUT, "w") as file:
        json.dump(seen, file)
    return lambda x: x + 1

shown = Workload(build=build, inputs=lambda batch, seed: torch.ones(1))
"""


def _run(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "run.json").read_text()))


def test_run__one_workload_crashes_one_prints_one_is_well__exit_4_and_everything_else_kept(
    perfgate: Perfgate, failing: Project
) -> None:
    root = failing("call_aborts", "prints_much", "build_raises", "well")
    done = perfgate("run", "--quick", "--steps", "2,3", "--json", cwd=root, CI="true")
    assert done.returncode == 4, done.stderr
    run = _run(root / "perfgate-out")
    assert json.loads(done.stdout) == run
    status = {(step["workload"], step["slug"]): step["status"] for step in run["checklist"]["steps"]}
    assert status[("call_aborts", "utilization")] == "error"
    assert status[("call_aborts", "transfer")] == "not_applicable"
    assert status[("build_raises", "utilization")] == status[("build_raises", "transfer")] == "error"
    assert status[("well", "utilization")] in ("ok", "attention")
    assert status[("prints_much", "utilization")] in ("ok", "attention")
    errors = {step["workload"]: step["error"] for step in run["checklist"]["steps"] if step["status"] == "error"}
    assert errors["call_aborts"]["signal"] == "SIGABRT"
    assert "failing.py" in errors["call_aborts"]["traceback"]
    assert "in _raise" in errors["build_raises"]["traceback"]
    assert {check["workload"]: check["status"] for check in run["checklist"]["correctness"]}["well"] == "passed"
    # What user code prints stands in its log, and nowhere a CI host would read it.
    assert "::error::forged by the workload" in (root / "perfgate-out" / "logs" / "prints_much.log").read_text()
    assert "forged" not in done.stdout + done.stderr
    assert perfgate.scratch_folders == []
    assert left_in_the_end(perfgate.processes) == []


def test_run__tokens_in_the_job__no_worker_and_no_fork_server_has_them(perfgate: Perfgate, failing: Project) -> None:
    root = failing("well", settings='[measure]\nmemory_limit = 3000000000\npass_env = ["WANTED"]')
    seen_file = root / "seen.json"
    (root / "perf" / "failing.py").write_text(SHOW.replace("OUT,", f"{str(seen_file)!r},").replace("shown", "well"))
    secrets = {
        name: f"secret-{name}"
        for name in ("GITHUB_TOKEN", "GH_TOKEN", "CI_JOB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
                     "PERFGATE_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "SSH_AUTH_SOCK")
    }  # fmt: skip
    known = {"WANTED": "yes", "GITHUB_SHA": "0" * 40, "PERFGATE_IMAGE": "team/npu:8.1"}
    done = perfgate("run", "--quick", "--steps", "3", cwd=root, **secrets, **known)
    assert done.returncode == 0, done.stderr
    recorded = _run(root / "perfgate-out")["testbed"]["environment"]
    assert (recorded["kind"], recorded["image"], "torch" in recorded["packages"]) == ("running", "team/npu:8.1", True)
    seen = json.loads(seen_file.read_text())
    environment = seen["environment"]
    for name, value in secrets.items():
        assert name not in environment
        assert value not in seen["parent"]
    assert environment["WANTED"] == "yes"
    assert "GITHUB_SHA" not in environment
    assert (environment["MALLOC_MMAP_MAX_"], environment["MALLOC_TRIM_THRESHOLD_"]) == ("0", "4294967296")
    # A home of its own, gone afterwards.
    assert seen["home_is_folder"]
    assert perfgate.folder in Path(environment["HOME"]).parents
    assert environment["TMPDIR"] == environment["HOME"]
    assert seen["cwd"] == str(root)
    assert not Path(environment["HOME"]).exists()
    # Limits and a process of its own.
    assert (seen["limit"], seen["core"], seen["stdin"], seen["session"]) == (3000000000, 0, "", True)
    # Nothing of the conductor or the fork server is open in it: a null, log and stack file, its one socket, the listing.
    assert seen["descriptors"].count("socket") == 1
    assert not any(name.startswith("pipe") or "eventpoll" in name for name in seen["descriptors"])
    # What the testbed says is what the worker has.
    testbed = _run(root / "perfgate-out")["testbed"]
    assert testbed["comparable"]["env.MALLOC_MMAP_MAX_"] == "0"
    assert testbed["comparable"]["threads"] == str(seen["threads"]) == testbed["comparable"]["env.OMP_NUM_THREADS"]
    assert testbed["observed"]["affinity"] == ",".join(map(str, seen["affinity"]))


@pytest.mark.slow
def test_run__two_at_once__the_second_says_whom_it_waits_for_and_then_runs(
    perfgate: Perfgate, failing: Project
) -> None:
    root = failing("well", "build_hangs", settings="[measure]\nload_timeout = 4")
    first = perfgate.start(
        "run", "--workload", "build_hangs", "--steps", "3", "--out", "one", cwd=root, stderr=subprocess.PIPE
    )
    assert first.stderr is not None
    while "building build_hangs" not in (line := first.stderr.readline()):
        assert line
    first.send_signal(signal.SIGSTOP)  # it has the machine for as long as the second takes to ask for it
    second = perfgate.start(
        "run", "--workload", "well", "--steps", "3", "--out", "two", cwd=root, stderr=subprocess.PIPE
    )
    assert second.stderr is not None
    waits = second.stderr.readline()
    first.send_signal(signal.SIGCONT)
    _, said = first.communicate(timeout=SECONDS)
    second.communicate(timeout=SECONDS)
    assert (first.returncode, second.returncode) == (4, 0)
    # Nobody watches: plain lines, and not one for every second.
    assert "\x1b" not in said
    assert said.count("building build_hangs") <= 1
    assert re.search(
        rf"waiting for the machine: next in line, process {first.pid} on \S+: perfgate run in {root}, since .* is measuring",
        waits,
    )
    assert _run(root / "two")["checklist"]["steps"][0]["status"] == "not_applicable"


@pytest.mark.slow
@pytest.mark.parametrize("no_color", ["", "1"])
def test_run__slow_build_in_a_terminal__a_spinner_or_plain_lines(
    perfgate: Perfgate, failing: Project, no_color: str
) -> None:
    root = failing("build_hangs", settings="[measure]\nload_timeout = 3")
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "120", **({"NO_COLOR": "1"} if no_color else {})}
    perfgate.environment.update(environment)
    process = perfgate.start("run", "--steps", "3", cwd=root, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = _read_all(ours)
    assert process.wait(SECONDS) == 4
    assert re.search(r"building build_hangs \(\d s\)", shown)
    colours = re.findall(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", shown)
    has_spinner = any(frame in shown for frame in "⠋⠙⠹⠸⠼⠴")
    if no_color:
        assert (colours, has_spinner) == ([], False)
    else:
        assert has_spinner
    assert ("\x1b[?25h" in shown) == has_spinner  # the cursor is back


def _read_all(descriptor: int) -> str:
    data, deadline = b"", time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if not select.select([descriptor], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(descriptor)
    return data.decode()
