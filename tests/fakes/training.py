"""A training of many ranks, simulated: what every rank's profiler would record, with a fault planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfgate.trace.model.events import NO_CORRELATION, EventKind, EventTableBuilder
from perfgate.trace.model.recording import CollectiveKernel, ProfilerStep, Timeline

MS = 1_000_000
STREAM = ("device 0", "stream 7")
# The nanoseconds that a rank computes before a collective: of rank, step and layer.
Computing = Callable[[int, int, int], float]


@dataclass
class Training:
    """Ranks in groups of ``tensor`` that meet after every layer, and across those groups at the end of each step.

    A layer computes 10 ms with one percent of noise. ``extra`` adds time that a rank computes, ``idle`` time in which its
    device has nothing to do. ``named`` is whether kernels tell their groups, ``kernel`` the one that communicates, of that
    ``kind``.
    """

    ranks: int = 64
    tensor: int = 8
    steps: int = 6
    layers: int = 4
    extra: Computing = lambda rank, step, layer: 0.0
    idle: Computing = lambda rank, step, layer: 0.0
    noise: float = 0.01
    named: bool = True
    kernel: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    kind: EventKind = "comm"
    seed: int = 0
    _builders: list[EventTableBuilder] = field(default_factory=list)

    def timelines(self) -> list[Timeline]:
        random = np.random.default_rng(self.seed)
        ahead = random.integers(-(10**9), 10**9, self.ranks)
        self._builders = [EventTableBuilder() for _ in range(self.ranks)]
        collective_kernels: list[list[CollectiveKernel]] = [[] for _ in range(self.ranks)]
        steps: list[list[ProfilerStep]] = [[] for _ in range(self.ranks)]
        now = np.full(self.ranks, 10**12, dtype=np.int64)
        for step in range(self.steps):
            began = now.copy()
            waited = np.zeros(self.ranks, dtype=np.int64)
            for layer in range(self.layers + 1):
                is_last = layer == self.layers
                for rank in range(self.ranks) if not is_last else ():
                    took = round(10 * MS * (1 + self.noise * random.standard_normal()) + self.extra(rank, step, layer))
                    now[rank] += round(self.idle(rank, step, layer))
                    self._builders[rank].add(
                        int(now[rank] + ahead[rank]),
                        took,
                        track=STREAM,
                        name="gemm",
                        kind="compute",
                        correlation=NO_CORRELATION,
                    )
                    now[rank] += took
                for number, group in enumerate(self._across() if is_last else self._within()):
                    end = int(now[group].max()) + MS
                    for rank in group.tolist():
                        one = self._exchange(
                            "dp" if is_last else "tp", number, group, int(now[rank]), end, int(ahead[rank])
                        )
                        collective_kernels[rank].append(one)
                        self._builders[rank].add(
                            one.start_ns,
                            one.elapsed_ns,
                            track=("device 0", "stream 20"),
                            name=one.name,
                            kind=self.kind,
                            correlation=NO_CORRELATION,
                        )
                        waited[rank] += end - now[rank]
                        now[rank] = end
            for rank in range(self.ranks):
                start, length = int(began[rank] + ahead[rank]), int(now[rank] - began[rank])
                computing = length - int(waited[rank])
                steps[rank].append(
                    ProfilerStep(step, start, start + length, computing, int(waited[rank]), int(waited[rank]), 0, 0, 0)
                )
        return [
            Timeline(
                rank,
                0,
                self._builders[rank].table(),
                steps=steps[rank],
                collective_kernels=tuple(collective_kernels[rank]) if self.named else None,
            )
            for rank in range(self.ranks)
        ]

    def write(self, folder: Path) -> Path:
        """Write a file a rank, as torch.profiler does with NCCL's arguments of kernels."""
        folder.mkdir(parents=True, exist_ok=True)
        for timeline in self.timelines():
            document = {
                "schemaVersion": 1,
                "distributedInfo": {"rank": timeline.rank, "world_size": self.ranks},
                "traceEvents": _rows(timeline),
            }
            (folder / f"job_{timeline.rank}.pt.trace.json").write_text(json.dumps(document))
        return folder

    def _within(self) -> list[np.ndarray]:
        return list(np.arange(self.ranks).reshape(-1, self.tensor))

    def _across(self) -> list[np.ndarray]:
        return list(np.arange(self.ranks).reshape(-1, self.tensor).T)

    def _exchange(
        self, kind: str, number: int, group: np.ndarray, start: int, end: int, ahead: int
    ) -> CollectiveKernel:
        return CollectiveKernel(
            name=self.kernel,
            operation="allreduce",
            group=f"{kind}{number}",
            ranks=tuple(group.tolist()),
            size=group.size,
            start_ns=start + ahead,
            elapsed_ns=end - start,
            sent=4_000_000,
        )


def _rows(timeline: Timeline) -> list[dict[str, Any]]:
    described = {one.start_ns: one for one in timeline.collective_kernels or ()}
    rows: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step.number}", "pid": 1, "tid": 1,
         "ts": (step.start_ns or 0) / 1000, "dur": ((step.end_ns or 0) - (step.start_ns or 0)) / 1000}
        for step in timeline.steps or ()
    ]  # fmt: skip
    events = timeline.events
    for name, track, start, duration in zip(
        events.name.tolist(), events.track.tolist(), events.start.tolist(), events.duration.tolist()
    ):
        arguments: dict[str, Any] = {"device": 0, "stream": 7 + track}
        if (one := described.get(start)) is not None and one.name == events.names[name]:
            arguments |= {
                "Collective name": one.operation,
                "Process Group Name": one.group,
                "Process Group Ranks": str(list(one.ranks)),
                "Group size": one.size,
                "In msg nelems": 2_000_000,
                "dtype": "BFloat16",
            }
        rows.append(
            {"ph": "X", "cat": "kernel", "name": events.names[name], "pid": 0, "tid": 7 + track,
             "ts": start / 1000, "dur": duration / 1000, "args": arguments}
        )  # fmt: skip
    return rows
