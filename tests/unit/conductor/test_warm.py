"""Workers that are forked from one that is loaded and warm: what they inherit, what they do not, and when there are none."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.plan import draw_plans
from perfgate.conductor.sides.function.warm import WarmPlace, WarmWorkers
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker, WorkerError
from perfgate.config import WorkloadReference, load_config
from perfgate.protocol import BlockDone, BlockRequest, Collected, CollectRequest, WarmedUp, WarmUpRequest
from perfgate.system.processes import is_stopped, parent_of
from tests.shared_bench import SharedBench
from tests.waiting import wait_until

SETTINGS = """
project = "warm"
workload = "perf.py:workload"
[measure]
step_timeout = 60
[gate]
quads = 2
block_seconds = 0.002
"""
WORKLOAD = """
import torch
from model import Model
from perfgate import Workload

workload = Workload(build=lambda device: Model(), inputs=lambda batch, seed: torch.ones(batch, 8))
"""
# Every process that builds or calls the model says so in a file beside the code.
MODEL = """
import gc, os, signal, socket, subprocess, sys, threading, time
from pathlib import Path
import torch

PLACES = Path(__file__).parent

def note(what):
    with (PLACES / f"{{what}}.txt").open("a") as file:
        file.write(f"{{os.getpid()}}\\n")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 8))
        self.calls = 0
        note("built")
        {build}

    def forward(self, x):
        self.calls += 1
        note("called")
        {call}
        return x @ self.weight
"""


def write(root: Path, *, build: str = "pass", call: str = "pass") -> Checkout:
    """Write a project whose model has these lines in its making and in its call."""
    root.mkdir(exist_ok=True)
    (root / "perf.py").write_text(WORKLOAD)
    (root / "perfgate.toml").write_text(SETTINGS)
    code = MODEL.format(build=textwrap.indent(build, " " * 8).lstrip(), call=textwrap.indent(call, " " * 8).lstrip())
    (root / "model.py").write_text(code)
    return Checkout(root, root)


def noted(checkout: Checkout, what: str) -> list[int]:
    """Return the processes that built or called the model of a checkout, in order."""
    file = checkout.root / f"{what}.txt"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture(scope="module")
def bench(shared_bench: SharedBench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    project = write(tmp_path_factory.mktemp("project"))
    config = load_config(project.root)
    config = msgspec.structs.replace(config, gate=msgspec.structs.replace(config.gate, aa_pairs=0))
    with shared_bench.configured(config) as bench:
        yield bench


@contextmanager
def warmed(bench: Bench, checkout: Checkout) -> Iterator[tuple[Worker, WarmedUp]]:
    reference = WorkloadReference("workload", "perf.py", "workload")
    with bench.worker(checkout, reference, cpus=bench.cpus[:1], layout_seed=1, log_name="warm") as (worker, _):
        request = WarmUpRequest(block_seconds=0.002, cap_seconds=1.0)
        yield worker, worker.ask(request, WarmedUp, timeout=60, doing="warming up")


def run_block(worker: Worker, *, calls: int = 3) -> Collected:
    request = BlockRequest(shape="default", calls=calls, quad=0, sequence=0)
    worker.ask(request, BlockDone, timeout=60, doing="measuring")
    return worker.ask(CollectRequest(), Collected, timeout=60, doing="collecting")


def test_spawned__two_of_one__loaded_and_warm_and_children_of_the_fork_server(bench: Bench, tmp_path: Path) -> None:
    checkout = write(tmp_path, build="if gc.isenabled(): note('collects')")
    with warmed(bench, checkout) as (warm, answer):
        assert answer.forkable
        expected, built, server = run_block(warm).settings, warm.pid, parent_of(warm.pid)
        # The fork server imports without the collector.
        assert noted(checkout, "collects") == [built]
        for layout_seed in (2, 3):
            before = len(noted(checkout, "called"))
            with bench.spawned(checkout, warm, layout_seed=layout_seed) as worker:
                collected = run_block(worker)
                assert parent_of(worker.pid) == server
                assert os.getpgid(worker.pid) == worker.pid
                assert os.sched_getaffinity(worker.pid) == os.sched_getaffinity(warm.pid)
                # Its own block alone, with the unrecorded call: what the warm one recorded is not its.
                assert noted(checkout, "called")[before:] == [worker.pid] * 4
            assert collected.shapes["default"].calls == [3]
            assert collected.settings == expected
        assert parent_of(warm.pid) == server
        assert noted(checkout, "built") == [built]


def test_spawned__dies__its_signal_is_named_and_the_next_one_works(bench: Bench, tmp_path: Path) -> None:
    checkout = write(tmp_path, call="if self.calls > 10_000: os.kill(os.getpid(), signal.SIGSEGV)")
    with warmed(bench, checkout) as (warm, _):
        with bench.spawned(checkout, warm, layout_seed=2) as worker, pytest.raises(WorkerError) as raised:
            run_block(worker, calls=20_000)
        assert (raised.value.detail.kind, raised.value.detail.signal) == ("signal", "SIGSEGV")
        assert "in forward" in (raised.value.detail.traceback or "")
        with bench.spawned(checkout, warm, layout_seed=3) as worker:
            assert run_block(worker).shapes["default"].calls == [3]


def test_spawned__stopped_and_resumed__the_fork_server_counts_it(bench: Bench, tmp_path: Path) -> None:
    checkout = write(tmp_path)
    with warmed(bench, checkout) as (warm, _), bench.spawned(checkout, warm, layout_seed=2) as worker:
        os.kill(worker.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(worker.pid))
        os.kill(worker.pid, signal.SIGCONT)
        run_block(worker)
        wait_until(lambda: worker.times_stopped() == 1)
        assert warm.times_stopped() == 0


def test_spawned__starts_a_process__killed_and_named_at_its_end(bench: Bench, tmp_path: Path) -> None:
    start = "if self.calls > 10_000: subprocess.Popen(['sleep', '1234.5'], start_new_session=True)"
    checkout = write(tmp_path, call=start)
    with warmed(bench, checkout) as (warm, _):
        with bench.spawned(checkout, warm, layout_seed=2) as worker:
            run_block(worker, calls=10_000)
        assert set(worker.left_behind) == {"sleep"}
        assert warm.left_behind == []
        # A compiler that an experiment of perfgate started is not the workload's.
        worker.experimented = True
        assert worker.left_behind == []


@pytest.mark.parametrize(
    ("build", "call"),
    [
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "pass"),
        ("pass", "if self.calls == 1: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"),
        ("subprocess.Popen(['sleep', '60'])", "pass"),
        ("self.ends = socket.socketpair()", "pass"),
        ("self.pipe = os.pipe()", "pass"),
        ("self.words = open(__file__)", "self.words.readline() or self.words.seek(1)"),
        ("self.log = open(PLACES / 'log.txt', 'w', buffering=1)", "self.log.write('called\\n')"),
        ("self.weight.data.share_memory_()", "pass"),
        ("with torch.inference_mode(): self.register_buffer('fixed', torch.ones(4))", "pass"),
    ],
    ids=["thread", "late-thread", "process", "socket", "pipe", "reads-on", "writes-on", "shared-memory", "cannot-move"],
)
def test_warm_up__forks_would_share_something_or_all_lie_in_one_place__not_forkable(
    bench: Bench, tmp_path: Path, build: str, call: str
) -> None:
    with warmed(bench, write(tmp_path, build=build, call=call)) as (_, answer):
        assert not answer.forkable


@pytest.mark.parametrize(
    ("build", "call"),
    [
        ("self.log = open(PLACES / 'log.txt', 'a', buffering=1)", "self.log.write('called\\n')"),
        ("self.words = open(__file__)", "pass"),
        ("self.ids = torch.from_numpy(__import__('numpy').memmap(__file__, mode='r'))", "self.ids.sum()"),
        ("thread = threading.Thread(target=len, args=((),)); thread.start(); thread.join()", "pass"),
        ("subprocess.run(['true'])", "pass"),
    ],
    ids=["appends", "open-file", "mapped-file", "thread-that-ended", "process-that-ended"],
)
def test_warm_up__forks_would_share_nothing_that_changes__forkable(
    bench: Bench, tmp_path: Path, build: str, call: str
) -> None:
    with warmed(bench, write(tmp_path, build=build, call=call)) as (_, answer):
        assert answer.forkable


def measure(bench: Bench, base: Checkout, head: Checkout, *, pairs: int, aa_pairs: int = 0) -> PairedMeasurement:
    before, measured = bench.config, PairedMeasurement()
    bench.config = msgspec.structs.replace(before, gate=msgspec.structs.replace(before.gate, aa_pairs=aa_pairs))
    try:
        sides = WorkloadSides(bench, WorkloadReference("workload", "perf.py", "workload"), base, head, measured)
        measure_pairs(
            sides,
            looks=[pairs],
            is_decided=lambda: True,
            needs_names=lambda: False,
            budget_ends=None,
            draw=0,
            first=0,
            traces=None,
            sizes=None,
        )
    finally:
        bench.config = before
    return measured


def test_measure_pairs__workload_that_can_be_forked__built_once_a_server_and_side_and_no_process_runs_both(
    bench: Bench, tmp_path: Path
) -> None:
    base, head = write(tmp_path / "base"), write(tmp_path / "head")
    measured = measure(bench, base, head, pairs=4, aa_pairs=2)

    assert measured.failed == []
    built = {side.root.name: set(noted(side, "built")) for side in (base, head)}
    called = {side.root.name: set(noted(side, "called")) for side in (base, head)}
    pairs = {replicate.pair: replicate.worker.forked_from for replicate in measured.head}
    assert len(pairs) == len(called["head"]) == 4  # every member is a process of its own
    assert len(built["head"]) == len(set(pairs.values())) < 4
    assert len(called["base"]) == 4 + 2 * 2
    assert not called["base"] & called["head"]
    twins = {
        replicate.worker.forked_from
        for replicate in measured.base
        if (replicate.arm, replicate.member) == ("aa", "second")
    }
    others = {replicate.worker.forked_from for replicate in measured.base if replicate.member == "first"}
    assert twins
    assert not twins & others  # with dead functions before its code
    assert len(built["base"]) == len(twins | others)


def test_measure_pairs__head_alone_starts_a_thread__both_sides_load_in_every_pair(bench: Bench, tmp_path: Path) -> None:
    base = write(tmp_path / "base")
    head = write(tmp_path / "head", build="threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    measured = measure(bench, base, head, pairs=3)

    assert measured.failed == []
    for side, replicates in ((base, measured.base), (head, measured.head)):
        assert [replicate.worker.forked_from for replicate in replicates] == [None] * 3
        assert len(noted(side, "built")) == len(set(noted(side, "called"))) == 3


def test_measure_pairs__layouts__drawn_anew_in_every_member_and_quad(bench: Bench, tmp_path: Path) -> None:
    where = """\
with (PLACES / f"place-{os.getpid()}.txt").open("a") as file:
    file.write(f"{self.weight.data_ptr()}\\n")"""
    side = write(tmp_path / "base", call=where)
    measured = measure(bench, side, write(tmp_path / "head"), pairs=3)

    assert all(replicate.worker.moved for replicate in measured.base)
    called = set(noted(side, "called"))
    assert len(called) == 3
    of_members = set()
    for pid in called:
        addresses = list(dict.fromkeys((side.root / f"place-{pid}.txt").read_text().split()))
        assert len(addresses) == (3 if pid in noted(side, "built") else 2)  # warm-up and two quads, or the quads alone
        of_members.add(tuple(addresses[-2:]))
    # A tensor of 256 bytes takes a free block of its size, which two of the six draws may leave at the same address.
    assert len(of_members) == 3


@pytest.mark.parametrize(("environment", "imported"), [("pass", True), ("os.environ['NO_SUCH_NAME'] = '1'", False)])
def test_warm_up__parts__what_it_imported_of_known_packages_unless_it_changed_the_environment(
    bench: Bench, tmp_path: Path, environment: str, imported: bool
) -> None:
    build = f"from torch.utils import benchmark; import json.tool, wave; {environment}"
    with warmed(bench, write(tmp_path, build=build)) as (_, answer):
        assert ("torch.utils.benchmark" in answer.parts) == imported
        assert not {"model", "perfgate_workload", "wave"} & set(answer.parts)
        # Servers that imported parts are started anew after the pairs: those of most workloads have none.
        assert not [part for part in answer.parts if part.startswith("perfgate.")]


def test_common_parts__modules_of_one_side_alone_or_before_the_other_is_there__not_for_the_next_servers(
    bench: Bench, tmp_path: Path
) -> None:
    base = write(tmp_path / "base", build="from torch.utils import benchmark")
    head = write(tmp_path / "head", build="from torch.utils import benchmark, bundled_inputs")
    reference = WorkloadReference("workload", "perf.py", "workload")
    (plan,) = draw_plans(1, "workload", pairs=1, aa_pairs=0, first_look=1, round_number=0, draw=0, resident=False)
    with closing(WarmWorkers(bench, reference, observer=Observer(), cpus=bench.cpus[:1])) as warm:
        warm.get([WarmPlace(head)], plan, block_seconds=0.002)
        assert warm.common_parts(base, head) == []
        warm.get([WarmPlace(base)], plan, block_seconds=0.002)
        parts = warm.common_parts(base, head)
    assert "torch.utils.benchmark" in parts
    assert "torch.utils.bundled_inputs" not in parts


def test_start_beside__parts__imported_unless_they_fail_and_forgotten_by_the_next_servers(
    bench: Bench, tmp_path: Path
) -> None:
    checkout = write(tmp_path, build="(PLACES / 'wave.txt').write_text(str('wave' in sys.modules))")
    bench.servers.get(checkout.server)
    if len(bench.servers.all()) > len(bench.servers.running):
        # Those that an earlier test began to start have no parts.
        bench.servers.close()
        bench.servers.get(checkout.server)
    before = bench.servers.running.copy()

    def renewed() -> bool:
        bench.servers.renew()
        return bench.servers.running != before

    bench.servers.start_next(7, parts=["no_such_module", "wave"])
    wait_until(renewed)
    for expected in ("True", "False"):
        with warmed(bench, checkout):
            assert (tmp_path / "wave.txt").read_text() == expected
        bench.servers.forget_parts()


def test_redraw__servers_that_start_already__take_the_place_of_those_before(bench: Bench, tmp_path: Path) -> None:
    checkout = write(tmp_path)
    before = bench.servers.get(checkout.server)
    bench.servers.start_next(7)
    following = bench.servers.get_next(checkout.server)
    bench.servers.redraw(8)
    assert bench.servers.all() == [following]
    assert (before.running, following.running) == (False, True)
    with warmed(bench, checkout):
        assert bench.servers.get(checkout.server) is following
