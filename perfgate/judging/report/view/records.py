"""The reader's view as records: made once from the documents, already worded, and shown by every medium alike.

Our own words and numbers are ``Words``; every other text is outside text, which each medium escapes.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from perfgate.document.decision import (
    Comparison,
    Failure,
    HarnessChange,
    Invalid,
    Missing,
    Suggestion,
    TestbedDifference,
)
from perfgate.document.explanation import OperatorDelta, Origin, Replacement
from perfgate.document.message import Message
from perfgate.judging.report.text.words import Words


@dataclass(frozen=True)
class CauseView:
    """One operator's change; unchanged and unknown fields are None.

    ``lines`` are those of the project that add to it, each with how much. ``origin`` is the changed place behind a line that is
    itself unchanged; ``code`` is the text of the line that changed.
    """

    amount: str
    here: Words | None
    one_here: bool
    in_all: Words | None
    lines: list[tuple[str, Words]]
    more_lines: int
    tensor: str | None
    op: str
    familiar: str | None
    aspect: str | None
    ranks: str
    compiling: str | None
    places: tuple[str, ...]
    line: str | None
    origin: Origin | None
    more: Words | None
    one: bool
    base: Words
    head: Words
    time: Words | None
    kind: str | None
    inclusive: bool
    function: str | None
    base_input: str | None
    head_input: str | None
    code: str | None


@dataclass(frozen=True)
class ComparisonRow:
    """One comparison as a row of a table, with several ``places`` if their rows are equal.

    ``block`` is the number of the cause that is shown above the table.
    """

    comparison: Comparison
    places: tuple[str, ...]
    label: Words
    cause: CauseView | None
    listed_below: bool
    block: int | None


@dataclass(frozen=True)
class OperatorTable:
    """The operators of a workload's shape, those with the most self time first.

    ``largest`` is the most seconds of one of them, ``of_head`` the sum over all of the head's.
    """

    place: str
    operators: list[OperatorDelta]
    largest: float
    of_head: float


@dataclass(frozen=True)
class FindingView:
    """One finding; ``block`` is the number of the listed cause that it belongs to."""

    step: int
    title: Words | str
    place: str
    words: str
    line: str | None
    block: int | None


@dataclass(frozen=True)
class Note:
    """A finding in words, and whether the change introduced it."""

    words: str
    is_new: bool


@dataclass(frozen=True)
class StepView:
    """A step of the checklist: its findings worth a look, or its reason."""

    number: int
    title: str
    workload: str
    status: str
    key: Words
    busy: Words | None
    notes: list[Note]
    more: Words | None
    reason: Message | None


@dataclass(frozen=True)
class FailureView:
    """A part of a side that could not be measured; ``text`` is its traceback, or the end of its log."""

    side: Words
    workload: str
    what: str
    kind: Words
    signal: str | None
    message: str
    text: str | None


@dataclass(frozen=True)
class StoredView:
    """A value of the head beside main's level; ``outside`` is set if it lies outside the range of one more run of main.

    If the level is not known, ``runs`` are the incomparable ones.
    """

    name: str
    place: str
    head: Words
    typical: Words
    range: Words
    standing: Words
    runs: Words
    outside: Words | None
    is_known: bool


@dataclass(frozen=True)
class StepNumber:
    """A leading number of a step on both sides, beside main's; ``plot`` draws main's stored runs."""

    step: int
    workload: str
    leads: bool
    is_resolved: bool
    title: Words
    name: str
    labels: str
    place: str
    base: Words
    head: Words
    span: Words
    difference: Words
    main: StoredView | None
    limit: Words
    plot: Markup


@dataclass(frozen=True)
class CommitView:
    """A commit between two runs of main."""

    commit: str
    subject: str
    author: str
    change_request: Words


@dataclass(frozen=True)
class TrendRow:
    """A change of main's histories. ``author`` and ``change_request`` are those of its commit, if it is one."""

    metric: str
    place: str
    change: Words
    span: Words
    when: Words
    good: str
    bad: str
    commits: list[CommitView]
    commit_count: int
    subject: str
    author: str
    change_request: Words
    evidence: Words
    evidence_key: Words
    doubted: bool
    measured: Words
    standing: Words
    accepted: str
    accepted_until: Words
    resolved_by: str
    spark: Words


@dataclass(frozen=True)
class TriageView:
    """The state that a person gave a regression of main."""

    state: Words
    key: Words
    author: str
    when: Words
    reason: str


@dataclass(frozen=True)
class TrendCauseRow:
    """The effects of one version of main: the leading change, some of the others, and the operators that run more often.

    ``certain`` are exact counters among the others if the lead is only suspected; ``next`` are the commands to act on it.
    ``triage`` is the state that a person gave it, None if it is new, and ``suggests`` what the histories say to that.
    """

    lead: TrendRow
    standing: Words
    others: list[TrendRow]
    other_count: int
    more: int
    cause: CauseView | None
    no_slowdown: Words | None
    certain: list[TrendRow]
    next: list[str]
    triage: TriageView | None
    suggests: Words | None
    differences: list[TestbedDifference]


@dataclass(frozen=True)
class CauseBlock:
    """The regressions of one cause; if no cause was found, ``cause`` is None and ``worst`` gives the name.

    ``also`` are its effects on other lines. ``unexplained`` is whether times got worse and a search found no cause; jobs have
    no such search. ``accept`` is the command that accepts exactly this regression, ``accept_here`` the short form for readers
    with the check's folder, and ``order`` the comment that accepts it, on a forge with comment orders. ``suggestion`` is
    ``tip`` without its parts that the cause already shows.

    The block does not repeat the title: with ``in_title`` the title is about this block, and ``counts`` are the other metrics.
    With ``names_cause`` the title of the comment names the cause and its line too.
    """

    cause: CauseView | None
    also: list[CauseView]
    in_title: bool
    names_cause: bool
    unexplained: bool
    worst: Comparison
    places: tuple[str, ...]
    slower: list[tuple[Comparison, Words | None]]
    apart: Words | None
    of_job: bool
    at_most: Words | None
    counts: list[tuple[Comparison, str | None]]
    tip: Suggestion | None
    suggestion: Suggestion | None
    accepted: str | None
    accept: str | None
    accept_here: str | None
    order: str | None


@dataclass(frozen=True)
class FastPathView:
    """The largest slowdown of a call that is still possible: the place with the highest bound, and the number of places.

    Of jobs the places are numbers. ``wider`` are those for which only a slowdown larger than ``margin`` is excluded.
    """

    margin: Words
    wider: list[tuple[Words, str]]
    of_jobs: bool
    metric: str
    place: str
    places: int
    change: Words
    at_most: Words


@dataclass(frozen=True)
class Headline:
    """The values of the title; ``kind`` picks the sentence of ``shared/headline.j2``.

    With ``placeless`` it names numbers without their place, because there is only one.
    """

    upgrade: bool
    rules: bool
    kept: int
    difference: TestbedDifference | None
    more_differences: int
    harness: HarnessChange | None
    verdict: Words
    kind: str
    worst: Comparison | None
    best: Comparison | None
    faster: Comparison | None
    placeless: bool
    failure: Failure | None
    neither_runs: bool
    too_slow: Failure | None
    differing: list[str]
    invalid: list[Invalid]
    missing: Missing | None
    more_missing: int
    reason: Message | None
    unchanged: int
    undecided: int
    fast: FastPathView | None
    replaced: list[Replacement]


@dataclass(frozen=True)
class OutcomeCounts:
    """Counts of metrics by outcome, and the size of the measurement: pairs of functions, quads of jobs."""

    regressed: int
    improved: int
    unchanged: int
    inconclusive: int
    not_comparable: int
    moved: int
    total: int
    floor: Words | None
    aa_pairs: int
    pairs: int
    quads: int
    duration: Words
    device: str
    recorded: bool
    rules: bool


@dataclass(frozen=True)
class AccountView:
    """How the parts of a slower call add up to the measured difference, and the bottleneck."""

    place: str
    metric: str
    measured: Words
    more: Words
    saved: Words | None
    share: Words
    left: Words | None
    over: Words | None
    bound: Words | None
    base_bound: Words | None


@dataclass(frozen=True)
class WantedEvidence:
    """How many pairs, quads or runs would decide a number, and how many were measured; ``others`` need more too.

    ``looks_used_up``: the last look ended the measuring, so a larger budget alone gives no more pairs.
    """

    metric: str
    place: str
    needed: int
    measured: int
    evidence: str
    out_of_reach: bool
    looks_used_up: bool
    others: list[Comparison]
