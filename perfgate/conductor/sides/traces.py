"""Traces of a pair: both workers record some calls with their stacks, one after the other, when all else is done.

They show what ran under what. Both are of the same minute and, over the pairs, each side is recorded first as often as the
other, so what they show as a difference is not the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfgate.conductor.sides.operators import PairTrace, call_seconds, trace_name
from perfgate.conductor.workers.worker import Say, Worker, WorkerError
from perfgate.document.run import Replicate
from perfgate.protocol import Traced, TraceRequest

# Of the pairs that profile their operators: enough that no single one makes the flame graph, and 0.2 s each.
TRACED_PAIRS = 4
TURN_SECONDS = 0.05
FEWEST_CALLS = 2
MOST_CALLS = 10


def record_traces(
    workers: tuple[Worker, Worker],
    replicates: tuple[Replicate, Replicate],
    *,
    folder: Path,
    head_first: bool,
    timeout: float,
    say: Say,
) -> list[PairTrace]:
    """Let both workers record one turn of each shape into ``folder``.

    As with operators, a worker that fails here costs the pair its traces and nothing else.
    """
    try:
        return list(_recorded(workers, replicates[0], folder, head_first, timeout))
    except WorkerError as error:
        say(f"{replicates[0].workload}: no traces from pair {replicates[0].pair}: {error}")
        return []


def _recorded(
    workers: tuple[Worker, Worker], first: Replicate, folder: Path, head_first: bool, timeout: float
) -> Iterator[PairTrace]:
    for number, (shape, blocks) in enumerate(first.shapes.items()):
        calls = max(FEWEST_CALLS, min(MOST_CALLS, round(TURN_SECONDS / call_seconds(blocks))))
        paths: dict[int, Path] = {}
        for index in (1, 0) if head_first else (0, 1):
            name = trace_name(first, number, index)
            request = TraceRequest(shape=shape, calls=calls, folder=str(folder), name=name)
            traced = workers[index].ask(request, Traced, timeout=timeout, doing=f"tracing {first.workload}")
            # Whatever a worker answers, its file is one of this folder.
            paths[index] = folder / Path(traced.recording).name
        yield PairTrace(first.pair, shape, base=paths[0], head=paths[1])
