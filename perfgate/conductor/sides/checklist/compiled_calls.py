"""The speed-up by compiling, on both sides in turns: each side compiles once and keeps its compiled call."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.conductor.engine.order import balanced_coins
from perfgate.conductor.sides.checklist.turns import FEWEST_TURNS, ChecklistSide
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.worker import Worker, WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.message import Message, as_message
from perfgate.locale import Activity
from perfgate.protocol import CompiledCall, CompiledTimed, CompileRequest, TimeCompiledRequest

# A small model compiles in 14 s at most, before and after which come its start and its turns.
SECONDS_OF_A_SIDE = 18.0
# Seconds of a turn: the fewest quads of a comparison, of 20 ms a block, take as long.
_TURN_SECONDS = 0.3


@dataclass
class CompiledSide:
    """The compiled call of one side: the seconds of its first call, and the speed-up in every turn.

    ``reason`` is why there is no speed-up.
    """

    cold_seconds: float | None = None
    speedups: list[float] = field(default_factory=list)
    reason: Message | None = None
    seconds: float = 0.0


def time_compiled_calls(
    bench: Bench, reference: WorkloadReference, sides: Sequence[ChecklistSide], layout_seed: int
) -> list[CompiledSide]:
    """Compile on every side, one after the other, and time the plain and the compiled call of each in turns.

    A side that cannot be compiled ends it: there is nothing to compare then.
    """
    results = [CompiledSide() for _ in sides]
    with ExitStack() as stack:
        workers: list[Worker] = []
        try:
            for side, result in zip(sides, results):
                worker, _ = stack.enter_context(
                    bench.worker(
                        side.checkout,
                        reference,
                        cpus=bench.cpus,
                        layout_seed=layout_seed,
                        log_name=f"{reference.name}-compiled",
                    )
                )
                workers.append(worker)
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=side.folder, prefix=".compiled-"))
                _compile(bench, reference, worker, result, Path(folder))
                if result.reason is not None:
                    return results
            _take_turns(bench, reference, workers, results)
        except WorkerError as error:
            results[len(workers) - 1].reason = as_message(error.detail.message)
    return results


def _compile(bench: Bench, reference: WorkloadReference, worker: Worker, result: CompiledSide, folder: Path) -> None:
    measure = bench.config.measure
    request = CompileRequest(folder=str(folder), limits=bench.config.limit_values, seed=measure.seed)
    doing = Activity("compiling {name}", name=reference.name)
    bench.say(doing.shown)
    began = time.monotonic()
    reply = worker.ask(request, CompiledCall, timeout=measure.step_timeout, doing=doing)
    result.seconds += time.monotonic() - began
    result.reason = reply.failed or reply.disagreement
    if reply.failed is None:
        result.cold_seconds = reply.cold_seconds


def _take_turns(
    bench: Bench, reference: WorkloadReference, workers: Sequence[Worker], results: Sequence[CompiledSide]
) -> None:
    lot = random.Random(f"{bench.config.measure.seed}:{reference.name}:compiled")
    last_begins = balanced_coins(lot, run=2)
    doing = Activity("timing the compiled call of {name}", name=reference.name)
    for turn in range(FEWEST_TURNS):
        order = range(len(workers))
        for index in reversed(order) if next(last_begins) else order:
            request = TimeCompiledRequest(seconds=_TURN_SECONDS, seed=turn)
            began = time.monotonic()
            timed = workers[index].ask(request, CompiledTimed, timeout=bench.config.measure.step_timeout, doing=doing)
            results[index].seconds += time.monotonic() - began
            results[index].speedups.append(timed.plain / max(timed.compiled, 1e-9))
