"""The remedy if the gate could not decide, or did not look."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.document.comparison import Bound, NumberComparison, Paired
from perfgate.document.decision import InvalidKind, Missing
from perfgate.judging.report.text.media import ReadyHtml
from perfgate.judging.report.text.names import evidence_of, missing_words
from perfgate.judging.report.text.numbers import beyond, counted
from perfgate.judging.report.text.templates import render
from perfgate.judging.report.text.words import EMPTY, Words, joined, phrase, say
from perfgate.judging.report.view.facts import budget_of
from perfgate.judging.report.view.headline import further_reasons
from perfgate.judging.report.view.summary import Summary, code_of

_MOST_REASONS = 5
_NAMED_MISSING = 8
# More pairs than this many whole jobs can measure are out of reach of another job.
_FULL_JOBS = 2
# Reasons already worded in the title, the table or the list of actions.
_WORDED = {
    "verdict.regressed",
    "verdict.failed",
    "verdict.testbed",
    "verdict.invalid",
    "verdict.out-of-time",
    "verdict.missing",
    "verdict.nothing-compared",
    "verdict.undecided",
    "verdict.doubtful",
    "verdict.harness",
    "verdict.not-judged",
    "verdict.costless",
    "verdict.counted-only",
}

_COOL = phrase(
    "let the device cool down or lock its clock, then re-run the job; {perfgate_doctor_fitness} shows its state."
)
# Against disturbances and tampering, most certain first.
_ON_INVALID: dict[InvalidKind, str] = {
    "code_changed": phrase(
        "find the process that writes these files. The change's code must not modify the base's files, and during a "
        "check no package, library or file that a side uses may be changed. Make the workload write to {tmpdir} "
        "instead of its checkout."
    ),
    "stopped": phrase(
        "find out what sends {sigstop} to processes of this job: the change's code, a debugger, or a batch system "
        "that suspends jobs."
    ),
    "worker_clock": phrase(
        "the times that a worker reports disagree with the time that passed outside it; none of its measurements were "
        "used. If other processes kept the CPUs busy, measure again when the machine is idle. Otherwise look for code "
        "that replaces a clock or writes to perfgate's socket."
    ),
    "worker_changed": phrase(
        "let perfgate set CPUs, threads and priorities ({gate_cpus}, {measure_threads}), or set them in the workload "
        "file, which applies to both sides."
    ),
    "out_of_turn": phrase(
        "make a call wait for the work that it starts, and stop threads and processes that it does not need; a side "
        "that keeps working slows the other side down."
    ),
    "late": phrase("reserve a CPU for the load generator, or lower the request rate."),
    "not_steady": phrase(
        "look for effects that keep making calls faster for seconds (lazy compilation, growing caches), and move them "
        "into the construction of the model."
    ),
    "foreign_process": phrase(
        "reserve the device for this job (a lock, a queue, one job per card), and re-run it."
    ),
    "throttled": _COOL,
    "slow_clock": _COOL,
    "clocks_differ": phrase(
        "lock the device's clock at a value that both sides can hold ({lock} on a GPU), then re-run the job. If the change "
        "draws more power, its lower clock is a cost of the change on this device."
    ),
}
_LITERALS = {
    "tmpdir": "TMPDIR",
    "sigstop": "SIGSTOP",
    "lock": "nvidia-smi -lgc",
    "gate_cpus": "[gate] cpus",
    "measure_threads": "[measure] threads",
    "perfgate_doctor_fitness": "perfgate doctor --fitness",
}


def remedy_text(summary: Summary) -> Words:
    """The reasons that the title does not give, and the next action."""
    decision = summary.decision
    to_do = _obstacle(summary)
    if to_do is None and summary.verdict == "INCONCLUSIVE" and _is_undecided(summary):
        to_do = _for_more_evidence(_open_number(summary), summary)
    reasons = [
        reason for reason in further_reasons(summary) if code_of(reason) not in _WORDED
    ]
    missing, more_missing = missing_numbers(decision.gaps.missing)
    invalid = decision.gaps.invalid[1:_MOST_REASONS]
    if _is_same_tree(summary) or _failed_sides(summary):
        invalid = []
    return render(
        "shared/remedy.j2",
        summary.medium,
        reasons=reasons[:_MOST_REASONS],
        missing=missing,
        more_missing=more_missing,
        invalid=invalid,
        to_do=to_do,
        broken_promise=any(
            isinstance(comparison, Bound)
            and not comparison.is_of_kernels
            and not comparison.gating
            for comparison in summary.inconclusive
        ),
    )


def missing_numbers(entries: Sequence[Missing]) -> tuple[list[str], int]:
    """The first missing numbers in words, and how many others there are."""
    listed = list(map(missing_words, entries[:_NAMED_MISSING]))
    return listed, beyond(entries, _NAMED_MISSING)


def needs_workload(summary: Summary) -> bool:
    """Whether the base branch demands that a workload runs changed code, and none does."""
    return not summary.is_measured and summary.verdict in {"WARN", "FAIL"}


def has_remedy(summary: Summary) -> bool:
    return summary.verdict in {"INCONCLUSIVE", "WARN", "SKIPPED"} or needs_workload(
        summary
    )


def remedy_lines(summary: Summary) -> list[Words]:
    """The remedy as one item per line, for media that format lists themselves."""
    if not has_remedy(summary):
        return []
    ready = Words
    if summary.medium == "html":
        ready = ReadyHtml
    lines = []
    for line in remedy_text(summary).splitlines():
        item = line.strip().removeprefix("- ")
        if item:
            lines.append(ready(item))
    return lines


def _is_same_tree(summary: Summary) -> bool:
    return any(
        code_of(reason) == "gate.no-change" for reason in summary.decision.reasons
    )


def _failed_sides(summary: Summary) -> set[str]:
    if summary.is_about_harness:
        return set()
    return {failure.side for failure in summary.failures}


def _obstacle(summary: Summary) -> str | None:
    """The next action against the first obstacle to a verdict; None if there is none
    but noise.
    """
    decision = summary.decision
    if _is_same_tree(summary):
        return say(
            "make a change first, or measure the work tree against itself with {always}.",
            always="perfgate local --always",
        )
    failed = _failed_sides(summary)
    if failed:
        return _on_failure(summary, failed)
    if decision.gaps.invalid:
        return _on_invalid(summary, {entry.kind for entry in decision.gaps.invalid})
    if summary.is_about_harness and summary.verdict in {"INCONCLUSIVE", "WARN"}:
        return _on_harness(summary)
    if needs_workload(summary):
        return say(
            "add a workload or a shape that runs the changed code. {setting} in the base's {perfgate_toml} asks for this.",
            setting="[gate] unmeasured",
            perfgate_toml="perfgate.toml",
        )
    if summary.verdict == "WARN" and summary.has_reason("costless"):
        return say(
            "check that the additional work per call is intended; calls are shown not to be slower. With {strict} "
            "this fails the gate.",
            strict="[gate] strict = true",
        )
    return _on_too_little(summary)


def _on_failure(summary: Summary, failed: set[str]) -> str:
    if summary.neither_side_runs:
        return say(
            "the base fails in the same place, so this change is not the cause. Fix the error below, on the measuring "
            "machine or on main, and re-run the job."
        )
    if "head" in failed:
        return say(
            "the change does not run under perfgate. Fix the error below and push again."
        )
    return say(
        "the base does not run under perfgate, so there is nothing to compare with. Fix main first; until then the "
        "gate cannot decide."
    )


def _on_invalid(summary: Summary, kinds: set[InvalidKind]) -> str:
    """The action against a disturbance or tampering; of several the most certain."""
    for kind, sentence in _ON_INVALID.items():
        if kind in kinds:
            return say(sentence, **_LITERALS)
    if summary.decision.sides.head.dirty:
        return say(
            "something else was running on this machine. Measure again when it is idle."
        )
    if summary.decision.measured.in_ci:
        return say(
            "something else was running on this machine. Re-run the job when it is idle: its pairs add to these."
        )
    return say(
        "something else was running on this machine. Run {perfgate_check_append} when it is idle: its pairs add to these.",
        perfgate_check_append="perfgate check --append",
    )


def _on_harness(summary: Summary) -> str:
    if summary.verdict == "INCONCLUSIVE":
        return say(
            "make the workload file run on both base and head, or change it in a separate change first. Until then it "
            "is unknown whether this change is slower."
        )
    return say(
        "check that the change to the workload file is intended. It does not fail the gate by itself, but once it is "
        "merged, the parts that are no longer measured are no longer gated."
    )


def _on_too_little(summary: Summary) -> str | None:
    """The action if too little was measured, or none of it compares."""
    decision = summary.decision
    differs = not decision.sides.are_comparable
    is_open = summary.verdict == "INCONCLUSIVE"
    if decision.measured.recorded and differs:
        return say(
            "record both sides on the same device and software, with the same ranks and the same profiler settings "
            "(level, AI Core metrics, shapes); the differences are listed above."
        )
    if (
        decision.measured.recorded
        and is_open
        and (not summary.metrics or _is_undecided(summary))
    ):
        return say(
            "record everything that can be counted: the device as well as the host, on Ascend at {level1}, and at "
            "least three steps marked with {prof_step}. The notes name the missing parts.",
            level1="Level1",
            prof_step="prof.step()",
        )
    if differs:
        return say(
            "measure both sides on one machine with one software stack: re-run {perfgate_check} there. To keep the "
            "new stack, first record main on it with {perfgate_baseline_record}.",
            perfgate_check="perfgate check",
            perfgate_baseline_record="perfgate baseline record",
        )
    budget = max(map(budget_of, summary.too_slow), default=0)
    if budget:
        return say(
            "set {setting} under {gate} in {perfgate_toml}, or make a call of the workload shorter, for example with "
            "a smaller batch or fewer layers.",
            setting=f"budget = {budget}",
            gate="[gate]",
            perfgate_toml="perfgate.toml",
        )
    if summary.out_of_time:
        return say(
            "the time budget ran out before base and head were compared. Raise {time_budget} or the job's {budget}, "
            "or measure fewer workloads ({workload}).",
            time_budget="--time-budget",
            budget="budget",
            workload="--workload",
        )
    if decision.gaps.missing:
        return say(
            "re-run the measuring job and check its log: the missing part may have got worse, so there is "
            "no verdict without it."
        )
    if is_open:
        return _on_nothing_judged(summary)
    return None


def _on_nothing_judged(summary: Summary) -> str | None:
    if summary.unjudged:
        return say(
            "make sure that the rule's metric is measured; the reason names the missing part. Without a number the "
            "rule is not shown to hold. If this device cannot measure the metric, remove the rule from "
            "{perfgate_toml} on the base branch.",
            perfgate_toml="perfgate.toml",
        )
    if summary.is_unread:
        return say(
            "check the log of the measuring job, fix its error, and re-run it. Until there is a verdict, this change "
            "counts as not measured: nothing is known about its speed."
        )
    if not summary.metrics:
        return say(
            "neither counters nor pairs of base and head gave numbers. Look for the missing part in the checklist and "
            "in the log of the run folder, fix it, and re-run the job."
        )
    return None


def _is_undecided(summary: Summary) -> bool:
    return any(
        isinstance(comparison, NumberComparison) for comparison in summary.inconclusive
    )


def _open_number(summary: Summary) -> Paired | None:
    """The first comparison that more evidence would decide; None if no known amount
    would.

    An upgrade report starts anew each time, so it cannot ask for more pairs.
    """
    if summary.decision.sides.comparing != "code":
        return None
    for comparison in summary.inconclusive:
        if not isinstance(comparison, Paired) or not comparison.must_decide:
            continue
        measured = comparison.pairs or 0
        needed = comparison.pairs_needed or 0
        if 0 < measured < needed:
            return comparison
    return None


def _for_more_evidence(open_number: Paired | None, summary: Summary) -> str:
    """How much evidence would decide, and how to get it: by another job, or by a longer
    one.
    """
    if open_number is None:
        return say("re-run the job on a quieter machine; the noise exceeded the limit.")
    needed = open_number.pairs_needed or 0
    unit = evidence_of(open_number)
    evidence = counted(needed, unit)
    measured = Words(f"{open_number.pairs:,}")
    last_look = summary.decision.procedure.policy.looks[-1]
    if not open_number.is_of_job and needed > _FULL_JOBS * last_look:
        return say(
            "measure on a quieter machine: this one would need about {needed}, and this job measured {pairs}. "
            "{perfgate_doctor_fitness} shows the sources of noise.",
            needed=evidence,
            pairs=measured,
            perfgate_doctor_fitness="perfgate doctor --fitness",
        )
    sentence = phrase("about {needed} would settle it; this job measured {pairs}.")
    if unit == "run":
        sentence = phrase(
            "about {needed} per side would settle it; this job measured {pairs}."
        )
    words = say(sentence, needed=evidence, pairs=measured)
    return joined(
        words,
        _by_another_job(open_number, summary),
        _by_a_longer_job(open_number, summary),
    )


def _by_another_job(open_number: Paired, summary: Summary) -> str:
    """Pairs accumulate per commit; uncommitted changes cannot be measured again."""
    if evidence_of(open_number) == "turn":
        return EMPTY
    if summary.decision.measured.in_ci:
        return say(" Re-run the job to add to these.")
    if summary.decision.sides.head.dirty:
        return EMPTY
    return say(
        " Run {perfgate_check_append} to add to these.",
        perfgate_check_append="perfgate check --append",
    )


def _by_a_longer_job(open_number: Paired, summary: Summary) -> str:
    if open_number.is_of_job:
        return say(
            " To measure more in one job, raise {budget} of the workload in {perfgate_toml}.",
            budget="budget",
            perfgate_toml="perfgate.toml",
        )
    # The last look ended the measuring, so a larger budget alone gives no more pairs.
    if (open_number.pairs or 0) >= summary.decision.procedure.policy.looks[-1]:
        return say(
            " To measure more in one job, add a larger number to {looks} under {place} in {perfgate_toml}, and raise "
            "{budget} with it.",
            looks="looks",
            place="[gate]",
            perfgate_toml="perfgate.toml",
            budget="budget",
        )
    return say(
        " To measure more in one job, raise {budget} under {place} in {perfgate_toml}.",
        budget="budget",
        place="[gate]",
        perfgate_toml="perfgate.toml",
    )
