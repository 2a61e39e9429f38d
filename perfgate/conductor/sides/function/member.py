"""One member of a pair: its worker, and the conductor's own observations from outside,
which user code cannot influence.

Members on an accelerator also keep the card warm between timed blocks, and profile its
kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from perfgate.conductor.engine import Start
from perfgate.conductor.sides.function.warm import WarmWorker
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import ReplyType, Say, Worker, WorkerError
from perfgate.document.files import misfit
from perfgate.document.message import Message
from perfgate.document.run import PAIRS_PER_ROUND, ErrorDetail
from perfgate.document.samples import (
    STOPPED,
    BlockColumns,
    ConductorColumns,
    Replicate,
    WorkerState,
    unpack,
)
from perfgate.errors import DocumentError
from perfgate.locale import sentence
from perfgate.protocol import (
    BlockDone,
    BlockRequest,
    Collected,
    CollectRequest,
    KernelsDone,
    KernelsRequest,
    Lane,
    LayoutMoved,
    MoveRequest,
    WakeRequest,
    Woken,
)

# A card that idled is cooler and has another clock. If it idled for longer before a
# block, it first works for as long, unrecorded, but no longer than this.
MOST_IDLE_SECONDS = 0.1
MOST_WAKE_SECONDS = 0.5
# Kernels vary little: six recorded steps of 1,462 kernels had sums within 0.11 %
# (V100).
MOST_KERNEL_CALLS = 5


@dataclass(frozen=True)
class _BlockLog:
    """The requests for the blocks of one lane and shape, in order, and what was
    observed of them.
    """

    requests: list[BlockRequest] = field(default_factory=list)
    observed: ConductorColumns = field(default_factory=ConductorColumns)

    def add_to(self, columns: BlockColumns) -> BlockColumns:
        # Waiting times are known of all blocks, or count for none.
        for delays in (self.observed.run_delay_ns, self.observed.conductor_delay_ns):
            if len(delays) < len(self.requests):
                delays.clear()
        return msgspec.structs.replace(columns, conductor=self.observed)


@dataclass
class Member:
    """A worker that is loaded and warm, gets its turns, and hands over a replicate.

    ``worker`` is the worker of ``origin``, or forked from it: the warm one is then its
    child, and its CPU time counts. ``uncounted`` names the hardware counters that the
    worker lacked, and why.
    """

    worker: Worker
    origin: WarmWorker
    workload: str
    observer: Observer
    uncounted: str | None = None

    def __post_init__(self) -> None:
        capabilities = self.origin.loaded.capabilities
        self.analysed_late = "late_analysis" in capabilities
        self.has_kernel_times = "kernel_times" in capabilities
        self.has_queue = "queue" in capabilities
        self._warm = self.origin.warm
        self._logs: dict[tuple[Lane, str], _BlockLog] = {}
        # Unknown until it moves.
        self._movable: bool | None = None
        self._cpu_ns_at_turn_end: int | None = None
        self._turn_ended_ns = 0
        # CPU time used out of turn, and the time out of turn, that belong to no block
        # yet.
        self._out_of_turn_ns = self._waited_ns = 0

    @property
    def block_calls(self) -> dict[tuple[Lane, str], int]:
        """Calls of a block by lane and shape; both lanes of a shape follow each other."""
        calls: dict[tuple[Lane, str], int] = {}
        for shape, count in self._warm.block_calls.items():
            calls["call", shape] = count
            if shape in self._warm.preprocess_calls:
                calls["preprocess", shape] = self._warm.preprocess_calls[shape]
        return calls

    @property
    def call_seconds(self) -> float:
        return self._warm.call_seconds

    def move(self, seed: int) -> None:
        """Give the worker another layout, so that luck of one is a part of the spread
        and no bias of all its quads.
        """
        moved = self.take_turn(MoveRequest(seed), LayoutMoved, "moving")
        self._movable = moved.movable and self._movable is not False

    def run_block(self, request: BlockRequest) -> None:
        """Run a block, and note outside observations."""
        pid, observer = self.worker.pid, self.observer
        log = self._logs.setdefault((request.lane, request.shape), _BlockLog())
        log.requests.append(request)
        observed = log.observed
        cpu_ns = self._begin_turn()
        conductor_delay: int | None = None

        def note_sent() -> None:
            # The receiver of a message may take the sender's CPU at once: our own wait
            # does not delay the block.
            nonlocal conductor_delay
            conductor_delay = observer.run_delay_ns(os.getpid())

        # Waiting is read next to the clock, so that waits outside the block are not
        # subtracted from it.
        delay = observer.run_delay_ns(pid)
        started = observer.clock_ns()
        self.ask(request, BlockDone, "measuring", sent=note_sent)
        ended = observer.clock_ns()
        delay_after = observer.run_delay_ns(pid)
        conductor_delay_after = observer.run_delay_ns(os.getpid())
        observed.asked_ns.append(started)
        observed.seen_ns.append(ended - started)
        observed.waited_ns.append(self._waited_ns)
        observed.out_of_turn_ns.append(self._out_of_turn_ns)
        self._waited_ns = self._out_of_turn_ns = 0
        cpu_ns_after = self._end_turn(ended)
        if delay is not None and delay_after is not None:
            observed.run_delay_ns.append(delay_after - delay)
        if conductor_delay is not None and conductor_delay_after is not None:
            observed.conductor_delay_ns.append(conductor_delay_after - conductor_delay)
        # The family shrinks if a process below the worker ends.
        observed.used_ns.append(max(0, cpu_ns_after - cpu_ns))

    def take_turn(
        self, request: msgspec.Struct, reply: type[ReplyType], verb: str
    ) -> ReplyType:
        """Let the worker do something unrecorded in its turn."""
        self._begin_turn()
        answer = self.ask(request, reply, verb)
        self._end_turn(self.observer.clock_ns())
        return answer

    def _begin_turn(self) -> int:
        """Note the worker's CPU time since its last turn ended; return its total."""
        cpu_ns = self.observer.cpu_ns(self.worker.pid)
        if self._cpu_ns_at_turn_end is not None:
            self._out_of_turn_ns += max(0, cpu_ns - self._cpu_ns_at_turn_end)
            self._waited_ns += self.observer.clock_ns() - self._turn_ended_ns
        return cpu_ns

    def _end_turn(self, ended_ns: int) -> int:
        """Note when the turn ended; return the worker's total CPU time, once it sleeps."""
        self.observer.wait_asleep(self.worker.pid)
        self._cpu_ns_at_turn_end = self.observer.cpu_ns(self.worker.pid)
        self._turn_ended_ns = ended_ns
        return self._cpu_ns_at_turn_end

    def replicate(self, start: Start, index: int, cpus: list[int]) -> Replicate:
        """Collect the samples of all blocks.

        Raises WorkerError if they do not match the blocks that ran.
        """
        settings = self.observer.thread_settings(self.worker.pid)
        collected = self.ask(CollectRequest(), Collected, "collecting")
        self.uncounted = collected.uncounted
        forked_from = None
        if self.worker is not self.origin.worker:
            forked_from = self.origin.number
        return Replicate(
            pair=start.number,
            arm=start.arm,
            member="second" if index else "first",
            workload=self.workload,
            start=self.origin.start,
            round=start.number // PAIRS_PER_ROUND,
            worker=WorkerState(
                layout_seed=start.layout_seed,
                moved=self._movable,
                cpus=cpus,
                forked_from=forked_from,
                start_up=self.origin.loaded.seconds,
                steady=self._warm.steady,
                settings={
                    **collected.settings,
                    **settings,
                    STOPPED: str(self.worker.times_stopped()),
                },
            ),
            shapes=self._with_logs(collected.shapes, "call"),
            preprocess=self._with_logs(collected.preprocess, "preprocess"),
            kernels=collected.kernels,
        )

    def _with_logs(
        self, shapes: Mapping[str, BlockColumns], lane: Lane
    ) -> dict[str, BlockColumns]:
        logs = {}
        for (of_lane, shape), log in self._logs.items():
            if of_lane == lane:
                logs[shape] = log
        check_blocks(shapes, {shape: log.requests for shape, log in logs.items()})
        return {shape: logs[shape].add_to(columns) for shape, columns in shapes.items()}

    def ask(
        self,
        request: msgspec.Struct,
        reply: type[ReplyType],
        verb: str,
        sent: Callable[[], None] = lambda: None,
    ) -> ReplyType:
        doing = f"{verb} {self.workload}"
        return self.worker.ask(request, reply, doing=doing, sent=sent)


def check_blocks(
    shapes: Mapping[str, BlockColumns], requests: Mapping[str, Sequence[BlockRequest]]
) -> None:
    """Raise WorkerError if a worker's columns do not fit together, or do not match the
    requested blocks.
    """
    if shapes.keys() != requests.keys():
        raise _false_blocks(
            f"shapes {', '.join(sorted(shapes))[:200]} instead of {', '.join(sorted(requests))[:200]}"
        )
    for shape, columns in shapes.items():
        if reason := misfit(columns):
            raise _false_blocks(f"shape {shape}: {reason}")
        blocks = list(zip(columns.quad, columns.sequence, columns.calls))
        requested = [
            (request.quad, request.sequence, request.calls)
            for request in requests[shape]
        ]
        if blocks != requested:
            raise _false_blocks(f"shape {shape}: other blocks than it was asked for")
        try:
            for packed in columns.times.arrays:
                unpack(packed)
        except DocumentError as error:
            raise _false_blocks(f"shape {shape}: {error}") from error


def _false_blocks(reason: str) -> WorkerError:
    message = Message("worker.false-blocks", {"why": reason})
    return WorkerError(ErrorDetail(kind="protocol", message=message), alive=False)


@dataclass
class CardTurns:
    """The work of both members of each pair on one card; a device without a queue needs
    none.
    """

    observer: Observer
    workload: str
    say: Say
    _worked_ns: int | None = None
    _is_refused: bool = False

    def wake(self, member: Member, shape: str) -> None:
        """Let the card work if it idled for too long, or if that is unknown."""
        if not member.has_queue:
            return
        idle_seconds = MOST_WAKE_SECONDS
        if self._worked_ns is not None:
            idle_seconds = min(
                idle_seconds, (self.observer.clock_ns() - self._worked_ns) / 1e9
            )
        if idle_seconds > MOST_IDLE_SECONDS:
            request = WakeRequest(shape=shape, seconds=idle_seconds)
            member.take_turn(request, Woken, "warming up")

    def note_work(self) -> None:
        self._worked_ns = self.observer.clock_ns()

    def profile(
        self,
        members: Sequence[Member],
        order: Iterable[int],
        calls_of: Mapping[str, int],
        *,
        quad: int,
    ) -> None:
        """Let both members profile a block of each shape, in this order.

        A card that refuses to be profiled is not asked again: the gate then lacks the
        time of kernels, and reports that.
        """
        if self._is_refused or not all(member.has_kernel_times for member in members):
            return
        sides = tuple(order)
        for shape, calls in calls_of.items():
            for side in sides:
                self.wake(members[side], shape)
                request = KernelsRequest(
                    shape=shape, calls=min(calls, MOST_KERNEL_CALLS), quad=quad
                )
                try:
                    members[side].take_turn(request, KernelsDone, "profiling")
                except WorkerError as error:
                    if not error.alive:
                        raise
                    self._is_refused = True
                    text = sentence(
                        "{workload}: no time of kernels: {error}",
                        workload=self.workload,
                        error=error.shown,
                    )
                    self.say(text)
                    return
                self.note_work()
