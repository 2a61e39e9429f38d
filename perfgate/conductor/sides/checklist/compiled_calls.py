"""The speed-up by compiling, on both sides in turns: each side compiles once and keeps
its compiled call.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from perfgate.conductor.engine import Engine, Quads, QuadTurns, Start, balanced_coins
from perfgate.conductor.failure import TurnError
from perfgate.conductor.sides.checklist.turns import FEWEST_TURNS, ChecklistSide
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference
from perfgate.document.message import Message, as_message
from perfgate.locale import Activity
from perfgate.protocol import (
    CompiledCall,
    CompiledTimed,
    CompileRequest,
    TimeCompiledRequest,
)

# A small model compiles in 14 s at most, before and after which come its start and its
# turns.
SECONDS_OF_A_SIDE = 18.0
# Seconds of a turn: the fewest quads of a comparison, of 20 ms a block, take as long.
_TURN_SECONDS = 0.3


@dataclass
class CompiledSide:
    """The compiled call of one side: the seconds of its first call, and the speed-up in
    every turn.

    ``reason`` is why there is no speed-up.
    """

    cold_seconds: float | None = None
    speedups: list[float] = field(default_factory=list)
    reason: Message | None = None
    seconds: float = 0.0


def time_compiled_calls(
    bench: Bench,
    reference: WorkloadReference,
    sides: Sequence[ChecklistSide],
    layout_seed: int,
) -> list[CompiledSide]:
    """Compile on every side, one after the other, and time the plain and the compiled
    call of each in turns.

    A side that cannot be compiled ends it: then no comparison is possible.
    """
    lot = random.Random(f"{bench.config.measure.seed}:{reference.name}:compiled")
    start = Start(
        0,
        second_starts=False,
        second_leads=balanced_coins(lot, run=2),
        layout_seed=layout_seed,
    )
    with closing(_CompiledTurns(bench, reference, sides)) as client:
        Engine(
            client,
            iter([start]),
            [FEWEST_TURNS],
            is_decided=lambda: True,
            turns=len(sides),
        ).run()
    return client.results


@dataclass
class _CompiledTurns:
    """A client of the engine with one start, in which both sides compile."""

    bench: Bench
    reference: WorkloadReference
    sides: Sequence[ChecklistSide]
    done: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)
    _workers: list[Worker] = field(default_factory=list)
    _acting: int = 0

    def __post_init__(self) -> None:
        self.results = [CompiledSide() for _ in self.sides]

    def start(self, start: Start, /) -> Quads:
        for side in range(len(self.sides)):
            self._acting = side
            self._compile(start.layout_seed)
            if self.results[side].reason is not None:
                return Quads.exactly(0)
        return Quads.exactly(FEWEST_TURNS)

    def quad(self, quad: QuadTurns) -> bool:
        doing = Activity("timing the compiled call of {name}", name=self.reference.name)
        for side in quad.turns():
            self._acting = side
            request = TimeCompiledRequest(seconds=_TURN_SECONDS, seed=quad.index)
            began = time.monotonic()
            timed = self._workers[side].ask(request, CompiledTimed, doing=doing)
            result = self.results[side]
            result.seconds += time.monotonic() - began
            result.speedups.append(timed.plain / max(timed.compiled, 1e-9))
        return True

    def finish(self) -> None:
        self.done = FEWEST_TURNS

    def fail(self, error: TurnError) -> bool:
        self.results[self._acting].reason = as_message(error.detail.message)
        return False

    def close(self) -> None:
        self._stack.close()

    def _compile(self, layout_seed: int) -> None:
        """Compile on the side that acts."""
        bench = self.bench
        reference = self.reference
        side = self.sides[self._acting]
        result = self.results[self._acting]
        log_name = f"{reference.name}-compiled"
        process = bench.worker(
            side.checkout, reference, layout_seed=layout_seed, log_name=log_name
        )
        worker, _ = self._stack.enter_context(process)
        self._workers.append(worker)
        folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(dir=side.folder, prefix=".compiled-")
        )
        config = bench.config
        request = CompileRequest(
            folder=folder, limits=config.limit_values, seed=config.measure.seed
        )
        doing = Activity("compiling {name}", name=reference.name)
        bench.say(doing.shown)
        began = time.monotonic()
        reply = worker.ask(request, CompiledCall, doing=doing)
        result.seconds += time.monotonic() - began
        result.reason = reply.failed or reply.disagreement
        if reply.failed is None:
            result.cold_seconds = reply.cold_seconds
