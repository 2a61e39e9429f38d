"""Profiles that both workers of a pair record in turns after their timed blocks:
operators, subroutines, traces with stacks.

All of it only informs: a worker that fails here costs the pair only this profile, so
its measurements must have been collected before.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perfgate.catalogue.names import PYTHON_TIMES
from perfgate.conductor.engine import order_of
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.workload import PairTrace, WorkloadSides
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import Say, Worker, WorkerError
from perfgate.document.budget import judges_subroutines
from perfgate.document.samples import BlockColumns, KernelBlocks, Replicate
from perfgate.errors import MeasuringError
from perfgate.locale import Activity, sentence
from perfgate.protocol import (
    SLOW_CALL_SECONDS,
    Analysis,
    CallsRecorded,
    Profiled,
    ProfileRequest,
    ProfileSubroutinesRequest,
    ProfileTimes,
    ProfileTimesRequest,
    RecordRequest,
    TraceRequest,
)

# Profiling costs half as much time again as a short pair; this many pairs name an
# operator that lost 10 %.
PROFILED_PAIRS = 12
# Of the pairs that profile their operators: enough that no single pair makes the flame
# graph, and 0.2 s each.
TRACED_PAIRS = 4
# The spread of an operator shrinks with the number of its calls in all pairs, so the
# pairs share the cost: a quarter of a second of CPU time each for a call of 3 to 5 ms.
# Turns are short to keep both sides in one state of the machine.
QUADS = 4
TURN_SECONDS = 0.010
# No quad begins later: the profiler of a GPU takes longer to start than a turn of
# calls.
QUADS_SECONDS = 1.0
TRACE_TURN_SECONDS = 0.05
FEWEST_CALLS, MOST_CALLS = 2, 10
# If traces are analysed later, a side has one turn for each shape, as long as all the
# short turns together: torch_npu takes 0.06 s to record, but 1.2 s of CPU time and as
# much per process again to analyse (24 recordings: 18 s in one go on two cores, 3 s of
# it to start; 108 s one by one).
LATE_TURN_SECONDS = 2 * QUADS * TURN_SECONDS
FEWEST_LATE_CALLS, MOST_LATE_CALLS = 5, 20
# The analysis of a long recording takes minutes (msprof).
ANALYSIS_SECONDS = 300.0
ANALYSIS_SECONDS_EACH = 20.0
# What is timed one by one inside a call, and how it is called.
ProfileKind = Literal["operators", "subroutines"]
_PROFILE_NAMES: dict[ProfileKind, Activity] = {
    "operators": Activity("operators"),
    "subroutines": Activity("modules and functions"),
}


@dataclass
class PairProfiles:
    """The profiles of a workload's pairs: some profile their operators once
    ``needs_names`` is true.
    """

    sides: WorkloadSides
    needs_names: Callable[[], bool]
    traces: Path | None
    _has_names_to_find: bool = False
    _pairs: int = 0

    def __post_init__(self) -> None:
        self._late = LateOperators(self.sides.bench)

    def check(self) -> None:
        """Ask whether names are needed, unless they are."""
        self._has_names_to_find = self._has_names_to_find or self.needs_names()

    def profile(
        self,
        members: tuple[Member, Member],
        replicates: tuple[Replicate, Replicate],
        checkouts: Sequence[Checkout],
    ) -> tuple[Replicate, Replicate]:
        """Profile a pair, if that is due; returns its replicates with what is known
        now.
        """
        bench, measured = self.sides.bench, self.sides.measured
        clock = self.sides.observer.monotonic
        # A trace that is analysed later is the only source of the time of kernels.
        is_late = members[0].analysed_late
        tolerance = bench.config.gate.tolerance
        has_enough = self._pairs >= PROFILED_PAIRS and not judges_subroutines(tolerance)
        if has_enough or not (self._has_names_to_find or is_late):
            return replicates
        workers = members[0].worker, members[1].worker
        if judges_subroutines(tolerance, PYTHON_TIMES):
            replicates = with_profile(
                "subroutines", workers, replicates, say=bench.say, clock=clock
            )
        traces = self.traces if self._pairs < TRACED_PAIRS else None
        self._pairs += 1
        if is_late:
            self._late.record(workers, replicates, checkouts, traces=traces)
            return replicates
        replicates = with_profile(
            "operators", workers, replicates, say=bench.say, clock=clock
        )
        if traces is not None:
            head_first = len(measured.traces) // len(replicates[0].shapes) % 2 == 1
            measured.traces += record_traces(
                workers, replicates, folder=traces, head_first=head_first, say=bench.say
            )
        return replicates

    def analyse_late(self) -> None:
        """Run the analyses deferred to a look, or to the end of the last pair: a look
        must know the time of kernels.
        """
        measured = self.sides.measured
        measured.traces += self._late.put_into(measured.base, measured.head)


def _report_missing(
    profile: Activity, replicate: Replicate, error: WorkerError, say: Say
) -> None:
    """A worker that fails costs the pair this profile only."""
    say(
        sentence(
            "{workload}: no {profile} from pair {pair}: {error}",
            workload=replicate.workload,
            profile=profile.shown,
            pair=replicate.pair,
            error=error.shown,
        )
    )


def with_profile(
    kind: ProfileKind,
    workers: tuple[Worker, Worker],
    replicates: tuple[Replicate, Replicate],
    *,
    say: Say,
    clock: Callable[[], float],
) -> tuple[Replicate, Replicate]:
    """Both members of a pair with the times of their operators or subroutines.

    The workers take turns, A B B A or B A A B by lot, the shapes one after another
    within each.
    """
    first, second = replicates
    lot = random.Random(first.worker.layout_seed)
    doing = Activity("profiling {name}", name=first.workload)
    request_type = ProfileRequest if kind == "operators" else ProfileSubroutinesRequest
    try:
        calls_of = {
            shape: _calls(blocks, TURN_SECONDS, FEWEST_CALLS, MOST_CALLS)
            for shape, blocks in first.shapes.items()
        }
        quads = 1 if 1 in calls_of.values() else QUADS
        began = clock()
        for quad in range(quads):
            if quad and clock() - began > QUADS_SECONDS:
                break
            order = order_of(lot.random() < 0.5)
            for shape, calls in calls_of.items():
                for index in order:
                    request = request_type(shape=shape, calls=calls)
                    workers[index].ask(request, Profiled, doing=doing)
        before = workers[0].ask(ProfileTimesRequest(), ProfileTimes, doing=doing)
        after = workers[1].ask(ProfileTimesRequest(), ProfileTimes, doing=doing)
    except WorkerError as error:
        _report_missing(_PROFILE_NAMES[kind], first, error, say)
        return replicates
    return _with_times(first, kind, before), _with_times(second, kind, after)


def _with_times(
    replicate: Replicate, kind: ProfileKind, times: ProfileTimes
) -> Replicate:
    profile = replicate.profile
    if kind == "operators":
        profile = msgspec.structs.replace(profile, operators=times.operators)
    else:
        profile = msgspec.structs.replace(profile, subroutines=times.subroutines)
    return msgspec.structs.replace(replicate, profile=profile)


def record_traces(
    workers: tuple[Worker, Worker],
    replicates: tuple[Replicate, Replicate],
    *,
    folder: Path,
    head_first: bool,
    say: Say,
) -> list[PairTrace]:
    """Let both workers record one turn of each shape with stacks into ``folder``, one
    after the other.

    Both are of the same minute and, over the pairs, each side is recorded first equally
    often, so differences between them are not the machine's.
    """
    first, _ = replicates
    traces = []
    doing = Activity("tracing {name}", name=first.workload)
    try:
        for number, (shape, blocks) in enumerate(first.shapes.items()):
            calls = _calls(blocks, TRACE_TURN_SECONDS, FEWEST_CALLS, MOST_CALLS)
            paths = {}
            for index in order_of(head_first, turns=2):
                name = _trace_name(first, number, index)
                request = TraceRequest(
                    shape=shape, calls=calls, folder=str(folder), name=name
                )
                recorded = workers[index].ask(request, CallsRecorded, doing=doing)
                # The file must lie in this folder, regardless of the worker's answer.
                paths[index] = folder / Path(recorded.recording).name
            trace = PairTrace(first.pair, shape, base=paths[0], head=paths[1])
            traces.append(trace)
    except WorkerError as error:
        _report_missing(Activity("traces"), first, error, say)
        return []
    return traces


# The number of a pair, and which member.
_MemberKey = tuple[int, str]


class _Recording(NamedTuple):
    """A recording of a pair's member to be analysed later, which leaves the file
    ``trace`` (without a suffix), if any.
    """

    pair: int
    member: str
    shape: str
    checkout: Checkout
    path: str
    trace: str | None


class LateOperators:
    """The operators of one workload's pairs on a device with deferred trace analysis."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._recordings: list[_Recording] = []

    def record(
        self,
        workers: tuple[Worker, Worker],
        replicates: tuple[Replicate, Replicate],
        checkouts: Sequence[Checkout],
        *,
        traces: Path | None = None,
    ) -> None:
        """Let both workers record one turn of each shape, first or second by lot; the
        recordings stay in ``traces``.
        """
        first, _ = replicates
        lot = random.Random(first.worker.layout_seed)
        doing = Activity("profiling {name}", name=first.workload)
        recordings = []
        try:
            for number, (shape, blocks) in enumerate(first.shapes.items()):
                calls = _calls(
                    blocks, LATE_TURN_SECONDS, FEWEST_LATE_CALLS, MOST_LATE_CALLS
                )
                for index in order_of(lot.random() < 0.5, turns=2):
                    checkout = checkouts[index]
                    folder = str(self._bench.recordings(checkout))
                    request = RecordRequest(shape=shape, calls=calls, folder=folder)
                    recorded = workers[index].ask(request, CallsRecorded, doing=doing)
                    trace = None
                    if traces is not None:
                        trace = str(traces / _trace_name(first, number, index))
                    recordings.append(
                        _Recording(
                            first.pair,
                            replicates[index].member,
                            shape,
                            checkout,
                            recorded.recording,
                            trace,
                        )
                    )
        except WorkerError as error:
            _report_missing(_PROFILE_NAMES["operators"], first, error, self._bench.say)
            return
        self._recordings += recordings

    def put_into(self, *sides: list[Replicate]) -> list[PairTrace]:
        """Analyse the recordings made since the last time, and give the replicates
        their operators and kernels, in place.

        Returns the traces that stay. If the analysis fails, the replicates stay
        without.
        """
        operators: dict[_MemberKey, dict[str, dict[str, float]]] = defaultdict(dict)
        kernels: dict[_MemberKey, dict[str, KernelBlocks]] = defaultdict(dict)
        files: dict[tuple[int, str], dict[str, Path]] = defaultdict(dict)
        analysis = self._analyse()
        for pair, member, shape, _, path, _ in self._recordings:
            if path in analysis.operators:
                operators[pair, member][shape] = analysis.operators[path]
            if path in analysis.kernels:
                kernels[pair, member][shape] = analysis.kernels[path]
            if path in analysis.traces:
                files[pair, shape][member] = Path(analysis.traces[path])
        self._recordings.clear()
        for replicates in sides:
            for index, replicate in enumerate(replicates):
                key = replicate.pair, replicate.member
                if key in operators:
                    replicates[index] = msgspec.structs.replace(
                        replicate,
                        profile=msgspec.structs.replace(
                            replicate.profile, operators=operators[key]
                        ),
                        kernels=kernels[key],
                    )
        traces = []
        for (pair, shape), of_members in files.items():
            if len(of_members) == 2:
                traces.append(
                    PairTrace(
                        pair, shape, base=of_members["first"], head=of_members["second"]
                    )
                )
        return traces

    def _analyse(self) -> Analysis:
        """The analysis of all recordings; without a checkout's recordings where it
        fails.
        """
        by_checkout: dict[Checkout, list[_Recording]] = defaultdict(list)
        for recording in self._recordings:
            by_checkout[recording.checkout].append(recording)
        whole = Analysis(operators={})
        for checkout, recordings in by_checkout.items():
            paths = [recording.path for recording in recordings]
            traces = {
                recording.path: recording.trace
                for recording in recordings
                if recording.trace is not None
            }
            timeout = ANALYSIS_SECONDS + ANALYSIS_SECONDS_EACH * len(recordings)
            try:
                analysis = self._bench.analyse(
                    checkout, paths, timeout=timeout, traces=traces
                )
            except MeasuringError as error:
                self._bench.say(
                    sentence("no operators from the pairs: {error}", error=error.shown)
                )
                continue
            whole.operators.update(analysis.operators)
            whole.kernels.update(analysis.kernels)
            whole.traces.update(analysis.traces)
        return whole


def _trace_name(replicate: Replicate, shape_number: int, member: int) -> str:
    """The name of a member's recording, without a suffix."""
    side = "head" if member else "base"
    return f"{replicate.workload}-{replicate.pair}-{shape_number}-{side}"


def _calls(blocks: BlockColumns, turn_seconds: float, fewest: int, most: int) -> int:
    # A block has one call more than its samples.
    call_seconds = min(blocks.conductor.seen_ns) / 1e9 / (blocks.calls[0] + 1)
    if call_seconds >= SLOW_CALL_SECONDS:
        return 1
    return max(fewest, min(most, round(turn_seconds / call_seconds)))
