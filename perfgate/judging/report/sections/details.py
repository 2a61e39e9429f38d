"""The end of the comment: the traces, then folded what did not change, how it was decided, and what informs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfgate.document.decision import Link, PackageDifference, Procedure, TestbedDifference
from perfgate.document.message import Message
from perfgate.judging.report.sections.section import Section
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.checklist import quantile_rows, step_lines, step_numbers, tally, uncompared
from perfgate.judging.report.view.findings import changed_findings
from perfgate.judging.report.view.headline import first_line, loaded_differences, metric_name
from perfgate.judging.report.view.records import FileView, QuantileRow, RecordedView, Row, StepLine, StepNumber
from perfgate.judging.report.view.rows import common_confidence, grouped, is_one_sided, recorded_row, row
from perfgate.judging.report.view.summary import CommentContext, Summary, place

_MOST_TRACES = 4
_MOST_ENTRIES = 20


@dataclass(frozen=True)
class _Trace:
    flame: FileView | None
    traces: list[FileView]
    job_url: str | None
    reproduce: str | None


def _trace(summary: Summary) -> _Trace | None:
    """Kept traces of both sides, the page that draws them, and the reproduce command; a PASS and a SKIPPED need neither."""
    traces = [link for link in summary.decision.links if link.kind == "trace"]
    flames = [link for link in summary.decision.links if link.kind == "flamegraph"]
    context = summary.context
    if summary.verdict in {"PASS", "SKIPPED"} or not (traces or context.reproduce):
        return None
    return _Trace(
        flame=_file(flames[0], context) if flames else None,
        traces=[_file(link, context) for link in traces[:_MOST_TRACES]],
        job_url=context.job_url,
        reproduce=context.reproduce,
    )


def _file(link: Link, context: CommentContext) -> FileView:
    page = context.pages.get(link.path)
    size = formats.quantity(link.bytes, "B")
    return FileView(side=Words(link.side), path=link.path, size=size, opens=Words(page) if page else None)


@dataclass(frozen=True)
class _Checklist:
    tally: list[Words]
    lines: list[StepLine]
    more: int
    more_numbers: int
    more_resolved: int
    outside: list[StepNumber]
    has_numbers: bool
    uncompared: list[Message]
    stored: bool


def _checklist(summary: Summary) -> _Checklist | None:
    """Every step of the head with its status, the number that says most of it, and its findings; the page has all numbers."""
    lines = step_lines(summary)
    if not lines:
        return None
    listed = lines[: summary.detail]
    shown = [line.number for line in listed if line.number]
    others = [number for number in step_numbers(summary) if number not in shown]
    return _Checklist(
        tally(summary.decision.steps),
        listed,
        more=len(lines) - len(listed),
        more_numbers=len(others),
        more_resolved=sum(number.is_resolved for number in others),
        outside=[number for number in others if number.main and number.main.outside][: summary.detail],
        has_numbers=bool(shown or others),
        uncompared=uncompared(summary.decision.warnings),
        stored=bool(summary.decision.stored),
    )


@dataclass(frozen=True)
class _Quantiles:
    rows: list[QuantileRow]


def _quantiles(summary: Summary) -> _Quantiles | None:
    """P50, P90 and P99 of the requests and steps of jobs."""
    rows = quantile_rows(summary)[: summary.detail]
    return _Quantiles(rows) if rows else None


@dataclass(frozen=True)
class _Unchanged:
    rows: list[Row]
    total: int
    not_worse: int
    more: int
    margin: Words
    confidence: Words | None
    timed: bool


def _unchanged(summary: Summary) -> _Unchanged | None:
    """Unchanged metrics with both values, and what slowdown is excluded."""
    comparisons = summary.unchanged
    if not comparisons:
        return None
    listed = comparisons[: summary.detail]
    not_worse = sum(map(is_one_sided, comparisons))
    return _Unchanged(
        rows=grouped(row(comparison, summary) for comparison in listed),
        total=len(comparisons) - not_worse,
        not_worse=not_worse,
        more=len(comparisons) - len(listed),
        margin=numbers.setting(summary.decision.excluded),
        confidence=common_confidence(listed),
        timed=any(comparison.method == "paired" for comparison in comparisons),
    )


@dataclass(frozen=True)
class _Informing:
    rows: list[RecordedView]
    more: int


def _informing(summary: Summary) -> _Informing | None:
    """What both sides have of numbers that no test compares."""
    comparisons = summary.informing
    if not comparisons:
        return None
    rows = [recorded_row(comparison) for comparison in comparisons[: summary.detail]]
    return _Informing(rows, more=len(comparisons) - len(rows))


@dataclass(frozen=True)
class _Recorded:
    rows: list[RecordedView]
    total: int
    more: int


def _recorded(summary: Summary) -> _Recorded | None:
    """What the profiler wrote of whole steps and of their heaviest operators, side by side and not compared."""
    comparisons = summary.recorded
    if not comparisons:
        return None
    rows = [recorded_row(comparison) for comparison in comparisons[: summary.detail]]
    return _Recorded(rows, total=len(comparisons), more=len(comparisons) - len(rows))


@dataclass(frozen=True)
class _Undecided:
    rows: list[Row]
    undecided: int
    not_compared: int
    more: int


def _undecided(summary: Summary) -> _Undecided | None:
    """Inconclusive and not comparable metrics, and what would decide them; undecided ones first."""
    comparisons = [*summary.inconclusive, *summary.not_comparable]
    if not comparisons:
        return None
    rows = [row(comparison, summary) for comparison in comparisons[: summary.detail]]
    return _Undecided(
        rows=rows,
        undecided=len(summary.inconclusive),
        not_compared=len(summary.not_comparable),
        more=len(comparisons) - len(rows),
    )


@dataclass(frozen=True)
class _Floor:
    metric: str
    place: str
    floor: Words


@dataclass(frozen=True)
class _FailedPair:
    what: str
    workload: str
    message: str


@dataclass(frozen=True)
class _Environment:
    device: str
    recorded: bool
    rules: bool
    version: str
    procedure: Procedure
    procedure_version: int
    seed: str
    alpha: Words
    margin: Words
    differences: list[TestbedDifference]
    packages: list[PackageDifference]
    more_packages: int
    unloaded: int
    floors: list[_Floor]
    sides: Mapping[str, str | None]
    looks: str
    rounds: int
    unmoved: list[str]
    waited: Words | None
    failed: list[_FailedPair]
    failed_count: int


def _environment(summary: Summary) -> _Environment | None:
    """Everything it takes to make the decision again; None where nothing was there to decide."""
    if not summary.is_measured:
        return None
    decision = summary.decision
    packages = loaded_differences(decision)
    return _Environment(
        device=decision.device,
        recorded=decision.recorded,
        rules=decision.comparing == "rules",
        version=decision.perfgate_version,
        procedure=decision.procedure,
        procedure_version=decision.procedure.version,
        seed=str(decision.procedure.seed),
        alpha=numbers.setting(decision.policy.alpha),
        margin=numbers.setting(decision.excluded),
        differences=decision.testbed_differences[:_MOST_ENTRIES],
        packages=packages[:_MOST_ENTRIES],
        more_packages=max(0, len(packages) - _MOST_ENTRIES),
        unloaded=len(decision.package_differences) - len(packages),
        floors=[
            _Floor(metric_name(f.metric, f.clock), place(f.workload, f.shape), numbers.plus_minus(f.floor))
            for f in decision.noise_floors[:_MOST_ENTRIES]
        ],
        sides={"base": decision.base.sha256, "head": decision.head.sha256},
        looks=", ".join(str(pairs) for pairs in decision.policy.looks),
        rounds=decision.rounds,
        unmoved=[place(workload, "") for workload in decision.unmoved[:_MOST_ENTRIES]],
        waited=None if decision.waited is None else numbers.percent(decision.waited),
        failed=[
            _FailedPair(failure.what, failure.workload, first_line(word(failure.error.message)))
            for failure in summary.failed_pairs[:_MOST_ENTRIES]
        ],
        failed_count=len(summary.failed_pairs),
    )


TRACE = Section("trace", "trace", _trace)
FINDINGS = Section("findings", "new findings", changed_findings)
CHECKLIST = Section("checklist", "checklist", _checklist, drop=70)
QUANTILES = Section("quantiles", "quantiles", _quantiles, drop=75, fold="rest")
UNCHANGED = Section("unchanged", "unchanged metrics", _unchanged, drop=60, fold="rest")
INFORMING = Section("informing", "informing numbers", _informing, drop=65, fold="rest")
RECORDED = Section("recorded", "recorded times", _recorded, drop=70, fold="rest")
UNDECIDED = Section("undecided", "undecided metrics", _undecided, drop=80, fold="rest")
ENVIRONMENT = Section("environment", "environment and samples", _environment, drop=90, fold="compared")
