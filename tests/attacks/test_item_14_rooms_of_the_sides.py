"""Code of the head that reaches for what base reads, imports, links, installs, sets or starts, beside its checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import load_config
from perfgate.system.walls import can_build_walls
from tests.end_to_end.conftest import Clone, Perfgate
from tests.shared_bench import SharedBench

WORKLOAD = """
from pathlib import Path
import json, os, subprocess, sys
import torch
from perfgate import Workload
{code}
def build(device):
    return torch.nn.Linear(2, 2)
def inputs(batch, seed):
    return torch.zeros(batch, 2)
net = Workload(build=build, inputs=inputs)
"""
# What base keeps in its home: a module of a hub.
KEEPS = """
cache = Path.home() / ".cache" / "torch" / "hub"
cache.mkdir(parents=True, exist_ok=True)
(cache / "hubconf.py").write_text("SPEED = 1")
"""
# What head tries while base's worker lives, each with what it says if it succeeds. It knows perfgate.
REACHES = """
import ctypes, glob, mmap, signal, struct
house, scratch = Path.home().parents[1:3]
done = []
def tries(name):
    def run(attempt):
        try:
            attempt()
            done.append(name)
        except (OSError, IndexError):
            pass
    return run
others = [path for path in house.glob("*/") if path not in Path.home().parents]
def base_worker():
    server, found = os.getppid(), []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        fields = open(stat).read().rpartition(")")[2].split()
        pid = int(stat.split("/")[2])
        if int(fields[1]) == server and pid != os.getpid():
            found.append(pid)
    return found[0]
def sees(path):
    return path.read_bytes()
@tries("reads a hub's module in another home")
def _():
    [path for folder in others for path in folder.rglob("hubconf.py") if sees(path)][0]
@tries("changes a hub's module in another home")
def _():
    [path for folder in others for path in folder.rglob("hubconf.py") if path.write_text("SPEED = 2")][0]
@tries("adds a start-up hook to another home")
def _():
    [folder for folder in others if (folder / "home").is_dir()][0].joinpath("home/usercustomize.py").write_text("")
@tries("writes a module into the folder of a fork server")
def _():
    next(house.glob("server-*")).joinpath("selectors.py").write_text("")
@tries("writes into the scratch folder itself")
def _():
    (scratch / "sitecustomize.py").write_text("")
@tries("reads the environment of base's worker")
def _():
    open(f"/proc/{base_worker()}/environ", "rb").read()
@tries("writes into the memory of base's worker")
def _():
    open(f"/proc/{base_worker()}/mem", "r+b")
@tries("writes into the memory of the fork server")
def _():
    open(f"/proc/{os.getppid()}/mem", "r+b")
@tries("reads base's files through its process")
def _():
    os.listdir(f"/proc/{base_worker()}/cwd/")
@tries("takes a descriptor of base's worker")
def _():
    descriptor = os.pidfd_open(base_worker())
    if ctypes.CDLL(None).syscall(438, descriptor, 1, 0) < 0:
        raise OSError
@tries("samples base's worker")
def _():
    number = 298 if os.uname().machine == "x86_64" else 241
    attributes = struct.pack("=IIQQQQQIIQQQQIiQII", 1, 112, 0, 10_000, 7, 0, 3 << 5, 1 << 30, *[0] * 10)
    if ctypes.CDLL(None).syscall(number, ctypes.create_string_buffer(attributes, 112), base_worker(), -1, -1, 8) < 0:
        raise OSError
@tries("gives base's worker another oom score")
def _():
    open(f"/proc/{base_worker()}/oom_score_adj", "w").write("1000")
@tries("lets another program have more rights")
def _():
    if "NoNewPrivs:\\t0" not in open("/proc/self/status").read():
        raise OSError
@tries("traces base's worker")
def _():
    if ctypes.CDLL(None).ptrace(16, base_worker(), 0, 0) < 0:
        raise OSError
print("DONE", json.dumps(done), flush=True)
"""


@pytest.mark.skipif(not can_build_walls(), reason="this kernel has no walls: Landlock since ABI 2")
def test_item_14__head_reaches_for_base_while_it_lives__every_attempt_is_refused(
    shared_bench: SharedBench, tmp_path: Path
) -> None:
    checkouts = {}
    for side, code in (("base", KEEPS), ("head", REACHES)):
        root = tmp_path / side
        root.mkdir()
        (root / "perfgate.toml").write_text('project = "p"\nworkload = "workload.py:net"\n')
        (root / "workload.py").write_text(WORKLOAD.replace("{code}", code))
        checkouts[side] = Checkout(root=root, harness=root)
    config = load_config(tmp_path / "head")
    with shared_bench.configured(config) as bench:
        taken = {
            side: bench.worker(
                checkout, config.references[0], cpus=bench.cpus[:1], layout_seed=0, log_name=str(tmp_path / side)
            )
            for side, checkout in checkouts.items()
        }
        with taken["base"], taken["head"]:
            pass
    assert (tmp_path / "head.log").read_text().splitlines()[-1] == "DONE []"


# --- by the real command: the head is 60 % slower, and three more operators a call show it whatever else runs

SLOW = "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n        y = y + 0"


def checked(perfgate: Perfgate, clone: Clone) -> dict[str, Any]:
    done = perfgate("check", "--base", "main", "--steps", "4", "--out", "out", cwd=clone.root)
    path = clone.root / "out" / "decision.json"
    assert path.exists(), done.stdout + done.stderr
    decision: dict[str, Any] = json.loads(path.read_text())
    return decision


def base_imports(clone: Clone, module: str) -> None:
    """Let main's model import a module, and call it if it is the head's."""
    clone.git("checkout", "-q", "main")
    model = clone.root / "model.py"
    call = "y = self.layer(x)\n        for _ in range(getattr(extra, 'MORE', 0)):\n            y = y + 0"
    text = model.read_text().replace("y = self.layer(x)", call)
    model.write_text(f"try:\n    import {module} as extra\nexcept ImportError:\n    extra = None\n{text}")
    clone.commit("the base")
    clone.git("checkout", "-qB", "feature")


def head_is_slow(clone: Clone) -> None:
    model = clone.root / "model.py"
    lines = model.read_text()
    start, end = lines.index("y = self.layer(x)"), lines.index("            y = y + 0") + len("            y = y + 0")
    model.write_text(lines[:start] + SLOW + lines[end:])


@pytest.mark.slow
@pytest.mark.parametrize("module", ["colorsys", "of_nobody"])
def test_item_14__head_adds_a_module_beside_the_workload__never_green(
    clone: Clone, perfgate: Perfgate, module: str
) -> None:
    base_imports(clone, module)
    head_is_slow(clone)
    (clone.root / "perf" / f"{module}.py").write_text("MORE = 3\n")
    clone.commit("the head")
    decision = checked(perfgate, clone)
    assert decision["verdict"] in ("FAIL", "WARN", "INCONCLUSIVE"), decision["reasons"]
    assert f"{module}.py" in json.dumps(decision["sides"]["harness_changes"])
    if module == "colorsys":  # base has the standard library's
        assert decision["verdict"] == "FAIL"


@pytest.mark.slow
@pytest.mark.parametrize("setting", ['link = ["colorsys.py"]', 'python_path = ["old", "."]'])
def test_item_14__head_sets_what_base_reads__base_reads_its_own(clone: Clone, perfgate: Perfgate, setting: str) -> None:
    base_imports(clone, "colorsys")
    clone.git("checkout", "-q", "main")
    (clone.root / "old").mkdir()
    (clone.root / "old" / "colorsys.py").write_text("MORE = 3\n")
    clone.commit("an old module")
    clone.git("checkout", "-qB", "feature")
    head_is_slow(clone)
    (clone.root / "colorsys.py").write_text("MORE = 3\n")
    settings = clone.root / "perfgate.toml"
    settings.write_text(f"{settings.read_text()}\n[measure]\n{setting}\n")
    clone.commit("the head")
    decision = checked(perfgate, clone)
    assert decision["verdict"] == "FAIL", decision["reasons"]
    assert "[measure]" in json.dumps(decision["sides"]["harness_changes"])
