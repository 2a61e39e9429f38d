"""The checklist on one workload: a worker answers step by step; one that dies is replaced, and the rest goes on."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import card
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.conductor.workers.foresight import foresee_steps
from perfgate.conductor.workers.proc_stats import waited_share
from perfgate.conductor.workers.worker import Worker, WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.message import Message, as_message
from perfgate.document.run import (
    TIME_SPENT,
    Artifact,
    CallAccount,
    CorrectnessResult,
    CounterSet,
    ErrorDetail,
    OperatorRow,
    StepResult,
    WorkloadRecord,
)
from perfgate.protocol import CheckReply, CheckRequest, Loaded, StepReply, StepRequest
from perfgate.system.processes import run_delay_ns

replace = msgspec.structs.replace

_CHECK = None  # among the numbers of steps: the check of the output
# How long steps that only inform may take together on one side of a check, and a single one of them.
INFORMING_SECONDS = 20.0
INFORMING_TIMEOUT = 60.0
# The step whose calls are timed for as long as ``[measure] steady`` says.
STEADY_STEP = 1


@dataclass
class Findings:
    """The results of one pass of the checklist over one workload."""

    workload: WorkloadRecord
    steps: list[StepResult] = field(default_factory=list)
    correctness: list[CorrectnessResult] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    accounts: list[CallAccount] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    warnings: list[Message] = field(default_factory=list)

    def add_again(self, repeated_steps: Iterable[StepResult], label: str, number: int) -> None:
        """Add the values of steps that ran once more to those of their first run, labelled with which time it was."""
        repeated = {step.number: step for step in repeated_steps}
        for index, step in enumerate(self.steps):
            if again := repeated.get(step.number):
                values = [replace(value, labels={**value.labels, label: str(number)}) for value in again.values]
                self.steps[index] = replace(
                    step, values=[*step.values, *values], duration=step.duration + again.duration
                )


def run_checklist(
    bench: Bench,
    checkout: Checkout,
    reference: WorkloadReference,
    *,
    steps: tuple[int, ...],
    informing: tuple[int, ...] = (),
    quick: bool,
    folder: Path,
    deadline: float = math.inf,
    steady: float | None = None,
    earlier: Mapping[int, float] | None = None,
) -> Findings:
    """Run the steps and the correctness check on one workload; files go into ``folder``.

    No step begins after ``deadline`` (of the monotonic clock); the check does, for nothing passes without it. The steps
    ``informing`` come last and have seconds altogether. Step 1 times calls for ``steady`` seconds a shape, where that is None
    for as long as perfgate.toml asks for. ``earlier`` are the seconds that the steps took on the other side, or another time.

    What fails is recorded as an error with its traceback; everything else is still measured. Where an error of the device
    spoils the process, each step has one of its own.
    """
    asked = (*steps, *informing)
    findings = Findings(_record(checkout, reference, asked))
    # The steps come first, so that the first call that step 1 times is the first there is.
    remaining: list[int | None] = [*steps, _CHECK, *informing]
    steady = bench.config.measure.steady if steady is None else steady
    spent = 0.0
    while remaining:
        try:
            with bench.worker(checkout, reference, cpus=bench.cpus, layout_seed=0, log_name=reference.name) as (
                worker,
                loaded,
            ):
                findings.workload = _record(checkout, reference, asked, loaded=loaded)
                usable = True
                while usable and remaining:
                    _foresee(bench, findings, remaining, earlier or {})
                    number = remaining.pop(0)
                    run_step = partial(
                        _run_step, bench, worker, reference, number or 0, quick, folder, findings, steady=steady
                    )
                    if number is _CHECK:
                        _check(bench, worker, reference, loaded, findings)
                    elif time.monotonic() > deadline:
                        findings.steps.append(_unmeasured(number, reference, reason=TIME_SPENT))
                    elif number not in informing:
                        usable = run_step()
                    elif spent > INFORMING_SECONDS:
                        late = Message("gate.checklist-time-spent", {"seconds": INFORMING_SECONDS, "step": number})
                        findings.steps.append(_unmeasured(number, reference, reason=late))
                    else:
                        started = time.monotonic()
                        usable = run_step(at_most=INFORMING_TIMEOUT)
                        asked_for = steady * len(loaded.shapes) if number == STEADY_STEP else 0.0
                        spent += max(0.0, time.monotonic() - started - asked_for)
                    usable = usable and "spoiled_by_errors" not in loaded.capabilities
        except WorkerError as error:
            findings.workload = _record(checkout, reference, asked, error=error.detail)
            pending = [number for number in remaining if number is not _CHECK]
            findings.steps += [_unmeasured(number, reference, error=error.detail) for number in pending]
            return findings
    return findings


def _foresee(bench: Bench, findings: Findings, remaining: list[int | None], earlier: Mapping[int, float]) -> None:
    done = {step.number: step.duration for step in findings.steps}
    bench.foresee(foresee_steps(earlier, done, [number for number in remaining if number is not _CHECK]))


def _check(bench: Bench, worker: Worker, reference: WorkloadReference, loaded: Loaded, findings: Findings) -> None:
    """Run the correctness check; one that cannot run is recorded as an error of every shape."""
    doing = f"checking the output of {reference.name}"
    try:
        reply = worker.ask(CheckRequest(), CheckReply, timeout=bench.config.measure.step_timeout, doing=doing)
    except WorkerError as error:
        bench.say(f"{doing}: {error}")
        findings.correctness = [
            CorrectnessResult(workload=reference.name, shape=shape, status="error", message=error.detail.message)
            for shape in loaded.shapes
        ]
    else:
        findings.correctness = reply.results


def _run_step(
    bench: Bench,
    worker: Worker,
    reference: WorkloadReference,
    number: int,
    quick: bool,
    folder: Path,
    findings: Findings,
    *,
    at_most: float = math.inf,
    steady: float = 0.0,
) -> bool:
    """Run one step and return whether the worker can be asked again.

    It may take ``at_most`` seconds, and step 1 the ``steady`` ones of every shape beside them.
    """
    config = bench.config
    request = StepRequest(
        number=number,
        quick=quick,
        threads=bench.threads,
        limits=dict(config.limits),
        seed=config.measure.seed,
        artifacts=str(folder),
        expected_kernels=config.expect.kernels,
        graph_spans=config.graph.spans,
        budgets=list(config.budgets),
        steady=steady,
        copies=config.measure.copies,
        cold_start=config.measure.cold_start,
        shape_space=config.measure.shape_space,
    )
    asked_for = steady * len(findings.workload.shapes) if number == STEADY_STEP else 0.0
    doing = f"{reference.name}: step {number} {card(number).slug}"
    bench.say(doing)
    started, delay = time.perf_counter_ns(), run_delay_ns(worker.pid)
    try:
        timeout = min(config.measure.step_timeout, at_most) + asked_for
        reply = worker.ask(request, StepReply, timeout=timeout, doing=doing)
    except WorkerError as error:
        findings.steps.append(_unmeasured(number, reference, error=error.detail))
        return error.alive
    waited = waited_share(delay, run_delay_ns(worker.pid), time.perf_counter_ns() - started)
    findings.steps.append(replace(reply.result, waited=waited))
    findings.counters += reply.counters
    findings.operators += reply.operators
    findings.accounts += reply.accounts
    paths = {artifact.path for artifact in findings.artifacts}
    new = [artifact for artifact in reply.artifacts if artifact.path not in paths]
    findings.artifacts += [replace(artifact, workload=reference.name) for artifact in new]
    return True


def _unmeasured(
    number: int, reference: WorkloadReference, *, reason: Message | None = None, error: ErrorDetail | None = None
) -> StepResult:
    return StepResult(
        number=number,
        slug=card(number).slug,
        workload=reference.name,
        status="error" if error else "unavailable",
        reason=as_message(error.message) if error else reason,
        error=error,
    )


def _record(
    checkout: Checkout,
    reference: WorkloadReference,
    steps: tuple[int, ...],
    *,
    loaded: Loaded | None = None,
    error: ErrorDetail | None = None,
) -> WorkloadRecord:
    try:
        sha256 = hashlib.sha256((checkout.harness / reference.file).read_bytes()).hexdigest()
    except OSError:
        sha256 = ""
    return WorkloadRecord(
        name=reference.name,
        reference=reference.text,
        sha256=sha256,
        batch=loaded.batch if loaded else 0,
        shapes=loaded.shapes if loaded else [],
        sla_p99=loaded.sla_p99 if loaded else None,
        sla_rate=loaded.sla_rate if loaded else None,
        steps=list(steps),
        error=error,
    )
