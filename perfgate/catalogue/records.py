"""What stands in the catalogue's TOML files: steps with their metrics, limits and rules, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perfgate.catalogue.terms import Amount, Better, DeviceKind, GainOf, Kind, Sort, Unit

GATE_STEP = 20


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a TOML file; a key that is no field of it is an error."""


class Metric(Entry, frozen=True):
    """A measured quantity."""

    name: str
    # The step of the checklist it belongs to; 20 is the gate.
    step: int
    title: str
    unit: Unit
    better: Better
    # Whether repetition gives the same number.
    kind: Kind
    explanation: str
    # How the number is made; a formula where there is one.
    source: str
    # A part of a whole, unit 1, which reads as a percentage.
    share: bool = False
    # What it is instead if its unit is 1; by default a whole number is a count and any other number a ratio.
    sort: Sort | None = None
    # A relative change itself, 0 where there is none: two of them are compared as 1 + value.
    change: bool = False
    # A time that reads as slower or faster; a spread, a gap or an overhead is larger or smaller.
    speed: bool = True
    # A whole number though it is noisy, such as a batch size: its median is one of the values. Exact counts are whole anyway.
    whole: bool = False
    # One of the exact counters, which step 4 counts whatever step explains them.
    counted: bool = False
    # The operator, module or function that a metric of a part is about: ``{part}`` in title and explanation.
    part: str = ""

    # How the gate judges it.
    # The relative worsening that is allowed unless ``[gate.tolerance]`` in perfgate.toml says otherwise. A counter is exact, so
    # any worsening counts; tolerances of times lie above what a change that does not change speed can shift by luck of
    # memory layout: where layouts move before every quad, that is part of the spread.
    tolerance: float | None = None
    # The tolerance of a workload whose layout cannot move: luck of one layout may be 1 %.
    unmoved_tolerance: float | None = None
    # A rule of its own judges it: the workload's check, a promise, what both sides must have alike.
    own_rule: bool = False
    # More of it is a regression also where calls are shown not to be slower.
    fails_alone: bool = False
    # By how much a count may grow in any case.
    allowed_more: float = 0.0
    # The entry in families.toml, of a time that is compared over pairs.
    family: str = ""
    # A number of its step that the samples of the pairs give, too.
    sampled: bool = False
    # The margin for "unchanged" is multiplied by this; where it is not 1, the margin holds wherever the workload lies.
    ok_margin_scale: float = 1.0
    # A change of it is taken apart into operators.
    explained: bool = False
    # Its step is read by it: base, head and main's stored runs stand side by side in the table of the checklist.
    leading: bool = False
    # Shown where two recordings are compared.
    recorded: bool = False
    # Followed over weeks; all counters and all metrics with a tolerance are, too.
    trend: bool = False
    # A metric compared over pairs in which a change of this one shows.
    follows: str = ""

    # How the report words it.
    # Titles where another clock than the wall decides.
    clock_titles: Mapping[Literal["cpu", "device", "awake"], str] = {}
    # What the parts of a counter count.
    amount: Amount = "calls"
    # It moves with what other metrics show, so it stands after them.
    listed_last: bool = False
    # It tells more than what moves with it: a tail before the mean that it shifts.
    listed_first: bool = False
    # The entry in changes.toml for a counter that grew.
    advice: str = ""

    @property
    def is_whole(self) -> bool:
        is_number = self.unit in ("1", "B") and not self.share and self.sort in (None, "count")
        return self.whole or (self.kind == "exact" and is_number)

    @property
    def number_sort(self) -> Literal["share"] | Sort:
        """What a number of unit 1 is."""
        return "share" if self.share else self.sort or ("count" if self.is_whole else "ratio")

    @property
    def repeatable(self) -> bool:
        """Whether the gate compares it over repeated steps if ``[gate.tolerance]`` names it, and otherwise not at all."""
        compared = self.family or self.counted or self.part or self.tolerance is not None
        return self.kind == "noisy" and self.step != GATE_STEP and not compared


class Family(Entry, frozen=True):
    """Time metrics that are corrected for together; ``share`` is their part of the gate's alpha.

    Where a metric of a family that ``must_decide`` is inconclusive, so is the gate.
    """

    metrics: tuple[str, ...]
    share: float
    must_decide: bool = False
    gating: bool = True


class Term(Entry, frozen=True):
    """A word of the reports that is neither a metric nor a step; ``also`` are other ways to write it."""

    name: str
    explanation: str
    also: tuple[str, ...] = ()


class Limit(Entry, frozen=True):
    """A bound inside one run that ``[limits]`` in perfgate.toml may override.

    ``name`` is a rule and a severity, such as ``transfer.share.warning``; ``source`` says where the number comes from.
    """

    name: str
    step: int
    default: int | float
    source: str


class JudgedValue(Entry, frozen=True):
    """The values that the limits of a rule bound: those of a metric that carry all the labels."""

    metric: str
    at_most: bool = True
    labels: Mapping[str, str] = {}


class MeasuredGain(Entry, frozen=True, tag_field="kind", tag="measured"):
    """A gain that a step measured by trying it: its speed-up ``metric``, of the finding's shape."""

    metric: str
    of: GainOf = "call"
    # The slower way is the one that was tried second.
    inverse: bool = False
    # The metric is the share that is lost.
    loss: bool = False


class EstimatedGain(Entry, frozen=True, tag_field="kind", tag="estimated"):
    """The most that may be gained, by Amdahl's law: the finding's evidence ``share`` is the part of the time that may go."""

    share: str
    # The evidence that says which share of it stays at best.
    stays: str = ""
    # It is a share of the time that the device works in, which is a part of the call.
    of_busy: bool = False
    # The evidence is what would stay.
    rest: bool = False
    # It is seconds of a call instead of a share.
    seconds: bool = False


class Advice(Entry, frozen=True):
    """What to try; ``{name}`` in its words is an entry of the suggestion's evidence."""

    message: str
    gain: MeasuredGain | EstimatedGain | None = None
    # What to write.
    code: str = ""
    # The steps of the checklist that show what it brings; the rule's own where there are none.
    steps: tuple[int, ...] = ()
    # What a step measured that tried this very remedy. Where the run has it, it is the gain.
    tried: MeasuredGain | None = None
    # The message where the remedy was tried in vain; without one nothing is suggested. It names no evidence.
    instead: str | None = None


class Rule(Entry, frozen=True):
    """What a step may notice, and in which words; ``{name}`` in them is an entry of the finding's evidence."""

    name: str
    step: int
    message: str
    # "none" for a rule that only says how a number came about, what was left out, or that nothing was gained.
    advice: Advice | Literal["none"]
    # The value in the run document that the rule's limits bound, so that a gate can judge it again. A rule has none where it
    # depends on more than one value: a sum, another step's number, a condition.
    judges: JudgedValue | None = None
    # The metric whose comparison shows that a finding of the rule came or went, if it is not the one that the rule judges.
    rests_on: str = ""


class StepCard(Entry, frozen=True):
    """One step of the checklist."""

    number: int
    # Its name in files, documents and options.
    slug: str
    title: str
    question: str
    how: str
    # What to do when the step asks for attention.
    remedy: str
    # Seconds on a model of 5 ms a call on two cores, quick and full.
    cost: str
    # What each kind of device shows.
    devices: Mapping[DeviceKind, str]
    # The seconds of a quick step that takes too long for the first turn of a check: one runs it where six turns fit its budget.
    long_seconds: float = 0.0
    metrics: tuple[Metric, ...] = ()
    limits: tuple[Limit, ...] = ()
    rules: tuple[Rule, ...] = ()
    # Metrics of single operators, modules and functions, by the prefix of their names.
    parts: tuple[Metric, ...] = ()


class Sentence(Entry, frozen=True):
    """What a message of a document reads; ``one`` is said instead of ``other`` where its value ``count`` is 1.

    ``{name}`` is a value, ``{name:percent}`` one that the report words as a percentage.
    """

    other: str
    one: str | None = None
