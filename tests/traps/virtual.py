"""Whole gates in virtual time: the conductor's own pairing loop, over workers on a fake device that speak the real protocol."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.pairs import measure_pairs
from perfgate.conductor.sides.function.stretches import measure_stretches
from perfgate.conductor.sides.function.warm import resident_workers
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout, ServerKey
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import WorkerError
from perfgate.config import Config, GateSettings, MeasureSettings, StoreSettings
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import CorrectnessResult, CounterSet, ErrorDetail, RunDocument
from perfgate.document.samples import BlockColumns
from perfgate.errors import MeasuringError
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.stretches import LOOKS
from perfgate.judging.gate.look import Look
from perfgate.locale import Activity
from perfgate.measuring.checklist.steps.s04_top_ops import STEP as TOP_OPS
from perfgate.measuring.counting import tally
from perfgate.measuring.timing.hardware import HardwareCounters
from perfgate.measuring.worker.spawn import Holdings
from perfgate.measuring.worker.worker import WorkerLoop
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.layout import Layout
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import (
    BlockRequest,
    Collected,
    CollectRequest,
    Failed,
    LayoutMoved,
    Loaded,
    LoadRequest,
    MoveRequest,
    Profiled,
    ProfileRequest,
    ProfileSubroutinesRequest,
    WakeRequest,
    reply_decoder,
    request_decoder,
)
from tests.fakes.device import FakeDevice, FakeTensor
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.fakes.workloads import context_on

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
SHAPE, WORKLOAD = "default", "encoder"
POLICY = Policy(looks=[12])
MESSAGE_NS = 30 * US  # what a request and its reply take
PAUSE_NS = 2 * MS  # before every quad the conductor is held up
HOST = frozenset[Any]()  # the capabilities of a CPU

Call = Callable[[FakeDevice], Any]
Side = Callable[[], Call]
Change = Callable[[BlockColumns], BlockColumns]


def works(ns: int) -> Side:
    """Return a side whose every call takes so long."""
    return lambda: lambda device: device.launch("mm", ns)


def workload_of(call: Call) -> Workload:
    """Return a workload that makes this call on its device, whatever the inputs."""
    return Workload(
        build=lambda handle: handle, inputs=lambda batch, seed: FakeTensor(batch, 0), call=lambda on, _: call(on)
    )


class Move(NamedTuple):
    """A worker that got another layout: which, after how many timed blocks of all, and by which seed."""

    worker: int
    blocks: int
    seed: int


class Block(NamedTuple):
    """A timed block as the machine saw it: by which worker of which side, when it began, and how many calls it had."""

    worker: int
    side: str
    began_ns: int
    calls: int


@dataclass
class Machine:
    """What all workers of a gate run on: a fresh device for every pair, one clock for the whole job.

    ``servers`` are the hash seeds of the fork servers in the order they started, ``forked_by`` how many workers each gave,
    ``workers`` the sides in the order of their start, ``moves`` and ``blocks`` all moves and timed blocks, in order, and
    ``wakes`` what an idle card was asked to do before a block. ``most_alive`` is the most workers at a time.
    """

    gate: VirtualGate
    start_up: float
    past_ns: int = 0
    device: FakeDevice = field(default_factory=FakeDevice)
    alive: dict[int, _WorkerHandle] = field(default_factory=dict)
    servers: list[str] = field(default_factory=list)
    forked_by: Counter[int] = field(default_factory=Counter)
    workers: list[str] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    wakes: list[WakeRequest] = field(default_factory=list)
    most_alive: int = 0
    deaths: int = 0

    def fork(self) -> _WorkerHandle:
        """Start a worker; the first of a pair finds a fresh device."""
        if not self.alive:
            self.past_ns += self.device.host_ns
            self.device = self.gate.device()
        number = len(self.workers) + 1
        self.workers.append("")
        self.alive[number] = _WorkerHandle(self, number)
        self.most_alive = max(self.most_alive, len(self.alive))
        return self.alive[number]

    def now_ns(self) -> int:
        """Return the time since the job began."""
        return self.past_ns + self.device.host_ns

    def observer(self) -> Observer:
        """Return what the conductor looks through."""
        return Observer(
            monotonic=lambda: self.now_ns() / SECOND,
            clock_ns=self.now_ns,
            cpu_ns=lambda pid: self.alive[pid].cpu_ns,
            run_delay_ns=lambda pid: self.gate.run_delay(self.now_ns()),
            wait_asleep=lambda pid: None,
            thread_settings=lambda pid: {"scheduler": "other"},
        )


class _Server:
    """Stands for a fork server of one interpreter: every fork is a worker of the machine."""

    running = True
    lost = None

    def __init__(self, machine: Machine, environment: dict[str, str]) -> None:
        self._number = len(machine.servers)
        machine.servers.append(environment["PYTHONHASHSEED"])
        self._ready_ns = machine.now_ns() + int(machine.start_up * SECOND)
        self._machine = machine
        self._workers: list[int] = []

    def is_ready(self) -> bool:
        return self._machine.now_ns() >= self._ready_ns

    def wait_ready(self, *, timeout: float) -> None:
        """There is nothing to import."""

    def fork(self, **_: Any) -> _WorkerHandle:
        self._machine.forked_by[self._number] += 1
        worker = self._machine.fork()
        self._workers.append(worker.pid)
        return worker

    def close(self) -> None:
        assert self._machine.alive.keys().isdisjoint(self._workers), "a fork server is closed under its workers"


class _WorkerHandle:
    """Stands for the conductor's handle on a worker: what it asks crosses the protocol's own bytes, and takes time."""

    exited = None
    experimented = False
    resumed = 0

    def __init__(self, machine: Machine, pid: int) -> None:
        self.pid = pid
        self.is_running = True
        self.left_behind: list[str] = []
        self.of_unknown: list[str] = []
        self.cpu_ns = 0
        self._machine = machine
        self._device = machine.device
        self._worker = _InProcessWorker(machine.gate, machine.device)
        self._answer = b""

    def ask(
        self,
        request: msgspec.Struct,
        reply: type[Any],
        *,
        doing: str,
        timeout: float | None = None,
        sent: Callable[[], None] = lambda: None,
        descriptor: int | None = None,
    ) -> Any:
        sent()
        self.begin(request, descriptor=descriptor)
        return self.finish(reply, timeout=timeout, doing=doing)

    def begin(self, request: msgspec.Struct, *, descriptor: int | None = None) -> None:
        del descriptor
        if type(request) is self._machine.gate.dies_of and self._worker.side == "head" and not self._machine.deaths:
            self._machine.deaths += 1
            self.is_running = False
        if not self.is_running:
            raise WorkerError(ErrorDetail(kind="exit", message="gone"), alive=False)
        if isinstance(request, BlockRequest) and request.sequence % 4 == 0:
            self._device.host_ns += PAUSE_NS
        began, cpu = self._machine.now_ns(), self._device.cpu_ns
        self._answer = self._worker.answer_bytes(msgspec.json.encode(request))
        self.cpu_ns += self._device.cpu_ns - cpu
        self._device.host_ns += MESSAGE_NS
        if isinstance(request, MoveRequest):
            self._machine.moves.append(Move(self.pid, len(self._machine.blocks), request.seed))
        if isinstance(request, WakeRequest):
            self._machine.wakes.append(request)
        if isinstance(request, CollectRequest):
            self._device.host_ns += int(self._machine.gate.pause_seconds * SECOND)
        if isinstance(request, LoadRequest):
            self._device.host_ns += int(self._machine.gate.load * SECOND)
            self._machine.workers[self.pid - 1] = self._worker.side
        if isinstance(request, BlockRequest):
            self._machine.blocks.append(Block(self.pid, self._worker.side, began, request.calls))

    def finish(self, reply: type[Any], *, doing: str, timeout: float | None = None) -> Any:
        del timeout, doing
        message = reply_decoder.decode(self._answer)
        if isinstance(message, Failed):
            raise WorkerError(message.error, alive=True)
        assert isinstance(message, reply)
        return message

    def times_stopped(self) -> int:
        return 0

    def close(self) -> None:
        del self._machine.alive[self.pid]


class _InProcessWorker(WorkerLoop):
    """The real worker, but for the workload, which is the call of its side and no file, and for pads in its memory."""

    def __init__(self, gate: VirtualGate, device: FakeDevice) -> None:
        super().__init__(connection=None, cpus=[0], built=None)  # type: ignore[arg-type]
        if gate.counters is not None:
            self.counters.close()
            self.counters = gate.counters
        self.device = device
        self.side = ""
        self._gate = gate

    def answer_bytes(self, request: bytes) -> bytes:
        return msgspec.json.encode(self.answer(request_decoder.decode(request)))

    def _load(self, request: LoadRequest) -> Loaded:
        self.side = Path(request.root).name
        make = self._gate.head if self.side == "head" else self._gate.base
        device = self._open("fake")
        workload = BoundWorkload(request.name, workload_of(make()), device, seed=request.seed, root=Path(request.root))
        self.take_up(request, workload, _holdings(), line_watch=None)
        # A fake device has no memory that could lie elsewhere, and to draw the pads takes longer than to measure.
        movable = Layout(workload).movable
        self.answers = {
            **self.answers,
            MoveRequest: lambda _: LayoutMoved(movable=movable),
            CollectRequest: self._collect,
        }
        if not self._gate.profiled:
            refused = dict.fromkeys((ProfileRequest, ProfileSubroutinesRequest), self._refuse_profile)
            self.answers = {**self.answers, **refused}
        return Loaded(batch=1, shapes=[SHAPE], sla_p99=None, seconds=0.1, capabilities=sorted(device.capabilities))

    def _say(self, activity: Activity) -> None:
        """Nobody waits for word of it."""

    def _refuse_profile(self, _: ProfileRequest) -> Profiled:
        raise MeasuringError("the workload cannot be profiled")

    def _collect(self, _: CollectRequest) -> Collected:
        # No settings of libraries: both workers share those of this process.
        assert self.blocks is not None
        recorder = self.blocks.recorder
        columns = recorder.columns()
        if self.side == "head":
            columns = {shape: self._gate.reported(blocks) for shape, blocks in columns.items()}
        kernels, uncounted = recorder.kernel_columns(), recorder.uncounted
        recorder.clear()
        return Collected(shapes=columns, kernels=kernels, uncounted=uncounted)


@cache
def _first_holdings() -> Holdings:
    return Holdings.of_this_process()


def _holdings() -> Holdings:
    """Read open files and mappings once: all workers are this process, and the kernel lists a thousand mappings of torch."""
    return _first_holdings()._replace(modules=frozenset(sys.modules), environment=dict(os.environ))


@dataclass
class VirtualGate:
    """Measures pairs of a workload. ``base`` and ``head`` make what a process calls, anew for each process.

    ``device`` makes the machine of a pair; ``reported`` changes what the head's worker hands over; only a ``profiled``
    workload lets itself be profiled. ``budget`` and ``deadline`` are virtual seconds, ``start_up`` those that a fork server
    takes, and ``load`` those of a workload. ``run_delay`` is what the kernel says of waiting at a time, ``counters`` those
    that a worker opens. The conductor is held up for ``pause_seconds`` when it collects the blocks of a member. ``resident``
    sides stay loaded for several pairs, as on an accelerator; on one that is ``lone`` only one process fits, whose weights
    cannot be moved, else ``room`` are known to fit. Pairs measure batch sizes too if the gate ``has_sizes``. The first worker
    of head that gets a request of type ``dies_of`` ends. Pairs and stretches are measured until ``policy`` has enough of
    them, or with ``all_looks`` as long as the loop itself goes on.
    """

    base: Side
    head: Side
    device: Callable[[], FakeDevice] = FakeDevice
    policy: Policy = POLICY
    aa_pairs: int = 7
    quads: int | None = 3
    block_seconds: float = 0.01
    reported: Change = lambda columns: columns
    budget: float = 60.0
    deadline: float = float("inf")
    start_up: float = 0.0
    load: float = 0.0
    all_looks: bool = False
    profiled: bool = False
    needs_names: Callable[[], bool] = lambda: True
    pairs_needed: Callable[[], int | None] = lambda: None
    run_delay: Callable[[int], int | None] = lambda now: 0
    counters: HardwareCounters | None = None
    resident: bool = False
    lone: bool = False
    room: int | None = None
    pause_seconds: float = 0.0
    has_sizes: bool = False
    dies_of: type[msgspec.Struct] | None = None

    def decide(self) -> DecisionDocument:
        """Measure, and judge the documents."""
        return judged(*self.documents(), policy=self.policy)

    def documents(self) -> tuple[RunDocument, RunDocument]:
        """Return the run documents of base and head."""
        return documents_of(self.measure()[0])

    def measure(self, *, round_number: int = 0, first: int = 0) -> tuple[PairedMeasurement, Machine]:
        """Run the conductor's loop, and return what it measured and the machine it ran on; ``first`` pairs were run before."""
        machine = Machine(self, self.start_up)
        measured = PairedMeasurement()
        config = self._config()
        with (
            _bench(config, machine) as (bench, root),
            self._sides(bench, root, measured, machine, round_number) as sides,
        ):
            measure_pairs(
                sides,
                looks=self.policy.looks,
                is_decided=lambda: not self.all_looks and self._enough(measured),
                pairs_needed=self.pairs_needed,
                needs_names=self.needs_names,
                first=first,
                budget_ends=None,
                draw=0,
                traces=None,
                sizes=BatchSizes(bench, WORKLOAD, 1) if self.has_sizes else None,
            )
        assert not machine.alive, "workers are left running"
        return measured, machine

    def measure_stretches(
        self, measured: PairedMeasurement | None = None, *, quads: int = 0, round_number: int = 0
    ) -> tuple[PairedMeasurement, Machine]:
        """Run the conductor's loop over long stretches, of blocks of the usual length, after pairs that were ``measured``."""
        machine = Machine(self, self.start_up)
        measured = measured or PairedMeasurement()
        config = self._config(GateSettings().block_seconds)
        with (
            _bench(config, machine) as (bench, root),
            self._sides(bench, root, measured, machine, round_number) as sides,
        ):
            measure_stretches(
                sides,
                looks=LOOKS,
                is_decided=lambda: not self.all_looks and not self._look(measured).more_calls_would_help(),
                quads=quads,
            )
        assert not machine.alive, "workers are left running"
        return measured, machine

    @contextmanager
    def _sides(
        self, bench: Bench, root: Path, measured: PairedMeasurement, machine: Machine, round_number: int
    ) -> Iterator[WorkloadSides]:
        reference, observer = bench.config.references[0], machine.observer()
        residents = resident_workers(bench, reference, observer) if self.resident else None
        yield WorkloadSides(
            bench,
            reference,
            Checkout(root / "base", root),
            Checkout(root / "head", root),
            measured,
            round_number=round_number,
            deadline=self.deadline,
            observer=observer,
            residents=residents,
        )
        if residents is not None:
            residents.close()

    def _enough(self, measured: PairedMeasurement) -> bool:
        return not self._look(measured).more_pairs_would_help()

    def _look(self, measured: PairedMeasurement) -> Look:
        return Look(*documents_of(measured), self.policy, workload=WORKLOAD)

    def _config(self, block_seconds: float | None = None) -> Config:
        return Config(
            root=Path(),
            project="virtual",
            device="fake" if self.resident else "cpu",
            workload=f"workload.py:{WORKLOAD}",
            # With a limit, none is looked for in the machine's control groups.
            measure=MeasureSettings(seed=1, threads=1, memory_limit=1 << 33),
            gate=GateSettings(
                looks=self.policy.looks,
                budget=self.budget,
                aa_pairs=self.aa_pairs,
                quads=self.quads,
                block_seconds=block_seconds or self.block_seconds,
                cpus=0,
            ),
            store=StoreSettings(),
        )


@contextmanager
def _bench(config: Config, machine: Machine) -> Iterator[tuple[Bench, Path]]:
    """Open the real bench on a machine's fork servers."""

    def start_server(python: Path, *, environment: dict[str, str], **_: Any) -> _Server:
        return _Server(machine, environment)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bench = Bench(config, scratch=root, logs=root, say=lambda text: None, start_server=start_server)
        bench.holds_one = machine.gate.lone
        bench.copies_fit = machine.gate.room
        bench.servers.start(ServerKey())
        try:
            yield bench, root
        finally:
            bench.servers.close()


def documents_of(measured: PairedMeasurement) -> tuple[RunDocument, RunDocument]:
    """Return the run documents that hold these pairs and a checklist that found nothing."""

    def document(side: Any, replicates: Sequence[Any], failed: Sequence[Any] = ()) -> RunDocument:
        run = make_run(side)
        workloads = [msgspec.structs.replace(run.workloads[0], shapes=[SHAPE])]
        counted = CounterSet(workload=WORKLOAD, shape=SHAPE, repeats=3, values={}, ops=[])
        checked = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="not_checked", signature="float32[4]")
        nothing: dict[str, Any] = {"counters": [counted], "operators": [], "steps": [], "correctness": [checked]}
        pairs = {"replicates": list(replicates), "failed": list(failed)}
        return changed(run, workloads=workloads, **pairs, **nothing)

    return document("base", measured.base), document("head", measured.head, measured.failed)


def with_counts(document: RunDocument, call: Call, folder: Path, *, root: Path) -> RunDocument:
    """Return a document with what step 4 counts in this call; lines are those of files below ``root``."""
    folder.mkdir()
    device = FakeDevice(launch_ns=10_000)
    workload = BoundWorkload(WORKLOAD, workload_of(call), device, seed=1, root=root)
    context = context_on(device, workload_of(call), artifacts=folder)
    with pytest.MonkeyPatch.context() as patch:
        # The device lies in the same clone as the call, but is no code of its project.
        patch.setattr(tally, "_top_of_checkout", lambda folder: folder)
        counted = TOP_OPS.measure(replace(context, workload=workload))
    return changed(document, counters=counted.counters, accounts=counted.accounts, operators=counted.operators)


def judged(base: RunDocument, head: RunDocument, *, policy: Policy | None = None) -> DecisionDocument:
    """Judge documents as ``VirtualGate.decide`` does."""
    return decide(base, head, policy=policy or POLICY, history=History())
