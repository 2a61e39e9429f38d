"""Step 10: how requests that come in one by one are best put into batches: simulated, and the best way replayed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.message import Message
from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.agreement import agreement
from perfgate.measuring.checklist.batch_sweep import forget
from perfgate.measuring.checklist.experiment import FailedExperiment, experiment, own_call
from perfgate.measuring.checklist.limits import MaybeEvidence, above, finding, limit
from perfgate.measuring.checklist.recorded import profiled
from perfgate.measuring.checklist.step import (
    RecordingContext,
    StepContext,
    StepOutcome,
    not_applicable,
    unavailable,
)
from perfgate.measuring.checklist.steps.s10_batching.copies import measure_copies
from perfgate.measuring.checklist.steps.s10_batching.scheduler import scheduling
from perfgate.measuring.checklist.steps.s10_batching.serving import (
    Candidate,
    Replay,
    ServiceModel,
    Speedup,
    candidates,
    measure_service,
    replay,
    winner,
)
from perfgate.measuring.checklist.values import lower_bound_only, missing, of_quantile, with_interval
from perfgate.measuring.devices.batches import each_tensor, tensors
from perfgate.measuring.timing.open_loop import arrivals, rate_of
from perfgate.measuring.workload.workload import Traffic
from perfgate.stats.batching import Policy
from perfgate.stats.summary import P99_FLOOR, dependent_quantile
from perfgate.system.garbage import quiet

_QUICK_REQUESTS = 4_000
_FULL_REQUESTS = 20_000
_SCHEDULING = "batching.scheduling"


class _Simulation(NamedTuple):
    """The ways of batching simulated on one shape, static batching first, and what they were simulated with."""

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
        """By how much the P99 of static batching is longer than that of the best way, as simulated."""
        return self.static.p99 / self.best.p99 - 1

    def labels(self, policy: Policy, source: str) -> dict[str, str]:
        return {"shape": self.shape, "policy": policy.name, "batch": str(policy.batch), "source": source}


class BatchingStep:
    """A service model from a short sweep, every policy simulated on the same requests, then static and best replayed."""

    card = card(10)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; requests take traffic, and copies take a number of them."""
        outcome = self._measure_requests(context)
        if not context.copies:
            return outcome
        with quiet():
            copies = measure_copies(context)
        copies.add(outcome)
        return copies

    def judge_recording(self, context: RecordingContext) -> StepOutcome:
        """Judge the scheduler of a recorded server; requests and copies take calls."""
        outcome = StepOutcome()
        for summary in context.summaries:
            found = scheduling(summary.timeline.events)
            if found is not None:
                value = Value(metric=_SCHEDULING, value=found.share, labels=profiled(summary))
                outcome.values.append(value)
                evidence: MaybeEvidence = {"shape": summary.shape, "op": found.op}
                outcome.findings += above(_SCHEDULING, found.share, context.limits, evidence)
        return outcome if outcome.values else not_applicable(Message("times.calls-needed"))

    def _measure_requests(self, context: StepContext) -> StepOutcome:
        workload = context.workload.workload
        if workload.traffic is None:
            return not_applicable(Message("times.no-traffic"))
        if workload.train_step is not None:
            return not_applicable(Message("times.training-no-requests"))
        with quiet():
            own_call(context, context.workload.shapes[0])
            served = partial(_serve_requests, context, workload.traffic)
            outcome = experiment(context, served, failing="times.batching-fails")
        return unavailable(outcome.reason) if isinstance(outcome, FailedExperiment) else outcome


STEP = BatchingStep()


def _serve_requests(context: StepContext, traffic: Traffic) -> StepOutcome:
    shape = context.workload.shapes[0]
    service = measure_service(context, shape)
    simulation = _simulate(context, shape, service, traffic)
    # New requests of the same traffic: the simulated ones chose the policy.
    requests = arrivals(traffic, count=_FULL_REQUESTS, seed=context.seed + 1)
    policies = dict.fromkeys([simulation.static.policy, simulation.best.policy])
    replays = replay(context, shape, service, requests, list(policies))
    agree = items_agree(context, shape, service.padded(simulation.best.policy.batch))
    forget(context, shape, service.sizes)
    return _outcome(context, simulation, replays, agree)


def _simulate(context: StepContext, shape: str, service: ServiceModel, traffic: Traffic) -> _Simulation:
    configured, promised = context.workload.batch, context.workload.workload.sla.p99
    context.progress("simulating static, time-out and continuous batching")
    simulated = candidates(
        service,
        arrivals(traffic, count=_QUICK_REQUESTS if context.quick else _FULL_REQUESTS, seed=context.seed),
        configured=configured,
        max_wait=service(configured) if traffic.max_wait is None else traffic.max_wait,
        promised=promised,
    )
    return _Simulation(shape, configured, promised, rate_of(traffic), service, simulated)


def _outcome(context: StepContext, simulation: _Simulation, replays: list[Replay], agree: bool | None) -> StepOutcome:
    outcome = StepOutcome()
    for candidate in simulation.candidates:
        outcome.values += _candidate_values(candidate, simulation)
    best = simulation.best.policy
    speedup = replays[1].speedup_over(replays[0]) if len(replays) > 1 else None
    outcome.findings += [*_judge_saturation(simulation), *_judge_gain(context, simulation, speedup, agree)]
    for replayed in replays:
        # Where calls under traffic do not take what they take one after another, the simulated numbers are not those.
        error = replayed.over_simulation(simulation.service)
        outcome.values += _replay_values(replayed, error, simulation)
        evidence = {"policy": replayed.policy.name, "shape": simulation.shape}
        outcome.findings += above("batching.simulation_error", abs(error), context.limits, evidence)
    simulated, on_replay = simulation.labels(best, "simulated"), simulation.labels(best, "replayed")
    outcome.values.append(Value(metric="batching.gain", value=simulation.gain, labels=simulated))
    if speedup is not None:
        interval = (speedup.low, speedup.high)
        outcome.values.append(with_interval("batching.speedup", speedup.value, interval, speedup.blocks, on_replay))
    else:
        few = Message("times.replay-too-slow", {"rate": simulation.rate})
        outcome.values += missing("batching.speedup", Message("times.static-soonest") if replays else few, on_replay)
    return outcome


def _candidate_values(candidate: Candidate, simulation: _Simulation) -> Iterable[Value]:
    policy, served = candidate.policy, candidate.served
    labels = simulation.labels(policy, "simulated")
    yield from _latency_values(served.latencies, served.fill(policy.batch), labels)
    if simulation.promised is not None:
        yield Value(metric="batching.goodput", value=served.goodput(simulation.promised), labels=labels)
    if candidate.at_most is not None:
        labels = simulation.labels(candidate.at_most.policy, "simulated")
        yield Value(metric="batching.max_rate", value=candidate.at_most.rate, labels=labels)


def _replay_values(replayed: Replay, error: float, simulation: _Simulation) -> Iterable[Value]:
    labels = simulation.labels(replayed.policy, "replayed")
    yield from _latency_values(replayed.latencies, replayed.fill, labels)
    if simulation.promised is not None:
        yield Value(metric="batching.goodput", value=replayed.goodput(simulation.promised), labels=labels)
    count = int(replayed.latencies.size)
    yield Value(metric="batching.simulation_error", value=error, count=count, labels=labels)


def _latency_values(latencies: npt.NDArray[np.float64], fill: float, labels: dict[str, str]) -> Iterable[Value]:
    yield of_quantile("batching.p50", dependent_quantile(latencies, 0.5), labels)
    p99 = dependent_quantile(latencies, 0.99)
    if p99.size < P99_FLOOR:
        reason = Message("times.p99-too-few-requests", {"needed": P99_FLOOR, "found": p99.size})
        yield lower_bound_only("batching.p99", p99, labels, reason)
    else:
        yield of_quantile("batching.p99", p99, labels)
    yield Value(metric="batching.fill", value=fill, labels=labels)


def _judge_saturation(simulation: _Simulation) -> list[Finding]:
    if simulation.best.keeps_up:
        return []
    service = simulation.service
    most = max(service.capacity(size) for size in service.sizes)
    evidence: MaybeEvidence = {"rate": simulation.rate, "most": most, "shape": simulation.shape}
    return [finding("batching.saturated", "warning", evidence)]


def _judge_gain(
    context: StepContext, simulation: _Simulation, speedup: Speedup | None, agree: bool | None
) -> list[Finding]:
    """Recommend what the simulation finds better by more than the limit, the replay confirms, and answers the same."""
    policy = simulation.best.policy
    too_little = simulation.gain <= limit("batching.gain.warning", context.limits)
    if policy == simulation.static.policy or too_little:
        return []
    evidence: MaybeEvidence = {
        "policy": policy.name,
        "batch": policy.batch,
        "configured": simulation.configured,
        "shape": simulation.shape,
        "rate": simulation.rate,
        "batching.gain": simulation.gain,
        "simulated p99 [s]": simulation.best.p99,
        "simulated p99 of static batches [s]": simulation.static.p99,
        "outputs": Message("times.rows-not-comparable") if agree is None else Message("output.same"),
        "batching.speedup": speedup.value if speedup else None,
        "speedup.low": speedup.low if speedup else None,
        "speedup.high": speedup.high if speedup else None,
    }
    if agree is False:
        return [finding("batching.differs", "warning", {**evidence, "outputs": Message("output.another")})]
    if speedup is None or speedup.low <= 1:
        return [finding("batching.unconfirmed", "info", evidence)]
    return [finding("batching.gain", "warning", evidence)]


def items_agree(context: StepContext, shape: str, batch: int) -> bool | None:
    """Whether the first and the last item of a batch get the outputs they get alone: only then may a server choose the batch.

    None where that cannot be told: inputs or outputs without tensors, or whose tensors have no row an item, and models
    that refuse a single item.
    """
    inputs = context.workload.host_inputs(shape, batch=batch)
    if batch == 1 or not _has_rows(inputs, batch):
        return None
    together = _answer(context, inputs)
    if not _has_rows(together, batch):
        return None
    bound = limit("batching.agreement", context.limits)
    for item in (0, batch - 1):
        alone = experiment(context, partial(_answer, context, _row(inputs, item, batch)))
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
    return bool(members) and all(tensor.dim() > 0 and tensor.shape[0] == items for tensor in members)


def _row(batch: Any, item: int, items: int) -> Any:
    return each_tensor(batch, lambda tensor: tensor[item : item + 1] if tensor.shape[0] == items else tensor)
