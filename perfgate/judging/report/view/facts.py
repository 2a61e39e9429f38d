"""The lines of facts under every title: a busy machine; moved metrics and the procedure; base, head and testbed."""

from __future__ import annotations

from collections.abc import Iterable

from perfgate.catalogue.lookup import FAST_PATHS
from perfgate.document.comparison import Paired
from perfgate.document.conditions import BUSY
from perfgate.document.decision import CPU_DECIDES, Failure
from perfgate.document.message import Message
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import first_line
from perfgate.judging.report.text.templates import Medium, Values, line
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.headline import loaded_differences
from perfgate.judging.report.view.summary import Summary

_COMMIT_LENGTH = 9


def counts_line(summary: Summary, medium: Medium) -> Words:
    """Moved metrics, the noise floor, and the size of the measurement, in one line."""
    return line("shared/counts.j2", medium, {"counts": counts(summary)})


def base_line(summary: Summary, medium: Medium) -> Words:
    """Which commits were compared, why that base, and whether the testbeds agree, in one line."""
    decision = summary.decision
    values = {
        "base": {
            "commit": short(decision.base.commit),
            "subject": decision.base.subject,
            "chosen_because": decision.base.chosen_because,
        },
        "head": {"commit": short(decision.head.commit), "subject": decision.head.subject, "dirty": decision.head.dirty},
        "measured": summary.is_measured,
        "differences": decision.testbed_differences,
        "packages": loaded_differences(decision),
        "unloaded": len(decision.package_differences) - len(loaded_differences(decision)),
        "rules": decision.comparing == "rules",
    }
    return line("shared/base.j2", medium, values)


def busy_line(summary: Summary, medium: Medium) -> Words | None:
    """How long workers waited for CPUs, in one line; None if it was short and no clock but the wall's decided."""
    decision = summary.decision
    paired = [comparison for comparison in decision.comparisons if isinstance(comparison, Paired)]
    clocks = {one.clock for one in paired if one.metric in FAST_PATHS and one.clock != "wall"}
    if any(isinstance(c.reason, Message) and c.reason.code == CPU_DECIDES for c in decision.comparisons):
        clocks.add("cpu")
    if not decision.waited or not (clocks or decision.waited >= BUSY):
        return None
    return line("shared/busy.j2", medium, {"busy": {"waited": numbers.percent(decision.waited), "clocks": clocks}})


def counts(summary: Summary) -> Values:
    """Counts of metrics by outcome, and the size of the measurement: pairs of functions, quads of jobs."""
    decision = summary.decision
    regressed = sum(comparison.outcome == "regressed" for comparison in summary.metrics)
    paired = [comparison for comparison in decision.comparisons if isinstance(comparison, Paired)]
    return {
        "regressed": regressed,
        "improved": len(summary.improved),
        "unchanged": len(summary.unchanged),
        "inconclusive": len(summary.inconclusive),
        "not_comparable": len(summary.not_comparable),
        "moved": regressed + len(summary.improved),
        "total": len(summary.metrics),
        "floor": None if summary.floor is None else numbers.plus_minus(summary.floor.floor),
        "aa_pairs": max((floor.pairs for floor in decision.noise_floors), default=0),
        "pairs": decision.pairs,
        "quads": max((c.pairs or 0 for c in paired if c.is_of_job), default=0),
        "duration": numbers.duration(decision.duration),
        "untimed": _untimed(summary),
        "device": decision.device,
        "recorded": decision.recorded,
        "rules": decision.comparing == "rules",
    }


def _untimed(summary: Summary) -> Values | None:
    """The slowest of the workloads that were counted and not timed, and what measuring its times would take."""
    needs = [(budget, failure) for failure in summary.too_slow if (budget := budget_of(failure)) is not None]
    if not needs:
        return None
    budget, slowest = max(needs, key=lambda need: need[0])
    pairs, seconds = (_number(slowest, name) for name in ("pairs", "seconds"))
    return {
        "workload": slowest.workload,
        "pairs": round(pairs),
        "pair": numbers.duration(seconds / max(1.0, pairs)),
        "budget": budget,
    }


def _number(failure: Failure, name: str) -> float:
    message = failure.error.message
    value = message.values.get(name) if isinstance(message, Message) else None
    return float(value) if isinstance(value, (int, float)) else 0.0


def budget_of(failure: Failure) -> int | None:
    """The budget that a workload with slow calls needs, in seconds; None of an older document without it."""
    return round(_number(failure, "budget")) or None


def short(commit: str | None) -> str | None:
    """The first characters of a commit, as git shows it."""
    return None if commit is None else commit[:_COMMIT_LENGTH]


def worded_failures(failures: Iterable[Failure]) -> list[Values]:
    """The failures for a template; one that both sides share is listed once, with both."""
    distinct: dict[tuple[object, ...], list[Failure]] = {}
    for failure in failures:
        key = (failure.workload, failure.what, failure.error.kind, word(_without_place(failure.error.message)))
        distinct.setdefault(key, []).append(failure)
    return [
        {**worded_failure(first), "side": Words(" + ".join(dict.fromkeys(f.side for f in (first, *others))))}
        for first, *others in distinct.values()
    ]


def _without_place(message: Message | str) -> Message | str:
    """An error without the line that raised it: the base runs the head's workload file from one of perfgate's own folders."""
    if not isinstance(message, Message) or message.code not in ("mistake.at", "mistake.hint"):
        return message
    error = message.values["error"]
    bare = _without_place(error if isinstance(error, (Message, str)) else "")
    if message.code == "mistake.at":
        return bare
    return Message(message.code, {**message.values, "error": bare})


def worded_failure(failure: Failure) -> Values:
    """One failure for a template; ``text`` is its traceback, or the end of its log."""
    error = failure.error
    return {
        "side": Words(failure.side),
        "workload": failure.workload,
        "what": failure.what,
        "kind": Words(error.kind),
        "signal": error.signal,
        "message": first_line(word(error.message)),
        "text": error.traceback or error.log_tail,
    }
