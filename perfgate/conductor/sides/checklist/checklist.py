"""The checklist on one workload: a worker answers step by step; one that dies is
replaced, and the rest goes on.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import STEPS_OF_A_YOUNG_PROCESS, TIMED_STEPS, card
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.foresight import foresee_steps
from perfgate.conductor.workers.proc_stats import waited_share
from perfgate.conductor.workers.worker import Worker, WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.message import Message, as_message, english
from perfgate.document.run import (
    LEFT_TO_TURNS,
    REPEAT,
    TIME_SPENT,
    Artifact,
    CallAccount,
    CorrectnessResult,
    CounterSet,
    ErrorDetail,
    OperatorRow,
    StepProcedure,
    StepResult,
    WorkloadRecord,
    is_left_to_turns,
)
from perfgate.locale import Activity, sentence
from perfgate.protocol import (
    CheckReply,
    CheckRequest,
    Loaded,
    StepExtent,
    StepReply,
    StepRequest,
    StepSettings,
)
from perfgate.system.processes import run_delay_ns

replace = msgspec.structs.replace

_CHECK = None  # among the numbers of steps: the check of the output
# How long steps that only inform may take together on one side of a check, and a single
# one of them.
INFORMING_SECONDS = 20.0
INFORMING_TIMEOUT = 60.0
# The same on a busy machine for steps that the other side has measured, and for exact
# numbers: these are compared once.
MOST_INFORMING_SECONDS = 40.0
# The step that times calls for the duration of ``[measure] steady``.
STEADY_STEP = 1


@dataclass
class Findings:
    """The results of one pass of the checklist over one workload, which took
    ``load_seconds`` to load.

    A workload that ``hangs`` did not end in the time of a step.
    """

    workload: WorkloadRecord
    load_seconds: float = 0.0
    hangs: bool = False
    steps: list[StepResult] = field(default_factory=list)
    correctness: list[CorrectnessResult] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    accounts: list[CallAccount] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    warnings: list[Message] = field(default_factory=list)

    def add_turn(self, steps: Iterable[StepResult], turns: Mapping[int, int]) -> None:
        """Add the results of a further turn of some steps, labelled with its number,
        which ``turns`` has by step.

        A step that had no turn yet is added as it is.
        """
        places = {step.number: place for place, step in enumerate(self.steps)}
        for step in steps:
            place = places.get(step.number)
            if place is None:
                self.steps.append(step)
                self.workload = replace(
                    self.workload, steps=sorted({*self.workload.steps, step.number})
                )
                continue
            first = self.steps[place]
            if is_left_to_turns(first):
                first = _without_first_turn(first, step)
            values = list(first.values)
            for value in step.values:
                values.append(
                    replace(
                        value, labels={**value.labels, REPEAT: str(turns[step.number])}
                    )
                )
            self.steps[place] = replace(
                first, values=values, duration=first.duration + step.duration
            )


def _without_first_turn(first: StepResult, again: StepResult) -> StepResult:
    """A first turn that left its experiments out, with a place for each number that
    another turn has.
    """
    reason = Message(LEFT_TO_TURNS)
    places = {(value.metric, frozenset(value.labels.items())) for value in first.values}
    missing = []
    for value in again.values:
        if (value.metric, frozenset(value.labels.items())) not in places:
            missing.append(
                replace(value, value=None, interval=None, count=None, reason=reason)
            )
    if first.status != "unavailable":
        return replace(first, values=[*first.values, *missing])
    return replace(
        first,
        status=again.status,
        reason=again.reason,
        findings=again.findings,
        values=missing,
    )


@dataclass(frozen=True)
class ChecklistPlan:
    """The steps of one pass, and how it measures them; files go into ``folder``.

    No step begins after ``deadline`` (of the monotonic clock). The steps ``informing``
    come last and share a limited time. The steps ``exact_only`` come at the very end
    and measure only their exact numbers. The steps ``without_experiments`` leave those
    to further turns. Step 1 times calls for ``steady`` seconds a shape, or by default
    for the configured time. ``earlier`` are the seconds that the steps took on the
    other side, or another time. ``checks`` enables the check of the output, and
    ``brief`` marks further turns. With ``leave_out_waits`` calls are timed without
    waits for a CPU. On an accelerator step 1 compares the calls of new processes,
    ``starts`` of them.
    """

    steps: tuple[int, ...]
    folder: Path
    quick: bool = True
    informing: tuple[int, ...] = ()
    exact_only: tuple[int, ...] = ()
    without_experiments: Collection[int] = ()
    deadline: float = math.inf
    steady: float | None = None
    earlier: Mapping[int, float] = field(default_factory=dict)
    layout_seed: int = 0
    checks: bool = True
    brief: bool = False
    leave_out_waits: bool = False
    starts: int = 0

    def in_order(self) -> list[int | None]:
        """The steps and the check of the output, in the order in which one pass takes
        them.

        The steps with numbers of a young process come first: the first call that step 1
        times is the first there is, and memory follows the calls, whichever other steps
        are requested. Long steps come last, each in a separate process.
        """
        young: list[int | None] = [
            step
            for step in STEPS_OF_A_YOUNG_PROCESS
            if step in (*self.steps, *self.informing)
        ]
        usual: list[int | None] = []
        long: list[int | None] = []
        for step in self.steps:
            if _takes_long(step):
                long.append(step)
            elif step not in young:
                usual.append(step)
        if self.checks:
            usual.append(_CHECK)
        usual += [step for step in self.informing if step not in young]
        return [*young, *usual, *long, *self.exact_only]


def _takes_long(step: int | None) -> bool:
    return step is not _CHECK and card(step).pace.long


def informing_seconds(
    number: int, earlier: Mapping[int, float], exact_only: Collection[int]
) -> float:
    """How long informing steps may have taken when this one begins: longer if it
    completes a comparison, or is exact.

    ``earlier`` are the seconds that the steps took on the other side; those that it
    left out took none.
    """
    completes = earlier.get(number, 0.0) > 0.0
    if completes or number in exact_only:
        return MOST_INFORMING_SECONDS
    return INFORMING_SECONDS


def run_checklist(
    bench: Bench, checkout: Checkout, reference: WorkloadReference, plan: ChecklistPlan
) -> Findings:
    """Run the steps and the correctness check on one workload.

    A failure is recorded as an error with its traceback; everything else is still
    measured, in a fresh process where an error may have spoiled the device for this
    one. An experiment cannot fail a step: one that fails after an experiment ran in the
    same process, or with it, is repeated in a fresh process without experiments. The
    check also runs after the deadline, because no output passes without it. A workload
    that takes all the time of a step, or of the check, is taken to hang: nothing else
    is measured of it, because every further step would wait as long.
    """
    runner = _StepRunner(bench, checkout, reference, plan)
    while runner.remaining:
        try:
            with bench.worker(checkout, reference, layout_seed=plan.layout_seed) as (
                worker,
                loaded,
            ):
                runner.begin(loaded)
                while runner.remaining and runner.run_next(worker, loaded):
                    pass
        except WorkerError as error:
            runner.give_up(error)
    runner.findings.steps.sort(key=lambda step: step.number)
    return runner.findings


@dataclass
class _StepRunner:
    """Asks workers for the steps that remain, one after the other, and for the check of
    the output.
    """

    bench: Bench
    checkout: Checkout
    reference: WorkloadReference
    plan: ChecklistPlan
    # Seconds that the informing steps took so far.
    spent: float = 0.0
    # Whether an error of the device spoils the worker for what follows.
    is_spoiled_by_errors: bool = False
    # The steps that ran in the worker so far, and whether it has done anything yet.
    ran: list[int] = field(default_factory=list)
    is_fresh: bool = False

    def __post_init__(self) -> None:
        plan = self.plan
        self.findings = Findings(self._record())
        self.remaining = plan.in_order()
        self.steady = self.bench.config.measure.steady
        if plan.steady is not None:
            self.steady = plan.steady
        config = self.bench.config
        self.settings = StepSettings(
            threads=self.bench.threads,
            expected_kernels=config.expect.kernels,
            graph_spans=config.graph.spans,
            budgets=config.budgets,
            copies=config.measure.copy_counts,
            cold_start=config.measure.cold_start,
            shape_space=config.measure.shape_space,
        )
        # The steps without experiments, each with the reason; a broken one is repeated.
        self.without_experiments = dict.fromkeys(
            plan.without_experiments, Message(LEFT_TO_TURNS)
        )
        self.broken: dict[int, Message] = {}

    def _record(
        self, loaded: Loaded | None = None, error: ErrorDetail | None = None
    ) -> WorkloadRecord:
        plan = self.plan
        return workload_record(
            self.checkout,
            self.reference,
            (*plan.steps, *plan.informing, *plan.exact_only),
            loaded=loaded,
            error=error,
            quick=plan.quick,
        )

    def begin(self, loaded: Loaded) -> None:
        """Begin with a fresh worker."""
        self.findings.workload = self._record(loaded)
        self.findings.load_seconds = loaded.seconds
        self.is_spoiled_by_errors = "spoiled_by_errors" in loaded.capabilities
        self.is_fresh = True
        self.ran.clear()

    def run_next(self, worker: Worker, loaded: Loaded) -> bool:
        """Run the next step, or the check.

        Return whether the worker can be asked again.
        """
        plan, number = self.plan, self.remaining[0]
        # On an accelerator, where loading takes seconds, not for exact numbers.
        shares_process = self.bench.is_accelerated and number in plan.exact_only
        if _takes_long(number) and not shares_process and not self.is_fresh:
            return False
        self.is_fresh = False
        durations = {step.number: step.duration for step in self.findings.steps}
        to_come = [step for step in self.remaining if step is not _CHECK]
        self.bench.foresee(foresee_steps(plan.earlier, durations, to_come))
        del self.remaining[0]
        if number is _CHECK:
            return self._check(worker, loaded)
        if time.monotonic() > plan.deadline:
            self._leave_out(number, TIME_SPENT)
            return True
        if number not in plan.informing and number not in plan.exact_only:
            return self._run_step(worker, number, loaded)
        limit = informing_seconds(number, plan.earlier, plan.exact_only)
        if self.spent > limit:
            # A step that itself spent the time and broke gives that as its reason.
            reason = self.broken.get(number) or Message(
                "gate.checklist-time-spent", {"seconds": limit, "step": number}
            )
            self._leave_out(number, reason)
            return True
        started = time.monotonic()
        is_usable = self._run_step(worker, number, loaded, at_most=INFORMING_TIMEOUT)
        self.spent += max(
            0.0, time.monotonic() - started - self._steady_seconds(number)
        )
        return is_usable

    def give_up(self, error: WorkerError) -> None:
        """No worker is available: record its error for the remaining steps."""
        self.findings.workload = self._record(error=error.detail)
        for number in self.remaining:
            if number is not _CHECK:
                self.findings.steps.append(
                    _unmeasured(number, self.reference, error=error.detail)
                )
        self.remaining.clear()

    def _leave_out(self, number: int, reason: Message) -> None:
        self.findings.steps.append(_unmeasured(number, self.reference, reason=reason))

    def _end_after_hang(self, error: ErrorDetail, shapes: Iterable[str]) -> None:
        """Leave out all that remains, because the workload hangs."""
        self.findings.hangs = True
        reason = Message("gate.after-hang", {"error": as_message(error.message)})
        for number in self.remaining:
            if number is _CHECK:
                self._fail_check(shapes, reason)
            else:
                self._leave_out(number, reason)
        self.remaining.clear()

    def _fail_check(self, shapes: Iterable[str], message: Message | str) -> None:
        for shape in shapes:
            failed = CorrectnessResult(
                workload=self.reference.name,
                shape=shape,
                status="error",
                message=message,
            )
            self.findings.correctness.append(failed)

    def _steady_seconds(self, number: int) -> float:
        """The time that the requested steady state adds to a step."""
        if number != STEADY_STEP:
            return 0.0
        return self.steady * len(self.findings.workload.shapes)

    def _check(self, worker: Worker, loaded: Loaded) -> bool:
        """Run the correctness check and return whether the worker can be asked again.

        One that cannot run is recorded as an error of every shape. No experiment may
        spoil it: in a process that ran one, only an accepted output counts; any other
        is checked again in a fresh process.
        """
        doing = Activity("checking the output of {name}", name=self.reference.name)
        try:
            reply = worker.ask(CheckRequest(), CheckReply, doing=doing)
        except WorkerError as error:
            if worker.experimented:
                return self._check_again()
            self.bench.say(f"{doing.shown}: {error}")
            self._fail_check(loaded.shapes, error.detail.message)
            if error.detail.timed_out:
                self._end_after_hang(error.detail, loaded.shapes)
            return error.alive and not self.is_spoiled_by_errors
        has_messages = any(result.message for result in reply.results)
        is_unknown = not all(result.signature for result in reply.results)
        if worker.experimented and (has_messages or is_unknown):
            return self._check_again()
        self.findings.correctness = reply.results
        return not (self.is_spoiled_by_errors and has_messages)

    def _check_again(self) -> bool:
        self.bench.say(
            sentence(
                "{name}: checking the output again in a process without experiments",
                name=self.reference.name,
            )
        )
        self.remaining.insert(0, _CHECK)
        return False

    def _run_step(
        self, worker: Worker, number: int, loaded: Loaded, *, at_most: float = math.inf
    ) -> bool:
        """Run one step and return whether the worker can be asked again.

        It may take ``at_most`` seconds, and step 1 the seconds of the steady state as
        well.
        """
        config = self.bench.config
        findings = self.findings
        plan = self.plan
        extent = StepExtent(
            quick=plan.quick,
            brief=plan.brief,
            exact_only=number in plan.exact_only,
            steady=self.steady,
            starts=plan.starts,
        )
        request = StepRequest(
            number=number,
            limits=config.limit_values,
            seed=config.measure.seed,
            artifacts=str(plan.folder),
            extent=extent,
            settings=self.settings,
            leave_out_waits=plan.leave_out_waits and number in TIMED_STEPS,
            no_experiments=self.without_experiments.get(number),
        )
        doing = Activity(
            "{name}: step {number} {slug}",
            name=self.reference.name,
            number=number,
            slug=card(number).slug,
        )
        self.bench.say(doing.shown)
        procedure = StepProcedure(
            quick=plan.quick,
            clock="awake" if request.leave_out_waits else "wall",
            after=self.ran.copy(),
        )
        self.ran.append(number)
        started, delay = time.perf_counter_ns(), run_delay_ns(worker.pid)
        try:
            timeout = min(config.measure.step_timeout, at_most) + self._steady_seconds(
                number
            )
            reply = worker.ask(request, StepReply, timeout=timeout, doing=doing)
        except WorkerError as error:
            if self._repeats(worker, number, error.detail):
                return False
            findings.steps.append(
                _unmeasured(number, self.reference, error=error.detail)
            )
            # A step that only informs may just be slow.
            had_all_time = at_most >= config.measure.step_timeout
            if error.detail.timed_out and had_all_time:
                self._end_after_hang(error.detail, loaded.shapes)
            return error.alive and not self.is_spoiled_by_errors
        if reply.result.error is not None and self._repeats(
            worker, number, reply.result.error
        ):
            return False
        waited = waited_share(
            delay, run_delay_ns(worker.pid), time.perf_counter_ns() - started
        )
        findings.steps.append(replace(reply.result, waited=waited, procedure=procedure))
        findings.counters += reply.counters
        findings.operators += reply.operators
        findings.accounts += reply.accounts
        paths = {artifact.path for artifact in findings.artifacts}
        for artifact in reply.artifacts:
            if artifact.path not in paths:
                findings.artifacts.append(
                    replace(artifact, workload=self.reference.name)
                )
        return not reply.spoiled

    def _repeats(self, worker: Worker, number: int, error: ErrorDetail) -> bool:
        """Whether a failed step is to be repeated in a fresh process; put back, it then
        comes next, without experiments.
        """
        if not worker.experimented or number in self.without_experiments:
            return False
        reason = Message(
            "experiment.broke-process", {"error": as_message(error.message)}
        )
        self.without_experiments[number] = self.broken[number] = reason
        self.remaining.insert(0, number)
        self.bench.say(
            sentence(
                "{name}: repeating step {number} without experiments: {reason}",
                name=self.reference.name,
                number=number,
                reason=english(reason),
            )
        )
        return True


def _unmeasured(
    number: int,
    reference: WorkloadReference,
    *,
    reason: Message | None = None,
    error: ErrorDetail | None = None,
) -> StepResult:
    result = StepResult(
        number=number,
        slug=card(number).slug,
        workload=reference.name,
        status="unavailable",
        reason=reason,
    )
    if error is None:
        return result
    return replace(
        result, status="error", reason=as_message(error.message), error=error
    )


def workload_record(
    checkout: Checkout,
    reference: WorkloadReference,
    steps: tuple[int, ...],
    *,
    loaded: Loaded | None = None,
    error: ErrorDetail | None = None,
    quick: bool | None = None,
) -> WorkloadRecord:
    try:
        sha256 = hashlib.sha256(
            (checkout.harness / reference.file).read_bytes()
        ).hexdigest()
    except OSError:
        sha256 = ""
    record = WorkloadRecord(
        name=reference.name,
        reference=reference.text,
        sha256=sha256,
        batch=0,
        shapes=[],
        steps=list(steps),
        quick=quick,
        error=error,
    )
    if loaded is None:
        return record
    return replace(
        record,
        batch=loaded.batch,
        shapes=loaded.shapes,
        sla_p99=loaded.sla_p99,
        sla_rate=loaded.sla_rate,
    )
