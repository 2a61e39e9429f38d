"""The contributions of operators to the difference between base and head, as the decision document stores them."""

from __future__ import annotations

from typing import Literal

import msgspec

from perfgate.catalogue.terms import Amount
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapeEntry

# An effect of an operator that a counter shows besides its running: its result is kept in memory, a repeated input saves it,
# it ran after the call returned, it computes in full precision, or it runs in a mode that changes what runs after it: autograd
# records it, a module trains, a loader has no workers, a transfer may block.
Aspect = Literal[
    "kept",
    "saved",
    "deferred",
    "full precision",
    "recorded",
    "attached",
    "training",
    "without workers",
    "blocking",
]
MODES: tuple[Aspect, ...] = ("recorded", "attached", "training", "without workers", "blocking")
Compiling = Literal["graph_break", "recompilation"]
# How a change reaches a line: it changed the line itself, one that calls it, or the function around it; or a place elsewhere.
Reach = Literal["line", "caller", "function", "elsewhere"]

PartKind = Literal[
    "added", "removed", "more", "fewer", "other_inputs", "slower", "faster", "waiting", "outside", "launching"
]
InputsChange = Literal["shape", "dtype", "layout"]
Bottleneck = Literal["compute", "memory", "scheduling", "synchronisation", "transfer", "communication"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a comparison: an operator's count on both sides and the line that calls it, or a stage's seconds.

    ``sites`` are the lines of the head at which it grew, the one to name first, each with its own counts; ``line`` is the
    first of them, or if it only fell, one at which it is or was. ``tensor`` is the form of the largest tensor that a site
    holds (``float32[8,96]``), of a part that is memory. ``ranks`` is the number of the rank that a count is of, or ``each``
    if every rank has it.
    """

    name: str = ""
    aspect: Aspect | None = None
    ranks: str = ""
    base: float
    head: float
    line: str | None = None
    tensor: str | None = None
    sites: list[Part] = []


class OperatorDelta(ShapeEntry, frozen=True, kw_only=True):
    """The effect of the change on one operator of a shape: its calls, its time, and the evidence of the pairs.

    ``base_count`` and ``head_count`` are its calls in one call, None if they are not known to differ. ``base`` and ``head`` are
    its self seconds in a call, None if no pair profiled it. ``seconds`` is the time that it is shown to add to a call,
    below zero if it saves time: that of the explanation, else of its own test, else the paired estimate (Hodges-Lehmann).
    It is the only estimate of the operator's change; ``head`` is ``base`` plus ``seconds``.

    Its own test informs and never fails the gate. ``delta``, ``interval`` and ``confidence`` are as in Paired; ``p`` is
    one-sided, in the direction of ``delta``; ``q`` is it adjusted for false discoveries among all operators of the decision
    (Benjamini-Hochberg); ``share`` is its part of the self time of all operators of the base's call, ``pairs`` how many pairs
    were tested. ``alone`` is an operator that its test found slower, and that neither a count nor an explanation names.

    ``kind`` is its part in an explanation: ``other_inputs`` if it runs as often on inputs of another shape, dtype or layout
    (``inputs_change``). ``outside`` is the time outside operators: ``launching`` if it grew with the number of operators,
    ``waiting`` if the host waits for its device more often, in ``op``. ``function`` is the project's Python function, ``line``
    the project's line. ``sites`` are the lines of the head that run it more often, with their own counts. In an explanation
    the place is that of the explanation.
    """

    workload: str = ""
    shape: str = ""
    op: str
    kind: PartKind | None = None
    base_count: float | None = None
    head_count: float | None = None
    base: float | None = None
    head: float | None = None
    seconds: float = 0.0
    share: float | None = None
    delta: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    p: float | None = None
    q: float | None = None
    outcome: Literal["regressed", "improved", "unchanged", "inconclusive", "untested"] = "untested"
    pairs: int | None = None
    alone: bool = False
    line: str | None = None
    function: str | None = None
    inputs_change: InputsChange | None = None
    base_inputs: str | None = None
    head_inputs: str | None = None
    sites: list[Part] = []

    @property
    def profiled(self) -> str:
        """The name under which the pairs profiled the operator."""
        return OUTSIDE_OPERATORS if self.kind in ("waiting", "outside", "launching") else self.op

    @property
    def is_launching(self) -> bool:
        """Whether it is the time between operators that grew with their number."""
        return self.kind == "launching"

    @property
    def more_count(self) -> float:
        return (self.head_count or 0.0) - (self.base_count or 0.0)


class Explanation(ShapeEntry, frozen=True, kw_only=True):
    """Why a call takes longer, or less: the parts of the measured difference, in seconds a call.

    ``measured`` is head - base of ``metric``, None if no time moved; without a metric it
    is that of a unit of work in the profiles of a job. ``contributions`` are the differences of operators,
    and of the time outside them, that the pairs show beyond doubt, the largest contribution first; ``explained`` is their
    sum and may exceed the measured difference, because the profiler slows the code it observes. ``base_bound`` and
    ``head_bound`` are the bottleneck of the call on either side, None if unknown. ``other_inputs`` are the operators that
    run as often as before on inputs of another shape, dtype or layout, whether or not that took time; their cost was not
    measured separately.
    """

    metric: str | None = None
    measured: float | None = None
    explained: float = 0.0
    contributions: list[OperatorDelta] = []
    base_bound: Bottleneck | None = None
    head_bound: Bottleneck | None = None
    other_inputs: list[OperatorDelta] = []


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the change that a cause goes back to: ``line`` of the head, in ``function`` if it is in one.

    ``code`` is the text of the line.
    """

    line: str
    reach: Reach
    function: str | None = None
    code: str | None = None


class Cause(ShapeEntry, frozen=True, kw_only=True):
    """One operator that came, went or changed, or one slower ``stage`` of the preprocessing, in a shape of a workload.

    A module or function that is judged by itself is treated like a stage, with the time of everything it calls (``inclusive``).

    Counts are per call, ``more_time`` seconds per call (None if unknown); ``mentions`` is how many regressed counters
    name the operator, ``counted`` whether one of them is exact. ``rank`` is its place in the explanation of a slower call,
    None if that does not name it; ``kind``, ``function`` and its inputs are as in OperatorDelta. ``compiling`` is the event of
    a compiled graph, and ``op`` then the reason of that. ``aspect`` is an effect of the operator that a counter shows besides
    its running, ``also`` such an effect of one that runs more often too. ``sites`` are the lines that add more than before with
    their own counts, ``line`` being the first of them if there are any. ``amount`` is the quantity counted. ``origin`` is the
    changed place behind it. ``tested`` is an operator that explains a slower call because its own test found it slower.
    ``code`` is the text of ``line``. ``group`` is the number of the decision's first cause that is one with this one: both
    act on one line of the change, or on one chain of values through consecutive changed lines. ``same_as`` is the number of the
    first cause that does the same in another place: the same counts of the same operator by the same line. ``ranks`` is as
    in Part.
    """

    op: str
    base_count: float = 0.0
    head_count: float = 0.0
    more_time: float | None = None
    line: str | None = None
    mentions: int = 1
    stage: bool = False
    rank: int | None = None
    kind: PartKind | None = None
    function: str | None = None
    inputs_change: InputsChange | None = None
    base_inputs: str | None = None
    head_inputs: str | None = None
    counted: bool = False
    compiling: Compiling | None = None
    aspect: Aspect | None = None
    also: Aspect | None = None
    sites: list[Part] = []
    amount: Amount = "calls"
    inclusive: bool = False
    origin: Origin | None = None
    tested: bool = False
    code: str | None = None
    group: int | None = None
    same_as: int | None = None
    ranks: str = ""

    @property
    def more_count(self) -> float:
        return self.head_count - self.base_count

    @property
    def changes_the_rest(self) -> bool:
        """Whether the operators after it differ for this reason: a broken graph, or another mode of the call."""
        return self.compiling is not None or self.aspect in MODES

    @property
    def is_of_change(self) -> bool:
        """Whether it is on a line of the change, or on one that such a line calls."""
        return self.origin is not None and self.origin.reach in ("line", "caller")

    @property
    def attributed_line(self) -> str | None:
        """The line that it is attributed to: the changed line that calls it, if there is one."""
        if self.origin is not None and self.origin.reach == "caller":
            return self.origin.line
        return self.line

    @property
    def takes_longer_alone(self) -> bool:
        """Whether it takes longer, and no count shows more of it."""
        return not self.counted and (self.tested or self.kind == "slower")


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that a call ran ``count`` times, and the one that it runs as often instead, from ``line`` of the head."""

    workload: str
    shape: str
    before: str
    after: str
    count: int
    line: str | None = None
