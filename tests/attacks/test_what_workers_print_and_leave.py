"""A worker that wants the step's output, leaves processes behind, plants links, or finds what the other side compiled."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from perfgate.cli.streams import make_streams_harmless
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.cleanup import leftover_notes, remove_unsafe_entries
from perfgate.conductor.workers.seals import SealedCode, Seals
from perfgate.conductor.workers.virtualenv import SetupPlan, read_requirements
from perfgate.config import MeasureSettings, load_config
from perfgate.document.files import write_text_atomically
from perfgate.document.run import Side
from perfgate.errors import UsageError
from perfgate.flows.check.environments import REUSED, choose_environments
from perfgate.flows.shared.session import job_notes, log_artifacts, prepare_out, remove_results
from perfgate.judging.report.text.messages import word
from perfgate.system.walls import refuses_signals
from tests.attacks.measuring import project_for_all, run_job
from tests.fakes.wording import worded
from tests.shared_bench import SharedBench
from tests.waiting import left_in_the_end

SHOUTS = r"""
import os, sys
import torch
from perfgate import Workload

EVIL = (
    "::set-output name=verdict::PASS\n  ::add-mask::a\n::stop-commands::x\n::error file=a.py,line=1::forged\n"
    "##[group]forged\n##vso[task.complete result=Succeeded;]done\nsection_start:1:forged\r\x1b[0Kforged\n\x1b[2J\x1b[31mred\n"
)

def build(device):
    sys.stdout.write("PRINTED\n" + EVIL)
    sys.stderr.write(EVIL)
    os.write(1, EVIL.encode())
    pid = os.getppid()
    for path in ("/dev/tty", *(f"/proc/{pid}/fd/{number}" for number in range(3))):
        try:
            with open(path, "w") as other:
                other.write("INHERITED " + path + "\n" + EVIL)
        except OSError as error:
            print("REFUSED", path, error.strerror, flush=True)
    raise RuntimeError(EVIL)

shouts = Workload(build=build, inputs=lambda batch, seed: torch.ones(batch, 4), batch=1)
"""

# Daemons in sessions of their own, whose parents have ended, with nothing of ours in their environment; the second build
# also kills the fork server, which would have cleaned up.
LEAVES = r"""
import os, signal, subprocess, time
from pathlib import Path
import torch
from perfgate import Workload

def sleeps(number):
    try:
        return Path("/proc", number.read_text().strip(), "comm").read_text() == "sleep\n"
    except OSError:
        return False

def build(device):
    number = Path.home() / "number"
    command = f"(cd / && env -i HOME=/elsewhere setsid sh -c 'echo $$ > {number}; exec sleep ASLEEP' >/dev/null 2>&1 &)"
    subprocess.run(["sh", "-c", command], check=True)
    while not sleeps(number):  # before, it is in our own process group, or has another name
        time.sleep(0.01)
    if DEADLY:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    return torch.nn.Linear(4, 4)

leaves = Workload(build=build, inputs=lambda batch, seed: torch.ones(batch, 4), batch=1)
"""

PLANTS = r"""
from pathlib import Path
import torch
from perfgate import Workload

def build(device):
    out = Path(__file__).parents[1] / "out"
    (out / "secrets.json").symlink_to("/etc/passwd")
    (out / "logs" / "home").symlink_to("/root")
    (out / "deep" / ".git").mkdir(parents=True)
    (out / "deep" / ".git" / "config").write_text("[http] extraheader = AUTHORIZATION: basic secret")
    (out / "inside").symlink_to("logs")
    return torch.nn.Linear(4, 4)

plants = Workload(build=build, inputs=lambda batch, seed: torch.ones(batch, 4), batch=1)
"""

# What the conductor reads of a worker that died, its log and its stack, is now what the conductor alone may read, or a pipe
# that nobody writes to.
DEPUTES = r"""
import os
from pathlib import Path
import torch
from perfgate import Workload

def build(put):
    home = Path.home()
    out = Path(__file__).parents[1] / "out" / "logs"
    for file in (*home.parent.glob("server-*/*"), *out.glob("*.log")):
        file.unlink()
        put(file)
    os._exit(3)

def deputing(put):
    return Workload(build=lambda device: build(put), inputs=lambda batch, seed: torch.ones(batch, 4), batch=1)

link = deputing(lambda file: file.symlink_to("/proc/self/environ"))
pipe = deputing(os.mkfifo)
"""

LIVES = r"""
import os, tempfile
from pathlib import Path
import torch
from perfgate import Workload

def build(device):
    kernel = Path.home() / ".triton" / "kernel"
    print("FOUND" if kernel.exists() else "COLD", os.environ["HOME"] == tempfile.gettempdir(), flush=True)
    kernel.parent.mkdir(exist_ok=True)
    kernel.write_text("compiled")
    return torch.nn.Linear(4, 4)

lives = Workload(build=build, inputs=lambda batch, seed: torch.ones(batch, 4), batch=1)
"""


@pytest.mark.parametrize("user", [pytest.param(0, marks=pytest.mark.slow), 12345])
def test_run__worker_shouts_commands__nothing_of_it_reaches_the_step(user: int) -> None:
    if user and os.getuid() != 0:
        pytest.skip("only root can become another user")
    with project_for_all("shouts", SHOUTS) as project:
        (project / "event.json").write_text("{}")
        done = run_job(project, user=user, **_github(project))
        logged = "".join(log.read_text() for log in (project / "out" / "logs").glob("*.log"))
    assert done.returncode == 4, done.stderr
    assert "PRINTED" in logged
    assert "REFUSED /dev/tty" in logged
    told = done.stdout + done.stderr
    assert "RuntimeError" in told  # the failure itself is shown
    assert [line for line in told.splitlines() if line.lstrip().startswith("::")] == []
    for forbidden in ("##[", "\x1b", "\r", "INHERITED", "PRINTED"):
        assert forbidden not in told, forbidden


def _github(project: Path) -> dict[str, str]:
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "team/model",
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_API_URL": "https://github.example/api",
        "GITHUB_RUN_ID": "1",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SHA": "0" * 40,
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": str(project / "event.json"),
    }


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.slow), True])
def test_run__daemons_of_a_worker__killed_and_named_even_where_the_fork_server_was_killed(kill: bool) -> None:
    asleep = f"4321.5{os.getpid()}"  # seconds, as nobody else sleeps on this machine
    with project_for_all("leaves", LEAVES.replace("DEADLY", str(kill)).replace("ASLEEP", asleep)) as project:
        done = run_job(project)
        if kill and refuses_signals():
            assert done.returncode == 2
            assert "PermissionError" in done.stderr
            assert left_in_the_end(lambda: _running(f"sleep {asleep}")) == []
            return
        document = json.loads((project / "out" / "run.json").read_text())
    assert done.returncode == (4 if kill else 0), done.stderr
    (workload,) = document["workloads"]
    assert ("worker.server-killed" in str(workload["error"])) is kill
    told = [warning for warning in map(worded, document["warnings"]) if warning.startswith("left ")]
    assert len(told) == 1, document["warnings"]
    # The workload is tried before it is measured. A worker whose server was killed may be there still.
    assert re.search(r"running, now killed: (python\w*( ×2)?, )?sleep ×2(, python\w*)?$", told[0])
    assert f"note: {told[0]}" in done.stdout
    assert left_in_the_end(lambda: _running(f"sleep {asleep}")) == []


def test_run__worker_puts_another_file_in_the_place_of_its_stack_and_log__not_read() -> None:
    with project_for_all("deputes", DEPUTES) as project:
        workloads = "".join(f'{name} = "perf/deputes.py:{name}"\n' for name in ("link", "pipe"))
        (project / "perfgate.toml").write_text(f'project = "deputes"\n[workloads]\n{workloads}')
        done = run_job(project, NOBODYS_BUSINESS="hush-4711", CI="true")
        document = (project / "out" / "run.json").read_text()
    assert done.returncode == 4, done.stderr
    errors = {workload["name"]: workload["error"]["message"] for workload in json.loads(document)["workloads"]}
    exited = {"code": "worker.exited", "values": {"code": 3}}
    assert errors == {"link": exited, "pipe": exited}
    assert "hush-4711" not in document + done.stdout + done.stderr


def _running(command: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip() == command:
                found.append(process.name)
        except OSError:
            continue
    return found


def test_leftover_notes__names_from_outside__one_harmless_line() -> None:
    assert leftover_notes([[], []]) == []
    assert list(map(word, leftover_notes([["a\n::error::b"], ["sleep", "sleep"]]))) == [
        "left 3 processes running, now killed: sleep ×2, a ::error::b"
    ]


def test_run__worker_plants_links_and_a_git_folder_in_the_output__gone_and_said() -> None:
    with project_for_all("plants", PLANTS) as project:
        done = run_job(project, CI="true")
        out = project / "out"
        document = json.loads((out / "run.json").read_text())
        assert done.returncode == 0, done.stderr
        assert not (out / "secrets.json").is_symlink()
        assert not (out / "logs" / "home").is_symlink()
        assert not (out / "deep" / ".git").exists()
        assert (out / "inside").is_symlink()  # it leads nowhere but here
        assert Path("/etc/passwd").exists()
    (told,) = [warning for warning in map(worded, document["warnings"]) if "removed from the output folder" in warning]
    for name in ("secrets.json", "logs/home", "deep/.git"):
        assert name in told


def test_prepare_out__links_of_a_developer__left_alone_and_in_ci_refused(tmp_path: Path) -> None:
    (tmp_path / "out" / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "out" / "mine").symlink_to("/usr")
    assert prepare_out(tmp_path / "out", {}) == tmp_path / "out"
    assert job_notes({}, tmp_path / "out") == []
    assert (tmp_path / "out" / "mine").is_symlink()
    assert (tmp_path / "out" / "sub" / ".git").is_dir()
    with pytest.raises(UsageError, match=r"must not hold links that lead out of it, a \.git"):
        prepare_out(tmp_path / "out", {"CI": "true"})


def test_remove_unsafe_entries__nothing_wrong__nothing_touched(tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "run.json").write_text("{}")
    assert remove_unsafe_entries(tmp_path) == []
    assert (tmp_path / "head" / "run.json").read_text() == "{}"


def test_remove_unsafe_entries__pipe__gone_for_an_upload_would_wait_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace-w-short.json.gz")
    assert remove_unsafe_entries(tmp_path) == ["trace-w-short.json.gz"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("planted", ["base", "head/logs"])
def test_prepare_out__file_where_a_folder_must_be__refused_by_name(tmp_path: Path, planted: str) -> None:
    path = tmp_path / "out" / planted
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(
        UsageError, match=f"out/{planted} is not a folder, and results are written in it; remove it, or"
    ):
        prepare_out(tmp_path / "out", {})


def test_forget_results__folder_where_a_file_must_be__refused_by_name_and_not_removed(tmp_path: Path) -> None:
    (tmp_path / "decision.json").mkdir()
    with pytest.raises(
        UsageError, match=r"decision\.json is in the way of the results \(Is a directory\); remove it, or"
    ):
        remove_results(tmp_path, ["comment.md", "decision.json"])
    assert (tmp_path / "decision.json").is_dir()


def test_kept_logs__link_pipe_folder_and_a_log_too_large__only_files_and_bounded(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "folder.log").mkdir()
    (logs / "link.log").symlink_to("/etc/passwd")
    os.mkfifo(logs / "pipe.log")
    with (logs / "sparse.log").open("wb") as log:
        log.truncate(1024**4)
    assert [(artifact.name, artifact.bytes < 3 * 1024**2) for artifact in log_artifacts(tmp_path)] == [
        ("sparse.log", True)
    ]


@pytest.mark.parametrize("planted", ["out", "out/logs", "out/head", "out/.git", ".git"])
def test_run__output_folder_planted_by_a_change__refused_before_anything_is_written(
    tmp_path: Path, planted: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "decision.json").write_text("precious")
    with project_for_all("lives", LIVES) as project:
        path = project / planted
        path.parent.mkdir(exist_ok=True)
        if planted.endswith(".git"):
            path.mkdir()
        else:
            path.symlink_to(victim)
        done = run_job(project, out=".git/out" if planted == ".git" else "out")
        assert not (project / "tmp-0" / "lock").exists()  # the machine was not even asked for
    assert done.returncode == 2, done.stdout
    assert "choose another with --out" in done.stderr
    assert [file.name for file in victim.iterdir()] == ["decision.json"]


def test_results__file_that_is_a_link__replaced_and_not_followed(tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.mkdir()
    for name in ("comment.md", "run.json"):
        (out / name).symlink_to(victim)
    remove_results(out, ["comment.md", "run.json"])  # as every command does before it measures
    write_text_atomically(out / "comment.md", "ours")
    assert (out / "comment.md").read_text() == "ours"
    assert not (out / "comment.md").is_symlink()
    assert not (out / "run.json").is_symlink()
    assert victim.read_text() == "precious"


def test_bench__both_sides__each_finds_what_it_compiled_and_not_what_the_other_did(
    tmp_path: Path, shared_bench: SharedBench
) -> None:
    with project_for_all("lives", LIVES) as project, project_for_all("lives", LIVES) as other:
        config = load_config(project)
        sides = [Checkout(root=root, harness=root) for root in (project, other)]
        with shared_bench.configured(config) as bench:
            for name, checkout in (("base", sides[0]), ("head", sides[1]), ("again", sides[0])):
                log = str(tmp_path / name)
                with bench.worker(checkout, config.references[0], cpus=bench.cpus[:1], layout_seed=0, log_name=log):
                    pass
    found = {log.stem: log.read_text().split() for log in tmp_path.glob("*.log")}
    assert found == {"base": ["COLD", "True"], "head": ["COLD", "True"], "again": ["FOUND", "True"]}


@pytest.mark.parametrize(
    ("environ", "notes"), [({"CI": "true"}, (REUSED,)), pytest.param({}, (), marks=pytest.mark.slow)]
)
def test_choose_environments__planted_by_an_earlier_job__used_and_in_ci_said(
    tmp_path: Path, environ: dict[str, str], notes: tuple[str, ...]
) -> None:
    roots: dict[Side, Path] = {"base": tmp_path / "base", "head": tmp_path / "head"}
    for side, root in roots.items():
        root.mkdir()
        (root / "requirements.txt").write_text(side)
        needs = read_requirements(root, ["requirements.txt"])
        plan = SetupPlan(side=side, command="exit 3", checkout=root, requirements=needs, inherit=True, timeout=60.0)
        planted = tmp_path / "cache" / "environments" / plan.key
        (planted / "bin").mkdir(parents=True)
        python = planted / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        (planted / "perfgate-complete").touch()
    around = {"PATH": os.environ["PATH"], "PERFGATE_CACHE": str(tmp_path / "cache"), **environ}
    found = choose_environments(
        roots,
        {"base": MeasureSettings(setup="exit 3"), "head": MeasureSettings(setup="exit 3")},
        {"base": None, "head": None},
        seals=Seals(loads=None),
        code_of=lambda _: SealedCode([], []),
        out=tmp_path / "out",
        environ=around,
        say=lambda text: None,
    )
    assert (found.base.notes, found.head.notes) == (notes, notes)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  ::error::x\n", "|   ::error::x\n"),
        ("a ::error::x\n", "a ::error::x\n"),
        ("a\r::add-mask::x\n", "a\r| ::add-mask::x\n"),
        ("a ##[group]x\n", "a ## [group]x\n"),
    ],
)
def test_make_streams_harmless__line_in_github__no_command_however_it_is_written(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    make_streams_harmless({"GITHUB_ACTIONS": "true"})
    for character in text:  # in whatever pieces it comes
        sys.stdout.write(character)
        sys.stdout.flush()
    assert out.getvalue() == shown
