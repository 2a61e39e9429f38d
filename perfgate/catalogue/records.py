"""What stands in the catalogue's TOML files: steps with their metrics, limits and rules, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perfgate.catalogue.card import Amount, Better, DeviceKind, GainOf, Kind


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured quantity: its base unit, which way is better, and whether repetition gives the same number.

    ``step`` is the checklist step it belongs to (20: the gate), ``counted`` whether it is one of the exact counters, which
    step 4 counts whatever step explains them. A ``share`` is a part of a whole, unit 1, and reads as a percentage. ``part``
    is the operator, module or function that the metric is about: ``{part}`` in title and explanation.

    How the gate judges it: ``tolerance`` is the relative worsening that is allowed unless ``[gate.tolerance]`` in perfgate.toml
    says otherwise, ``unmoved_tolerance`` that of a workload whose memory layout cannot move (luck of one layout may be 1 %),
    ``allowed_more`` by how much a count may grow in any case. A counter is exact, so any worsening counts; those of times lie
    above what a change that does not change speed can shift by luck of memory layout. ``family`` is the entry in families.toml
    of a time that is compared over pairs, ``ok_margin_scale`` what the margin for "unchanged" is multiplied by; other than 1,
    it holds wherever the workload lies.

    ``explained``: a change of it is taken apart into operators. ``stored``: the head's value stands beside those of main's
    stored runs. ``recorded``: shown where two recordings are compared. ``trend``: followed over weeks, as all with a tolerance
    and all counters are. ``follows`` names the metric compared over pairs that a change of this one shows in.

    How the report words it: ``clock_titles`` are its titles where another clock than the wall decides, ``amount`` is what
    the parts of a counter count, ``listed_last`` marks a metric that moves with what others show, and ``advice`` is the entry
    in changes.toml for a counter that grew.
    """

    name: str
    step: int
    title: str
    unit: str
    better: Better
    kind: Kind
    explanation: str
    source: str
    share: bool = False
    counted: bool = False
    part: str = ""
    tolerance: float | None = None
    unmoved_tolerance: float | None = None
    allowed_more: float = 0.0
    family: str = ""
    ok_margin_scale: float = 1.0
    explained: bool = False
    stored: bool = False
    recorded: bool = False
    trend: bool = False
    follows: str = ""
    clock_titles: Mapping[Literal["cpu", "device"], str] = {}
    amount: Amount = "calls"
    listed_last: bool = False
    advice: str = ""


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time metrics that are corrected for together; ``share`` is their part of the gate's alpha.

    Where one that ``must_decide`` is inconclusive, so is the gate.
    """

    metrics: tuple[str, ...]
    share: float
    must_decide: bool = False
    gating: bool = True


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bound inside one run that ``[limits]`` in perfgate.toml may override.

    ``name`` is a rule and a severity, such as ``transfer.share.warning``; ``source`` says where the number comes from.
    """

    name: str
    step: int
    default: int | float
    source: str


class Judged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that the limits of a rule bound: those of a metric that carry all the labels."""

    metric: str
    at_most: bool = True
    labels: Mapping[str, str] = {}


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="measured"):
    """The gain that a step measured by trying it: its speed-up ``metric``, of the finding's shape.

    ``inverse`` where the slower way is the one that was tried second, ``lost`` where the metric is the share that is lost.
    """

    metric: str
    of: GainOf = "call"
    inverse: bool = False
    lost: bool = False


class Estimated(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="estimated"
):
    """The most that may be gained, by Amdahl's law: the finding's evidence ``share`` is the part of the time that may go.

    ``stays`` names the evidence that says which share of it stays at best. ``of_busy`` where it is a share of the time that
    the device works in, which is a part of the call. ``rest`` where the evidence is what would stay. ``seconds`` where it is
    seconds of a call instead of a share.
    """

    share: str
    stays: str = ""
    of_busy: bool = False
    rest: bool = False
    seconds: bool = False


class Advice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to try; ``{name}`` in its words is an entry of the suggestion's evidence.

    ``tried`` is what a step measured that tried this very remedy: where the run has it, it is the gain, and where it is none
    beyond doubt, ``instead`` is said, which names no evidence and no such remedy, or nothing is suggested.

    ``code`` is what to write, ``steps`` the steps of the checklist that show what it brings: the rule's own unless said.
    """

    message: str
    gain: Measured | Estimated | None = None
    code: str = ""
    steps: tuple[int, ...] = ()
    tried: Measured | None = None
    instead: str | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step may notice, and in which words; ``{name}`` in them is an entry of the finding's evidence.

    ``judges`` is the value in the run document that the rule's limits bound, so that a gate can judge it again; a rule has
    none where it depends on more than one value (a sum, another step's number, a condition). ``advice`` is "none" for a rule
    that only says how a number came about, what was left out, or that nothing was gained.
    """

    name: str
    step: int
    message: str
    advice: Advice | Literal["none"]
    judges: Judged | None = None


class StepCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of the checklist.

    ``slug`` names it in files, documents and options. ``question`` is what it answers, ``how`` how it is measured,
    ``devices`` what each kind of device shows, ``remedy`` what to do when it asks to be looked at, ``cost`` what it takes:
    seconds on a model of 5 ms a call on two cores, quick and full.
    """

    number: int
    slug: str
    title: str
    question: str
    how: str
    remedy: str
    cost: str
    devices: Mapping[DeviceKind, str]
    metrics: tuple[Metric, ...] = ()
    limits: tuple[Limit, ...] = ()
    rules: tuple[Rule, ...] = ()
    parts: tuple[Metric, ...] = ()
