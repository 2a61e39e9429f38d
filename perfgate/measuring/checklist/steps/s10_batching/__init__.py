"""Step 10: the best batching policy for requests that arrive one by one: simulated, and
the best one replayed.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.measuring.checklist.batch_sweep import forget
from perfgate.measuring.checklist.copies.copies import measure_copies
from perfgate.measuring.checklist.experiment import (
    FailedExperiment,
    agreement,
    experiment,
    outcome_of,
    own_call,
)
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import (
    MaybeEvidence,
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
)
from perfgate.measuring.checklist.steps.s10_batching.serving import (
    Candidate,
    PolicyReplay,
    ServiceModel,
    candidates,
    measure_service,
    replay,
    winner,
)
from perfgate.measuring.devices.batches import each_tensor, tensors
from perfgate.measuring.timing.open_loop import arrivals, rate_of
from perfgate.measuring.workload.workload import Traffic
from perfgate.stats.arrays import Floats
from perfgate.stats.batching import BatchingPolicy
from perfgate.stats.summary import SampleEstimate, dependent_quantile
from perfgate.system.garbage import quiet
from perfgate.trace.model.arithmetic import overlap_length, totals_by_name, union_length
from perfgate.trace.model.events import DEVICE_KINDS, EventTable

_QUICK_REQUESTS = 4_000
_FULL_REQUESTS = 20_000
_SCHEDULING = "batching.scheduling"
# vLLM's schedule and _prepare_inputs, SGLang's get_next_batch_to_run and recv_requests,
# and common names in home-made servers. A Python function is recorded as "file.py(12):
# name".
_SCHEDULER = re.compile(
    r"(^|[^a-z0-9])_?(select_batch|prepare_(model_)?inputs?(_\w+)?|get_(next|new)_batch\w*|recv_requests|schedule)(\(\))?$"
)
_OUTPUTS = {
    True: "output.same",
    False: "output.another",
    None: "times.rows-not-comparable",
}


class _Simulation(NamedTuple):
    """The batching policies simulated on one shape, static batching first, and the
    inputs of the simulation.
    """

    shape: str
    configured: int
    promised: float | None
    rate: float
    service: ServiceModel
    candidates: list[Candidate]

    @property
    def static(self) -> Candidate:
        return self.candidates[0]

    @property
    def best(self) -> Candidate:
        return winner(self.candidates)

    @property
    def gain(self) -> float:
        """The relative excess of static batching's simulated P99 over the best
        policy's.
        """
        return self.static.p99 / self.best.p99 - 1

    def labels(self, policy: BatchingPolicy, source: str) -> dict[str, str]:
        return {"policy": policy.name, "batch": str(policy.batch), "source": source}


class BatchingStep:
    """A service model from a short sweep, every policy simulated on the same requests,
    then static and best replayed.
    """

    card = card(10)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; requests take configured traffic, and copies a
        configured number.
        """
        outcome = self._measure_requests(context)
        if not context.settings.copies:
            return outcome
        copies = context.outcome()
        with quiet():
            measure_copies(copies.under(shape=context.workload.shapes[0]), context)
        copies.add(outcome)
        return copies

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the scheduler of a recorded server; requests and copies take calls."""
        outcome = context.outcome()
        for summary in context.summaries:
            if (scheduled := scheduling(summary.timeline.events)) is not None:
                (op, share), rank = scheduled, outcome.under(**profiled(summary))
                rank.number(_SCHEDULING, share)
                rank.above(_SCHEDULING, share, {"op": op})
        return outcome.or_else(not_applicable(Message("times.calls-needed")))

    def _measure_requests(self, context: StepContext) -> StepOutcome:
        workload = context.workload.workload
        if workload.traffic is None:
            return not_applicable(Message("times.no-traffic"))
        if workload.train_step is not None:
            return not_applicable(Message("times.training-no-requests"))
        with quiet():
            own_call(context, context.workload.shapes[0])
            serve = partial(_serve_requests, context, workload.traffic)
            return outcome_of(context, serve, failing="times.batching-fails")


STEP = BatchingStep()


def scheduling(events: EventTable) -> tuple[str, float] | None:
    """The function of a scheduler that takes most time, and the share of the recording
    in which any does and no kernel runs.

    None if the recording has no such function.
    """
    on_host = ~events.is_kind(*DEVICE_KINDS, "device_annotation", "memory")
    own = events.select(on_host & events.is_named(_SCHEDULER.search))
    if not len(own):
        return None
    device = events.of_kind(*DEVICE_KINDS)
    exposed = union_length(own.intervals) - overlap_length(
        own.intervals, device.intervals
    )
    totals = totals_by_name(own.name, own.duration, len(own.names))
    length = int(events.end.max() - events.start.min())
    return own.names[int(totals.argmax())], exposed / (length or 1)


def _serve_requests(context: StepContext, traffic: Traffic) -> StepOutcome:
    shape = context.workload.shapes[0]
    service = measure_service(context, shape)
    simulation = _simulate(context, shape, service, traffic)
    # New requests of the same traffic, because the simulated requests chose the policy.
    requests = arrivals(traffic, count=_FULL_REQUESTS, seed=context.seed + 1)
    policies = dict.fromkeys([simulation.static.policy, simulation.best.policy])
    replays = replay(context, shape, service, requests, list(policies))
    agree = items_agree(context, shape, service.padded(simulation.best.policy.batch))
    forget(context, shape, service.sizes)
    outcome = context.outcome()
    _judge(outcome.under(shape=shape), simulation, replays, agree)
    return outcome


def _simulate(
    context: StepContext, shape: str, service: ServiceModel, traffic: Traffic
) -> _Simulation:
    configured, promised = context.workload.batch, context.workload.workload.sla.p99
    context.doing("simulating static, time-out and continuous batching")
    count = _QUICK_REQUESTS if context.extent.quick else _FULL_REQUESTS
    requests = arrivals(traffic, count=count, seed=context.seed)
    max_wait = traffic.max_wait
    if max_wait is None:
        max_wait = service(configured)
    simulated = candidates(
        service, requests, configured=configured, max_wait=max_wait, promised=promised
    )
    return _Simulation(
        shape, configured, promised, rate_of(traffic), service, simulated
    )


def _judge(
    outcome: StepOutcome,
    simulation: _Simulation,
    replays: list[PolicyReplay],
    agree: bool | None,
) -> None:
    for candidate in simulation.candidates:
        _add_candidate(outcome, candidate, simulation)
    best = simulation.best.policy
    speedup = None
    if len(replays) > 1:
        speedup = replays[1].speedup_over(replays[0])
    if not simulation.best.keeps_up:
        most = max(map(simulation.service.capacity, simulation.service.sizes))
        outcome.note(
            "batching.saturated", "warning", {"rate": simulation.rate, "most": most}
        )
    _judge_gain(outcome, simulation, speedup, agree)
    for replayed in replays:
        # If calls under traffic take longer or shorter than consecutive calls, the
        # simulated numbers are off.
        error = replayed.over_simulation(simulation.service)
        of_policy = outcome.under(**simulation.labels(replayed.policy, "replayed"))
        _add_latencies(of_policy, replayed.latencies)
        if simulation.promised is not None:
            of_policy.number("batching.goodput", replayed.goodput(simulation.promised))
        of_policy.number(
            "batching.simulation_error", error, count=int(replayed.latencies.size)
        )
        outcome.above(
            "batching.simulation_error", abs(error), {"policy": replayed.policy.name}
        )
    outcome.under(**simulation.labels(best, "simulated")).number(
        "batching.gain", simulation.gain
    )
    on_replay = outcome.under(**simulation.labels(best, "replayed"))
    if speedup is not None:
        on_replay.estimate("batching.speedup", speedup)
    elif replays:
        on_replay.missing("batching.speedup", Message("times.static-soonest"))
    else:
        on_replay.missing(
            "batching.speedup",
            Message("times.replay-too-slow", {"rate": simulation.rate}),
        )


def _add_candidate(
    outcome: StepOutcome, candidate: Candidate, simulation: _Simulation
) -> None:
    policy, served = candidate.policy, candidate.served
    simulated = outcome.under(**simulation.labels(policy, "simulated"))
    _add_latencies(simulated, served.latencies)
    if simulation.promised is not None:
        simulated.number("batching.goodput", served.goodput(simulation.promised))
    if candidate.at_most is not None:
        policy, rate = candidate.at_most
        outcome.under(**simulation.labels(policy, "simulated")).number(
            "batching.max_rate", rate
        )


def _add_latencies(outcome: StepOutcome, latencies: Floats) -> None:
    outcome.estimate("batching.p50", dependent_quantile(latencies, 0.5))
    outcome.p99(
        "batching.p99",
        dependent_quantile(latencies, 0.99),
        "times.p99-too-few-requests",
    )


def _judge_gain(
    outcome: StepOutcome,
    simulation: _Simulation,
    speedup: SampleEstimate | None,
    agree: bool | None,
) -> None:
    """Recommend a policy if its simulated gain exceeds the limit, the replay confirms
    it, and outputs stay the same.
    """
    policy = simulation.best.policy
    too_little = simulation.gain <= outcome.limit("batching.gain.warning")
    if policy == simulation.static.policy or too_little:
        return
    evidence: MaybeEvidence = {
        "policy": policy.name,
        "batch": policy.batch,
        "configured": simulation.configured,
        "rate": simulation.rate,
        "batching.gain": simulation.gain,
        "simulated p99 [s]": simulation.best.p99,
        "simulated p99 of static batches [s]": simulation.static.p99,
        "outputs": Message(_OUTPUTS[agree]),
    }
    if speedup is not None:
        interval = {"speedup.low": speedup.low, "speedup.high": speedup.high}
        evidence = {**evidence, "batching.speedup": speedup.value, **interval}
    if agree is False:
        outcome.note("batching.differs", "warning", evidence)
    elif speedup is None or speedup.low is None or speedup.low <= 1:
        outcome.note("batching.unconfirmed", "info", evidence)
    else:
        outcome.note("batching.gain", "warning", evidence)


def items_agree(context: StepContext, shape: str, batch: int) -> bool | None:
    """Whether the first and the last item of a batch get the same outputs as alone, so
    that a server may choose the batch.

    None if unknown: inputs or outputs without tensors or without one row per item, and
    models that refuse a single item.
    """
    inputs = context.workload.host_inputs(shape, batch=batch)
    if batch == 1 or not _has_rows(inputs, batch):
        return None
    together = _answer(context, inputs)
    if not _has_rows(together, batch):
        return None
    bound = context.limit("batching.agreement")
    for item in (0, batch - 1):
        alone = experiment(
            context, partial(_answer, context, _row(inputs, item, batch))
        )
        if isinstance(alone, FailedExperiment):
            return None
        compared = agreement(_row(together, item, batch), alone)
        if not compared.comparable:
            return None
        if not compared.within(bound):
            return False
    return True


def _answer(context: StepContext, inputs: Any) -> Any:
    device = context.device
    output = device.to_host(context.workload.invoke(device.to_device(inputs)))
    device.synchronize()
    return output


def _has_rows(batch: Any, items: int) -> bool:
    members = list(tensors(batch))
    return bool(members) and all(
        tensor.dim() > 0 and tensor.shape[0] == items for tensor in members
    )


def _row(batch: Any, item: int, items: int) -> Any:
    return each_tensor(
        batch,
        lambda tensor: tensor[item : item + 1] if tensor.shape[0] == items else tensor,
    )
