"""The lines of facts under every title: a busy machine; moved metrics and the
procedure; base, head, testbed; coverage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from perfgate.catalogue.lookup import FAST_PATHS
from perfgate.document.comparison import Outcome, Paired
from perfgate.document.conditions import BUSY
from perfgate.document.coverage import ChangedFunction
from perfgate.document.decision import CPU_DECIDES, Failure, Measurement, NoiseFloor
from perfgate.document.message import Message
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import listed
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import (
    EMPTY,
    SentencePieces,
    Words,
    composed,
    say,
)
from perfgate.judging.report.view.headline import loaded_differences
from perfgate.judging.report.view.summary import Summary, code_of

_MOST_FUNCTIONS = 6


class Untimed(NamedTuple):
    """The slowest of the workloads that were counted and not timed, and the budget for
    measuring its times.
    """

    workload: str
    pairs: int
    pair: Words
    budget: int


class Counts(NamedTuple):
    """The outcomes of metrics, and the size of the measurement: pairs of functions,
    quads of jobs.
    """

    metrics: int
    moved: int
    outcomes: Mapping[Outcome, int]
    floor: NoiseFloor | None
    aa_pairs: int
    quads: int
    untimed: Untimed | None
    measured: Measurement
    rules: bool


class SharedFailure(NamedTuple):
    """A failure with the sides that have it."""

    failure: Failure
    sides: Words


def counts_line(summary: Summary) -> Words:
    """Moved metrics, the noise floor, and the size of the measurement, in one line."""
    return line("shared/counts.j2", summary.medium, counts=counts(summary))


def base_line(summary: Summary) -> Words:
    """Which commits were compared, why that base, and whether the testbeds agree, in
    one line.
    """
    decision = summary.decision
    packages = loaded_differences(decision)
    return line(
        "shared/base.j2",
        summary.medium,
        sides=decision.sides,
        measured=summary.is_measured,
        packages=packages,
        unloaded=len(decision.sides.package_differences) - len(packages),
        rules=summary.is_about_rules,
    )


def coverage_line(summary: Summary) -> Words | None:
    """Which of the changed functions were measured; None if all of them were, or if
    there are none.
    """
    coverage = summary.decision.measured.coverage
    if (
        coverage is None
        or not coverage.functions
        or (summary.is_measured and not coverage.not_executed)
    ):
        return None
    unmeasured = []
    unknown = []
    for function in coverage.functions:
        if function.executed in {"no", "definition"}:
            unmeasured.append(function)
        elif function.executed == "unknown":
            unknown.append(function)
    return line(
        "shared/coverage.j2",
        summary.medium,
        is_measured=summary.is_measured,
        coverage=coverage,
        missed=_function_names(unmeasured, summary),
        unseen=_function_names(unknown, summary),
    )


def _function_names(
    functions: Iterable[ChangedFunction], summary: Summary
) -> SentencePieces:
    """The first of these functions, each with the line at which it changed."""
    names = []
    for function in functions:
        changed = (
            summary.linked(function.line) if function.side == "head" else function.line
        )
        if function.function:
            changed = composed("{} ({})", function.function, changed)
        names.append(changed)
    return listed(names, _MOST_FUNCTIONS)


def busy_line(summary: Summary) -> Words | None:
    """How long workers waited for CPUs, in one line; None if it was short and no clock
    but the wall's decided.
    """
    waited = summary.decision.measured.waited
    clocks = _deciding_clocks(summary)
    # The device's clock always decides on an accelerator.
    if not waited or not (clocks - {"device"} or waited >= BUSY):
        return None
    basis = EMPTY
    if "device" in clocks:
        basis = say("; the verdict is based on device time")
    elif "awake" in clocks:
        basis = say("; the verdict is based on call times without these waits")
    elif clocks:
        basis = say("; the verdict is based on CPU time")
    return line(
        "shared/busy.j2", summary.medium, waited=numbers.percent(waited), basis=basis
    )


def _deciding_clocks(summary: Summary) -> set[str]:
    """The clocks other than the wall's that the verdict rests on."""
    clocks: set[str] = set()
    for comparison in summary.decision.comparisons:
        if (
            isinstance(comparison, Paired)
            and comparison.metric in FAST_PATHS
            and comparison.clock != "wall"
        ):
            clocks.add(comparison.clock)
        if code_of(comparison.reason) == CPU_DECIDES:
            clocks.add("cpu")
    return clocks


def counts(summary: Summary) -> Counts:
    decision = summary.decision
    quads = 0
    for comparison in decision.comparisons:
        if isinstance(comparison, Paired) and comparison.is_of_job:
            quads = max(quads, comparison.pairs or 0)
    outcomes = Counter(comparison.outcome for comparison in summary.metrics)
    return Counts(
        metrics=len(summary.metrics),
        moved=outcomes["regressed"] + outcomes["improved"],
        outcomes=outcomes,
        floor=summary.floor,
        aa_pairs=max(
            (floor.pairs for floor in decision.measured.noise_floors), default=0
        ),
        quads=quads,
        untimed=_untimed(summary),
        measured=decision.measured,
        rules=summary.is_about_rules,
    )


def _untimed(summary: Summary) -> Untimed | None:
    slowest = max(summary.too_slow, key=budget_of, default=None)
    if slowest is None or not budget_of(slowest):
        return None
    pairs = _number(slowest, "pairs")
    seconds = _number(slowest, "seconds")
    pair = numbers.duration(seconds / max(1.0, pairs))
    return Untimed(slowest.workload, round(pairs), pair, budget_of(slowest))


def _number(failure: Failure, name: str) -> float:
    message = failure.error.message
    value = message.values.get(name) if isinstance(message, Message) else None
    if isinstance(value, (int, float)):
        return float(value)
    return 0.0


def budget_of(failure: Failure) -> int:
    """The budget that a workload with slow calls needs, in seconds; 0 if unknown."""
    return round(_number(failure, "budget"))


def shared_failures(failures: Iterable[Failure]) -> list[SharedFailure]:
    """The failures; one that both sides share is listed once, with both."""
    distinct: dict[tuple[str, ...], list[Failure]] = {}
    for failure in failures:
        key = (
            failure.workload,
            failure.what,
            failure.error.kind,
            word(_without_place(failure.error.message)),
        )
        distinct.setdefault(key, []).append(failure)
    shared = []
    for same in distinct.values():
        sides = dict.fromkeys(failure.side for failure in same)
        shared.append(SharedFailure(same[0], Words(" + ".join(sides))))
    return shared


def _without_place(message: Message | str) -> Message | str:
    """An error without the line that raised it: the base runs the head's workload file
    from one of perfgate's own folders.
    """
    if not isinstance(message, Message):
        return message
    if message.code not in ("mistake.at", "mistake.hint"):
        return message
    error = message.values["error"]
    bare = _without_place(error if isinstance(error, (Message, str)) else "")
    if message.code == "mistake.at":
        return bare
    return Message(message.code, {**message.values, "error": bare})
