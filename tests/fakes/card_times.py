"""Pairs of base and head on a card, made of random numbers: whole gates in milliseconds, on a virtual clock.

A start has luck, a block has noise, launches have jitter, and the host is busy with other things. At its power limit the card
lowers its clock by what it has heated up, so that times drift through a gate, on both sides alike.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.run import OpCount, RunDocument
from perfgate.document.samples import Arm, BlockColumns, KernelBlocks, KernelRow, PackedArray, Replicate, pack
from perfgate.judging.gate.look import Look
from tests.fakes.power import Clocked, PowerCap
from tests.traps.virtual import SHAPE, WORKLOAD, documents_of, judged

QUADS, CALLS = 4, 3
PAIRS_OF_START, AA_PAIRS = 5, 7
BLOCK_SECONDS, LOAD_SECONDS = 0.05, 8.0
MESSAGE_NS = 30_000
# Kernels vary less than spans, by this factor: 0.11 % beside 0.70 % of the span (six recorded steps of a V100).
KERNELS_STEADIER = 6.0
LOOKS = [8, 16, 32]

Floats = npt.NDArray[np.float64]


@dataclass
class CardNoise:
    """The noise of a card and its host, each as the sd of a logarithm: ``luck`` of a start, ``quad`` of a quad's effect.

    ``kernel_luck`` and ``kernel_quad`` are those of kernels; by default a sixth of the span's. ``host`` is that of the host's
    time in a quad.
    """

    luck: float = 0.002
    quad: float = 0.005
    host: float | None = None
    kernel_luck: float | None = None
    kernel_quad: float | None = None
    cap: bool = False

    def of_kernels(self) -> tuple[float, float]:
        luck = self.luck / KERNELS_STEADIER if self.kernel_luck is None else self.kernel_luck
        quad = self.quad / KERNELS_STEADIER if self.kernel_quad is None else self.kernel_quad
        return luck, quad


@dataclass
class Call:
    """A call of a side: seconds of each kernel, of the host until it returns, and of the device's waits for the host.

    ``python`` is the number of Python calls, ``operators`` that of operators.
    """

    kernels: dict[str, float] = field(default_factory=lambda: {f"kernel_{n}": 125e-6 for n in range(8)})
    host: float = 4e-4
    exposed: float = 2e-5
    python: int = 300
    operators: int = 40

    @property
    def busy(self) -> float:
        return sum(self.kernels.values())

    def slower_kernel(self, name: str, *, share_of_call: float) -> Call:
        """The call with one kernel that makes all kernels together take this share longer."""
        return replace(self, kernels={**self.kernels, name: self.kernels[name] + share_of_call * self.busy})

    def slower_host(self, share: float) -> Call:
        """A call that runs more Python, which makes the host take this share longer."""
        more = share * self.host
        return replace(self, host=self.host + more, exposed=self.exposed + more, python=self.python + 30)


class _Block(NamedTuple):
    """A timed block: its quad, seconds of each call by three clocks, its beginning, and the card's clock."""

    quad: int
    wall: Floats
    span: Floats
    host: Floats
    began_ns: int
    clock: Clocked


@dataclass
class _Process:
    """A started process: its call, and its luck with kernels and with everything."""

    call: Call
    luck: float
    kernel_luck: float
    blocks: list[_Block] = field(default_factory=list)
    kernels: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class CardGate:
    """A gate of ``base`` against ``head`` on a card; each has its own random numbers by ``seed``."""

    def __init__(self, base: Call, head: Call, noise: CardNoise, *, seed: int, looks: list[int] | None = None) -> None:
        self._calls = base, head
        self._noise = noise
        self._lot = np.random.default_rng(seed)
        self._policy = Policy(looks=looks or LOOKS)
        self._now_ns = 1_000_000
        self._cap = PowerCap()
        self._clock = Clocked(1.0, False)
        self._base: list[Replicate] = []
        self._head: list[Replicate] = []
        self._pair = 0

    def decide(self) -> DecisionDocument:
        for before, look in itertools.pairwise([0, *self._policy.looks]):
            self.measure(pairs=look - before)
            base, head = self.documents()
            if not Look(base, head, self._policy, workload=WORKLOAD).more_pairs_would_help():
                break
        return judged(*self.documents(), policy=self._policy)

    def documents(self) -> tuple[RunDocument, RunDocument]:
        documents = documents_of(PairedMeasurement(base=self._base, head=self._head))
        base, head = (_with_counts(run, call) for run, call in zip(documents, self._calls))
        return base, head

    def measure(self, *, pairs: int) -> None:
        """Measure more pairs, before the first of them base against base."""
        if not self._base:
            self._measure("aa", AA_PAIRS, AA_PAIRS)
        self._measure("ab", pairs, PAIRS_OF_START)

    def _measure(self, arm: Arm, pairs: int, pairs_of_start: int) -> None:
        processes: tuple[_Process, _Process] | None = None
        for number in range(pairs):
            if processes is None or number % pairs_of_start == 0:
                start = self._pair
                processes = self._start(arm)
            self._run_pair(arm, processes, start)

    def _start(self, arm: Arm) -> tuple[_Process, _Process]:
        self._pass(LOAD_SECONDS, load=0.0)
        self._pass(3.0, load=1.0)
        luck, (kernel_luck, _) = self._noise.luck, self._noise.of_kernels()
        base, head = self._calls
        made = []
        for call in (base, head if arm == "ab" else base):
            made.append(_Process(call, *(sd * self._lot.standard_normal() for sd in (luck, kernel_luck))))
        return made[0], made[1]

    def _run_pair(self, arm: Arm, processes: tuple[_Process, _Process], start: int) -> None:
        for process in processes:
            process.blocks, process.kernels = [], []
        for quad in range(QUADS):
            order = (0, 1, 1, 0) if self._lot.random() < 0.5 else (1, 0, 0, 1)
            for side in order:
                self._run_block(processes[side], quad)
            for side in order[:2]:
                self._profile(processes[side], quad)
        first, second = processes
        self._base.append(self._replicate(first, arm, start, "first"))
        (self._head if arm == "ab" else self._base).append(self._replicate(second, arm, start, "second"))
        self._pair += 1

    def _pass(self, seconds: float, *, load: float) -> None:
        self._now_ns += round(seconds * 1e9)
        if self._noise.cap:
            self._clock = self._cap.pass_time(seconds, load=load)

    def _run_block(self, process: _Process, quad: int) -> None:
        noise, lot, call = self._noise, self._lot, process.call
        _, kernel_quad = noise.of_kernels()
        of_block = noise.quad * lot.standard_normal()
        host_sd = noise.quad if noise.host is None else noise.host
        host_factor = math.exp(process.luck + host_sd * lot.standard_normal())
        busy = call.busy / self._clock.share * math.exp(process.kernel_luck + kernel_quad * lot.standard_normal())
        jitter = np.exp(noise.quad / 4 * lot.standard_normal(CALLS))
        host = call.host * host_factor * jitter
        waits = call.exposed * host_factor + (busy + call.exposed) * math.expm1(
            process.luck - process.kernel_luck + of_block
        )
        span = np.maximum(busy + waits, 1e-9) * jitter
        wall = np.maximum(span, host) + 1e-5
        began = self._now_ns
        self._pass(BLOCK_SECONDS, load=1.0)
        process.blocks.append(_Block(quad, wall, span, np.minimum(host, wall), began, self._clock))

    def _profile(self, process: _Process, quad: int) -> None:
        _, kernel_quad = self._noise.of_kernels()
        factor = math.exp(process.kernel_luck + kernel_quad * self._lot.standard_normal()) / self._clock.share
        times: dict[str, float] = {}
        for name, seconds in self._kernel_seconds(process.call).items():
            times[name] = seconds * factor
        process.kernels.append((quad, times))
        self._pass(0.02, load=1.0)

    def _kernel_seconds(self, call: Call) -> dict[str, float]:
        """The seconds of each kernel in a call of a profiled block, without the noise that all have in common."""
        _, kernel_quad = self._noise.of_kernels()
        of_each = 2 * kernel_quad / math.sqrt(CALLS)
        return {
            name: seconds * math.exp(of_each * self._lot.standard_normal()) for name, seconds in call.kernels.items()
        }

    def _replicate(self, process: _Process, arm: Arm, start: int, member: str) -> Replicate:
        kernels = {} if arm == "stretch" else {SHAPE: _kernel_blocks(process)}
        return Replicate(
            pair=self._pair,
            arm=arm,
            member=member,  # type: ignore[arg-type]
            workload=WORKLOAD,
            layout_seed=1,
            cpus=[0],
            start_up=LOAD_SECONDS,
            start=start,
            warm_up_calls=100,
            steady=True,
            moved=True,
            shapes={SHAPE: _columns(process)},
            kernels=kernels,
        )


def _columns(process: _Process) -> BlockColumns:
    blocks = process.blocks
    spans = [round(float(block.wall.sum()) * 1e9) + 2_000 for block in blocks]
    turns = [round(span * (CALLS + 1) / CALLS) + MESSAGE_NS for span in spans]
    began = [block.began_ns for block in blocks]
    return BlockColumns(
        quad=[block.quad for block in blocks],
        sequence=list(range(len(blocks))),
        calls=[CALLS] * len(blocks),
        start_ns=began,
        end_ns=[start + span for start, span in zip(began, spans)],
        involuntary_switches=[0] * len(blocks),
        minor_faults=[0] * len(blocks),
        wall=_packed([block.wall for block in blocks]),
        cpu=_packed([block.span for block in blocks]),
        cpu_source="device",
        host=_packed([block.host for block in blocks]),
        seen_ns=turns,
        run_delay_ns=[0] * len(blocks),
        used_ns=[0] * len(blocks),
        out_of_turn_ns=[0] * len(blocks),
        waited_ns=turns,
        asked_ns=began,
        took_ns=turns,
        throttled=[False] * len(blocks),
        power_capped=[block.clock.capped for block in blocks],
        clock_share=[round(block.clock.share, 4) for block in blocks],
    )


def _packed(times: list[Floats]) -> PackedArray:
    return pack(np.maximum(1, np.round(np.concatenate(times) * 1e9)).astype(np.int64))


def _kernel_blocks(process: _Process) -> KernelBlocks:
    rows = []
    for name in process.call.kernels:
        ns = float(np.median([times[name] for _, times in process.kernels])) * 1e9
        rows.append(KernelRow(name=name, count=1.0, ns=round(ns, 1)))
    return KernelBlocks(
        quad=[quad for quad, _ in process.kernels],
        calls=[CALLS] * len(process.kernels),
        busy_ns=[round(CALLS * sum(times.values()) * 1e9) for _, times in process.kernels],
        work=["5a" * 32] * len(process.kernels),
        rows=rows,
    )


def _with_counts(run: RunDocument, call: Call) -> RunDocument:
    counted = msgspec.structs.replace(
        run.counters[0],
        values={
            "counters.framework_ops": call.operators,
            "counters.python_calls": call.python,
            "counters.bytecodes": 40 * call.python,
        },
        ops=[OpCount(op="aten::mm", count=call.operators)],
    )
    return msgspec.structs.replace(run, counters=[counted])
