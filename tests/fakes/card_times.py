"""Pairs of base and head on a card, made of random numbers: whole gates in milliseconds, on a virtual clock.

A start has luck, a block has noise, launches have jitter, and the host is busy with other things. At its power limit the card
lowers its clock by what it has heated up, so that times drift through a gate, on both sides alike. Sides that are ``lone``
take the card as whole processes, one after the other.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.conductor.sides.function.plan import FURTHER_WARM_UP_SECONDS, WARM_UP_SECONDS, pairs_of_start
from perfgate.conductor.sides.function.workload import PairedMeasurement
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.run import OpCount, RunDocument
from perfgate.document.samples import (
    AA_PAIRS_OF_A_START,
    Arm,
    BlockColumns,
    ConductorColumns,
    DeviceColumns,
    KernelBlocks,
    KernelRow,
    PackedArray,
    PackedTimes,
    Replicate,
    WorkerColumns,
    WorkerState,
    pack,
)
from perfgate.judging.gate.look import Look
from tests.fakes.power import Clocked, PowerCap
from tests.fakes.records import changed
from tests.traps.virtual import SHAPE, WORKLOAD, documents_of, judged

QUADS, CALLS = 4, 3
BLOCK_SECONDS, PROFILE_SECONDS, LOAD_SECONDS = 0.05, 0.02, 8.0
PAIR_SECONDS = QUADS * (4 * BLOCK_SECONDS + 2 * PROFILE_SECONDS)
MESSAGE_NS = 30_000
# While a visit of a process is disturbed, this share of its calls takes as many times longer.
STALLED_SHARE, STALLED_FACTOR = 0.02, 6.0
# Kernels vary less than spans, by this factor: 0.11 % beside 0.70 % of the span (six recorded steps of a V100).
KERNELS_STEADIER = 6.0
LOOKS = [8, 16, 32]

Floats = npt.NDArray[np.float64]


@dataclass
class CardNoise:
    """The noise of a card and its host, each as the sd of a logarithm: ``luck`` of a start, ``quad`` of a quad's effect.

    ``kernel_luck`` and ``kernel_quad`` are those of kernels; by default a sixth of the span's. ``host`` is that of the host's
    time in a quad, and ``visit`` that of all times of a lone process. ``disturbed`` is the share of lone processes whose calls
    stall.
    """

    luck: float = 0.002
    quad: float = 0.005
    host: float | None = None
    kernel_luck: float | None = None
    kernel_quad: float | None = None
    cap: bool = False
    visit: float = 0.0
    disturbed: float = 0.0

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

    def slower_kernels(self, share: float) -> Call:
        return replace(self, kernels={name: seconds * (1 + share) for name, seconds in self.kernels.items()})

    def slower_host(self, share: float) -> Call:
        """A call that runs more Python, which makes the host take this share longer."""
        more = share * self.host
        return replace(self, host=self.host + more, exposed=self.exposed + more, python=self.python + 30)


class _Block(NamedTuple):
    """A timed block: its quad and place among all, seconds of each call by three clocks, its beginning, the card's clock."""

    quad: int
    sequence: int
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
    is_disturbed: bool = False
    blocks: list[_Block] = field(default_factory=list)
    kernels: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class CardGate:
    """A gate of ``base`` against ``head`` on a card; each has its own random numbers by ``seed``."""

    def __init__(
        self,
        base: Call,
        head: Call,
        noise: CardNoise,
        *,
        seed: int,
        looks: list[int] | None = None,
        lone: bool = False,
    ) -> None:
        self._calls = base, head
        self._is_lone = lone
        self._noise = noise
        self._lot = np.random.default_rng(seed)
        self._policy = Policy(looks=looks or LOOKS)
        self._now_ns = 1_000_000
        self._cap = PowerCap()
        self._clock = Clocked(1.0, False)
        self._base: list[Replicate] = []
        self._head: list[Replicate] = []
        self._pair = 0
        self._blocks = 0

    def decide(self) -> DecisionDocument:
        for before, look in itertools.pairwise([0, *self._policy.looks]):
            self.measure(pairs=look - before)
            is_last = look == self._policy.looks[-1]
            if is_last or not self._look().more_pairs_would_help():
                break
        return judged(*self.documents(), policy=self._policy)

    def _look(self) -> Look:
        base, head = self.documents()
        return Look(base, head, self._policy, workload=WORKLOAD)

    def documents(self) -> tuple[RunDocument, RunDocument]:
        documents = documents_of(PairedMeasurement(base=self._base, head=self._head))
        base, head = (_with_counts(run, call) for run, call in zip(documents, self._calls))
        return base, head

    def measure(self, *, pairs: int) -> None:
        """Measure more pairs, before the first of them base against base."""
        if not self._base:
            self._measure("aa", AA_PAIRS_OF_A_START, AA_PAIRS_OF_A_START)
        start_seconds = LOAD_SECONDS + WARM_UP_SECONDS + FURTHER_WARM_UP_SECONDS
        first_look = self._policy.looks[0] if self._pair == AA_PAIRS_OF_A_START else None
        of_start = pairs_of_start(start_seconds=start_seconds, pair_seconds=PAIR_SECONDS, first_look=first_look)
        self._measure("ab", pairs, of_start)

    def _measure(self, arm: Arm, pairs: int, pairs_of_start: int) -> None:
        processes: tuple[_Process, _Process] | None = None
        for number in range(pairs):
            if self._is_lone:
                self._run_lone_pair(arm)
                continue
            if processes is None or number % pairs_of_start == 0:
                start = self._pair
                processes = self._start(arm)
            self._run_pair(arm, processes, start)

    def _start(self, arm: Arm) -> tuple[_Process, _Process]:
        self._pass(LOAD_SECONDS, load=0.0)
        self._pass(WARM_UP_SECONDS + FURTHER_WARM_UP_SECONDS, load=1.0)
        base, head = self._calls
        return self._process(base), self._process(head if arm == "ab" else base)

    def _process(self, call: Call) -> _Process:
        luck, (kernel_luck, _) = self._noise.luck, self._noise.of_kernels()
        return _Process(call, *(sd * self._lot.standard_normal() for sd in (luck, kernel_luck)))

    def _run_pair(self, arm: Arm, processes: tuple[_Process, _Process], start: int) -> None:
        for process in processes:
            process.blocks, process.kernels = [], []
        for quad in range(QUADS):
            order = (0, 1, 1, 0) if self._lot.random() < 0.5 else (1, 0, 0, 1)
            for side in order:
                self._run_block(processes[side], quad)
            for side in order[:2]:
                self._profile(processes[side], quad)
        self._add_pair(arm, processes, start)

    def _add_pair(self, arm: Arm, processes: tuple[_Process, _Process], start: int) -> None:
        first, second = processes
        self._base.append(self._replicate(first, self._pair, arm, start, "first"))
        (self._head if arm == "ab" else self._base).append(self._replicate(second, self._pair, arm, start, "second"))
        self._pair += 1

    def _run_lone_pair(self, arm: Arm) -> None:
        base, head = self._calls
        processes = self._lone_processes(base, head if arm == "ab" else base)
        for process in self._in_drawn_order(processes):
            self._load_alone()
            for quad in range(QUADS):
                self._run_block(process, quad)
                self._run_block(process, quad)
                self._profile(process, quad)
        self._add_pair(arm, processes, start=self._pair)

    def _lone_processes(self, base: Call, head: Call) -> tuple[_Process, _Process]:
        """Processes that start seconds apart: the host may be quiet for one and busy for the other."""
        processes = self._process(base), self._process(head)
        for process in processes:
            process.luck += self._noise.visit * self._lot.standard_normal()
            process.is_disturbed = self._lot.random() < self._noise.disturbed
        return processes

    def _in_drawn_order(self, processes: tuple[_Process, _Process]) -> tuple[_Process, _Process]:
        first, second = processes
        return (first, second) if self._lot.random() < 0.5 else (second, first)

    def _load_alone(self) -> None:
        self._pass(LOAD_SECONDS, load=0.0)
        self._pass(WARM_UP_SECONDS, load=1.0)

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
        if process.is_disturbed:
            jitter[lot.random(CALLS) < STALLED_SHARE] *= STALLED_FACTOR
        host = call.host * host_factor * jitter
        waits = call.exposed * host_factor + (busy + call.exposed) * math.expm1(
            process.luck - process.kernel_luck + of_block
        )
        span = np.maximum(busy + waits, 1e-9) * jitter
        wall = np.maximum(span, host) + 1e-5
        block = _Block(quad, self._blocks, wall, span, np.minimum(host, wall), self._now_ns, self._clock)
        process.blocks.append(block)
        self._blocks += 1
        self._pass(BLOCK_SECONDS, load=1.0)

    def _profile(self, process: _Process, quad: int) -> None:
        _, kernel_quad = self._noise.of_kernels()
        factor = math.exp(process.kernel_luck + kernel_quad * self._lot.standard_normal()) / self._clock.share
        times: dict[str, float] = {}
        for name, seconds in self._kernel_seconds(process.call).items():
            times[name] = seconds * factor
        process.kernels.append((quad, times))
        self._pass(PROFILE_SECONDS, load=1.0)

    def _kernel_seconds(self, call: Call) -> dict[str, float]:
        """The seconds of each kernel in a call of a profiled block, without the noise that all have in common."""
        _, kernel_quad = self._noise.of_kernels()
        of_each = 2 * kernel_quad / math.sqrt(CALLS)
        return {
            name: seconds * math.exp(of_each * self._lot.standard_normal()) for name, seconds in call.kernels.items()
        }

    def _replicate(self, process: _Process, number: int, arm: Arm, start: int, member: str) -> Replicate:
        return Replicate(
            pair=number,
            arm=arm,
            member=member,  # type: ignore[arg-type]
            workload=WORKLOAD,
            worker=WorkerState(layout_seed=1, cpus=[0], start_up=LOAD_SECONDS, steady=True, moved=True),
            start=start,
            shapes={SHAPE: _columns(process)},
            kernels={SHAPE: _kernel_blocks(process)},
        )


def _columns(process: _Process) -> BlockColumns:
    blocks = process.blocks
    calls = [block.wall.size for block in blocks]
    spans = [round(float(block.wall.sum()) * 1e9) + 2_000 for block in blocks]
    turns = [round(span * (count + 1) / count) + MESSAGE_NS for span, count in zip(spans, calls)]
    began = [block.began_ns for block in blocks]
    return BlockColumns(
        quad=[block.quad for block in blocks],
        sequence=[block.sequence for block in blocks],
        calls=calls,
        worker=WorkerColumns(
            start_ns=began,
            end_ns=[start + span for start, span in zip(began, spans)],
            involuntary_switches=[0] * len(blocks),
            minor_faults=[0] * len(blocks),
            took_ns=turns,
        ),
        times=PackedTimes(
            wall=_packed([block.wall for block in blocks]),
            cpu=_packed([block.span for block in blocks]),
            cpu_source="device",
            host=_packed([block.host for block in blocks]),
        ),
        conductor=ConductorColumns(
            seen_ns=turns,
            run_delay_ns=[0] * len(blocks),
            used_ns=[0] * len(blocks),
            out_of_turn_ns=[0] * len(blocks),
            waited_ns=turns,
            asked_ns=began,
        ),
        device=DeviceColumns(
            throttled=[False] * len(blocks),
            power_capped=[block.clock.capped for block in blocks],
            clock_share=[round(block.clock.share, 4) for block in blocks],
        ),
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
        run.checklist.counters[0],
        values={
            "counters.framework_ops": call.operators,
            "counters.python_calls": call.python,
            "counters.bytecodes": 40 * call.python,
        },
        ops=[OpCount(op="aten::mm", count=call.operators)],
    )
    return changed(run, counters=[counted])
