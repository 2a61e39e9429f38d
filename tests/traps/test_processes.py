"""Traps that real code sets in real processes: it changes its worker, leaves others behind, forges, raises, lies."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.rooms import Rooms
from perfgate.config import load_config
from perfgate.document.decision import DecisionDocument
from perfgate.document.run import RunDocument
from perfgate.protocol import BlockDone, BlockRequest, Collected, CollectRequest, WarmedUp, WarmUpRequest
from tests.fakes.documents import make_run
from tests.shared_bench import SharedBench
from tests.traps.catalogue import caught, not_caught
from tests.traps.naming import error_names, names
from tests.traps.virtual import judged
from tests.waiting import left_in_the_end

WORKLOAD = """
import torch
from model import Model
from perfgate import Workload

def inputs(batch, seed, width):
    return torch.randn(batch, width, generator=torch.Generator().manual_seed(seed))

trap = Workload(build=lambda device: Model().eval(), inputs=inputs, batch=8, shapes={"wide": {"width": 64}})
trap_two = Workload(
    build=lambda device: Model().eval(), inputs=inputs, batch=8, shapes={"wide": {"width": 64}, "odd": {"width": 63}}
)
"""
MODEL = """
import os, sys, threading, time
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.ones(64, 64)
        self.started = False
        {build}

    def forward(self, x):
        {call}
        return x @ self.weight[: x.shape[1]]
"""
# Blocks of more than a worker's own housekeeping; enough of them for what is judged over blocks.
SETTINGS = """
project = "traps"
[workloads]
trap = "workload.py:trap"
trap_two = "workload.py:trap_two"
[measure]
step_timeout = 20
[gate]
quads = 3
block_seconds = 0.01
"""
# What a planted process does; its command line is how the test finds what is left of it.
TRAP = f"perfgate-trap-{os.getpid()}"
SPIN = f"while True: pass  # {TRAP}"
# A busy machine may keep one pair from a steady state; whatever else is invalid, a worker did.
OF_THE_MACHINE = {"invalid not_steady"}


@dataclass
class Measured:
    """What one pair gave."""

    base: RunDocument
    head: RunDocument
    pairs: PairedMeasurement

    @property
    def decision(self) -> DecisionDocument:
        """Return what the gate makes of it; one pair decides no time, but shows misconduct."""
        return judged(self.base, self.head)

    @property
    def names(self) -> set[str]:
        """Return everything that has a name."""
        return names(self.decision) | error_names(self.pairs.failed)


Measure = Callable[..., Measured]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("traps")
    for side in ("base", "head"):
        (root / side).mkdir()
    (root / "base" / "model.py").write_text(model())
    (root / "head" / "workload.py").write_text(WORKLOAD)
    (root / "head" / "perfgate.toml").write_text(SETTINGS)
    return root


@pytest.fixture(scope="module")
def bench(project: Path, shared_bench: SharedBench) -> Iterator[Bench]:
    config = load_config(project / "head")
    # One pair is enough to see misconduct; no arm of base against base, which a gate may not go without.
    config = msgspec.structs.replace(config, gate=msgspec.structs.replace(config.gate, aa_pairs=0))
    with shared_bench.configured(config) as bench:
        yield bench


def model(*, build: str = "pass", call: str = "pass") -> str:
    """Return the code of the model with these lines in its making and in its call."""
    return MODEL.format(build=textwrap.indent(build, " " * 8).lstrip(), call=textwrap.indent(call, " " * 8).lstrip())


@pytest.fixture
def measure(project: Path, bench: Bench) -> Measure:
    """Measure one pair of the plain model against one with ``build`` and ``call`` in it."""

    def run(*, name: str = "trap", build: str = "pass", call: str = "pass") -> Measured:
        (project / "head" / "model.py").write_text(model(build=build, call=call))
        measured = PairedMeasurement()
        reference = next(found for found in bench.config.selected(()) if found.name == name)
        checkouts = [Checkout(project / name, project / "head") for name in ("base", "head")]
        measure_pairs(
            WorkloadSides(bench, reference, *checkouts, measured),
            looks=[1],
            is_decided=lambda: True,
            budget_ends=None,
            draw=0,
            first=0,
            traces=None,
            sizes=None,
        )
        workload = msgspec.structs.replace(make_run().workloads[0], name=name, shapes=["wide"])
        empty = {"counters": [], "operators": [], "steps": [], "correctness": [], "workloads": [workload]}
        base = make_run("base", **empty, replicates=measured.base)
        head = make_run("head", **empty, replicates=measured.head, failed=measured.failed)
        return Measured(base, head, measured)

    return run


def test_measure__honest_head__nothing_invalid_and_no_pair_failed(measure: Measure) -> None:
    measured = measure()
    assert measured.pairs.failed == []
    assert {f"invalid {entry.kind}" for entry in measured.decision.gaps.invalid} <= OF_THE_MACHINE


def test_measure__honest_head_and_conductor_queue_for_one_cpu__no_worker_accused(measure: Measure) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(12)]
    try:
        measured = measure()
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
        os.sched_setaffinity(0, allowed)

    waited = [
        sum(one.shapes["wide"].conductor.conductor_delay_ns)
        for one in (*measured.base.pairs.replicates, *measured.head.pairs.replicates)
    ]
    assert measured.pairs.failed == []
    assert {f"invalid {entry.kind}" for entry in measured.decision.gaps.invalid} <= OF_THE_MACHINE
    if not all(waited):
        pytest.skip("the kernel let the conductor run at once whenever a worker had answered, so it never queued")


@caught(
    "the head takes another scheduling priority",
    fools="`os.nice` or a real-time scheduler in the changed code: the side that waits less for the CPU looks faster",
    by="perfgate asks the kernel about every thread of a worker after its last block",
    named="invalid worker_changed",
)
def test_other_priority(measure: Measure) -> set[str]:
    return measure(build="os.nice(3)").names


@caught(
    "the head takes more CPUs",
    fools="`os.sched_setaffinity` in the changed code: the base shares a CPU, the head has one more",
    by="perfgate asks the kernel about every thread of a worker after its last block",
    named="invalid worker_changed",
)
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is no second CPU to take")
def test_other_affinity(measure: Measure) -> set[str]:
    return measure(build="os.sched_setaffinity(0, range(os.cpu_count()))").names


@caught(
    "`torch.set_num_threads` in the head",
    fools="more threads look like better code, or fewer like a quieter machine",
    by="perfgate reads its settings from the libraries again after the last block",
    named="invalid worker_changed",
)
def test_set_num_threads(measure: Measure) -> set[str]:
    return measure(call="torch.set_num_threads(3)").names


@caught(
    "garbage is frozen",
    fools="`gc.freeze` in a call hides its garbage from every collection, and so the cost of collecting it",
    by="perfgate asks the collector after the last block how many objects are frozen",
    named="invalid worker_changed",
)
def test_frozen_garbage(measure: Measure) -> set[str]:
    return measure(call="import gc; self.garbage = [[] for _ in range(100)]; gc.freeze()").names


@caught(
    "the head plants a neighbour",
    fools="a process that it starts burns the CPU while the base has the turn",
    by="the kernel's CPU time of the worker and its processes between its blocks; at the end they are killed",
    named="invalid out_of_turn",
)
def test_planted_neighbour(measure: Measure) -> set[str]:
    start = "import subprocess; self.process = subprocess.Popen([sys.executable, '-c', " + repr(SPIN) + "])"
    found = measure(build=start).names
    assert left_in_the_end(lambda: _processes_with(TRAP.encode())) == []
    return found


@caught(
    "work moved into a background thread",
    fools="the call returns at once, and the work goes on after its time was taken",
    by="the kernel's CPU time of the worker between its blocks",
    named="invalid out_of_turn",
)
def test_background_thread(measure: Measure) -> set[str]:
    start = """\
def work():
    weight = torch.ones(128, 128)
    while True:
        weight @ weight
        time.sleep(0.0002)

if not self.started:
    self.started = True
    threading.Thread(target=work, daemon=True).start()"""
    return measure(call=start).names


@caught(
    "a timer in the process that the head's workers are forked from",
    fools="timers do not live on in a fork: the workers look idle, and the process behind them burns the CPU",
    by="the kernel's CPU time of the worker and its processes between its blocks; that process is one of them",
    named="invalid out_of_turn",
)
def test_timer_in_the_warm_process(measure: Measure) -> set[str]:
    start = """\
import signal
def burn(*_):
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
signal.signal(signal.SIGALRM, burn)
signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)"""
    measured = measure(build=start)
    assert [replicate.worker.forked_from for replicate in measured.head.pairs.replicates] != [None]
    return measured.names


@caught(
    "the head stops the base for moments",
    fools="SIGSTOP and SIGCONT while the base has the turn: its calls take longer",
    by="from Linux 6.12 on no signal passes the walls of a side; before, the kernel tells the fork server that a worker was "
    "stopped and went on, however short that was",
    named="invalid stopped",
)
def test_stopped_for_moments(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    # As on a kernel without walls.
    monkeypatch.setattr(Rooms, "walls", lambda *_: None)
    start = """\
import signal
def is_beside(number):
    stat = open(f'/proc/{number}/stat').read()
    return number != os.getpid() and int(stat.rpartition(')')[2].split()[1]) == os.getppid()
def pulse():
    while True:
        for number in map(int, filter(str.isdigit, os.listdir('/proc'))):
            try:
                if is_beside(number):
                    os.kill(number, signal.SIGSTOP)
                    time.sleep(0.0025)
                    os.kill(number, signal.SIGCONT)
            except OSError:
                pass
        time.sleep(0.0025)
threading.Thread(target=pulse, daemon=True).start()"""
    return measure(build=start).names


@caught(
    "forged replies in the worker's socket",
    fools='measured code writes "the block is done"',
    by="a reply must answer a request; an additional one does not",
    named="error protocol",
)
def test_forged_reply(measure: Measure) -> set[str]:
    forge = """\
import socket
for number in range(3, 64):
    try:
        found = socket.socket(fileno=os.dup(number))
    except OSError:
        continue
    if found.family == socket.AF_UNIX and not self.started:
        self.started = True
        text = b'{"type":"BlockDone"}'
        found.sendall(len(text).to_bytes(4, "little") + text)"""
    return measure(call=forge).names


@caught(
    "the head raises on one shape only",
    fools="the failing shape drops out, the others pass",
    by="a pair that fails on any shape has failed; a failure is never a pass",
    named="error exception",
)
def test_raises_on_one_shape(measure: Measure) -> set[str]:
    found = measure(name="trap_two", call="assert x.shape[1] % 2 == 0, 'odd width'")
    assert found.decision.verdict == "INCONCLUSIVE"
    return found.names


@caught(
    "a clock at half speed in the worker",
    fools="code of the head replaces the clock below perfgate's own functions",
    by="the conductor compares every block with its own clock",
    named="invalid worker_clock",
)
def test_clock_replaced_in_the_worker(measure: Measure) -> set[str]:
    lie = """\
from perfgate.measuring.devices.backends.cpu import CpuDevice
honest = CpuDevice.clock_ns
if honest.__name__ == 'clock_ns':
    CpuDevice.clock_ns = lambda device: honest(device) // 2"""
    return measure(build=lie).names


@caught(
    "page faults in every call",
    fools="malloc returns memory to the kernel and takes it again, so the speed of a process depends on luck",
    by="perfgate sets malloc's options in the environment of every worker",
    named="fewer than ten page faults a call",
)
def test_page_fault_churn(bench: Bench, project: Path) -> set[str]:
    # More than glibc ever keeps of its own accord: 64 MiB at the end of the heap (mallopt(3), M_TRIM_THRESHOLD).
    (project / "head" / "model.py").write_text(model(call="kept = [torch.empty(4 << 20).fill_(1.0) for _ in range(6)]"))
    reference = next(found for found in bench.config.selected(()) if found.name == "trap")
    checkout = Checkout(project / "head", project / "head")
    cpus = bench.cpus[:1]
    with bench.worker(checkout, reference, cpus=cpus, layout_seed=1, log_name="trap") as (worker, _):
        warm_up = WarmUpRequest(block_seconds=0.001, cap_seconds=0.1)
        worker.ask(warm_up, WarmedUp, timeout=60, doing="warming up")
        for number in range(3):
            block = BlockRequest(shape="wide", calls=3, quad=0, sequence=number)
            worker.ask(block, BlockDone, timeout=60, doing="measuring")
        columns = worker.ask(CollectRequest(), Collected, timeout=60, doing="collecting").shapes["wide"]
    # The heap may still grow in the first block, if a busy machine ended the warm-up after few calls.
    faults = min(faults / calls for faults, calls in zip(columns.worker.minor_faults, columns.calls))
    return {"fewer than ten page faults a call"} if faults < 10 else {f"{faults:.0f} page faults a call"}


@not_caught(
    "a priority that lasts for the call only",
    fools="the head raises its priority when a call begins and restores it at the end",
    because="perfgate asks the kernel between calls, when the priority is back; run it where code may not "
    "raise its priority (without CAP_SYS_NICE)",
)
def test_priority_for_the_call_alone(measure: Measure) -> set[str]:
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError:
        pytest.skip("this machine does not let processes change their scheduler")
    toggle = """\
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))"""
    measured = measure(call=toggle)
    assert measured.pairs.failed == []
    # One pair decides nothing about time; nothing says that it may not.
    return measured.names - {"verdict INCONCLUSIVE"} - OF_THE_MACHINE


def _processes_with(word: bytes) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found
