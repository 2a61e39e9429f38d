"""The decision document: the gate's judgement of run documents, which is step 20 of the checklist."""

from __future__ import annotations

from typing import Literal

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
from perfgate.document.run import Artifact, ErrorDetail, Evidence, Finding, Severity
from perfgate.document.shape import ShapeEntry

DECISION_SCHEMA: Literal["perfgate/decision"] = "perfgate/decision"
DECISION_SCHEMA_VERSION = 1

# Few looks, each twice the last: every further look costs the others power, and unchanged code mostly needs only the first.
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
# Why a time of a job that stays undecided on a busy host cannot change the verdict.
# The code of the reason that a wider slowdown than usual is excluded: both sides did the same work.
SAME_WORK = "gate.same-work"
CPU_DECIDES = "gate.cpu-decides"
# The verdict on a change whose code no workload runs.
Unmeasured = Literal["skip", "warn", "fail"]
Comparing = Literal["code", "stack", "rules"]
# How a number of the checklist was compared.
StepEvidence = Literal["count", "pair", "turn"]
Standing = Literal["new", "unchanged", "as_measured"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The tolerances, bounds and error rates of the gate.

    ``tolerances`` maps a metric, or a pattern (``latency.*``, ``latency.p99@encoder/long``), to its allowed relative
    worsening (0.01 = 1 %); ``budgets`` are absolute bounds, ``limits`` the bounds of those limits of the checklist that gate,
    and ``kernels`` patterns of the names of kernels that every workload must run; ``ok_margin`` is the slowdown that must be
    excluded before a time metric is called unchanged (None: pairs are measured until 1 % is, and 2 % is enough in the end);
    ``alpha`` the chance of a false alarm of the whole gate, and ``alpha_ok`` that of a wrong "unchanged" per comparison.
    ``strict`` is whether a count that grew fails even if calls are shown not to be slower. ``unmeasured`` is the verdict on a
    change whose code no workload runs.
    ``looks`` are the numbers of pairs after which the gate may decide; both errors are spent over all of them and over the
    reruns that add pairs.
    """

    alpha: float = 0.01
    alpha_ok: float = 0.05
    ok_margin: float | None = None
    looks: list[int] = msgspec.field(default_factory=lambda: list(DEFAULT_LOOKS))
    strict: bool = False
    unmeasured: Unmeasured = "skip"
    tolerances: dict[str, float] = {}
    budgets: list[Budget] = []
    limits: dict[str, float] = {}
    kernels: list[str] = []

    @property
    def judges_alone(self) -> bool:
        """Whether a rule holds the head to a bound that needs no base."""
        return bool(self.budgets or self.limits or self.kernels)

    def __post_init__(self) -> None:
        """Refuse policies that no test can be built for. Raises ValueError; the document reader turns it into its own error."""
        if not self.looks or self.looks[0] < 1 or self.looks != sorted(set(self.looks)) or len(self.looks) > MOST_LOOKS:
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
                raise ValueError(f"no metric {budget.metric!r} is known that a budget could be for")
        for name in self.limits:
            if judged_by(name) is None:
                raise ValueError(f"no limit {name!r} is known that could gate")


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """All that got worse by one cause: reports list, number and link it as one regression, and it is accepted as one.

    ``causes`` are numbers of the decision's causes, the leading one first, empty if nothing explains it. ``comparisons`` are
    numbers of the comparisons that got worse, the one that names it first. ``slower`` are the numbers of the times among them;
    without any, those of the fast paths that certainly take longer, in too few pairs for an alarm. ``apart`` are the seconds
    per call that the cause adds by itself, None if the slower calls show as much. ``at_most`` is the slowdown that is still
    possible if no call is shown to be slower. ``accepts`` are the metrics to accept for exactly this regression
    (``counters.copies@encoder/long``). ``suggestion`` is the number of the suggestion about it.
    """

    causes: list[int] = []
    comparisons: list[int] = []
    slower: list[int] = []
    apart: float | None = None
    at_most: float | None = None
    accepts: list[str] = []
    suggestion: int | None = None


class StepComparison(ShapeEntry, frozen=True, kw_only=True):
    """A key number of a checklist step on both sides of a check. Informational: it is not judged.

    ``evidence`` is how it was compared: as a ``count``, like numbers that all turns of both sides agree on; by samples of
    process pairs; or by turns of the step, ``pairs`` of them. It is None if each side measured it once, which shows no
    difference. ``interval`` bounds the relative difference ``delta`` at level ``confidence``; too few turns give neither.
    ``pairs_needed`` is about how many would show a difference of the measured size, None if the interval already excludes no
    change, or if no planned number would. A batch size has ``base_range`` and ``head_range``, the sizes that the turns leave
    open. ``leads`` marks the number that stands for its step and workload: the catalogue names it, whatever the differences
    are; of operators, the three that take most time. ``labels`` are those beside the shape. ``bound`` is the budget or limit
    on the number, ``tolerance`` the allowed relative worsening.
    """

    step: int
    metric: str
    labels: dict[str, str] = {}
    unit: str
    base: float | None = None
    head: float | None = None
    base_range: tuple[float, float] | None = None
    head_range: tuple[float, float] | None = None
    delta: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    evidence: StepEvidence | None = None
    pairs: int | None = None
    pairs_needed: int | None = None
    leads: bool = False
    clock: Clock = "wall"
    bound: float | None = None
    at_most: bool = True
    tolerance: float | None = None

    @property
    def is_side_by_side(self) -> bool:
        """Whether both sides measured it in turns, so that its difference has an interval."""
        return self.evidence in ("pair", "turn")

    @property
    def is_resolved(self) -> bool:
        """Whether a difference is shown: exact counts differ, or the interval excludes no change."""
        if self.evidence == "count":
            return self.base is not None and self.head is not None and self.base != self.head
        return self.interval is not None and not self.interval[0] <= 0.0 <= self.interval[1]


class QuantileComparison(msgspec.Struct, frozen=True, kw_only=True):
    """P50, P90 and P99 in seconds of all requests or steps of a job, over its turns. Informational: not judged."""

    workload: str
    metric: str
    base: list[float]
    head: list[float]
    counts: tuple[int, int]


class StoredComparison(ShapeEntry, frozen=True, kw_only=True):
    """The head's own value of a metric beside those of main's stored runs on the same testbed. Informational: not judged.

    ``head`` is the value of the step's first turn, which the runs of main measured by the same procedure. ``typical`` is the
    median of ``runs`` values, None without any, and ``delta`` is head/typical - 1; ``interval`` is the range in which one more
    run of the same code falls, at level ``confidence``, None if the runs are too few. ``left_out`` runs do not compare:
    measured by another procedure, or on a busy machine if there are enough others; ``busy`` of the compared ones were measured
    on a busy machine. If ``head_is_busy``, the head's number was measured on a busy machine and depends on that, so that no
    range applies to it. ``values`` are those of the newest runs, oldest first, and ``labels`` those beside the shape.
    """

    metric: str
    labels: dict[str, str] = {}
    unit: str
    head: float
    runs: int
    left_out: int = 0
    busy: int = 0
    head_is_busy: bool = False
    typical: float | None = None
    delta: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    values: list[float] = []

    @property
    def outside(self) -> Literal["above", "below"] | None:
        """The end of the interval that the head lies beyond."""
        if self.interval is None or self.head_is_busy or self.interval[0] <= self.head <= self.interval[1]:
            return None
        return "above" if self.head > self.interval[1] else "below"


class NoiseFloor(ShapeEntry, frozen=True, kw_only=True):
    """The noise of one metric in the A/A arm of the same job: half the width of its interval, as a share.

    ``differs`` is true if base against base came out different: then the job proves nothing. ``effects`` are those of its
    pairs, as in a comparison.
    """

    metric: str
    floor: float
    pairs: int
    differs: bool
    clock: Clock = "wall"
    effects: list[float] = []


class Invalid(ShapeEntry, frozen=True, kw_only=True):
    """Why the times of a shape prove nothing: a disturbance, or evidence of tampering. Exact counters still count."""

    kind: InvalidKind
    message: Message


class PowerCap(msgspec.Struct, frozen=True, kw_only=True):
    """The share of each side's blocks in which the device's power limit held its clock: a state, no disturbance."""

    base: float
    head: float


class Missing(ShapeEntry, frozen=True, kw_only=True):
    """Data that a verdict needs and a document lacks.

    ``metric`` names a metric, or a part of a run document by its name there (``seen_ns``, ``settings.threads``); it is
    empty if a whole shape is missing, and ``shape`` is empty if a whole workload is. ``pairs`` are the numbers
    of the pairs that lack it although others have it. ``named_by`` is the source of the requirement: the base's configuration,
    main's stored run, or the documents themselves. ``differs`` is set if it is present but not as that source requires.
    """

    shape: str = ""
    metric: str = ""
    side: MissingSide
    pairs: list[int] = []
    named_by: NamedBy = "document"
    differs: bool = False


class TestbedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the testbed that differs between the sides."""

    field: str
    base: str | None
    head: str | None


class PackageDifference(TestbedDifference, frozen=True, kw_only=True):
    """A package in two versions; ``loaded`` is False if the workloads load no file of it on either side."""

    loaded: bool = True


class HarnessChange(msgspec.Struct, frozen=True, kw_only=True):
    """How an edit of the workload file changed the measurement; the head's file measured both sides.

    ``removed`` and ``changed`` may hide a regression and ``added`` hides none; with ``unknown`` the base's own file could not
    be read, and with ``not_comparable`` the base's code does not run under the head's file. ``lines`` are all changed places
    of the file, whichever of them caused this change.
    """

    workload: str
    kind: Literal["removed", "changed", "added", "unknown", "not_comparable"]
    message: Message
    lines: list[str] = []


class SideSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One side of the comparison, and why it was chosen. ``sha256`` is that of its run document's content.

    ``reviewed`` is the head commit of the change request; None unless ``commit`` is the forge's merge of it into the target.
    """

    commit: str | None = None
    reviewed: str | None = None
    branch: str | None = None
    subject: str | None = None
    dirty: bool = False
    chosen_because: Message | None = None
    sha256: str | None = None


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a suggestion on a call (or on the part named by ``of``): ``speedup`` times as fast.

    A ``measured`` gain was tried in turns with the current state; ``interval`` is that of the speed-up, if it has one. An
    ``estimated`` one is an upper bound by Amdahl's law: ``share`` of the time disappears entirely, and the rest stays.
    """

    kind: Literal["measured", "estimated"]
    speedup: float
    of: GainOf = "call"
    interval: tuple[float, float] | None = None
    share: float | None = None

    @property
    def saved(self) -> float:
        """The share of the time that is saved: the lower bound of a measured gain, the upper bound of an estimated one."""
        return 1 - 1 / (self.interval[0] if self.interval else self.speedup)


class Suggestion(ShapeEntry, frozen=True, kw_only=True):
    """Something to try, tied to the evidence for it.

    ``step`` is the step of the checklist that noticed it, None if a comparison did. ``code`` is the code to write, ``command``
    measures the effect. ``source`` is the reference for the advice. ``introduced`` is set if the change brought the problem in;
    otherwise it was there before.
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


class JudgedFinding(Finding, frozen=True, kw_only=True):
    """A finding of the head: ``new`` or ``unchanged`` against the base, or as measured if nothing shows which of the two.

    ``cause`` is the number of the decision's cause that a new one belongs to.
    """

    standing: Standing = "as_measured"
    cause: int | None = None


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the head's checklist, as the comment lists it; ``waited`` is as in its result.

    A step that did not run has status ``left_out`` and a ``reason``. ``gone`` are findings of the base that the head is shown
    not to have.
    """

    number: int
    slug: str
    workload: str
    status: str
    reason: Message | None = None
    findings: list[JudgedFinding] = []
    gone: list[Finding] = []
    waited: float | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be measured, on which side, and how it failed."""

    side: Literal["base", "head", "pair"]
    workload: str
    what: str
    error: ErrorDetail


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    """How the decision was made; together with the run documents it is enough to repeat it."""

    name: str
    version: int
    seed: int
    quantiles: list[float]


class DecisionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's decision. It is fully determined by the run documents, the policy and the history.

    ``comparing`` is ``stack`` in an upgrade report: the same commit on both sides, on two software stacks; it is ``rules``
    if there is no base and the head alone was held to budgets, limits and expected kernels.
    ``package_differences`` are the installed distributions that differ if each side has an environment of its own.

    ``comparisons`` are in reading order: regressed ones, the worst first; improved ones; undecided ones; then the rest. So
    are ``explanations``. ``causes`` are the causes of worse calls, for every shape the likeliest first, and ``regressions``
    group the worse comparisons by cause, the most important first. ``operators`` are those with a changed count, by weight;
    then those that were tested, the largest loss first; then the others that the pairs profiled. ``replaced`` are operators
    that took the place of others, whether or not that costs anything.
    ``links`` are the kept files, by their paths in the check folder. ``coverage`` is what the workloads run of the changed
    code, None if that was not looked at.
    ``unmoved`` are the workloads with weights and inputs in one place in all quads of a pair.
    ``waited`` is the share of the measured time in which workers, or else threads of jobs, waited for a CPU; None if the
    kernel does not count it. ``power_cap`` is None if the device was never at its limit or does not report
    it. ``recorded`` is set if both sides were made from a profiler's recording: times of kernels are
    compared, and the others are shown without a comparison. ``in_ci`` is set
    if a CI job measured: a rerun adds to its earlier measurements.
    """

    schema: Literal["perfgate/decision"] = DECISION_SCHEMA
    schema_version: int = DECISION_SCHEMA_VERSION
    perfgate_version: str
    project: str
    comparing: Comparing = "code"
    verdict: Verdict
    reasons: list[Message]
    base: SideSummary
    head: SideSummary
    device: str
    policy: Policy
    procedure: Procedure
    comparisons: list[Comparison] = []
    checklist: list[StepComparison] = []
    quantiles: list[QuantileComparison] = []
    stored: list[StoredComparison] = []
    noise_floors: list[NoiseFloor] = []
    testbed_differences: list[TestbedDifference] = []
    package_differences: list[PackageDifference] = []
    harness_changes: list[HarnessChange] = []
    invalid: list[Invalid] = []
    missing: list[Missing] = []
    operators: list[OperatorDelta] = []
    explanations: list[Explanation] = []
    causes: list[Cause] = []
    regressions: list[Regression] = []
    replaced: list[Replacement] = []
    suggestions: list[Suggestion] = []
    steps: list[StepSummary] = []
    failures: list[Failure] = []
    coverage: Coverage | None = None
    links: list[Artifact] = []
    warnings: list[Message] = []
    pairs: int = 0
    rounds: int = 1
    waited: float | None = None
    power_cap: PowerCap | None = None
    unmoved: list[str] = []
    recorded: bool = False
    in_ci: bool = False
    duration: float = 0.0

    @property
    def excluded(self) -> float:
        """The slowdown that every unchanged time of a call excludes, up to the tolerance of that time."""
        from perfgate.catalogue.lookup import FAST_PATHS

        paired = [comparison for comparison in self.comparisons if isinstance(comparison, Paired)]
        calls = [c.excluded for c in paired if c.metric in FAST_PATHS and c.excluded is not None]
        by_default = OK_MARGIN if self.policy.ok_margin is None else self.policy.ok_margin
        return max(calls, default=by_default)
