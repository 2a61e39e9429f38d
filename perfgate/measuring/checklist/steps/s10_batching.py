"""Step 10: how requests that come in one by one are best put into batches: simulated, and the best way replayed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.catalogue.lookup import card
from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.measuring.checklist.step import StepContext, StepOutcome, status_of
from perfgate.measuring.checklist.steps._batch_sweep import forget
from perfgate.measuring.checklist.steps._items import items_agree
from perfgate.measuring.checklist.steps._policies import Candidate, candidates, winner
from perfgate.measuring.checklist.steps._replay import Replay, Speedup, replay
from perfgate.measuring.checklist.steps._service import ServiceModel, measure_service
from perfgate.measuring.timing.arrivals import arrivals, rate_of
from perfgate.measuring.timing.quiet import quiet
from perfgate.measuring.workload.workload import Traffic
from perfgate.stats.batching import Policy
from perfgate.stats.summary import CONFIDENCE, P99_FLOOR, dependent_quantile

_QUICK_REQUESTS = 4_000
_FULL_REQUESTS = 20_000
_NO_TRAFFIC = (
    "the workload does not say how requests come in; add traffic=Traffic(rate=...) with requests a second to it, or "
    "Traffic(arrivals=[...]) with recorded times"
)
_TRAINS = "a training iteration answers no requests"


class _Setting(NamedTuple):
    """What was measured, simulated and asked for on one shape."""

    shape: str
    configured: int
    promised: float | None
    rate: float
    service: ServiceModel
    found: list[Candidate]

    @property
    def static(self) -> Candidate:
        return self.found[0]

    @property
    def best(self) -> Candidate:
        return winner(self.found)

    @property
    def gain(self) -> float:
        """Return by how much the P99 of static batching is longer than that of the best way, as simulated."""
        return self.static.p99 / self.best.p99 - 1


class BatchingStep:
    """A service model from a short sweep, every policy simulated on the same requests, then static and best replayed."""

    card = card(10)

    def measure(self, context: StepContext) -> StepOutcome:
        """Measure the first shape; not applicable where the workload names no traffic."""
        workload = context.workload.workload
        if workload.traffic is None:
            return StepOutcome(status="not_applicable", reason=_NO_TRAFFIC)
        if workload.train_step is not None:
            return StepOutcome(status="not_applicable", reason=_TRAINS)
        shape = context.workload.shapes[0]
        with quiet():
            service = measure_service(context, shape)
            setting = _simulated(context, shape, service, workload.traffic)
            replays = _replayed(context, setting, workload.traffic)
            agree = items_agree(context, shape, service.padded(setting.best.policy.batch))
            forget(context, shape, service.sizes)
        return _outcome(context, setting, replays, agree)


def _simulated(context: StepContext, shape: str, service: ServiceModel, traffic: Traffic) -> _Setting:
    configured, promised = context.workload.batch, context.workload.workload.sla.p99
    context.progress("simulating static, time-out and continuous batching")
    found = candidates(
        service,
        arrivals(traffic, count=_QUICK_REQUESTS if context.quick else _FULL_REQUESTS, seed=context.seed),
        configured=configured,
        max_wait=service(configured) if traffic.max_wait is None else traffic.max_wait,
        promised=promised,
    )
    return _Setting(shape, configured, promised, rate_of(traffic), service, found)


def _replayed(context: StepContext, setting: _Setting, traffic: Traffic) -> list[Replay] | None:
    """Replay static batching and the best way, on other requests of the same traffic than those that chose the policy."""
    other = arrivals(traffic, count=_FULL_REQUESTS, seed=context.seed + 1)
    policies = dict.fromkeys([setting.static.policy, setting.best.policy])
    return replay(context, setting.shape, setting.service, other, list(policies))


def _outcome(context: StepContext, setting: _Setting, replays: list[Replay] | None, agree: bool | None) -> StepOutcome:
    compared = replays is not None and len(replays) > 1
    speedup = replays[-1].speedup_over(replays[0]) if replays is not None and compared else None
    values = [
        *(value for candidate in setting.found for value in _of_candidate(candidate, setting)),
        *(value for one in replays or () for value in _of_replay(one, setting)),
        Value(metric="batching.gain", value=setting.gain, labels=_labels(setting, setting.best.policy, "simulated")),
        _speedup_value(speedup, replays, setting),
    ]
    findings = [*_saturated(setting), *_judge_gain(context, setting, speedup, agree)]
    findings += [finding for one in replays or () for finding in _judge_simulation(context, setting, one)]
    return StepOutcome(status=status_of(findings), values=values, findings=findings)


def _of_candidate(candidate: Candidate, setting: _Setting) -> Iterable[Value]:
    labels = _labels(setting, candidate.policy, "simulated")
    yield from _of_served(candidate.served.latencies, candidate.served.fill(candidate.policy.batch), labels)
    if setting.promised is not None:
        yield Value(metric="batching.goodput", value=candidate.served.goodput(setting.promised), labels=labels)
    if candidate.at_most is not None:
        policy, rate = candidate.at_most
        yield Value(metric="batching.max_rate", value=rate, labels=_labels(setting, policy, "simulated"))


def _of_replay(replayed: Replay, setting: _Setting) -> Iterable[Value]:
    labels = _labels(setting, replayed.policy, "replayed")
    yield from _of_served(replayed.latencies, replayed.fill, labels)
    if setting.promised is not None:
        yield Value(metric="batching.goodput", value=replayed.goodput(setting.promised), labels=labels)
    error = replayed.over_simulation(setting.service)
    yield Value(metric="batching.simulation_error", value=error, count=int(replayed.latencies.size), labels=labels)


def _speedup_value(speedup: Speedup | None, replays: list[Replay] | None, setting: _Setting) -> Value:
    labels = _labels(setting, setting.best.policy, "replayed")
    if speedup is None:
        few = f"{setting.rate:g} requests a second are too few for a replay in the time for it"
        reason = few if replays is None else "static batches answer soonest already"
        return Value(metric="batching.speedup", value=None, labels=labels, reason=reason)
    return Value(
        metric="batching.speedup",
        value=speedup.value,
        interval=(speedup.low, speedup.high),
        confidence=CONFIDENCE,
        count=speedup.blocks,
        labels=labels,
    )


def _of_served(latencies: npt.NDArray[np.float64], fill: float, labels: dict[str, str]) -> Iterable[Value]:
    for metric, probability in (("batching.p50", 0.5), ("batching.p99", 0.99)):
        found = dependent_quantile(latencies, probability)
        enough = probability < 0.99 or found.size >= P99_FLOOR
        yield Value(
            metric=metric,
            value=found.value if enough else None,
            interval=found.interval if enough else (found.low, None),
            confidence=CONFIDENCE,
            count=found.size,
            labels=labels,
            reason=None if enough else f"not estimable: a P99 needs {P99_FLOOR} requests, there are {found.size}",
        )
    yield Value(metric="batching.fill", value=fill, labels=labels)


def _labels(setting: _Setting, policy: Policy, source: str) -> dict[str, str]:
    return {"shape": setting.shape, "policy": policy.name, "batch": str(policy.batch), "source": source}


def _saturated(setting: _Setting) -> list[Finding]:
    if setting.best.keeps_up:
        return []
    most = max(setting.service.capacity(size) for size in setting.service.sizes)
    evidence: dict[str, Evidence] = {"rate": f"{setting.rate:g}", "most": f"{most:.3g}", "shape": setting.shape}
    return [noticed("batching.saturated", "warning", evidence)]


def _judge_gain(context: StepContext, setting: _Setting, speedup: Speedup | None, agree: bool | None) -> list[Finding]:
    """Recommend what the simulation finds better by more than the limit, the replay confirms, and answers the same."""
    policy = setting.best.policy
    if policy == setting.static.policy or setting.gain <= limit("batching.gain.warning", context.limits):
        return []
    evidence: dict[str, Evidence] = {
        "policy": policy.name,
        "batch": policy.batch,
        "configured": setting.configured,
        "shape": setting.shape,
        "rate": f"{setting.rate:g}",
        "batching.gain": setting.gain,
        "simulated p99 [s]": setting.best.p99,
        "simulated p99 of static batches [s]": setting.static.p99,
        "outputs": "not compared: they are no tensors with a row an item" if agree is None else "the same",
    }
    if speedup is not None:
        evidence.update({"batching.speedup": speedup.value, "speedup.low": speedup.low, "speedup.high": speedup.high})
    if agree is False:
        return [noticed("batching.differs", "warning", {**evidence, "outputs": "another"})]
    if speedup is None or speedup.low <= 1:
        return [noticed("batching.unconfirmed", "info", evidence)]
    return [noticed("batching.gain", "warning", evidence)]


def _judge_simulation(context: StepContext, setting: _Setting, replayed: Replay) -> list[Finding]:
    """Say where calls under traffic do not take what they take one after another, so that simulated numbers are not those."""
    error = replayed.over_simulation(setting.service)
    evidence: dict[str, Evidence] = {"policy": replayed.policy.name, "shape": setting.shape}
    return above("batching.simulation_error", abs(error), given=context.limits, evidence=evidence)


STEP = BatchingStep()
