"""The contributions of operators to the difference between base and head, as the
decision document stores them.
"""

from __future__ import annotations

from typing import Literal

from perfgate.catalogue.terms import Amount
from perfgate.document.records import FrozenStruct
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.shape import ShapeEntry

# An effect of an operator that a counter shows besides its running: its result is kept
# in memory, a repeated input saves it, it ran after the call returned, it computes in
# full or double precision, or it runs in a mode that changes later operators: autograd
# records it, a module trains, a loader has no workers, a transfer may block.
Aspect = Literal[
    "kept",
    "saved",
    "deferred",
    "full precision",
    "double precision",
    "recorded",
    "attached",
    "training",
    "without workers",
    "blocking",
]
MODES: tuple[Aspect, ...] = (
    "recorded",
    "attached",
    "training",
    "without workers",
    "blocking",
)
Compiling = Literal["graph_break", "recompilation"]
# How a change reaches a line: it changed the line itself, one that calls it, or the
# function around it; or a place elsewhere.
Reach = Literal["line", "caller", "function", "elsewhere"]

PartKind = Literal[
    "added",
    "removed",
    "more",
    "fewer",
    "other_inputs",
    "slower",
    "faster",
    "waiting",
    "outside",
    "launching",
]


# An operator runs more or less often; the code does other work; and the time is no
# operator's.
_COUNTED = {"added", "removed", "more", "fewer"}
_OTHER_WORK = {*_COUNTED, "other_inputs", "waiting"}
_OUTSIDE_OPERATORS = {"waiting", "outside", "launching"}
InputsChange = Literal["shape", "dtype", "layout"]
Bottleneck = Literal[
    "compute", "memory", "scheduling", "synchronisation", "transfer", "communication"
]


class Part(FrozenStruct, kw_only=True):
    """One part of a comparison: an operator's count on both sides and the line that
    calls it, or a stage's seconds.

    ``sites`` are the lines of the head at which it grew, most relevant first, each with
    its counts; ``line`` is the first of them, or if it only fell, one at which it is or
    was. ``tensor`` is the form of the largest tensor that a site holds
    (``float32[8,96]``), of a part that is memory. ``ranks`` is the number of the rank
    that a count is of, or ``each`` if every rank has it.
    """

    name: str = ""
    aspect: Aspect | None = None
    ranks: str = ""
    base: float
    head: float
    line: str | None = None
    tensor: str | None = None
    sites: list[Part] = []


class ExplainedPart:
    """What the kind of a part in an explanation means."""

    __slots__ = ()
    kind: PartKind | None

    @property
    def is_outside_operators(self) -> bool:
        """Whether it is no operator's time: waiting, launching, or the rest outside
        operators.
        """
        return self.kind in _OUTSIDE_OPERATORS

    @property
    def is_launching(self) -> bool:
        """Whether it is the time between operators that grew with their number."""
        return self.kind == "launching"

    @property
    def is_counted(self) -> bool:
        """Whether it runs more or less often."""
        return self.kind in _COUNTED


class OperatorCalls(ShapeEntry, kw_only=True):
    """The calls of one operator in one call of a shape, None if they are not known to
    differ.

    ``kind`` is its part in an explanation: ``other_inputs`` if it runs as often on
    inputs of another shape, dtype or layout. ``outside`` is the time outside operators:
    ``launching`` if it grew with the number of operators, ``waiting`` if the host waits
    for its device more often, in ``op``. In an explanation it has the place of the
    explanation.
    """

    workload: str = ""
    shape: str = ""
    op: str
    kind: PartKind | None = None
    base_count: float | None = None
    head_count: float | None = None


class OperatorTime(OperatorCalls, kw_only=True):
    """The self seconds of an operator in a call, None if no pair profiled it.

    ``seconds`` is the only estimate of its change, below zero if it saves time: from
    the explanation, else from the operator's test, else the paired estimate
    (Hodges-Lehmann). ``head`` is ``base`` plus ``seconds``.
    """

    base: float | None = None
    head: float | None = None
    seconds: float = 0.0


class OperatorTest(OperatorTime, kw_only=True):
    """The test of an operator over the pairs, which informs and never fails the gate.

    ``delta``, ``interval`` and ``confidence`` are as in Paired; ``q`` is the one-sided
    p-value in the direction of ``delta``, adjusted for false discoveries among all
    operators of the decision (Benjamini-Hochberg); ``share`` is its part of the self
    time of all operators of the base's call, ``pairs`` how many pairs were tested.
    ``alone`` is an operator that its test found slower, and that neither a count nor an
    explanation names.
    """

    share: float | None = None
    delta: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    q: float | None = None
    outcome: Literal[
        "regressed", "improved", "unchanged", "inconclusive", "untested"
    ] = "untested"
    pairs: int | None = None
    alone: bool = False


class OperatorDelta(ExplainedPart, OperatorTest, kw_only=True):
    """The effect of the change on one operator of a shape: its calls, its time, the
    evidence of the pairs, and its place.

    ``function`` is the project's Python function, ``line`` the project's line.
    ``inputs_change`` is how its inputs differ. ``sites`` are the lines of the head that
    run it more often, with their counts.
    """

    line: str | None = None
    function: str | None = None
    inputs_change: InputsChange | None = None
    base_inputs: str | None = None
    head_inputs: str | None = None
    sites: list[Part] = []

    @property
    def profiled(self) -> str:
        """The name under which the pairs profiled the operator."""
        return OUTSIDE_OPERATORS if self.is_outside_operators else self.op

    @property
    def is_other_work(self) -> bool:
        """Whether the code does other work: it runs an operator more or less often, on
        other inputs, or waits for it.
        """
        return self.kind in _OTHER_WORK

    @property
    def more_count(self) -> float:
        return (self.head_count or 0.0) - (self.base_count or 0.0)


class Explanation(ShapeEntry, kw_only=True):
    """Why a call takes longer, or less: the parts of the measured difference, in
    seconds a call.
    """

    # None: the difference is of a unit of work in a job's profiles.
    metric: str | None = None
    # head - base of ``metric``; None if no time moved.
    measured: float | None = None
    # The sum of the contributions. It may exceed the measured difference: the profiler
    # slows the code it observes.
    explained: float = 0.0
    # The differences that the pairs show beyond doubt, the largest first.
    contributions: list[OperatorDelta] = []
    # The bottleneck of the call; None if unknown.
    base_bound: Bottleneck | None = None
    head_bound: Bottleneck | None = None
    # Operators that run as often as before on inputs of another form, whether or not
    # that took time.
    other_inputs: list[OperatorDelta] = []


class Origin(FrozenStruct, kw_only=True):
    """The place of the change that a cause goes back to: ``line`` of the head, in
    ``function`` if it is in one.

    ``code`` is the text of the line.
    """

    line: str
    reach: Reach
    function: str | None = None
    code: str | None = None


class CauseWork(ShapeEntry, kw_only=True):
    """The work behind a cause: an operator that came, went or changed, or one slower
    ``stage`` of the preprocessing.

    Counts are per call, ``more_time`` seconds per call (None if unknown); ``mentions``
    is how many regressed counters name the operator.
    """

    op: str
    base_count: float = 0.0
    head_count: float = 0.0
    more_time: float | None = None
    line: str | None = None
    mentions: int = 1
    stage: bool = False


class CauseExplanation(CauseWork, kw_only=True):
    """The place of a cause in the explanation of a slower call, None if that does not
    name it; the rest as in OperatorDelta.
    """

    rank: int | None = None
    kind: PartKind | None = None
    function: str | None = None
    inputs_change: InputsChange | None = None
    base_inputs: str | None = None
    head_inputs: str | None = None


class CauseCount(CauseExplanation, kw_only=True):
    """The counts of a cause: ``counted`` if one of them is exact, in the unit
    ``amount``.

    ``compiling`` is the event of a compiled graph, and ``op`` then the reason of that.
    ``aspect`` is an effect of the operator that a counter shows besides its running,
    ``also`` such an effect of one that runs more often too. ``sites`` are the lines
    that add more than before with their counts; the first of them is the cause's line.
    A module or function that is judged by itself is treated like a stage, with the time
    of everything it calls (``inclusive``).
    """

    counted: bool = False
    compiling: Compiling | None = None
    aspect: Aspect | None = None
    also: Aspect | None = None
    sites: list[Part] = []
    amount: Amount = "calls"
    inclusive: bool = False


class Cause(ExplainedPart, CauseCount, kw_only=True):
    """A cause of regressions in a shape of a workload; ``origin`` is the changed place
    behind it.

    ``tested`` is an operator that explains a slower call because its test found it
    slower. ``code`` is the text of the line. ``group`` is the number of the decision's
    first cause that belongs together with this one: both act on one line of the change,
    or on one chain of values through consecutive changed lines. ``same_as`` is the
    number of the first cause that does the same in another place: the same counts of
    the same operator by the same line. ``ranks`` is as in Part.
    """

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
    def is_outside(self) -> bool:
        """Whether it is the time outside operators."""
        return self.kind == "outside"

    @property
    def is_inner(self) -> bool:
        """Whether it is a part of an operator that its line calls: it runs more often,
        and no counter names it.
        """
        return not self.counted and self.is_counted

    @property
    def changes_the_rest(self) -> bool:
        """Whether the operators after it differ for this reason: a broken graph, or
        another mode of the call.
        """
        return self.compiling is not None or self.aspect in MODES

    @property
    def is_of_change(self) -> bool:
        """Whether it is on a line of the change, or on one that such a line calls."""
        return self.origin is not None and self.origin.reach in ("line", "caller")

    @property
    def attributed_line(self) -> str | None:
        """The line that it is attributed to: the changed line that calls it, if there
        is one.
        """
        if self.origin is not None and self.origin.reach == "caller":
            return self.origin.line
        return self.line

    @property
    def takes_longer_alone(self) -> bool:
        """Whether it takes longer, and no count shows more of it."""
        return not self.counted and (self.tested or self.kind == "slower")


class Replacement(FrozenStruct, kw_only=True):
    """An operator that a call ran ``count`` times, and its equally frequent
    replacement, at ``line`` of the head.
    """

    workload: str
    shape: str
    before: str
    after: str
    count: int
    line: str | None = None
