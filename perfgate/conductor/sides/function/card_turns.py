"""What the members of a pair do on an accelerator between timed blocks: they keep it warm, and profile its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Say, WorkerError
from perfgate.locale import sentence

# A card that idled is cooler and has another clock. If it idled for longer before a block, it first works for as long,
# unrecorded, but no longer than this.
MOST_IDLE_SECONDS = 0.1
MOST_WAKE_SECONDS = 0.5
# Kernels vary little: six recorded steps of 1,462 kernels had sums within 0.11 % (V100).
MOST_KERNEL_CALLS = 5


@dataclass
class CardTurns:
    """The work of both members of each pair on one card; a device without a queue needs none."""

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
            member.wake(shape, seconds=idle_seconds)

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

        A card that refuses to be profiled is not asked again: the gate then lacks the time of kernels, and reports that.
        """
        if self._is_refused or not all(member.has_kernel_times for member in members):
            return
        sides = tuple(order)
        for shape, calls in calls_of.items():
            for side in sides:
                self.wake(members[side], shape)
                try:
                    members[side].profile_kernels(
                        shape, calls=min(calls, MOST_KERNEL_CALLS), quad=quad
                    )
                except WorkerError as error:
                    if not error.alive:
                        raise
                    self._refuse(error)
                    return
                self.note_work()

    def _refuse(self, error: WorkerError) -> None:
        self._is_refused = True
        text = sentence(
            "{workload}: no time of kernels: {error}",
            workload=self.workload,
            error=error.shown,
        )
        self.say(text)
