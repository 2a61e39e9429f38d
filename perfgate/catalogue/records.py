"""The records of the catalogue's TOML files: steps with their metrics, limits and
rules, and advice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perfgate.catalogue.terms import (
    Amount,
    Better,
    DeviceKind,
    GainOf,
    Kind,
    Sort,
    Unit,
)

GATE_STEP = 20


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a TOML file; an unknown key is an error."""


class NumberForm(Entry, frozen=True):
    """How a metric's number reads."""

    # The sort of a number of unit 1; by default a whole number is a count and any other
    # number a ratio.
    sort: Sort | None = None
    # A relative change itself, 0 for no change: two of them are compared as 1 + value.
    change: bool = False
    # A time that reads as slower or faster; a spread, a gap or an overhead is larger or
    # smaller.
    speed: bool = True
    # A whole number though it is noisy, such as a batch size: its median is one of the
    # values. Exact counts are whole anyway.
    whole: bool = False


class MetricOrigin(Entry, frozen=True):
    """Where a metric's values come from."""

    # One of the exact counters of step 4, even if another step explains it.
    counted: bool = False
    # Growth that repeats with more calls and in a second process: its bytes vary, so
    # they are never called exact.
    leak: bool = False
    # A number of its step that the samples of the pairs give, too.
    sampled: bool = False
    # Its step times calls for it by the device's timer: in a check without the waits of
    # the process for a CPU.
    timed: bool = False
    # It depends on what ran before in the process: a first call, or memory that the
    # process holds.
    of_young_process: bool = False


class GateTerms(Entry, frozen=True):
    """How the gate judges a metric."""

    # The allowed relative worsening, unless ``[gate.tolerance]`` in perfgate.toml
    # overrides it. A counter is exact, so any worsening counts; tolerances of times lie
    # above the shift that luck of memory layout can cause without a change of speed: if
    # layouts move before every quad, that is part of the spread.
    tolerance: float | None = None
    # The tolerance for a workload with a layout that cannot move: luck of one layout
    # may be 1 %.
    unmoved_tolerance: float | None = None
    # The sd of what other code of equal speed differs by in all pairs of a gate alike,
    # with layouts that move and with others.
    luck: float = 0.0
    unmoved_luck: float = 0.0
    # A special rule judges it: the workload's check, a promise, properties that must be
    # equal on both sides.
    own_rule: bool = False
    # More of it is a regression even if calls are shown not to be slower.
    fails_alone: bool = False
    # By how much a count may grow in any case.
    allowed_more: float = 0.0
    # The entry in families.toml, of a time that is compared over pairs.
    family: str = ""
    # The margin for "unchanged" is multiplied by this; with another factor than 1, the
    # margin holds for fixed layouts too.
    ok_margin_scale: float = 1.0
    # A change of it is taken apart into operators.
    explained: bool = False
    # The entry in changes.toml for a counter that grew.
    advice: str = ""


class TrendRole(Entry, frozen=True):
    """What becomes of a metric over weeks."""

    # All counters and all metrics with a tolerance are judged, too.
    judged: bool = False
    # Without being judged; all leading numbers are, too.
    followed: bool = False
    # A metric compared over pairs in which a change of this one shows.
    follows: str = ""


class Display(Entry, frozen=True):
    """Where and how reports show a metric."""

    # Titles for other deciding clocks than the wall.
    clock_titles: Mapping[Literal["cpu", "device", "awake"], str] = {}
    # The unit of the parts of a counter.
    amount: Amount = "calls"
    # Its step is read by it: base, head and main's stored runs stand side by side in
    # the table of the checklist.
    leading: bool = False
    # Shown in comparisons of two recordings.
    recorded: bool = False
    # Before the metrics that follow it, if it is more informative: a tail before the
    # mean that it shifts. After the metrics that it follows itself.
    order: Literal["first", "", "last"] = ""


class Metric(Entry, frozen=True):
    """A measured quantity."""

    name: str
    # The step of the checklist it belongs to; 20 is the gate.
    step: int
    title: str
    better: Better
    explanation: str
    # How the number is computed; a formula if there is one.
    source: str
    unit: Unit = "1"
    # Whether repetition gives the same number.
    kind: Kind = "noisy"
    # The operator, module or function that a metric of a part is about: ``{part}`` in
    # title and explanation.
    part: str = ""
    number: NumberForm = NumberForm()
    origin: MetricOrigin = MetricOrigin()
    gate: GateTerms = GateTerms()
    trend: TrendRole = TrendRole()
    display: Display = Display()

    @property
    def is_exact(self) -> bool:
        """Whether it has no noise."""
        return self.kind == "exact"

    @property
    def is_whole(self) -> bool:
        is_number = self.unit in ("1", "B") and self.number.sort in (None, "count")
        return self.number.whole or (self.is_exact and is_number)

    @property
    def depends_on_load(self) -> bool:
        """Whether its values differ on a busy machine, as times do; exact counts and
        bytes are the same there.
        """
        return not self.is_exact and self.unit != "B"

    @property
    def number_sort(self) -> Sort:
        """The sort of a number of unit 1."""
        return self.number.sort or ("count" if self.is_whole else "ratio")

    @property
    def repeatable(self) -> bool:
        """Whether the gate compares it over repeated steps if ``[gate.tolerance]``
        names it, and otherwise not at all.
        """
        compared = (
            self.gate.family
            or self.origin.counted
            or self.part
            or self.gate.tolerance is not None
        )
        return not self.is_exact and self.step != GATE_STEP and not compared


class Family(Entry, frozen=True):
    """Time metrics that are corrected for together; ``share`` is their part of the
    gate's alpha.

    If a metric of a family that ``must_decide`` is inconclusive, so is the gate.
    """

    metrics: tuple[str, ...]
    share: float
    must_decide: bool = False
    gating: bool = True


class Term(Entry, frozen=True):
    """A word of the reports that is neither a metric nor a step; ``also`` are other
    ways to write it.
    """

    name: str
    explanation: str
    also: tuple[str, ...] = ()


class Limit(Entry, frozen=True):
    """A bound inside one run that ``[limits]`` in perfgate.toml may override.

    ``name`` is a rule and a severity, such as ``transfer.share.warning``; ``source`` is
    the origin of the number.
    """

    name: str
    step: int
    default: int | float
    source: str


class JudgedValue(Entry, frozen=True):
    """The values that the limits of a rule bound: the values of a metric that carry all
    the labels.
    """

    metric: str
    at_most: bool = True
    labels: Mapping[str, str] = {}


class MeasuredGain(Entry, frozen=True, tag_field="kind", tag="measured"):
    """A gain that a step measured by trying it: its speed-up ``metric``, of the
    finding's shape.
    """

    metric: str
    of: GainOf = "call"
    # The slower way was tried second.
    inverse: bool = False
    # The metric is the share that is lost.
    loss: bool = False


class EstimatedGain(Entry, frozen=True, tag_field="kind", tag="estimated"):
    """The most that may be gained, by Amdahl's law: the finding's evidence ``share`` is
    the part of the time that may go.
    """

    share: str
    # The evidence with the share of it that stays at best.
    stays: str = ""
    # It is a share of the time that the device works in, which is a part of the call.
    of_busy: bool = False
    # It is seconds of a call instead of a share.
    seconds: bool = False


class Advice(Entry, frozen=True):
    """The remedy to try; ``{name}`` in its words is an entry of the suggestion's
    evidence.
    """

    message: str
    gain: MeasuredGain | EstimatedGain | None = None
    # The code to write.
    code: str = ""
    # The steps of the checklist that show its gain; by default the rule's own.
    steps: tuple[int, ...] = ()
    # The gain that a step measured by trying this very remedy. If the run has it, it is
    # the gain.
    tried: MeasuredGain | None = None
    # The message if the remedy was tried in vain; without it there is no suggestion. It
    # names no evidence.
    instead: str | None = None


class Rule(Entry, frozen=True):
    """A possible finding of a step, and its words; ``{name}`` in them is an entry of
    the finding's evidence.
    """

    name: str
    step: int
    message: str
    # "none" for a rule that only explains the origin of a number, an omission, or the
    # lack of a gain.
    advice: Advice | Literal["none"]
    # The value in the run document that the rule's limits bound, so that a gate can
    # judge it again. A rule has none if it depends on more than one value: a sum,
    # another step's number, a condition.
    judges: JudgedValue | None = None
    # The metric with a comparison that shows whether a finding of the rule appeared or
    # disappeared, if it differs from the metric that the rule judges.
    rests_on: str = ""


class StepPace(Entry, frozen=True):
    """When and how often a step runs."""

    # Even a quick one takes 8 s or more: it runs last, in a separate process, and has
    # no further turns in a check.
    long: bool = False
    # Its exact numbers take little time, so the first turn of a check has them.
    exact_first: bool = False


class StepCard(Entry, frozen=True):
    """One step of the checklist."""

    number: int
    # Its name in files, documents and options.
    slug: str
    title: str
    question: str
    how: str
    # The remedy when the step asks for attention.
    remedy: str
    # Seconds on a model of 5 ms a call on two cores, quick and full.
    cost: str
    # The results on each kind of device.
    devices: Mapping[DeviceKind, str]
    pace: StepPace = StepPace()
    # The metric that its row in a report shows. Of several, the first that was
    # measured: devices differ in what they have.
    leading: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    limits: tuple[Limit, ...] = ()
    rules: tuple[Rule, ...] = ()
    # Metrics of single operators, modules and functions, by the prefix of their names.
    parts: tuple[Metric, ...] = ()


class Sentence(Entry, frozen=True):
    """The text of a message of a document; ``one`` replaces ``other`` if its value
    ``count`` is 1.

    ``{name}`` is a value, ``{name:percent}`` one that the report words as a percentage.
    """

    other: str
    one: str | None = None

    def for_count(self, count: object) -> str:
        """The text for a value of ``count``, None without one."""
        if count == 1 and self.one is not None:
            return self.one
        return self.other
