"""Before spending minutes, check that the head works at all and that the pairs needed for a verdict fit the budget."""

from __future__ import annotations

import math
import os

from perfgate.conductor.sides.function.plan import (
    SURE_SECONDS,
    seconds_of_sure_pairs,
    sure_pairs,
)
from perfgate.conductor.sides.job_turns import SideName
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.environment import in_ci
from perfgate.config import WorkloadReference
from perfgate.document.coverage import Coverage
from perfgate.document.message import Message, MessageValue, as_message, english
from perfgate.document.run import (
    CALLS_TOO_SLOW,
    LOADS_TOO_SLOWLY,
    ErrorDetail,
    FailedPair,
)
from perfgate.flows.check.measured import Job
from perfgate.flows.shared.preflight import refuse_failed
from perfgate.locale import sentence
from perfgate.protocol import SLOW_CALL_SECONDS, Loaded, Tried

# Margin on the estimate in the suggested budget, so that a busy moment does not end the pairs too soon.
ROOM = 1.2


def try_sides(bench: Bench, job: Job) -> tuple[Coverage | None, dict[str, Tried]]:
    """Try the workloads: what they run of the changed code, and by workload the trial of the head.

    Raises SetUpError if the head's workload is set up wrong; in CI the documents and the comment report that instead. The
    sides of ``perfgate upgrade`` are not tried: errors of the new stack are its result. If the workload's check rejects only
    the head's output, measuring goes on, because that is a finding about the change.
    """
    if job.session.command == "upgrade":
        return None, {}
    base, head, references = job.checkouts["base"], job.checkouts["head"], job.workloads
    trials: dict[str, Tried] = {}
    for reference in references:
        bench.say(sentence("testing workload {name}", name=reference.name))
        trial = job.code.try_workload(bench, head, reference, "head")
        trials[reference.name] = trial
        if in_ci(os.environ):
            continue
        if (
            trial.failed != "check"
            or bench.try_workload(base, reference).failed == "check"
        ):
            refuse_failed(reference, trial)
    if job.code.needs_base():
        for reference in references:
            bench.say(
                sentence("testing workload {name} on the base", name=reference.name)
            )
            job.code.try_workload(bench, base, reference, "base")
    return job.code.result(references), trials


def loaded_packages(
    bench: Bench, job: Job
) -> tuple[list[str] | None, list[str] | None]:
    """The packages that the workloads load on each side; None if both share an environment, or if they are unknown."""
    if job.environments.base.record is None or job.jobs:
        return None, None
    return _packages_of(bench, job, "base"), _packages_of(bench, job, "head")


def _packages_of(bench: Bench, job: Job, side: SideName) -> list[str] | None:
    loaded: set[str] = set()
    for reference in job.workloads:
        bench.say(
            sentence("looking at what workload {name} loads", name=reference.name)
        )
        trial = bench.try_workload(job.checkouts[side], reference, packages=True)
        if trial.packages is None:
            return None
        loaded.update(trial.packages)
    return sorted(loaded)


def pairs_too_slow(
    bench: Bench, reference: WorkloadReference, base: Checkout, tried: Tried | None
) -> FailedPair | None:
    """The reason why the pairs needed for a verdict do not fit the budget; None if they do.

    Base decides, so that a much slower head is measured and fails. ``tried`` is the trial of the head, with an upper bound of
    the seconds of its calls. Slow calls of base are timed; if only loading is slow, its first load counts.
    """
    gate = bench.config.gate
    allowed = max(gate.budget, SURE_SECONDS)
    call_seconds = 0.0
    loaded: Loaded | None = None
    if tried is not None and tried.seconds is not None:
        load_seconds = bench.host_builds.seconds_of_copy or tried.load_seconds
        seconds = _seconds_of_pairs(
            bench, call_seconds=tried.seconds, load_seconds=load_seconds
        )
        if seconds <= allowed:
            return None
        if tried.seconds < SLOW_CALL_SECONDS:
            call_seconds, loaded = tried.seconds, bench.loaded_ahead(base, reference)
    if loaded is None:
        timed = bench.time_call(base, reference)
        if timed is None:
            return None
        call_seconds, loaded = timed
    seconds = _seconds_of_pairs(
        bench, call_seconds=call_seconds, load_seconds=loaded.seconds
    )
    if seconds <= allowed:
        return None
    values: dict[str, MessageValue] = {
        "call": round(call_seconds, 2),
        "load": round(loaded.seconds),
        "pairs": sure_pairs(gate, resident=bench.is_accelerated),
        "seconds": round(seconds),
        "allowed": allowed,
        "budget": math.ceil(seconds * ROOM / 10) * 10,
    }
    code = LOADS_TOO_SLOWLY
    if call_seconds >= SLOW_CALL_SECONDS:
        code = CALLS_TOO_SLOW
    error = ErrorDetail(kind="timeout", message=Message(code, values))
    return FailedPair(pair=0, arm="ab", workload=reference.name, error=error)


def too_slow_line(too_slow: FailedPair) -> str:
    """A line for the terminal, before anything else is measured."""
    message = as_message(too_slow.error.message)
    return sentence(
        "{name}: no pairs will be measured: {reason}; [gate] budget = {budget} would be enough",
        name=too_slow.workload,
        reason=english(message),
        budget=message.values["budget"],
    )


def _seconds_of_pairs(
    bench: Bench, *, call_seconds: float, load_seconds: float
) -> float:
    return seconds_of_sure_pairs(
        bench.config.gate,
        call_seconds=call_seconds,
        start_seconds=load_seconds,
        resident=bench.is_accelerated,
        parked=bench.parking is not None,
        lone=bench.holds_one,
    )
