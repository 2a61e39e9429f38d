"""Ranks as a side: torchrun starts a script in every rank, and all of them do some
steps of its loop in each turn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec
import numpy as np

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import (
    RANKS_CPU,
    RANKS_IMBALANCE,
    RANKS_LOSS,
    RANKS_MEMORY,
    RANKS_STEP,
    RANKS_STEP_P99,
    RANKS_THROUGHPUT,
)
from perfgate.conductor.sides.program import SideError, free_port
from perfgate.conductor.sides.ranks.hccl import (
    next_group,
    port_settings,
    rank_table_of_group,
)
from perfgate.conductor.sides.ranks.rank_counts import read_counts
from perfgate.conductor.sides.ranks.rendezvous import Peer, Rendezvous
from perfgate.conductor.sides.side import ProgramSide, SidePlace, SidePlan
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.job import JobNumber, RankCounts, TurnResult
from perfgate.document.message import MessageValue
from perfgate.document.samples import SampleSet, pack
from perfgate.errors import ResultsError
from perfgate.job_settings import JobReference
from perfgate.system.interrupts import safe_point
from perfgate.system.processes import signal_name
from perfgate.system.turns import TURN_VARIABLE

_TICK_SECONDS = 0.2
_LEAST_CPU = 1e-9


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first message of a rank."""

    rank: int
    pid: int


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rank's report on a turn: the seconds of each step, seconds of CPU time, bytes
    of memory, losses as hexadecimal text.
    """

    rank: int
    steps: list[float]
    cpu: float
    memory: int
    on_device: bool
    losses: list[str]
    samples: int
    profiled: bool = False


class RanksSide(ProgramSide):
    """One side of a script in several ranks.

    They wait at the end of a step until all of them are granted the next turn.
    """

    plan = SidePlan(turns=4, fewest=4, most=32)

    def __init__(self, reference: JobReference, place: SidePlace) -> None:
        super().__init__(reference, place)
        self._group = next_group()
        self._rendezvous: Rendezvous | None = None
        self._ranks: dict[int, Peer] = {}
        self._steps_done = 0
        self._is_counted = False
        self.numbers: tuple[JobNumber, ...] = ()

    # --- start and end

    def start(self) -> None:
        settings = self._settings
        self._rendezvous = Rendezvous(self._place.environment.get("TMPDIR", "/tmp"))  # noqa: S108 - the default of TMPDIR
        self._ranks = {}
        self._steps_done = 0
        self._is_counted = False
        place, group = self._place, self._group
        variables = {TURN_VARIABLE: self._rendezvous.address}
        if not place.alone:
            variables |= port_settings(place.environment, group)
            variables |= rank_table_of_group(
                place.environment, group, self._rendezvous.folder
            )
        torchrun = f"python -m torch.distributed.run --nproc_per_node {settings.ranks} --master_addr 127.0.0.1"
        self._program = place.run(
            f"exec {torchrun} --master_port {free_port()} {settings.script}", variables
        )

    def warm_up(self) -> None:
        self._wait_for_ranks()
        # Equally many steps on both sides rather than until both are alike: otherwise
        # turns would begin at random steps, and the losses of base and head would
        # belong to different steps.
        self._take(self._settings.warm_up)

    def stop(self) -> None:
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None
        super().stop()

    def _wait_for_ranks(self) -> None:
        """Wait until every rank has asked for its first turn.

        Raises SideError if the script ends, or a rank is missing.
        """
        settings = self._settings
        deadline = time.monotonic() + settings.ready_timeout
        while len(self._ranks) < settings.ranks:
            for peer, line in self._lines():
                if line is not None:
                    self._welcome(peer, line)
                elif peer.rank >= 0:
                    raise self._ended(peer)
            if end := self._running.ended():
                raise self._failed(
                    "exit", "job.script-ended", code=end.code, **self._connected()
                )
            if time.monotonic() > deadline:
                missing = min(set(range(settings.ranks)) - self._ranks.keys())
                name = "job.rank-missing" if self._ranks else "job.no-rank"
                seconds = settings.ready_timeout
                raise self._failed(
                    "timeout", name, seconds=seconds, rank=missing, **self._connected()
                )

    def _welcome(self, peer: Peer, line: bytes) -> None:
        try:
            hello = msgspec.json.decode(line, type=Hello)
        except msgspec.DecodeError as error:
            raise self._failed("protocol", "job.rank-garbled", rank="?") from error
        if hello.rank in self._ranks or not 0 <= hello.rank < self._settings.ranks:
            raise self._failed(
                "protocol",
                "job.rank-unknown",
                rank=hello.rank,
                last=self._settings.ranks - 1,
            )
        peer.rank = hello.rank
        peer.pid = hello.pid
        self._ranks[hello.rank] = peer

    def _connected(self) -> dict[str, MessageValue]:
        return {
            "connected": len(self._ranks),
            "ranks": self._settings.ranks,
            "line": self._settings.script,
        }

    def _lines(self) -> Iterator[tuple[Peer, bytes | None]]:
        assert self._rendezvous is not None, (
            "a side is started before anything is asked of it"
        )
        safe_point()
        return self._rendezvous.lines(_TICK_SECONDS)

    # --- a turn

    def turn(self, number: int) -> TurnResult:  # noqa: ARG002 - the next steps of the loop, on both sides
        out_of_turn = self._running.begin_turn()
        counts = [] if self._is_counted else self._count()
        meter = self._running.cpu_meter()
        result = self._result(self._take(self._settings.steps))
        cpu = meter.read()
        self._running.end_turn()
        return msgspec.structs.replace(
            result, out_of_turn=out_of_turn, counts=counts, cpu=cpu
        )

    def profile(self, number: int) -> SideStacks | None:  # noqa: ARG002 - the next steps of the loop
        def work() -> int:
            self._take(self._settings.steps)
            return self._settings.steps

        return self._sample(work, "step")

    def _count(self) -> list[RankCounts]:
        """Let all ranks do the steps of a turn under the profiler, once a start."""
        assert self._rendezvous is not None
        self._is_counted = True
        steps = self._settings.steps
        traces = {
            rank: self._rendezvous.folder / f"rank-{rank}.json" for rank in self._ranks
        }
        reports = self._take(steps, traces)
        counts = []
        try:
            for report in reports:
                if report.profiled:
                    counts.append(read_counts(traces[report.rank], report.rank, steps))
                else:
                    counts.append(RankCounts(rank=report.rank, steps=0))
        except ResultsError as error:
            raise self._failed("protocol", "job.no-counts", why=str(error)) from error
        finally:
            for trace in traces.values():
                trace.unlink(missing_ok=True)
        return counts

    def _take(
        self, steps: int, traces: Mapping[int, Path] = MappingProxyType({})
    ) -> list[Report]:
        """Let all ranks do a number of steps; return their reports in the order of
        ranks.
        """
        for peer in self._ranks.values():
            peer.grant(steps, traces.get(peer.rank))
        reports: dict[int, Report] = {}
        deadline = time.monotonic() + self._settings.timeout
        while len(reports) < len(self._ranks):
            lines = list(self._lines())
            # A killed rank takes the others with it, some of which may be seen to end
            # first.
            if ended := [
                peer for peer, line in lines if line is None and peer.rank >= 0
            ]:
                raise self._ended(*ended)
            for peer, line in lines:
                reports[peer.rank] = self._report(peer, line or b"", steps)
            if time.monotonic() > deadline:
                late = min(self._ranks.keys() - reports.keys())
                raise self._failed(
                    "timeout",
                    "job.rank-slow",
                    rank=late,
                    steps=steps,
                    seconds=self._settings.timeout,
                )
        self._steps_done += steps
        return [reports[rank] for rank in sorted(reports)]

    def _report(self, peer: Peer, line: bytes, steps: int) -> Report:
        """Parse a rank's report.

        Raises SideError if it does not report that number of steps.
        """
        if peer.rank < 0:
            self._welcome(peer, line)  # a process too many
        try:
            report = msgspec.json.decode(line, type=Report)
            for loss in report.losses:
                float.fromhex(loss)
        except (ValueError, OverflowError) as error:
            raise self._failed(
                "protocol", "job.rank-garbled", rank=peer.rank
            ) from error
        times = [*report.steps, report.cpu]
        if (
            report.rank != peer.rank
            or len(report.steps) != steps
            or not all(0 <= time < math.inf for time in times)
        ):
            raise self._failed("protocol", "job.rank-garbled", rank=peer.rank)
        return report

    def _ended(self, *peers: Peer) -> SideError:
        """How ranks ended in a turn: a rank that a signal killed is named before ranks
        that followed it.
        """

        def order(entry: tuple[int, int | None]) -> tuple[bool, bool, int]:
            _, code = entry
            return code is None, code == 0, code or 0

        rank, code = min(((peer.rank, peer.exit_code()) for peer in peers), key=order)
        values: dict[str, MessageValue] = {"rank": rank, "steps": self._steps_done}
        if code is None:
            return self._failed("exit", "job.rank-lost", **values)
        if code < 0:
            return self._failed(
                "exit", "job.rank-killed", **values, signal=signal_name(-code)
            )
        return self._failed(
            "exit", "job.rank-ended" if code else "job.rank-done", **values, code=code
        )

    # --- the results of a turn

    def _result(self, reports: list[Report]) -> TurnResult:
        steps = self._settings.steps
        slowest = max(reports, key=lambda report: sum(report.steps))
        cpu = np.array([max(report.cpu, _LEAST_CPU) / steps for report in reports])
        values = {
            RANKS_STEP: sum(slowest.steps) / steps,
            RANKS_STEP_P99: float(np.quantile(slowest.steps, 0.99)),
            RANKS_CPU: float(cpu.sum()),
            RANKS_IMBALANCE: float(cpu.max() / np.median(cpu)),
            RANKS_MEMORY: float(max(report.memory for report in reports)),
        }
        samples = sum(report.samples for report in reports)
        if samples and (seconds := sum(slowest.steps)) > 0:
            values[RANKS_THROUGHPUT] = samples / seconds
        self.numbers = self.numbers or tuple(
            _listed(values, on_device=all(report.on_device for report in reports))
        )
        if self._settings.loss_tolerance:
            finite = []
            for report in reports:
                finite += [
                    loss
                    for loss in map(float.fromhex, report.losses)
                    if math.isfinite(loss)
                ]
            values[RANKS_LOSS] = math.fsum(finite) / max(1, len(finite))
        return TurnResult(
            values=values,
            work={"steps": steps, "ranks": len(reports), "samples": samples},
            output=self._output(reports),
            samples=list(_samples(reports)),
        )

    def _output(self, reports: list[Report]) -> str:
        """The hash of every loss, or of whether each is finite if they may differ a
        little; empty if they are not compared.

        A script without losses has a hash too: a removed field must not look like that.
        """
        if not self._settings.same_output:
            return ""
        losses = []
        for report in reports:
            if self._settings.loss_tolerance:
                losses.append(
                    [str(math.isfinite(float.fromhex(loss))) for loss in report.losses]
                )
            else:
                losses.append(report.losses)
        return sha256(msgspec.json.encode(losses)).hexdigest()


def _samples(reports: list[Report]) -> Iterator[SampleSet]:
    """Every step's time, the CPU time of one step, and the bytes that it held, by rank."""
    for report in reports:
        labels = {"rank": str(report.rank)}
        times = np.round(np.array(report.steps) * 1e9).astype(np.int64)
        yield SampleSet(metric=RANKS_STEP, samples=pack(times), labels=labels)
        cpu = [round(report.cpu / len(report.steps) * 1e9)]
        yield SampleSet(metric=RANKS_CPU, samples=pack(cpu), labels=labels)
        yield SampleSet(
            metric=RANKS_MEMORY, samples=pack([report.memory]), labels=labels
        )


def _listed(names: Iterable[str], *, on_device: bool) -> Iterator[JobNumber]:
    """Yield the numbers of a turn; which of them gate depends on the device
    (``JobReference.must_gate``).
    """
    gates = {RANKS_STEP, RANKS_MEMORY if on_device else RANKS_CPU}
    for name in names:
        entry = METRICS[name]
        better: Literal["lower", "higher"] = (
            "higher" if entry.better == "higher" else "lower"
        )
        yield JobNumber(
            metric=name, unit=entry.unit, better=better, gating=name in gates
        )
