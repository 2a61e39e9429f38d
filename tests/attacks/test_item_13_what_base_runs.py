"""Code of the head that changes what base runs, on real checks: the head is slower, and its check is never green."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import UNDECIDED, Clone, Perfgate

# Three more operators a call: 60 % slower, and a counter that shows it whatever else runs on the machine.
SLOW = "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n        y = y + 0"
MARK = "# the model\n"
# What the head's model does when it is imported. It knows perfgate: where the checkouts lie, and how they are called.
FIND = """
import glob, os, py_compile, shutil, subprocess, sys, tempfile
HERE = os.path.dirname(os.path.abspath(__file__))
TREES = {}
listed = subprocess.run(["git", "worktree", "list", "--porcelain"], cwd=HERE, capture_output=True, text=True).stdout
for line in listed.splitlines():
    if line.startswith("worktree "):
        TREES[os.path.basename(line[9:])] = line[9:]
BASE, HARNESS = TREES["base"] + "/model.py", TREES.get("harness", "") + "/perf/workload.py"
SLOW = open(__file__).read().partition("# the" + " model\\n")[2]
def write(path, text):
    if not os.path.exists(path) or open(path).read() != text:
        open(path, "w").write(text)
"""
ATTACKS = {
    "source": ("write(BASE, SLOW)", "base/model.py"),
    "source through the folder of another process": ("write('/proc/self/root' + BASE, SLOW)", "base/model.py"),
    "source through a hard link, its times put back": (
        "link = tempfile.mktemp(dir=TREES['base'] + '/..'); os.link(BASE, link); was = os.stat(BASE)\n"
        "write(link, SLOW); os.utime(link, ns=(was.st_atime_ns, was.st_mtime_ns)); os.unlink(link)",
        "base/model.py",
    ),
    "source for a moment, then put back": (
        "text, was = open(BASE).read(), os.stat(BASE)\n"
        "write(BASE, SLOW); write(BASE, text); os.utime(BASE, ns=(was.st_atime_ns, was.st_mtime_ns))",
        "base/model.py",
    ),
    "bytecode": (
        "was = os.stat(BASE); planted = tempfile.mktemp(suffix='.py'); write(planted, SLOW)\n"
        "cached = f\"{TREES['base']}/__pycache__/model.{sys.implementation.cache_tag}.pyc\"\n"
        "if not os.path.exists(cached):\n"
        "    py_compile.compile(planted, cfile=cached, dfile=BASE)\n"
        "    data = bytearray(open(cached, 'rb').read())\n"
        "    data[8:12] = int(was.st_mtime).to_bytes(4, 'little'); data[12:16] = was.st_size.to_bytes(4, 'little')\n"
        "    open(cached, 'wb').write(data)",
        "base/__pycache__",
    ),
    "a module that shadows another": ("write(TREES['base'] + '/numbers.py', 'import time')", "base/numbers.py"),
    "a module for a moment": (
        "path = TREES['base'] + '/numbers.py'; write(path, 'raise SystemExit'); os.unlink(path)",
        "base",
    ),
    "the workload file that measures base": ("write(HARNESS, open(HARNESS).read() + '\\n')", "harness/perf/workload.py"),
    "what both import": ("write(os.environ['PYTHONPATH'].split(os.pathsep)[-1] + '/sitecustomize.py', '')", "sitecustomize.py"),
    "a link's target": ("write(HERE + '/weights/w.txt', 'other')", "weights/w.txt"),
}  # fmt: skip


# By three different means, in one head: each must be named beside the others.
AT_ONCE = ("source for a moment, then put back", "bytecode", "the workload file that measures base")


def head_that(clone: Clone, attack: str) -> None:
    model = clone.root / "model.py"
    text = model.read_text().replace("y = self.layer(x)", SLOW)
    assert text != model.read_text()
    model.write_text(f"{FIND}{attack}\n{MARK}{text}")
    clone.commit("the head")


def checked(perfgate: Perfgate, clone: Clone, **environment: str) -> tuple[int, dict[str, Any]]:
    done = perfgate("check", "--base", "main", "--steps", "4", "--out", "out", cwd=clone.root, **environment)
    path = clone.root / "out" / "decision.json"
    assert path.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(path.read_text())


# The check of a job below takes the same way from the seals to the verdict, and tests/unit/conductor/test_seals.py
# has every means of a change: a whole check of a function takes ten seconds more.
@pytest.mark.slow
@pytest.mark.parametrize("attacks", [AT_ONCE, *((name,) for name in ATTACKS)], ids=", ".join)
def test_item_13__head_changes_what_base_runs__never_green_and_every_file_named(
    clone: Clone, perfgate: Perfgate, tmp_path: Path, attacks: tuple[str, ...]
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "helper.py").write_text("")
    (clone.root / "weights").mkdir()
    (clone.root / "weights" / "w.txt").write_text("1")
    (clone.root / ".gitignore").write_text("weights\nout\n")
    # Two fresh processes count what differs, not five: that it differs is planted.
    settings = (clone.root / "perfgate.toml").read_text().replace("[gate]\n", "[gate]\nbudget = 1\n")
    (clone.root / "perfgate.toml").write_text(f'{settings}\n[measure]\nlink = ["weights"]\n')
    clone.git("checkout", "-q", "main")
    clone.commit("settings")
    clone.git("checkout", "-qB", "feature")
    head_that(clone, "\n".join(ATTACKS[attack][0] for attack in attacks))
    # With a path of its own, the command starts Python anew.
    imports = {"PYTHONPATH": str(shared)} if "what both import" in attacks else {}
    exit_code, decision = checked(perfgate, clone, **imports)
    assert decision["verdict"] in ("INCONCLUSIVE", "FAIL"), decision["reasons"]
    assert exit_code in (1, 4)
    named = [entry for entry in decision["gaps"]["invalid"] if entry["kind"] == "code_changed"]
    assert named, decision["gaps"]["invalid"]
    for attack in attacks:
        assert ATTACKS[attack][1] in json.dumps(named)
    for side in ("base", "head"):
        assert json.loads((clone.root / "out" / side / "run.json").read_text())["source"]["seal"]


# A program of numbers drawn around what model.py says, so that no busy machine decides; head's also works on base's files.
PROGRAM = "import json, random\nfrom model import STEP\nprint(json.dumps({'step': STEP * random.gauss(1, 0.01)}))\n"
JOB = """
project = "jobs"
[workloads.bench]
command = "python bench.py"
numbers.step = { json = "step", unit = "ms", tolerance = 0.05 }
"""
RESULTS = "import pathlib; pathlib.Path('result.json').write_text('1')\n"


def command_job(clone: Clone, program: str = PROGRAM) -> None:
    clone.git("checkout", "-q", "main")
    (clone.root / "perfgate.toml").write_text(JOB)
    (clone.root / "bench.py").write_text(program)
    (clone.root / "model.py").write_text("STEP = 10.0\n")
    clone.git("rm", "-rqf", "perf")
    clone.commit("a job")
    clone.git("checkout", "-qB", "feature")


def test_item_13__command_of_the_head_changes_base_between_its_runs__never_green(
    clone: Clone, perfgate: Perfgate
) -> None:
    command_job(clone)
    attacks = "write(BASE, SLOW)\nwrite(TREES['harness'] + '/bench.py', open('bench.py').read() + '\\n')\n"
    (clone.root / "model.py").write_text(f"{FIND}{attacks}{MARK}STEP = 16.0\n")
    clone.commit("the head")
    exit_code, decision = checked(perfgate, clone)
    assert (exit_code, decision["verdict"]) == (4, "INCONCLUSIVE")
    assert [entry["kind"] for entry in decision["gaps"]["invalid"]] == ["code_changed"]
    assert "base/model.py" in json.dumps(decision["gaps"]["invalid"])
    assert "harness/bench.py" in json.dumps(decision["gaps"]["invalid"])


@pytest.mark.slow
def test_item_13__command_writes_results_into_its_own_checkout__measured_and_said(
    clone: Clone, perfgate: Perfgate
) -> None:
    command_job(clone, RESULTS + PROGRAM)
    clone.commit("the head", model=("10.0", "10.0 + 0"))
    _, decision = checked(perfgate, clone)
    assert decision["verdict"] == "PASS"
    assert decision["gaps"]["invalid"] == []
    for side in ("base", "head"):
        assert f"{side}/result.json" in json.dumps(decision["warnings"])


@pytest.mark.slow  # a pair of the same kind is in tests/traps/test_processes.py
def test_item_13__head_stops_the_base_for_moments__never_green(clone: Clone, perfgate: Perfgate) -> None:
    stop = (
        "import signal, threading, time\n"
        "def pulse():\n"
        "    while True:\n"
        "        for name in os.listdir('/proc'):\n"
        "            if name.isdigit() and int(name) != os.getpid():\n"
        "                try:\n"
        "                    status = open(f'/proc/{name}/stat').read().rpartition(')')[2].split()\n"
        "                    if int(status[1]) == os.getppid():\n"
        "                        os.kill(int(name), signal.SIGSTOP); time.sleep(0.0025); os.kill(int(name), signal.SIGCONT)\n"
        "                except (OSError, IndexError):\n"
        "                    pass\n"
        "        time.sleep(0.0025)\n"
        "threading.Thread(target=pulse, daemon=True).start()"
    )
    clone.commit("the base")
    head_that(clone, stop)
    exit_code, decision = checked(perfgate, clone)
    assert decision["verdict"] in ("INCONCLUSIVE", "FAIL")
    assert exit_code in (1, 4)
    assert {"stopped", "out_of_turn"} & {entry["kind"] for entry in decision["gaps"]["invalid"]}


@pytest.mark.slow
def test_item_13__head_without_effect_whose_workload_caches_in_its_checkout__compared(
    clone: Clone, perfgate: Perfgate
) -> None:
    cache = "\nimport pathlib\ncache = pathlib.Path(__file__).parent / 'cache.txt'\ncache.exists() or cache.write_text('1')\n"
    clone.git("checkout", "-q", "main")
    for file in ("model.py", "perf/workload.py"):
        (clone.root / file).write_text((clone.root / file).read_text() + cache)
    clone.commit("a cache")
    clone.git("checkout", "-qB", "feature")
    clone.commit("no effect", model=("return torch.relu(y)", "z = y\n        return torch.relu(z)"))
    exit_code, decision = checked(perfgate, clone)
    assert (exit_code, decision["verdict"]) in [(0, "PASS"), *UNDECIDED], decision["reasons"]
    assert "code_changed" not in {entry["kind"] for entry in decision["gaps"]["invalid"]}
    assert "base/cache.txt" in json.dumps(decision["warnings"])
