"""Of a job's artifact nothing is believed that the base's perfgate.toml or the catalogue says."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, get_args

import msgspec
import pytest

from perfgate.catalogue.lookup import METRICS
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.job import JobKind, JobNumber, RankCounts, Turn
from perfgate.document.run import Harness, RunDocument
from perfgate.job_settings import JobReference
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.jobs import SETTINGS, Does, job_documents, reference_of
from tests.fakes.records import changed

replace = msgspec.structs.replace
Documents = tuple[RunDocument, RunDocument]
KINDS: tuple[JobKind, ...] = get_args(JobKind)
SLOWER, SAME = Does(0.2), Does()


@cache
def measured(settings: str, head: Does = SAME) -> Documents:
    return job_documents(settings, SAME, head)


def judged(documents: Documents, job: JobReference | RequiredJob) -> DecisionDocument:
    required = job if isinstance(job, RequiredJob) else RequiredJob(job)
    policy = Policy(tolerances=required.reference.tolerances)
    return decide(
        *documents, policy=policy, history=History(), required=Required(jobs={required.reference.name: required})
    )


def with_turns(documents: Documents, change: Callable[[Turn], dict[str, Any]], *sides: int) -> Documents:
    """Both documents with what ``change`` returns for each turn, of both sides or of some."""
    edited = [changed(run, turns=[replace(turn, **change(turn)) for turn in run.jobs.turns]) for run in documents]
    base, head = (edited[i] if i in (sides or (0, 1)) else documents[i] for i in (0, 1))
    return base, head


def with_job(documents: Documents, **fields: Any) -> Documents:
    base, head = (changed(run, records=[replace(job, **fields) for job in run.jobs.records]) for run in documents)
    return base, head


def with_numbers(documents: Documents, change: Callable[[JobNumber], JobNumber]) -> Documents:
    return with_job(documents, numbers=[change(number) for number in documents[0].jobs.records[0].numbers])


def lacking(decision: DecisionDocument) -> set[str]:
    return {entry.metric for entry in decision.gaps.missing}


@pytest.mark.parametrize("kind", KINDS)
def test_job__as_the_settings_say__lacks_nothing(kind: JobKind) -> None:
    reference = reference_of(SETTINGS[kind])
    assert (
        judged(measured(SETTINGS[kind]), reference).verdict,
        judged(measured(SETTINGS[kind], SLOWER), reference).verdict,
    ) == (
        "PASS",
        "FAIL",
    )


def test_server__a_program_checks_its_answers__every_start_has_an_output() -> None:
    settings = SETTINGS["server"] + 'check = "python check.py"\nsame_output = false\n'
    reference = reference_of(settings)
    documents = with_job(measured(SETTINGS["server"]), sha256=reference.sha256)
    # Only the first turn of a start, which has none before it, is checked.
    documents = with_turns(documents, lambda turn: {"output": "a" if turn.out_of_turn is None else ""})
    assert judged(documents, reference).verdict == "PASS"
    decision = judged(with_turns(documents, lambda turn: {"output": "" if turn.start == 1 else turn.output}), reference)
    assert (decision.verdict, lacking(decision)) == ("INCONCLUSIVE", {"job.output"})


SHARE = SETTINGS["server"] + 'same_output = "share"\n'


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        (Does(usual=0.8), Does(usual=0.8), "PASS"),
        (Does(usual=0.8), Does(usual=0.4), "FAIL"),
        (Does(usual=0.8), Does(usual=0.8, text="a b c e"), "FAIL"),
        (Does(), Does(), "PASS"),
    ],
    ids=["alike often", "less often", "another text", "always"],
)
def test_server__share_of_equal_answers__may_be_as_small_as_of_base_against_itself(
    base: Does, head: Does, verdict: str
) -> None:
    decision = judged(job_documents(SHARE, base, head), reference_of(SHARE))
    assert decision.verdict == verdict
    (share,) = [c for c in decision.comparisons if c.metric == "serving.same_text"]
    assert (share.gating, share.interval is not None) == (False, True)
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    said = re.search(
        r"(\d+) of (\d+) answers differ in text between the two sides; (\d+) of base's differ from its own answers",
        comment,
    )
    assert (said is not None) == (verdict == "FAIL")
    if said is not None:
        assert int(said[1]) / int(said[2]) == pytest.approx(1 - (share.head or 0))
        assert int(said[3]) / int(said[2]) == pytest.approx(1 - (share.base or 0))


def test_server__output_that_nobody_asked_for__is_not_missing() -> None:
    reference = reference_of(SETTINGS["server"] + "same_output = false\n")
    documents = with_turns(with_job(measured(SETTINGS["server"]), sha256=reference.sha256), lambda _: {"output": ""})
    assert judged(documents, reference).verdict == "PASS"


def test_ranks__script_without_losses__has_an_output_all_the_same() -> None:
    documents = measured(SETTINGS["ranks"])
    assert all(turn.output for run in documents for turn in run.jobs.turns)


@pytest.mark.parametrize(
    ("kind", "head", "work"),
    [
        ("server", Does(tokens=5), {}),
        ("server", Does(tokens=5), {"requests": 4, "input_tokens": 64, "without_text": 0}),
        ("server", Does(tokens=5), {"requests": 0, "input_tokens": 0, "output_tokens": 0, "without_text": 0}),
        ("ranks", SLOWER, {"steps": 1, "ranks": 2, "samples": 16}),
    ],
)
def test_job__other_work_that_both_sides_leave_out_or_alter__is_no_pass(
    kind: JobKind, head: Does, work: dict[str, int]
) -> None:
    documents, reference = measured(SETTINGS[kind], head), reference_of(SETTINGS[kind])
    decision = judged(with_turns(documents, lambda _: {"work": work}), reference)
    assert decision.verdict in ("INCONCLUSIVE", "FAIL")
    assert any(metric.startswith("work.") for metric in lacking(decision))


@pytest.mark.parametrize("kind", KINDS)
def test_job__direction_turned_round_on_both_sides__is_judged_as_the_trusted_side_says(kind: JobKind) -> None:
    def turned(number: JobNumber) -> JobNumber:
        return replace(number, better="lower" if number.better == "higher" else "higher")

    reference = reference_of(SETTINGS[kind])
    slower = judged(with_numbers(measured(SETTINGS[kind], SLOWER), turned), reference)
    assert slower.verdict == "FAIL"
    equal = judged(with_numbers(measured(SETTINGS[kind]), turned), reference)
    assert equal.verdict == "INCONCLUSIVE"
    assert all(entry.differs and entry.named_by == "configuration" for entry in equal.gaps.missing)
    assert f"{reference.must_gate(on_device=False)[0]}.better" in lacking(equal)
    comment = render_comment(equal, CommentContext(marker="<!-- perfgate -->"))
    assert "does not match the base's perfgate.toml" in comment


@pytest.mark.parametrize("kind", KINDS)
def test_job__other_unit_on_both_sides__is_that_of_the_trusted_side(kind: JobKind) -> None:
    reference = reference_of(SETTINGS[kind])
    documents = with_numbers(measured(SETTINGS[kind], SLOWER), lambda number: replace(number, unit="GB"))
    decision = judged(documents, reference)
    assert decision.verdict == "FAIL"
    assert {c.unit for c in decision.comparisons} & {"GB"} == set()
    assert f"{reference.must_gate(on_device=False)[0]}.unit" in lacking(decision)


@pytest.mark.parametrize("kind", KINDS)
def test_job__no_number_of_the_documents_gates__what_must_gate_does(kind: JobKind) -> None:
    reference = reference_of(SETTINGS[kind])
    for head, verdict in ((SLOWER, "FAIL"), (SAME, "INCONCLUSIVE")):
        documents = with_numbers(measured(SETTINGS[kind], head), lambda number: replace(number, gating=False))
        decision = judged(documents, reference)
        assert decision.verdict == verdict
        assert lacking(decision) >= set(reference.must_gate(on_device=False))


@pytest.mark.parametrize("kind", KINDS)
def test_job__other_settings_than_the_bases__are_missing_by_name(kind: JobKind) -> None:
    documents, reference = measured(SETTINGS[kind]), reference_of(SETTINGS[kind])
    others: tuple[dict[str, Any], ...] = (
        {"sha256": "0" * 64},
        *({"kind": other} for other in KINDS if other != kind),
        {"fits": "swap"},
    )
    for fields in others:
        decision = judged(with_job(documents, **fields), reference)
        assert decision.verdict == "INCONCLUSIVE", fields
        assert lacking(decision) & {"job.settings", "job.fits"}


def test_job__one_quad_a_start_called_alternate__is_not_how_it_shared_the_devices() -> None:
    documents = with_job(measured(SETTINGS["server"]), fits="alternate")
    assert "job.fits" in lacking(judged(documents, reference_of(SETTINGS["server"])))


def changed_table(documents: Documents, old: JobReference, new: JobReference) -> Documents:
    """The documents of a head that changed the table of the job, as a check reports that."""
    base, head = with_job(documents, sha256=new.sha256)
    return (
        changed(base, harness=[Harness(workload=old.name, reference="", settings=old.written)]),
        changed(head, harness=[Harness(workload=old.name, reference="", settings=new.written)]),
    )


def test_job__table_that_head_changed__warns_and_is_judged_by_the_new_one() -> None:
    old = reference_of(SETTINGS["command"])
    new = reference_of(SETTINGS["command"].replace('unit = "ms"', 'unit = "s"'))
    documents = changed_table(measured(SETTINGS["command"]), old, new)
    assert judged(documents, old).verdict == "WARN"
    slower = changed_table(measured(SETTINGS["command"], SLOWER), old, new)
    assert judged(slower, old).verdict == "FAIL"


@pytest.mark.parametrize("written", ["base", "head"])
def test_job__table_that_head_changed__what_it_was_must_be_the_bases(written: str) -> None:
    old = reference_of(SETTINGS["command"])
    new = reference_of(SETTINGS["command"].replace('unit = "ms"', 'unit = "s"'))
    base, head = changed_table(measured(SETTINGS["command"]), old, new)
    if written == "base":
        base = changed(base, harness=head.source.harness)
    else:
        head = changed(head, harness=base.source.harness)
    assert lacking(judged((base, head), old)) == {"job.settings"}


# --- numbers that no trusted side names

NAMED_BY_THE_PROGRAM = """
[workloads.bench]
command = "python bench.py"
file = "out.json"
"""


def named_by_the_program(head: Does) -> Documents:
    reference = reference_of(NAMED_BY_THE_PROGRAM)
    return with_job(measured(SETTINGS["command"], head), sha256=reference.sha256)


def turned_step(number: JobNumber) -> JobNumber:
    return replace(number, better="higher") if number.metric == "number.step" else number


def test_number__of_the_program_alone__fails_by_its_word_and_never_passes_by_it() -> None:
    reference = reference_of(NAMED_BY_THE_PROGRAM)
    assert judged(named_by_the_program(SAME), reference).verdict == "PASS"
    assert judged(named_by_the_program(SLOWER), reference).verdict == "FAIL"
    only_step = with_turns(
        named_by_the_program(SLOWER),
        lambda turn: {"values": {k: v for k, v in turn.values.items() if k != "number.rate"}},
    )
    only_step = with_job(
        only_step, numbers=[n for n in only_step[0].jobs.records[0].numbers if n.metric != "number.rate"]
    )
    assert judged(only_step, reference).verdict == "FAIL"
    decision = judged(with_numbers(only_step, turned_step), reference)
    assert decision.verdict == "INCONCLUSIVE"
    (row,) = [c for c in decision.comparisons if c.metric == "number.step"]
    assert (row.outcome, row.reason and row.reason.code) == ("inconclusive", "gate.direction-unknown")


def test_number__that_mains_stored_run_has__is_judged_by_its_direction() -> None:
    stored = {number.metric: number for number in measured(SETTINGS["command"])[0].jobs.records[0].numbers}
    required = RequiredJob(reference_of(NAMED_BY_THE_PROGRAM), numbers=stored)
    faster = judged(named_by_the_program(Does(-0.2)), required)
    assert faster.verdict == "PASS"
    assert judged(with_numbers(named_by_the_program(SLOWER), turned_step), required).verdict == "FAIL"
    gone = with_job(named_by_the_program(SAME), numbers=named_by_the_program(SAME)[0].jobs.records[0].numbers[1:])
    assert [(e.metric, e.named_by) for e in judged(gone, required).gaps.missing] == [("number.step", "store")]


def test_work__that_mains_stored_run_has__must_be_there() -> None:
    required = RequiredJob(reference_of(NAMED_BY_THE_PROGRAM), work=frozenset({"requests"}))
    assert lacking(judged(named_by_the_program(SAME), required)) == {"work.requests"}
    documents = with_turns(named_by_the_program(SAME), lambda _: {"work": {"requests": 8}})
    assert judged(documents, required).verdict == "PASS"


def test_number__that_a_program_counts__may_be_0_on_both_sides_and_not_on_one() -> None:
    reference = reference_of(NAMED_BY_THE_PROGRAM)
    counts = JobNumber(metric="number.failed", unit="1", better="lower")
    documents = named_by_the_program(SAME)
    documents = with_job(documents, numbers=[*documents[0].jobs.records[0].numbers, counts])
    both = with_turns(documents, lambda turn: {"values": {**turn.values, "number.failed": 0.0}})
    assert judged(both, reference).verdict == "PASS"
    more = with_turns(both, lambda turn: {"values": {**turn.values, "number.failed": 3.0}}, 1)
    decision = judged(more, reference)
    assert (decision.verdict, lacking(decision)) == ("INCONCLUSIVE", {"number.failed"})


# --- what ranks were counted to call

MORE = Does(collectives=3)


def with_counts(
    documents: Documents, change: Callable[[RankCounts], RankCounts], *sides: int, start: int | None = None
) -> Documents:
    """Both documents with what ``change`` makes of the counts of every start, or of one."""
    return with_turns(
        documents,
        lambda turn: {"counts": [change(c) if start in (None, turn.start) else c for c in turn.counts]},
        *sides,
    )


_UNCALLED: dict[str, Any] = {"calls": 0, "collectives": []}


@pytest.mark.parametrize(
    ("fields", "start", "sides"),
    [
        (fields, start, sides)
        for fields in ({"collectives": []}, {"steps": 0}, {"steps": 1}, {"steps": -4}, {"calls": 0}, _UNCALLED)
        for start in (0, None)
        for sides in ((0,), (1,), (0, 1))
        # Whoever forges the counts of every start of the head alike forges a measurement (docs/traps.md, "Not caught").
        if not (fields is _UNCALLED and start is None and 1 in sides)
    ],
)
def test_ranks__counts_that_do_not_add_up__never_hide_one_more_collective(
    fields: dict[str, Any], start: int | None, sides: tuple[int, ...]
) -> None:
    reference = reference_of(SETTINGS["ranks"])
    documents = measured(SETTINGS["ranks"], MORE)
    assert judged(documents, reference).verdict == "FAIL"
    edited = with_counts(documents, lambda count: replace(count, **fields), *sides, start=start)
    assert judged(edited, reference).verdict in ("FAIL", "INCONCLUSIVE")


def test_ranks__starts_that_disagree__decide_nothing_unless_their_usual_count_is_the_same() -> None:
    def without_one(count: RankCounts) -> RankCounts:
        return replace(count, calls=0, collectives=[])

    reference = reference_of(SETTINGS["ranks"])
    more = judged(with_counts(measured(SETTINGS["ranks"], MORE), without_one, 1, start=0), reference)
    assert more.verdict == "INCONCLUSIVE"
    (row,) = [c for c in more.comparisons if c.metric == "ranks.collectives"]
    assert (row.outcome, row.base, row.head, row.reason and row.reason.code) == (
        "inconclusive",
        4,
        6,
        "gate.starts-disagree",
    )
    same = with_counts(measured(SETTINGS["ranks"]), without_one, 1, start=0)
    assert judged(same, reference).verdict == "PASS"


@pytest.mark.parametrize("kind", KINDS)
def test_catalogue__of_what_jobs_give_themselves__has_the_unit_and_direction_of_the_conductor(kind: JobKind) -> None:
    for number in measured(SETTINGS[kind])[0].jobs.records[0].numbers:
        if number.metric in METRICS:
            entry = METRICS[number.metric]
            assert (entry.unit, entry.better) == (number.unit, number.better)
