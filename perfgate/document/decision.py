"""The decision document: the gate's judgement of run documents, which is step 20 of the
checklist.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from perfgate.catalogue.terms import GainOf
from perfgate.document.budget import OK_MARGIN, Budget
from perfgate.document.comparison import Clock, Comparison, Paired
from perfgate.document.coverage import Coverage
from perfgate.document.explanation import (
    Cause,
    Explanation,
    OperatorDelta,
    Replacement,
)
from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct
from perfgate.document.run import Artifact, ErrorDetail, Evidence, Finding, Severity
from perfgate.document.shape import ShapeEntry

DECISION_SCHEMA_VERSION = 1

# Few looks, each twice the last: every further look costs the others power, and
# unchanged code mostly needs only the first.
DEFAULT_LOOKS = (8, 16, 32, 64, 128)
MOST_LOOKS = 12

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE", "SKIPPED"]
InvalidKind = Literal[
    "aa_differs",
    "throttled",
    "slow_clock",
    "clocks_differ",
    "foreign_process",
    "too_few_clean",
    "worker_clock",
    "worker_changed",
    "code_changed",
    "stopped",
    "out_of_turn",
    "late",
    "not_steady",
]
MissingSide = Literal["base", "head", "both"]
NamedBy = Literal["configuration", "store", "document"]
# Why a time of a job that stays undecided on a busy host cannot change the verdict. The
# code of the reason that a wider slowdown than usual is excluded: both sides did the
# same work.
SAME_WORK = "gate.same-work"
CPU_DECIDES = "gate.cpu-decides"
# The verdict on a change that no workload runs.
Unmeasured = Literal["skip", "warn", "fail"]
Comparing = Literal["code", "stack", "rules"]
# What both sides measured alternately: pairs of the gate, or turns of a step.
TurnUnit = Literal["pair", "turn"]
Standing = Literal["new", "unchanged", "as_measured"]


class Policy(FrozenStruct, kw_only=True):
    """The tolerances, bounds and error rates of the gate."""

    # The chance of a false alarm of the whole gate, over all looks and reruns that add
    # pairs.
    alpha: float = 0.01
    # The chance of a wrong "unchanged", per comparison.
    alpha_ok: float = 0.05
    # The slowdown that must be excluded before a time is called unchanged. None: pairs
    # are measured until 1 % is excluded, and 2 % is enough in the end.
    ok_margin: float | None = None
    # The numbers of pairs after which the gate may decide.
    looks: list[int] = msgspec.field(default_factory=lambda: list(DEFAULT_LOOKS))
    # Whether a count that grew fails even if calls are shown not to be slower.
    strict: bool = False
    # The verdict on a change that no workload runs.
    unmeasured: Unmeasured = "skip"
    # A metric or a pattern (``latency.*``, ``latency.p99@encoder/long``): its allowed
    # relative worsening, 0.01 = 1 %.
    tolerances: dict[str, float] = {}
    # Absolute bounds.
    budgets: list[Budget] = []
    # The bounds of the limits of the checklist that gate.
    limits: dict[str, float] = {}
    # Patterns of the names of kernels that every workload must run.
    kernels: list[str] = []

    @property
    def judges_alone(self) -> bool:
        """Whether a rule holds the head to a bound that needs no base."""
        return bool(self.budgets or self.limits or self.kernels)

    def __post_init__(self) -> None:
        """Refuse policies that no test can be built for.

        Raises ValueError; the document reader turns it into its own error.
        """
        if (
            not self.looks
            or self.looks[0] < 1
            or self.looks != sorted(set(self.looks))
            or len(self.looks) > MOST_LOOKS
        ):
            raise ValueError(
                f"looks must be 1 to {MOST_LOOKS} growing numbers of pairs, found {self.looks[:MOST_LOOKS]}"
            )
        for name, error in (("alpha", self.alpha), ("alpha_ok", self.alpha_ok)):
            if not 0 < error < 0.5:
                raise ValueError(f"{name} must lie between 0 and 0.5, found {error}")
        if not self.budgets and not self.limits:
            return
        from perfgate.catalogue.lookup import (
            METRICS,
            judged_by,
        )  # as long to load as numpy, and a flame graph needs none

        for budget in self.budgets:
            if budget.metric not in METRICS:
                raise ValueError(
                    f"no metric {budget.metric!r} is known that a budget could be for"
                )
        for name in self.limits:
            if judged_by(name) is None:
                raise ValueError(f"no limit {name!r} is known that could gate")


class Regression(FrozenStruct, kw_only=True):
    """All that got worse by one cause: reports list, number and link it as one
    regression, and it is accepted as one.
    """

    # Numbers of the decision's causes, the leading one first; empty if the regression
    # is unexplained.
    causes: list[int] = []
    # Numbers of the comparisons that got worse; the first names the regression.
    comparisons: list[int] = []
    # Numbers of the times among them. Without any: the fast paths that certainly take
    # longer, in too few pairs to alarm.
    slower: list[int] = []
    # Seconds per call that the cause adds by itself; None if the slower calls show as
    # much.
    apart: float | None = None
    # The slowdown that is still possible if no call is shown to be slower.
    at_most: float | None = None
    # The metrics to accept for exactly this regression
    # (``counters.copies@encoder/long``).
    accepts: list[str] = []
    # The number of the suggestion about it.
    suggestion: int | None = None


class CountDifference(FrozenStruct, kw_only=True, tag="count", tag_field="kind"):
    """The relative difference of a count or a constant, which has no noise; None from
    0.
    """

    delta: float | None


class TurnDifference(FrozenStruct, kw_only=True, tag="turns", tag_field="kind"):
    """The relative difference of a number that both sides measured in turns, or in the
    pairs of the gate.
    """

    unit: TurnUnit
    # The number of pairs or turns.
    count: int
    # About how many would show a difference of the measured size. None if the interval
    # already excludes no change, or if no planned number would.
    needed: int | None = None
    clock: Clock = "wall"
    # ``interval`` bounds it at level ``confidence``; too few turns give neither.
    delta: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None

    @property
    def is_by_own_clock(self) -> bool:
        """Whether pairs measured it by another clock than the wall's, which a step
        alone does not have.
        """
        return self.unit == "pair" and self.clock != "wall"


class StepComparison(ShapeEntry, kw_only=True):
    """A key number of a checklist step on both sides of a check.

    Informational: it is not judged.
    """

    step: int
    metric: str
    # Other labels than the shape.
    labels: dict[str, str] = {}
    unit: str
    base: float | None = None
    head: float | None = None
    # Of a batch size: the sizes that the turns leave open, as ``head_range`` for head.
    base_range: tuple[float, float] | None = None
    head_range: tuple[float, float] | None = None
    # None if each side measured it once, which shows no difference.
    difference: CountDifference | TurnDifference | None = None
    # Whether it stands for its step and workload. The catalogue decides that, whatever
    # the differences are; of operators, the three that take most time.
    leads: bool = False
    # The budget or limit on the number.
    bound: float | None = None
    at_most: bool = True
    # The allowed relative worsening.
    tolerance: float | None = None

    @property
    def clock(self) -> Clock:
        return (
            self.difference.clock
            if isinstance(self.difference, TurnDifference)
            else "wall"
        )

    @property
    def is_by_own_clock(self) -> bool:
        return (
            isinstance(self.difference, TurnDifference)
            and self.difference.is_by_own_clock
        )

    @property
    def is_resolved(self) -> bool:
        """Whether a difference is shown: exact counts differ, or the interval excludes
        no change.
        """
        difference = self.difference
        if isinstance(difference, CountDifference):
            return (
                self.base is not None
                and self.head is not None
                and self.base != self.head
            )
        if difference is None or difference.interval is None:
            return False
        return not difference.interval[0] <= 0.0 <= difference.interval[1]


class QuantileComparison(FrozenStruct, kw_only=True):
    """P50, P90 and P99 in seconds of all requests or steps of a job, over its turns.

    Informational: not judged.
    """

    workload: str
    metric: str
    base: list[float]
    head: list[float]
    counts: tuple[int, int]


class StoredComparison(ShapeEntry, kw_only=True):
    """The head's own value of a metric and the values of main's stored runs on the same
    testbed. Informational: not judged.
    """

    metric: str
    # Other labels than the shape.
    labels: dict[str, str] = {}
    unit: str
    # The value of the step's first turn, which the runs of main measured by the same
    # procedure.
    head: float
    runs: int
    # Runs that do not compare: measured by another procedure, or on a busy machine if
    # there are enough others.
    left_out: int = 0
    # Compared runs that were measured on a busy machine.
    busy: int = 0
    # Whether head's number depends on a busy machine; no range applies to it then.
    head_is_busy: bool = False
    # The median of the values of ``runs`` runs; None without any.
    typical: float | None = None
    # head / typical - 1.
    delta: float | None = None
    # The range of one more run of the same code, at level ``confidence``; None if the
    # runs are too few.
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    # Of the newest runs, oldest first.
    values: list[float] = []

    @property
    def outside(self) -> Literal["above", "below"] | None:
        """The end of the interval that the head lies beyond."""
        if (
            self.interval is None
            or self.head_is_busy
            or self.interval[0] <= self.head <= self.interval[1]
        ):
            return None
        return "above" if self.head > self.interval[1] else "below"


class NoiseFloor(ShapeEntry, kw_only=True):
    """The noise of one metric in the A/A arm of the same job: half the width of its
    interval, as a share.

    ``differs`` is true if base against base came out different: then the job is not
    evidence. ``effects`` are the effects of its pairs, as in a comparison.
    """

    metric: str
    floor: float
    pairs: int
    differs: bool
    clock: Clock = "wall"
    effects: list[float] = []


class Invalid(ShapeEntry, kw_only=True):
    """Why the times of a shape are not evidence: a disturbance, or evidence of
    tampering. Exact counters still count.
    """

    kind: InvalidKind
    message: Message


class PowerCap(FrozenStruct, kw_only=True):
    """The share of each side's blocks in which the device's power limit held its clock:
    a state, no disturbance.
    """

    base: float
    head: float


class Missing(ShapeEntry, kw_only=True):
    """Data that a verdict needs and a document lacks.

    ``metric`` names a metric, or a part of a run document by its name there
    (``seen_ns``, ``settings.threads``); it is empty if a whole shape is missing, and
    ``shape`` is empty if a whole workload is. ``pairs`` are the numbers of the pairs
    that lack it although others have it. ``named_by`` is the source of the requirement:
    the base's configuration, main's stored run, or the documents themselves.
    ``differs`` is set if it is present but not as that source requires.
    """

    shape: str = ""
    metric: str = ""
    side: MissingSide
    pairs: list[int] = []
    named_by: NamedBy = "document"
    differs: bool = False


class TestbedDifference(FrozenStruct, kw_only=True):
    """A field of the testbed that differs between the sides."""

    field: str
    base: str | None
    head: str | None


class PackageDifference(TestbedDifference, kw_only=True):
    """A package in two versions; ``loaded`` is False if the workloads load no file of
    it on either side.
    """

    loaded: bool = True


class _HarnessChange(FrozenStruct, kw_only=True, tag_field="kind"):
    """How an edit of the workload file changed the measurement; the head's file
    measured both sides.

    ``lines`` are all changed places of the file, whichever of them caused this change.
    """

    # Whether it may hide a regression.
    hides: ClassVar[bool] = True

    workload: str
    message: Message
    lines: list[str] = []


class HarnessRemoval(_HarnessChange, kw_only=True, tag="removed"):
    """The head's file measures or checks less."""


class HarnessEdit(_HarnessChange, kw_only=True, tag="changed"):
    """The head's file measures something else."""


class HarnessAddition(_HarnessChange, kw_only=True, tag="added"):
    """The head's file measures or checks more."""

    hides: ClassVar[bool] = False


class UnreadHarness(_HarnessChange, kw_only=True, tag="unknown"):
    """The base's own file could not be read."""


class UnfitHarness(_HarnessChange, kw_only=True, tag="not_comparable"):
    """The base's code does not run under the head's file."""

    hides: ClassVar[bool] = False


HarnessChange: TypeAlias = (
    HarnessRemoval | HarnessEdit | HarnessAddition | UnreadHarness | UnfitHarness
)


class SideSummary(FrozenStruct, kw_only=True):
    """One side of the comparison, and why it was chosen.

    ``sha256`` is the hash of its run document's content.

    ``reviewed`` is the head commit of the change request; None unless ``commit`` is the
    forge's merge of it into the target.
    """

    commit: str | None = None
    reviewed: str | None = None
    branch: str | None = None
    subject: str | None = None
    dirty: bool = False
    chosen_because: Message | None = None
    sha256: str | None = None


class Gain(FrozenStruct, kw_only=True):
    """The effect of a suggestion on a call (or on the part named by ``of``):
    ``speedup`` times as fast.

    A ``measured`` gain was tried in turns with the current state; ``interval`` bounds
    the speed-up, if known. An ``estimated`` gain is an upper bound by Amdahl's law:
    ``share`` of the time disappears entirely, and the rest stays.
    """

    kind: Literal["measured", "estimated"]
    speedup: float
    of: GainOf = "call"
    interval: tuple[float, float] | None = None
    share: float | None = None

    @property
    def is_measured(self) -> bool:
        return self.kind == "measured"

    @property
    def lowest(self) -> float:
        """The lower bound of a measured speed-up with an interval; else the speed-up."""
        return self.interval[0] if self.interval else self.speedup

    @property
    def saved(self) -> float:
        """The share of the time that is saved: the lower bound of a measured gain, the
        upper bound of an estimated one.
        """
        return 1 - 1 / self.lowest


class Suggestion(ShapeEntry, kw_only=True):
    """Something to try, tied to the evidence for it.

    ``step`` is the step of the checklist that noticed it, None if a comparison did.
    ``code`` is the code to write, ``command`` measures the effect. ``source`` is the
    reference for the advice. ``introduced`` is set if the change brought the problem
    in; otherwise it was there before.
    """

    rule: str
    message: Message
    shape: str = ""
    step: int | None = None
    severity: Severity = "info"
    line: str | None = None
    evidence: dict[str, Evidence] = {}
    gain: Gain | None = None
    code: str | None = None
    command: str | None = None
    source: str = "perfgate"
    introduced: bool = False


class JudgedFinding(Finding, kw_only=True):
    """A finding of the head: ``new`` or ``unchanged`` against the base, or as measured
    if neither can be shown.

    ``cause`` is the number of the decision's cause that a new one belongs to.
    """

    standing: Standing = "as_measured"
    cause: int | None = None


class StepSummary(FrozenStruct, kw_only=True):
    """A step of the head's checklist, as the comment lists it; ``waited`` is as in its
    result.

    A step that did not run has status ``left_out`` and a ``reason``. ``gone`` are
    findings of the base that the head is shown not to have.
    """

    number: int
    slug: str
    workload: str
    status: str
    reason: Message | None = None
    findings: list[JudgedFinding] = []
    gone: list[Finding] = []
    waited: float | None = None


class Failure(FrozenStruct, kw_only=True):
    """Something that could not be measured, on which side, and how it failed."""

    side: Literal["base", "head", "pair"]
    workload: str
    what: str
    error: ErrorDetail


class Procedure(FrozenStruct, kw_only=True):
    """How the decision was made; together with the run documents it is enough to repeat
    it.
    """

    name: str
    version: int
    seed: int
    quantiles: list[float]
    policy: Policy


class ComparedSides(FrozenStruct, kw_only=True):
    """Both sides, and how they differ apart from the code under test."""

    # ``stack``: one commit on two software stacks. ``rules``: head alone, held to
    # budgets, limits and expected kernels.
    comparing: Comparing = "code"
    base: SideSummary
    head: SideSummary
    testbed_differences: list[TestbedDifference] = []
    # The installed distributions that differ if each side has its own environment.
    package_differences: list[PackageDifference] = []
    harness_changes: list[HarnessChange] = []

    @property
    def are_comparable(self) -> bool:
        """Whether times of one compare with times of the other: of one testbed, or of
        the stacks that are under test.
        """
        return self.comparing == "stack" or not self.testbed_differences


class EvidenceGaps(FrozenStruct, kw_only=True):
    """What the decision could not rest on."""

    failures: list[Failure] = []
    invalid: list[Invalid] = []
    missing: list[Missing] = []


class ChecklistRows(FrozenStruct, kw_only=True):
    """The head's checklist, and its numbers beside base's and main's.

    Informational: not judged.
    """

    steps: list[StepSummary] = []
    numbers: list[StepComparison] = []
    job_quantiles: list[QuantileComparison] = []
    stored: list[StoredComparison] = []


class Explanations(FrozenStruct, kw_only=True):
    """Why calls take another time, and what to try."""

    # Operators with a changed count, by weight; tested operators, the largest loss
    # first; the others that the pairs profiled.
    operators: list[OperatorDelta] = []
    # In the order of the comparisons.
    explanations: list[Explanation] = []
    # The causes of worse calls, for every shape the likeliest first.
    causes: list[Cause] = []
    # The worse comparisons grouped by cause, the most important first.
    regressions: list[Regression] = []
    # Operators that took the place of others, whether or not that costs time.
    replaced: list[Replacement] = []
    suggestions: list[Suggestion] = []


class Measurement(FrozenStruct, kw_only=True):
    """How, where and how much was measured."""

    device: str
    # The accelerator's own identity, or the name of the host.
    machine: str = ""
    pairs: int = 0
    # The jobs that measured: each rerun adds to the measurements before.
    rounds: int = 1
    duration: float = 0.0
    # Whether a CI job measured.
    in_ci: bool = False
    # Whether both sides are recordings of a profiler: only times of kernels are
    # compared.
    recorded: bool = False
    # The share of the measured time in which workers, or else threads of jobs, waited
    # for a CPU; None if the kernel does not count it.
    waited: float | None = None
    # None if the device was never at its limit or does not report it.
    power_cap: PowerCap | None = None
    # Workloads with weights and inputs in one place in all quads of a pair.
    unmoved: list[str] = []
    noise_floors: list[NoiseFloor] = []
    # The changed code that the workloads run; None if that was not looked at.
    coverage: Coverage | None = None
    # The kept files, by their paths in the check folder.
    links: list[Artifact] = []


class DecisionDocument(FrozenStruct, kw_only=True):
    """The gate's decision.

    It is fully determined by the run documents, the policy and the history.
    """

    schema: Literal["perfgate/decision"] = "perfgate/decision"
    schema_version: int = DECISION_SCHEMA_VERSION
    perfgate_version: str
    project: str
    verdict: Verdict
    reasons: list[Message]
    sides: ComparedSides
    measured: Measurement
    procedure: Procedure
    # In reading order: regressed, the worst first; improved; undecided; the rest.
    comparisons: list[Comparison] = []
    gaps: EvidenceGaps = msgspec.field(default_factory=EvidenceGaps)
    checklist: ChecklistRows = msgspec.field(default_factory=ChecklistRows)
    explained: Explanations = msgspec.field(default_factory=Explanations)
    warnings: list[Message] = []

    @property
    def excluded(self) -> float:
        """The slowdown that every unchanged time of a call excludes, up to the
        tolerance of that time.
        """
        from perfgate.catalogue.lookup import FAST_PATHS

        paired = [
            comparison
            for comparison in self.comparisons
            if isinstance(comparison, Paired)
        ]
        calls = [
            c.excluded
            for c in paired
            if c.metric in FAST_PATHS and c.excluded is not None
        ]
        by_default = (
            OK_MARGIN
            if self.procedure.policy.ok_margin is None
            else self.procedure.policy.ok_margin
        )
        return max(calls, default=by_default)
