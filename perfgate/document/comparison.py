"""Comparisons of a decision: five kinds of evidence, each with its record; JSON names
the kind in ``kind``.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from perfgate.catalogue.names import EXPECTED_KERNELS, JOB_OUTPUT, JOB_WORK, SIGNATURE
from perfgate.document.explanation import Part
from perfgate.document.message import Message
from perfgate.document.run import CORRECTNESS
from perfgate.document.shape import ShapeEntry

Outcome = Literal[
    "regressed", "improved", "unchanged", "inconclusive", "not_comparable", "informs"
]
# The clock of a call's time: wall clock, CPU time of its thread, the device's clock, or
# wall time minus waiting for CPUs.
Clock = Literal["wall", "cpu", "device", "awake"]
# Two processes, one turn of a step on each side, or a quad of turns of a job.
EvidenceUnit = Literal["pair", "turn", "quad"]


class ComparedMetric(ShapeEntry, kw_only=True, tag_field="kind", tag=str.lower):
    """The common fields of all comparisons: one metric of a place and its outcome.

    Only a ``gating`` comparison can fail the gate. ``head`` is the head's value, None
    if it has none. ``parts`` are the parts of the number that explain its change.
    ``accepted`` gives the author and reason of an accepted regression, which then does
    not gate. ``cause`` is the number of the cause among the decision's causes, None if
    it is unexplained. The outcome ``informs`` is for numbers that no test compares.
    """

    metric: str
    unit: str
    better: Literal["lower", "higher", "neutral"]
    outcome: Outcome
    gating: bool
    head: float | None = None
    reason: Message | None = None
    parts: list[Part] = []
    accepted: str | None = None
    cause: int | None = None

    @property
    def is_of_operator(self) -> bool:
        """Whether it is of one operator (``ops.count:aten::clone``)."""
        return self.metric.startswith("ops.") and ":" in self.metric

    @property
    def name(self) -> str:
        """The name in a reason of the verdict: the metric, or the limit that bounds it."""
        return self.metric

    @property
    def must_decide(self) -> bool:
        """Whether there is no verdict while this is undecided."""
        return False

    @property
    def is_timed(self) -> bool:
        """Whether it is a time, or another number that both sides measured in turns."""
        return False


class NumberComparison(ComparedMetric, kw_only=True):
    """A number of both sides.

    ``delta`` is head/base - 1, None if base is 0; a worsening by ``tolerance`` is
    allowed.
    """

    base: float | None = None
    delta: float | None = None
    tolerance: float | None = None

    @property
    def must_decide(self) -> bool:
        """Whether there is no verdict while this is undecided."""
        return self.gating

    @property
    def is_timed(self) -> bool:
        """Whether it is a time, or another number that both sides measured in turns."""
        return self.unit == "s"

    @property
    def worsening(self) -> float:
        """The share by which the head is estimated to be worse; below 0 if it is
        better.
        """
        delta = self.delta or 0.0
        return -delta if self.better == "higher" else delta

    @property
    def looks_worse(self) -> bool:
        """Whether the estimate is worse than tolerated."""
        return self.worsening > (self.tolerance or 0.0)


class Exact(NumberComparison, kw_only=True):
    """A count, without noise.

    ``costless`` marks one that grew although calls are shown not to be slower: it then
    warns.
    """

    costless: bool = False


class Paired(NumberComparison, kw_only=True):
    """A number that both sides measured in turns.

    ``pairs`` is the number of units of ``evidence`` behind it: process pairs, turns of
    a step, or quads of a job from ``starts`` pairs of fresh processes. ``interval`` is
    the confidence interval of ``delta`` at level ``confidence``. ``pairs_needed`` is an
    estimate of how many pairs would decide an inconclusive comparison, and
    ``detectable`` the smallest slowdown that these pairs would have shown with 95 %
    power, None if they are too few to show any. ``p_adjusted`` is corrected for all
    looks, reruns and other metrics. ``excluded`` is the slowdown that "unchanged"
    excludes. ``effects`` are the judge's values of the pairs, head/base - 1 in
    measuring order, of the fast paths alone. Times by two clocks are not comparable
    with each other.
    """

    evidence: EvidenceUnit = "pair"
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    p_adjusted: float | None = None
    pairs: int | None = None
    starts: int | None = None
    pairs_needed: int | None = None
    detectable: float | None = None
    excluded: float | None = None
    effects: list[float] = []
    clock: Clock = "wall"

    @property
    def is_timed(self) -> bool:
        """Whether it is a time, or another number that both sides measured in turns."""
        return True

    @property
    def is_of_job(self) -> bool:
        return self.evidence == "quad"

    @property
    def is_of_call(self) -> bool:
        """Whether process pairs measured it."""
        return self.evidence == "pair"

    @property
    def excludes_no_change(self) -> bool:
        """Whether the whole interval lies on one side of no change, though it may be
        too few pairs for an alarm.
        """
        return (
            self.interval is not None
            and not self.interval[0] <= 0.0 <= self.interval[1]
        )

    @property
    def is_better(self) -> bool:
        """Whether the whole interval lies on the better side of no change, though it
        may be too few pairs to show it.
        """
        if (
            not self.excludes_no_change
            or self.delta is None
            or self.better == "neutral"
        ):
            return False
        return (self.delta > 0) == (self.better == "higher")

    @property
    def must_decide(self) -> bool:
        """Whether there is no verdict while this is undecided; other times of a call
        only have to show no regression.
        """
        from perfgate.catalogue.lookup import MUST_DECIDE

        return self.gating and (not self.is_of_call or self.metric in MUST_DECIDE)


class Recorded(NumberComparison, kw_only=True):
    """A time in two profiler recordings; only the time of kernels is judged, by the
    steps of each recording.
    """


class Bound(ComparedMetric, kw_only=True):
    """The head's number against an absolute bound: a budget, an SLA, the gating limit
    named ``limit``, or expected kernels.

    Of expected kernels ``bound`` is their number, ``head`` how many of them ran, and
    ``parts`` are those that did not.
    """

    bound: float
    limit: str | None = None

    @property
    def name(self) -> str:
        """The name in a reason of the verdict: the metric, or the limit that bounds it."""
        return self.limit or self.metric

    @property
    def is_of_kernels(self) -> bool:
        return self.metric == EXPECTED_KERNELS

    @property
    def is_budget(self) -> bool:
        """Whether it is a budget of perfgate.toml, which an SLA of a workload is not."""
        return self.limit is None and not self.is_of_kernels and not self.is_sla

    @property
    def is_sla(self) -> bool:
        return self.metric.startswith("sla.")


class Checked(ComparedMetric, kw_only=True):
    """A check of the output: the workload's own check, or equal output and equal work
    on both sides.

    ``base`` and ``head`` are 1 if a side passed and 0 if not. Counts that only a check
    can excuse, such as operators in low precision, stand there as they are.
    """

    base: float | None = None

    @property
    def is_count(self) -> bool:
        """Whether the values are counts that the check excuses."""
        return self.metric not in (CORRECTNESS, SIGNATURE, JOB_OUTPUT, JOB_WORK)


Comparison: TypeAlias = Exact | Paired | Recorded | Bound | Checked
