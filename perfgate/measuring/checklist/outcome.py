"""The outcome of a step: its values, and the findings of numbers beyond the limits of the catalogue or the project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Literal

import numpy as np

from perfgate.catalogue.lookup import LIMITS, RULES
from perfgate.document.message import Message, together
from perfgate.document.run import (
    CallAccount,
    CounterSet,
    Evidence,
    Finding,
    OperatorRow,
    Severity,
    ShapeKernels,
    StepStatus,
    Value,
)
from perfgate.document.samples import SampleSet, pack
from perfgate.measuring.timing.versus import Versus
from perfgate.stats.arrays import Floats, Ints
from perfgate.stats.summary import CONFIDENCE, P99_FLOOR, SampleEstimate, quantile

Limits = Mapping[str, float]
# None is evidence that is not there, such as the line of an operator that no line of the project called.
MaybeEvidence = Mapping[str, Evidence | None]
Interval = tuple[float | None, float | None]

_MOST_SEVERE_FIRST: tuple[Severity, ...] = ("severe", "warning", "info")


def limit(name: str, limits: Limits) -> float:
    """The project's own limit, or else the card's. Raises KeyError for an unknown name."""
    return limits.get(name, LIMITS[name].default)


@dataclass
class StepOutcome:
    """The values and findings of a step, added one by one; a step that could not measure sets ``absent`` and ``reason``.

    Every value gets ``labels``; numbers are judged against ``limits``, and their findings name the shape among the labels.
    """

    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: list[SampleSet] = field(default_factory=list)
    kernels: list[ShapeKernels] = field(default_factory=list)
    operators: list[OperatorRow] = field(default_factory=list)
    accounts: list[CallAccount] = field(default_factory=list)
    counters: list[CounterSet] = field(default_factory=list)
    absent: Literal["not_applicable", "unavailable"] | None = None
    reason: Message | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)

    def under(self, **labels: str) -> StepOutcome:
        """The same outcome with more labels: both share their values and findings."""
        return replace(self, labels={**self.labels, **labels})

    # --- values

    def number(
        self,
        metric: str,
        value: float | None,
        *,
        count: int | None = None,
        interval: Interval | None = None,
        reason: Message | None = None,
    ) -> None:
        """Add a number, or the reason why it is missing; an interval holds it at ``CONFIDENCE``."""
        added = Value(
            metric=metric,
            value=value,
            count=count,
            interval=interval,
            confidence=None if interval is None else CONFIDENCE,
            reason=reason,
            labels=dict(self.labels),
        )
        self.values.append(added)

    def numbers(
        self, numbers: Mapping[str, float], *, count: int | None = None
    ) -> None:
        for metric, value in numbers.items():
            self.number(metric, value, count=count)

    def estimate(self, metric: str, number: SampleEstimate) -> None:
        self.number(metric, number.value, count=number.size, interval=number.interval)

    def p99(
        self,
        metric: str,
        number: SampleEstimate,
        too_few: str = "times.p99-too-few-calls",
    ) -> None:
        """Add a P99, or its lower bound alone if there are too few samples for it."""
        if number.size < P99_FLOOR:
            self.lower_bound(
                metric,
                number,
                Message(too_few, {"needed": P99_FLOOR, "calls": number.size}),
            )
        else:
            self.estimate(metric, number)

    def lower_bound(self, metric: str, number: SampleEstimate, reason: Message) -> None:
        """Add a quantile that is not estimable: only its lower end is sure."""
        self.number(
            metric, None, count=number.size, interval=(number.low, None), reason=reason
        )

    def median(self, metric: str, samples: Floats) -> None:
        """Add the median: the mean of the two middle samples if their number is even."""
        number = quantile(samples, 0.5)
        self.number(
            metric,
            float(np.median(samples)),
            count=number.size,
            interval=number.interval,
        )

    def speedup(self, metric: str, versus: Versus) -> None:
        self.number(
            metric,
            versus.speedup,
            count=versus.quads,
            interval=(versus.low, versus.high),
        )

    def missing(self, metrics: str | Iterable[str], reason: Message) -> None:
        """Add a value without a number for each metric."""
        for metric in [metrics] if isinstance(metrics, str) else metrics:
            self.number(metric, None, reason=reason)

    def raw_samples(self, metric: str, nanoseconds: Ints) -> None:
        samples = SampleSet(
            metric=metric, samples=pack(nanoseconds), labels=dict(self.labels)
        )
        self.samples.append(samples)

    # --- findings

    def limit(self, name: str) -> float:
        """The project's own limit, or else the card's. Raises KeyError for an unknown name."""
        return limit(name, self.limits)

    def above(
        self, rule: str, value: float, evidence: MaybeEvidence | None = None
    ) -> bool:
        """Whether ``value`` is above a limit of the rule, which adds a finding.

        Of several such limits the most severe counts. The evidence gets the value, under the rule's name, and that limit.
        """
        return self._beyond(rule, value, evidence, sign=1)

    def below(
        self, rule: str, value: float, evidence: MaybeEvidence | None = None
    ) -> bool:
        """Whether ``value`` is below a limit of the rule, which adds a finding."""
        return self._beyond(rule, value, evidence, sign=-1)

    def note(
        self, rule: str, severity: Severity, evidence: MaybeEvidence | None = None
    ) -> None:
        """Add a finding that no limit decides. Raises KeyError for evidence that the words of the rule lack."""
        self._find(rule, severity, {**self._subject, **(evidence or {})})

    def _find(self, rule: str, severity: Severity, evidence: MaybeEvidence) -> None:
        present = {name: value for name, value in evidence.items() if value is not None}
        for _, name, _, _ in Formatter().parse(RULES[rule].message):
            if name is not None and name not in present:
                raise KeyError(f"{rule} needs the evidence {name!r}")
        self.findings.append(Finding(rule=rule, severity=severity, evidence=present))

    def _beyond(
        self, rule: str, value: float, evidence: MaybeEvidence | None, *, sign: int
    ) -> bool:
        for severity in _MOST_SEVERE_FIRST:
            name = f"{rule}.{severity}"
            if name in LIMITS and sign * value > sign * self.limit(name):
                judged = {rule: value, "limit": self.limit(name)}
                self._find(
                    rule, severity, {**judged, **self._subject, **(evidence or {})}
                )
                return True
        return False

    @property
    def _subject(self) -> MaybeEvidence:
        if "shape" in self.labels:
            return {"shape": self.labels["shape"]}
        return {}

    # --- the end

    @property
    def status(self) -> StepStatus:
        """``attention`` if a finding is more than information."""
        if self.absent is not None:
            return self.absent
        if any(finding.severity != "info" for finding in self.findings):
            return "attention"
        return "ok"

    def or_else(self, instead: StepOutcome) -> StepOutcome:
        """The outcome, or ``instead`` if it has no values."""
        if self.values:
            return self
        return instead

    def or_unavailable(self, *reasons: Message) -> StepOutcome:
        """The outcome, or unavailable if none of its values has a number, for these reasons and the values' own."""
        if any(value.value is not None for value in self.values):
            return self
        own = [
            value.reason for value in self.values if isinstance(value.reason, Message)
        ]
        return unavailable(together([*reasons, *own]))

    def add(self, part: StepOutcome) -> None:
        """Append the lists of another part; its status and reason do not count."""
        self.values += part.values
        self.findings += part.findings
        self.samples += part.samples
        self.kernels += part.kernels
        self.operators += part.operators
        self.accounts += part.accounts
        self.counters += part.counters


def not_applicable(reason: Message) -> StepOutcome:
    return StepOutcome(absent="not_applicable", reason=reason)


def unavailable(reason: Message) -> StepOutcome:
    return StepOutcome(absent="unavailable", reason=reason)
