"""Whole gates in virtual time: both sides on one fake device, by the same blocks, plan, documents and rule as real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import msgspec

from perfgate.conductor.pairs import draw_plans
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import BlockColumns, Replicate, RunDocument
from perfgate.judging.gate.decide import decide
from perfgate.measuring.timing.blocks import BlockRecorder, BlockWarmUp, warm_up
from perfgate.measuring.trace.profile import OperatorProfile
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice, FakeTensor
from tests.fakes.documents import make_run

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
SHAPE, WORKLOAD = "default", "encoder"
POLICY = Policy(looks=[12])
MESSAGE_NS = 30 * US  # what a request and its reply take
PAUSE_NS = 2 * MS  # between two quads
PROFILED_CALLS = 3
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


@dataclass
class _Member:
    recorder: BlockRecorder
    warm: BlockWarmUp
    profile: OperatorProfile
    seen_ns: list[int] = field(default_factory=list)


@dataclass
class VirtualGate:
    """Measures pairs on one device after another. ``base`` and ``head`` make what a process calls, anew for each process.

    ``device`` makes the machine of a pair; ``in_order`` lets the base go first every time, as a gate that draws no lots
    would; ``reported`` changes what the head's worker hands over. With ``profiled`` each process shows its operators, too.
    """

    base: Side
    head: Side
    device: Callable[[], FakeDevice] = FakeDevice
    pairs: int = 12
    aa_pairs: int = 7
    quads: int = 3
    calls: Optional[int] = None
    block_seconds: float = 0.01
    in_order: bool = False
    reported: Change = lambda columns: columns
    profiled: bool = False

    def decide(self, *, policy: Policy = POLICY) -> DecisionDocument:
        """Measure, and judge the documents."""
        return judged(*self.documents(), policy=policy)

    def documents(self) -> tuple[RunDocument, RunDocument]:
        """Return the run documents of base and head."""
        base: list[Replicate] = []
        head: list[Replicate] = []
        plans = draw_plans(
            1, WORKLOAD, pairs=self.pairs, aa_pairs=self.aa_pairs, first_look=self.pairs, quads=self.quads
        )
        for plan in plans:
            device = self.device()
            calls = [self.base(), self.head() if plan.arm == "ab" else self.base()]
            starts = (0, 1) if self.in_order or not plan.second_starts else (1, 0)
            members = {index: self._start(calls[index], device) for index in starts}
            leads = [False] * self.quads if self.in_order else plan.second_leads_quad
            self._run_quads(device, members, leads)
            for index, member in members.items():
                replicate = self._replicate(plan, member, second=bool(index))
                (head if index and plan.arm == "ab" else base).append(replicate)
        return _document("base", base), _document("head", head)

    def _start(self, call: Call, device: FakeDevice) -> _Member:
        bound = BoundWorkload(WORKLOAD, workload_of(call), device, seed=1)
        warm = warm_up(bound, device, block_seconds=self.block_seconds, cap_seconds=2.0)
        return _Member(BlockRecorder(bound, device), warm, OperatorProfile(bound, device))

    def _run_quads(self, device: FakeDevice, members: dict[int, _Member], leads: Sequence[bool]) -> None:
        calls = self.calls or max(member.warm.block_calls[SHAPE] for member in members.values())
        sequence = 0
        for quad, second_leads in enumerate(leads):
            device.host_ns += PAUSE_NS
            order = (0, 1) if self.in_order else (1, 0, 0, 1) if second_leads else (0, 1, 1, 0)
            for index in order:
                started = device.host_ns
                members[index].recorder.record(SHAPE, calls=calls, quad=quad, sequence=sequence)
                device.host_ns += MESSAGE_NS
                members[index].seen_ns.append(device.host_ns - started)
                sequence += 1
        for member in members.values() if self.profiled else ():
            member.profile.run(SHAPE, calls=PROFILED_CALLS)

    def _replicate(self, plan: Any, member: _Member, *, second: bool) -> Replicate:
        columns = member.recorder.columns()[SHAPE]
        if second and plan.arm == "ab":
            columns = self.reported(columns)
        return Replicate(
            pair=plan.pair,
            arm=plan.arm,
            member="second" if second else "first",
            workload=WORKLOAD,
            layout_seed=plan.layout_seed,
            cpus=[0],
            start_up=0.1,
            warm_up_calls=member.warm.calls,
            steady=member.warm.steady,
            operators=member.profile.typical_times(),
            shapes={SHAPE: msgspec.structs.replace(columns, seen_ns=member.seen_ns)},
        )


def _document(side: Any, replicates: list[Replicate]) -> RunDocument:
    run = make_run(side)
    workloads = [msgspec.structs.replace(run.workloads[0], shapes=[SHAPE])]
    return msgspec.structs.replace(
        run, replicates=replicates, workloads=workloads, counters=[], operators=[], steps=[], correctness=[]
    )


def judged(base: RunDocument, head: RunDocument, *, policy: Policy = POLICY) -> DecisionDocument:
    """Judge documents as ``VirtualGate.decide`` does."""
    return decide(base, head, policy=policy, history=History())
