"""Traps in the documents: sides that failed, numbers that are none, settings that changed, a harness that measures less."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from perfgate.conductor.sides.function.member import check_blocks
from perfgate.conductor.workers.worker import WorkerError
from perfgate.document.decision import Policy
from perfgate.document.files import canonical_bytes, parse_run
from perfgate.document.history import History, HistorySeries
from perfgate.document.job import JobKind
from perfgate.document.message import quote
from perfgate.document.run import ErrorDetail, Harness, RunDocument, StepResult, Value
from perfgate.document.samples import BlockColumns, pack
from perfgate.errors import DocumentError
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.verdict import exit_code
from perfgate.protocol import BlockRequest
from tests.fakes.jobs import SETTINGS, Does, job_documents, reference_of
from tests.fakes.records import changed
from tests.traps.catalogue import caught, not_caught
from tests.traps.naming import names
from tests.traps.virtual import judged
from tests.unit.gate.builders import SHAPE, WORKLOAD, columns, counters, sides

SAME = [1.0 + 0.0005 * (-1) ** pair for pair in range(12)]
SLOWER = [1.05] * 12
BOOM = ErrorDetail(kind="exception", message="RuntimeError: boom", traceback="…")

Sides = tuple[RunDocument, RunDocument]
replace = msgspec.structs.replace


def failed_step(run: RunDocument) -> RunDocument:
    """The run with a step that raised."""
    step = StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="error", reason=quote("boom"), error=BOOM)
    return changed(run, steps=[step])


@caught(
    "the base does not run",
    fools="a gate that treats a missing baseline as nothing to compare passes everything",
    by="a failure on either side is never a verdict",
    named="error exception",
)
def test_base_fails() -> set[str]:
    base, head = sides(SAME)
    decision = judged(failed_step(base), head)
    assert decision.verdict != "PASS"
    assert exit_code(decision) == 4
    return names(decision)


@caught(
    "nothing was measured",
    fools="no comparison, no regression",
    by="a decision without a comparison is INCONCLUSIVE",
    named="verdict INCONCLUSIVE",
)
def test_nothing_measured() -> set[str]:
    return names(judged(*sides([])))


@caught(
    "another testbed",
    fools="a new torch or another machine is faster than any change is slower",
    by="the fields that must be equal are compared before the times",
    named="latency.low not compared",
)
def test_other_testbed() -> set[str]:
    base, head = sides(SLOWER)
    comparable = {**head.testbed.comparable, "torch": "2.12.0"}
    other = replace(head.testbed, fingerprint="0" * 64, comparable=comparable)
    decision = judged(base, replace(head, testbed=other))
    assert decision.verdict == "INCONCLUSIVE"
    found = [c for c in decision.comparisons if c.metric == "latency.low" and c.outcome == "not_comparable"]
    return {"latency.low not compared"} if found and not found[0].gating else set()


@caught(
    "sides of two sessions",
    fools="yesterday's base next to today's head: 51 to 64 % of such comparisons of equal code differ by more than 5 %",
    by="pairs of two sessions are refused",
    named="refused DocumentError",
)
def test_sides_of_two_sessions() -> set[str]:
    base, head = sides(SAME)
    with pytest.raises(DocumentError, match="different sessions"):
        judged(replace(base, session=replace(base.session, id="another")), head)
    return {"refused DocumentError"}


@caught(
    "stored runs of a faster day",
    fools="a baseline recorded on an idle machine fails every change of a busy machine",
    by="stored runs are shown in a separate section; the verdict rests on what one job measured",
    named="verdict PASS",
)
def test_stored_runs_of_a_faster_day() -> set[str]:
    base, head = sides(SAME)
    value = Value(metric="latency.p50", value=0.02, labels={"shape": SHAPE})
    step = StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[value])
    stored = [0.0100, 0.0101, 0.0099, 0.0100, 0.0102, 0.0098]
    series = HistorySeries(workload=WORKLOAD, shape=SHAPE, metric="latency.p50", values=stored)
    base = changed(base, counters=[counters({"aten::add": 1})])
    head = changed(head, counters=[counters({"aten::add": 1})], steps=[step])
    return names(decide(base, head, policy=Policy(), history=History(series=[series])))


@caught(
    "a tolerance below the noise",
    fools="a limit of 1 % on a machine that tells 10 % apart passes by luck",
    by="what is not excluded is not called unchanged; the comparison says how many pairs it takes",
    named="latency.low: inconclusive",
)
def test_limit_below_the_noise() -> set[str]:
    noisy = [1.1, 0.91, 1.12, 0.9, 1.08, 0.93, 1.09, 0.92, 1.1, 0.9, 1.11, 0.91]
    decision = judged(*sides(noisy))
    found = next(c for c in decision.comparisons if c.metric == "latency.low")
    assert found.pairs_needed is not None
    return names(decision)


def in_head(change: Callable[[BlockColumns], BlockColumns]) -> Sides:
    """Return sides of equal speed whose head's columns were changed."""
    base, head = sides(SAME)
    replicates = [
        replace(member, shapes={shape: change(columns) for shape, columns in member.shapes.items()})
        for member in head.pairs.replicates
    ]
    return base, changed(head, replicates=replicates)


@caught(
    "calls of no time",
    fools="the logarithm of zero is minus infinity, and minus infinity is faster than anything",
    by="a call that takes no time is called a lie",
    named="invalid worker_clock",
)
def test_calls_of_no_time() -> set[str]:
    return names(
        judged(
            *in_head(
                lambda columns: replace(columns, times=replace(columns.times, wall=pack([0] * 80), cpu=pack([0] * 80)))
            )
        )
    )


def damaged(change: Callable[[Any], None]) -> bytes:
    """Return a run document's bytes with something in it changed by hand."""
    _, head = sides(SAME)
    value = json.loads(canonical_bytes(head, name="head"))
    change(value)
    return json.dumps(value).encode()


def columns_of(value: Any) -> Any:
    return value["pairs"]["replicates"][0]["shapes"][SHAPE]


@caught(
    "NaN among the numbers",
    fools="every comparison with NaN is false, so nothing is ever above a limit",
    by="documents are strict JSON, which has no NaN",
    named="refused DocumentError",
)
def test_not_a_number() -> set[str]:
    with pytest.raises(DocumentError, match="NaN"):
        parse_run(
            damaged(lambda value: value["pairs"]["replicates"][0]["worker"].update(start_up=float("nan"))), name="head"
        )
    return {"refused DocumentError"}


@caught(
    "negative times",
    fools="a clock set back gives calls of less than no time",
    by="samples are unsigned, and a document of ours holds none above 2^63",
    named="refused DocumentError",
)
def test_negative_times() -> set[str]:
    negative = pack(np.full(80, -5))
    with pytest.raises(DocumentError, match="2\\^63"):
        judged(*in_head(lambda columns: replace(columns, times=replace(columns.times, wall=negative))))
    with pytest.raises(DocumentError):
        parse_run(damaged(lambda value: columns_of(value)["conductor"].update(seen_ns=[-1, 1, 1, 1])), name="head")
    return {"refused DocumentError"}


@caught(
    "a block that ends before it starts",
    fools="a negative gap between calls outweighs any loss",
    by="a document whose columns do not fit together is refused",
    named="refused DocumentError",
)
def test_block_ends_before_it_starts() -> set[str]:
    def turned(value: Any) -> None:
        found = columns_of(value)["worker"]
        found["start_ns"], found["end_ns"] = found["end_ns"], found["start_ns"]

    with pytest.raises(DocumentError, match="ends before it starts"):
        parse_run(damaged(turned), name="head")
    return {"refused DocumentError"}


@caught(
    "slow calls left out of the document",
    fools="an artifact in which the worst calls were deleted",
    by="every block says how many calls it has, and must hold one sample for each",
    named="refused DocumentError",
)
def test_calls_left_out() -> set[str]:
    fewer = json.loads(msgspec.json.encode(pack([10_000_000] * 70)))
    with pytest.raises(DocumentError, match="not one sample a call"):
        parse_run(damaged(lambda value: columns_of(value)["times"].update(wall=fewer)), name="head")
    return {"refused DocumentError"}


@caught(
    "a reply with other blocks than requested",
    fools="a worker that hands over fewer calls a block, or only its best blocks",
    by="the conductor compares the reply with its request",
    named="error protocol",
)
def test_other_blocks_than_asked_for() -> set[str]:
    best = columns(0.01, blocks=2)
    asked = [BlockRequest(shape=SHAPE, calls=20, quad=block // 2, sequence=block) for block in range(4)]
    with pytest.raises(WorkerError) as refused:
        check_blocks({SHAPE: best}, {SHAPE: asked})
    check_blocks({SHAPE: columns(0.01, blocks=4)}, {SHAPE: asked})
    return {f"error {refused.value.detail.kind}"}


def with_replicates(run: RunDocument, **fields: Any) -> RunDocument:
    return changed(run, replicates=[changed(member, **fields) for member in run.pairs.replicates])


@caught(
    "another number of torch threads in the head",
    fools="`torch.set_num_threads` in the changed code: more CPUs look like better code",
    by="perfgate reads its settings again after the last block and compares them",
    named="invalid worker_changed",
)
def test_other_threads() -> set[str]:
    base, head = sides([0.6] * 12)
    threads = "torch threads"
    return names(judged(with_replicates(base, settings={threads: "1"}), with_replicates(head, settings={threads: "4"})))


def with_columns(run: RunDocument, change: Callable[[BlockColumns], BlockColumns]) -> RunDocument:
    return changed(
        run,
        replicates=[
            replace(member, shapes={shape: change(columns) for shape, columns in member.shapes.items()})
            for member in run.pairs.replicates
        ],
    )


def seen_as(columns: BlockColumns, *, used: float, out_of_turn: float = 0.0) -> BlockColumns:
    """The columns with CPU time used in turn and out of turn, as shares of what the conductor saw."""
    spans = [int((end - start) * 1.06) for start, end in zip(columns.worker.start_ns, columns.worker.end_ns)]
    return replace(
        columns,
        conductor=replace(
            columns.conductor,
            seen_ns=spans,
            used_ns=[int(span * used) for span in spans],
            out_of_turn_ns=[int(span * out_of_turn) for span in spans],
        ),
    )


@caught(
    "a head that takes more CPUs and gives them back",
    fools="CPUs are widened at the start of a call and narrowed at its end, so that it goes unnoticed",
    by="the kernel's accounting of CPU time shows more than was granted",
    named="invalid worker_changed",
)
def test_more_cpus_than_granted() -> set[str]:
    base, head = sides([0.6] * 12)
    base = with_columns(base, lambda columns: seen_as(columns, used=0.99))
    return names(judged(base, with_columns(head, lambda columns: seen_as(columns, used=1.8))))


@caught(
    "a base that is slowed while it has the turn",
    fools="a process that the head leaves running slows the base, so the head looks faster",
    by="the kernel's CPU time of a worker and its processes between its blocks",
    named="invalid out_of_turn",
)
def test_works_out_of_turn() -> set[str]:
    base, head = sides(SAME)
    base = with_columns(base, lambda columns: seen_as(columns, used=0.9, out_of_turn=0.001))
    return names(judged(base, with_columns(head, lambda columns: seen_as(columns, used=0.9, out_of_turn=0.05))))


@caught(
    "both sides work out of turn",
    fools="a background thread that both sides have would make every pair worthless",
    by="only a difference between the sides counts",
    named="verdict PASS",
)
def test_both_work_out_of_turn() -> set[str]:
    busy = [with_columns(side, lambda columns: seen_as(columns, used=0.9, out_of_turn=0.3)) for side in sides(SAME)]
    return names(judged(*busy))


def out_of_turn(columns: BlockColumns, *, waited: float, busy: float) -> BlockColumns:
    """The columns where the turn was elsewhere for so many times a block, and the worker busy for a share of that."""
    seen = seen_as(columns, used=0.9)
    waits = [int(span * waited) for span in seen.conductor.seen_ns]
    return replace(
        seen, conductor=replace(seen.conductor, waited_ns=waits, out_of_turn_ns=[int(wait * busy) for wait in waits])
    )


def test_both_work_out_of_turn__one_has_much_longer_turns__still_alike() -> None:
    # release_thread of torch_npu polls all the time: the faster side has ten times its own turn to do so.
    base, head = sides(SAME)
    base = with_columns(base, lambda columns: out_of_turn(columns, waited=10.0, busy=0.17))
    head = with_columns(head, lambda columns: out_of_turn(columns, waited=0.1, busy=0.17))

    assert "invalid out_of_turn" not in names(judged(base, head))


@not_caught(
    "a head that works out of turn next to a framework that does so too",
    fools="where both sides poll while they wait, as torch_npu does, the head may add as much again and slow the base by it",
    because="a framework's own threads work in bursts, and the side with longer turns shows less of them; pairs on such a "
    "device have several CPUs, so that a busy thread need not take the other side's",
)
def test_works_out_of_turn_beside_a_polling_framework() -> set[str]:
    base, head = sides(SAME)
    base = with_columns(base, lambda columns: out_of_turn(columns, waited=1.0, busy=0.10))
    return names(judged(base, with_columns(head, lambda columns: out_of_turn(columns, waited=1.0, busy=0.19))))


def judged_job(kind: JobKind, head: Does, change: Callable[[RunDocument], RunDocument], *, of_base: bool) -> set[str]:
    """Judge a job of which an artifact was altered, on the head's side or on both, by the base's settings."""
    reference = reference_of(SETTINGS[kind])
    before, after = job_documents(SETTINGS[kind], Does(), head)
    documents = change(before) if of_base else before, change(after)
    required = Required(jobs={reference.name: RequiredJob(reference)})
    return names(decide(*documents, policy=Policy(), history=History(), required=required))


@caught(
    "the direction of a job's number turned round in the artifact",
    fools='both documents call a time better when it is "higher", so that the slowdown is an improvement',
    by="unit, direction and gating of a number come from the base's `perfgate.toml` and from perfgate's catalogue",
    named="number.step: regressed",
)
def test_direction_turned_round() -> set[str]:
    def turned(run: RunDocument) -> RunDocument:
        numbers = [replace(number, better="higher") for number in run.jobs.records[0].numbers]
        return changed(run, records=[replace(run.jobs.records[0], numbers=numbers)])

    return judged_job("command", Does(0.2), turned, of_base=True)


@caught(
    "a job's other output left out of the artifact on both sides",
    fools="what neither document has does not differ",
    by="the base's `perfgate.toml` says whether outputs and work must be alike; without them the verdict is INCONCLUSIVE",
    named="verdict INCONCLUSIVE",
)
def test_output_left_out_on_both_sides() -> set[str]:
    def without(run: RunDocument) -> RunDocument:
        return changed(run, turns=[replace(turn, output="") for turn in run.jobs.turns])

    return judged_job("server", Does(text="a b c e"), without, of_base=True)


@not_caught(
    "the numbers of a job or of the checklist forged in the artifact",
    fools="every number of the head is a third of what was measured, or the base's own; counts of work, hashes of output "
    "and the SLA of the workload file may be set alike on both sides",
    because="code of the change runs in the job that writes the artifact, and whole, consistent numbers look like a "
    "measurement. What is left out, contradicts itself or the base's settings is INCONCLUSIVE",
)
def test_numbers_of_a_job_forged() -> set[str]:
    def forged(run: RunDocument) -> RunDocument:
        turns = [
            replace(turn, values={**turn.values, "number.step": turn.values["number.step"] * 0.3, "number.rate": 100.0})
            for turn in run.jobs.turns
        ]
        return changed(run, turns=turns)

    return judged_job("command", Does(0.2), forged, of_base=False)


def harness(**fields: Any) -> Harness:
    functions = {"build": "1", "inputs": "2", "check": "3"}
    given: dict[str, Any] = {"shapes": {"long": "", "short": ""}, "functions": functions, "file_sha256": "a"}
    return Harness(workload=WORKLOAD, reference="perf/workload.py:encoder", **{**given, **fields})


def with_harness(head_harness: Harness) -> Sides:
    base, head = sides(SAME)
    return changed(base, harness=[harness()]), changed(head, harness=[head_harness])


@caught(
    "a shape is left out",
    fools="the slow shape is no longer measured",
    by="perfgate reads both workload files and names what the head's no longer measures",
    named="harness removed",
)
def test_skipped_shape() -> set[str]:
    decision = judged(*with_harness(harness(shapes={"short": ""}, file_sha256="b")))
    assert decision.verdict == "WARN"
    return names(decision)


@caught(
    "the output's check is removed",
    fools="a wrong model is fast, and nothing checks it",
    by="perfgate reads both workload files and names the check that is gone",
    named="harness removed",
)
def test_removed_check() -> set[str]:
    return names(judged(*with_harness(harness(functions={"build": "1", "inputs": "2"}, file_sha256="b"))))


@caught(
    "work is moved into inputs() or preprocess()",
    fools="work before a call is not timed",
    by="the head's file measures both sides, and the comment names that it makes other inputs",
    named="harness changed",
)
def test_work_moved_into_inputs() -> set[str]:
    functions = {"build": "1", "inputs": "2", "check": "3", "preprocess": "4"}
    return names(judged(*with_harness(harness(functions=functions, file_sha256="b"))))


@caught(
    "another batch",
    fools="a call with half the items takes half the time",
    by="the head's file measures both sides, and the comment names the change",
    named="harness changed",
)
def test_other_batch() -> set[str]:
    return names(judged(*with_harness(harness(batch=4, file_sha256="b"))))
