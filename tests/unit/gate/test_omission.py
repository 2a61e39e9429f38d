"""No omission improves a verdict: the plan names whatever is taken out of the tables, or out of the documents.

Rows of every kind are taken from the tables that the documents give: of one pair or quad and of all, on one side and on both.
A new kind of evidence is covered as soon as its writer adds rows. Then parts are taken out of the documents themselves, X"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from perfgate.document.budget import Budget
from perfgate.document.decision import DecisionDocument, Missing, Policy
from perfgate.document.history import History
from perfgate.document.job import JobKind, RankCounts, Turn
from perfgate.document.run import (
    PAIRS_PER_ROUND,
    CodeChange,
    CorrectnessResult,
    CounterSet,
    CounterSite,
    ErrorDetail,
    FailedPair,
    Harness,
    RunDocument,
    Side,
    StepResult,
    Value,
)
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.bounds import deciding_steps
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import NumberTable, Rules
from perfgate.judging.gate.evidence.rows import Row, RowTable, SideTables
from perfgate.judging.gate.evidence.session_rows import SessionRows
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.plan.difference import SIDES
from perfgate.judging.gate.plan.harness import harness_changes
from perfgate.judging.gate.plan.jobs import JobPlan
from perfgate.judging.gate.plan.missing import missing_evidence
from perfgate.judging.gate.plan.workloads import WorkloadPlan
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.jobs import SETTINGS, Does, job_documents, reference_of
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides, stretches_of
from tests.wording import worded

replace = msgspec.structs.replace
Change = Callable[[RunDocument], RunDocument]
Documents = tuple[RunDocument, RunDocument]
POLICY = Policy(tolerances={"op.aten::mm": 0.1, "module.net": 0.1})
WHERE: dict[str, tuple[Side, ...]] = {"base": ("base",), "head": ("head",), "both": ("base", "head")}
KINDS: tuple[JobKind, ...] = get_args(JobKind)


class Check(NamedTuple):
    """The tables of one workload or job, and what its plan misses in any others."""

    tables: SideTables
    missing: Callable[[SideTables], list[Missing]]


class Kind(NamedTuple):
    """Rows that differ by their pair, start, quad or turn alone."""

    shape: str
    metric: str
    arm: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, row: Row) -> Kind:
        return cls(row.shape, row.metric, row.arm, tuple(part for part in row.key if isinstance(part, str)))

    @property
    def name(self) -> str:
        return " ".join([self.metric, self.arm, *self.words])


def measured(run: RunDocument) -> RunDocument:
    """A side of a workload with every kind of evidence."""
    counted = counters({"aten::mm": 2})
    low = CounterSite(metric="counters.low_precision_ops", name="aten::mm", count=1)
    counted = replace(
        counted,
        values={**counted.values, "counters.low_precision_ops": 1},
        sites=[*counted.sites, low],
        steady=["counters.framework_ops", "counters.copies", "counters.low_precision_ops"],
        unstable=["counters.copy_bytes"],
        ranges={"counters.copy_bytes": (0, 1000)},
        not_applicable=["counters.graph_breaks"],
    )
    p50 = Value(metric="latency.p50", value=0.01, labels={"shape": SHAPE})
    p99 = Value(metric="latency.p99", value=0.01, labels={"shape": SHAPE, "rate": "8"})
    harness = Harness(workload=WORKLOAD, reference="perf.py:encoder", shapes={SHAPE: "512"}, functions={"build": "1"})
    return changed(
        run,
        workloads=[replace(run.workloads[0], steps=[1, 4], sla_p99=0.02, sla_rate=8.0)],
        steps=[
            StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[p50, p99]),
            StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok"),
        ],
        counters=[counted],
        correctness=[CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="passed", signature="float32[4]")],
        harness=[replace(harness, sla_p99=0.02)],
        replicates=[_with_all(replicate) for replicate in run.pairs.replicates],
    )


def _with_all(replicate: Replicate) -> Replicate:
    shapes = {
        shape: replace(
            columns,
            conductor=replace(columns.conductor, run_delay_ns=[0] * len(columns.quad)),
            device=replace(columns.device, throttled=[False] * len(columns.quad)),
        )
        for shape, columns in replicate.shapes.items()
    }
    return replace(
        replicate,
        shapes=shapes,
        preprocess=dict(shapes) if replicate.arm == "ab" else {},
        worker=replace(replicate.worker, settings={"stopped": "0", "threads": "4"}),
        profile=replace(
            replicate.profile,
            operators={SHAPE: {"aten::mm": 0.004, "outside operators": 0.001}},
            subroutines={SHAPE: {"module.net": 0.005}},
        ),
    )


@cache
def function_documents(ratio: float = 1.0) -> tuple[Documents, Required]:
    """Both sides of a workload with every kind of evidence, and a trusted side that knows all of it."""
    base, head = sides([ratio + 0.0005 * (-1) ** pair for pair in range(16)])
    long_base, long_head = stretches_of(ratio=ratio)
    base = measured(changed(base, replicates=[*base.pairs.replicates, *long_base]))
    head = measured(changed(head, replicates=[*head.pairs.replicates, *long_head]))
    timed = Value(metric="preprocess.time", value=0.01, labels={"shape": SHAPE})
    preprocessing = StepResult(number=11, slug="preprocess", workload=WORKLOAD, status="ok", values=[timed])
    stored = changed(base, side=None, replicates=[], steps=[*base.checklist.steps, preprocessing])
    required = Required(workloads=(WORKLOAD,), aa_pairs=7, stored=(stored,), sealed=True, stretches=True)
    return (base, head), required


def rows_of(evidence: Evidence, required: Required) -> SessionRows:
    return SessionRows(evidence, NumberTable.of(evidence, Rules(POLICY)), WorkTable(evidence), required, POLICY)


@cache
def function_check() -> Check:
    (base, head), required = function_documents()
    rows = rows_of(Evidence(base, head), required).workload(WORKLOAD)

    def missing(tables: SideTables) -> list[Missing]:
        plan = WorkloadPlan(dataclasses.replace(rows, tables=tables), required, POLICY)
        plan.require_evidence(timed=True)
        return plan.missing()

    return Check(rows.tables, missing)


@cache
def job_check(kind: JobKind) -> Check:
    settings = reference_of(SETTINGS[kind])
    base, head = job_documents(SETTINGS[kind], Does(), Does())
    stored = {number.metric: number for number in base.jobs.records[0].numbers}
    required = RequiredJob(settings, numbers=stored)
    rows = rows_of(Evidence(base, head), Required(jobs={settings.name: required})).job(settings.name, required)

    def missing(tables: SideTables) -> list[Missing]:
        plan = JobPlan(dataclasses.replace(rows, tables=tables), required)
        plan.require_evidence()
        return plan.missing()

    return Check(rows.tables, missing)


def check_of(name: str) -> Check:
    kind = next((kind for kind in KINDS if kind == name), None)
    return function_check() if kind is None else job_check(kind)


def without(table: RowTable, removed: Iterable[Row]) -> RowTable:
    """The table without some rows, and without their announcement. Promises are made by other fields of a document."""
    gone = set(removed)
    left = RowTable()
    for row, text in table.rows.items():
        if row not in gone:
            left.add(row, text)
    left.announced = [expected for expected in table.announced if expected.row not in gone]
    left.promised = table.promised
    left.uncounted = table.uncounted
    return left


def kinds_of(check: Check) -> dict[Kind, list[Row]]:
    kinds: dict[Kind, list[Row]] = {}
    for table in check.tables:
        for row in table.rows:
            kinds.setdefault(Kind.of(row), []).append(row)
    return kinds


@cache
def unnoticed(name: str, where: str, *, one: bool) -> set[str]:
    """The kinds of rows whose omission the plan of a check does not miss."""
    check = check_of(name)
    passed: set[str] = set()
    for kind, rows in kinds_of(check).items():
        removed = rows[-1:] if one else rows
        base, head = (
            without(table, removed) if side in WHERE[where] else table for side, table in zip(SIDES, check.tables)
        )
        tables = SideTables(base, head)
        is_changed = any(table.rows.keys() != whole.rows.keys() for table, whole in zip(tables, check.tables))
        if is_changed and not check.missing(tables):
            passed.add(kind.name)
    return passed


NAMES = ["function", "command", "server", "ranks"]
# Rows that say how others are to be read. The evidence itself has a row beside each of them.
MARKS = {
    "counters.graph_breaks run",
    "counters.graph_breaks run steadiness",
    "job.numbers run of the program",
    "latency.low aa first",
    "latency.low aa second",
    "latency.low stretch",
    "latency.p50 run",
    "sites run",
}
# One side may lack these: the change removed them, or added them and says so.
OF_CHANGES = {"module.net ab", "harness.build run", "harness.long run", "harness.sla_p99 run"}
# Only the other side tells that these were there. What base's settings say of a job has rows of its own.
OF_THE_OTHER_SIDE = {
    *OF_CHANGES,
    "op.aten::mm ab",
    "quad ab",
    "job.numbers run",
    "job.requests turn",
    "job.settings run",
    "job.turns turn",
}
EXCUSED = {"base": {"module.net ab"}, "head": OF_CHANGES, "both": OF_THE_OTHER_SIDE}
# A number that only informs may be 0, and is listed by each of its turns.
WORDS_OF_NUMBERS = ("measured", "above zero")


@pytest.mark.parametrize("name", NAMES)
def test_tables__whole__lack_nothing(name: str) -> None:
    check = check_of(name)
    assert check.missing(check.tables) == []


@pytest.mark.parametrize("one", [True, False], ids=["one", "all"])
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", NAMES)
def test_rows__taken_from_the_tables__are_missing(name: str, where: str, one: bool) -> None:
    passed = unnoticed(name, where, one=one) - MARKS - EXCUSED[where]
    assert {kind for kind in passed if not kind.endswith(WORDS_OF_NUMBERS)} == set()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", NAMES[1:])
def test_number__that_gates_and_is_not_above_0__is_missing(name: str, where: str) -> None:
    passed = unnoticed(name, where, one=True)
    kind = next(kind for kind in KINDS if kind == name)
    must_gate = reference_of(SETTINGS[kind]).must_gate(on_device=False)
    assert {f"{metric} turn above zero" for metric in must_gate} & passed == set()


# --- parts of the documents of a workload


def judged(documents: Documents, required: Required, policy: Policy = POLICY) -> DecisionDocument:
    return decide(*documents, policy=policy, history=History(), required=required)


def missing_of(documents: Documents, required: Required) -> list[Missing]:
    evidence = Evidence(*documents)
    deciding = deciding_steps(POLICY)
    broken = evidence.base.broken(deciding) - evidence.head.broken(deciding)
    changes = harness_changes(evidence.base.harness, evidence.head.harness, broken)
    return missing_evidence(rows_of(evidence, required), changes, required, POLICY, timed=True)


def metrics_of(decision: DecisionDocument) -> set[str]:
    return {entry.metric for entry in decision.gaps.missing}


def edited(documents: Documents, change: Change, where: str) -> Documents:
    base, head = (change(run) if side in WHERE[where] else run for side, run in zip(SIDES, documents))
    return base, head


def replicates(change: Callable[[Replicate], Replicate | None]) -> Change:
    """An edit of processes: ``change`` returns the process without something, or None to take it out."""

    def of_run(run: RunDocument) -> RunDocument:
        left = [change(replicate) for replicate in run.pairs.replicates]
        return changed(run, replicates=[replicate for replicate in left if replicate is not None])

    return of_run


def of_arm(arm: str, *pairs: int) -> Change:
    """Take out the processes of an arm, of some pairs or of all."""
    return replicates(lambda one: None if one.arm == arm and one.pair in (pairs or (one.pair,)) else one)


def fields(arm: str, *pairs: int, **values: Any) -> Change:
    """Empty fields of the processes of an arm, of some pairs or of all."""
    return replicates(
        lambda one: changed(one, **values) if one.arm == arm and one.pair in (pairs or (one.pair,)) else one
    )


def column(name: str, lanes: str = "shapes") -> Change:
    def emptied(columns: BlockColumns) -> BlockColumns:
        return changed(columns, **{name: []})

    def of_process(one: Replicate) -> Replicate:
        return replace(one, **{lanes: {shape: emptied(columns) for shape, columns in getattr(one, lanes).items()}})

    return replicates(of_process)


def counted(change: Callable[[CounterSet], dict[str, Any]]) -> Change:
    return lambda run: changed(run, counters=[replace(one, **change(one)) for one in run.checklist.counters])


def without_count(name: str) -> Change:
    def of_set(one: CounterSet) -> dict[str, Any]:
        values = {key: value for key, value in one.values.items() if key != name}
        return {"values": values, "steady": [key for key in one.steady if key != name]}

    return counted(of_set)


def workload(**values: Any) -> Change:
    return lambda run: replace(run, workloads=[replace(run.workloads[0], **values)])


def checks(**values: Any) -> Change:
    return lambda run: changed(run, correctness=[replace(one, **values) for one in run.checklist.correctness])


def document(**values: Any) -> Change:
    return lambda run: changed(run, **values)


COPIES, LOW = "counters.copies", "counters.low_precision_ops"
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(16)]
# Items per second by batch size.
WHOLE, BROKEN, LESS = {"8": 500.0, "16": 500.0}, {"8": 500.0, "16": 50.0}, {"8": 500.0}


def with_rates(run: RunDocument, *turns_of_step: dict[str, float]) -> RunDocument:
    """A run that swept the batch sizes, once or in several turns."""
    values = []
    for number, rates in enumerate(turns_of_step, start=1):
        repeat = {"repeat": str(number)} if number > 1 else {}
        for size, rate in rates.items():
            labels = {"shape": SHAPE, "batch": size, **repeat}
            values.append(Value(metric="batch.throughput", value=rate, labels=labels))
    return changed(run, steps=[StepResult(number=5, slug="batch", workload=WORKLOAD, status="ok", values=values)])


# What is taken out, and the metric by which it is missing.
PARTS: dict[str, tuple[Change, str]] = {
    "workload": (document(workloads=[]), ""),
    "all processes": (document(replicates=[]), "latency.low"),
    "pair": (of_arm("ab", 3), "latency.low"),
    "last pairs": (of_arm("ab", 14, 15), "latency.low"),
    "twins": (of_arm("aa"), "replicates.aa"),
    "shape of all pairs": (fields("ab", shapes={}, preprocess={}), "latency.low"),
    "shape of a pair": (fields("ab", 3, shapes={}, preprocess={}), "latency.low"),
    "preprocessing": (fields("ab", preprocess={}), "preprocess.low"),
    "preprocessing of a pair": (fields("ab", 3, preprocess={}), "preprocess.low"),
    "stretches": (of_arm("stretch"), "latency.mean"),
    "start of the stretches": (of_arm("stretch", 1), "latency.mean"),
    "stopped": (fields("ab", settings={"threads": "4"}), "settings.stopped"),
    "stopped of all": (
        replicates(lambda one: replace(one, worker=replace(one.worker, settings={"threads": "4"}))),
        "settings.stopped",
    ),
    "operators": (fields("ab", operators={}), "operators"),
    "operators of a pair": (fields("ab", 3, operators={}), "operators"),
    "operator of a pair": (fields("ab", 3, operators={SHAPE: {"aten::add": 0.001}}), "op.aten::mm"),
    "functions": (fields("ab", subroutines={}), "subroutines"),
    "functions of a pair": (fields("ab", 3, subroutines={}), "subroutines"),
    "seen_ns": (column("seen_ns"), "seen_ns"),
    "used_ns": (column("used_ns"), "used_ns"),
    "seen_ns of the preprocessing": (column("seen_ns", "preprocess"), "seen_ns"),
    "run_delay_ns": (column("run_delay_ns"), "run_delay_ns"),
    "throttled": (column("throttled"), "throttled"),
    "counters": (document(counters=[]), "counters.framework_ops"),
    "values of the counters": (counted(lambda _: {"values": {}}), COPIES),
    "count": (without_count(COPIES), COPIES),
    "steadiness": (counted(lambda _: {"steady": []}), COPIES),
    "unsteadiness": (counted(lambda _: {"unstable": []}), "counters.copy_bytes"),
    "range": (counted(lambda _: {"ranges": {}}), "ranges.counters.copy_bytes"),
    "places": (counted(lambda one: {"sites": one.sites[:1]}), f"sites.{LOW}"),
    "operators of the counters": (counted(lambda _: {"ops": []}), "ops.count:aten::mm"),
    "checks": (document(correctness=[]), "correctness"),
    "check": (checks(status="not_checked"), "correctness"),
    "signature": (checks(signature=None), "correctness.signature"),
    "step": (lambda run: changed(run, steps=run.checklist.steps[:1]), "steps.top_ops"),
    "SLA": (workload(sla_p99=None), "sla.p99"),
    "rate of the SLA": (workload(sla_rate=None), "sla.p99"),
    "harness": (document(harness=[]), "harness"),
    "seal": (document(seal=None), "seal"),
}
# If neither side has them, nobody knows that they were there.
UNKNOWN_IF_BOTH_LACK_IT = {"operator of a pair", "harness"}
# The head has no pairs of base against base.
OF_BASE = {"twins"}


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "PASS"), (1.3, "FAIL")])
def test_documents__whole__lack_nothing(ratio: float, verdict: str) -> None:
    documents, required = function_documents(ratio)
    decision = judged(documents, required)
    assert (decision.verdict, decision.gaps.missing) == (verdict, [])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("where", WHERE)
def test_part__taken_out_of_the_documents__is_missing_by_name(part: str, where: str) -> None:
    change, metric = PARTS[part]
    documents, required = function_documents()
    missing = missing_of(edited(documents, change, where), required)
    sides_that_lack_it = {entry.side for entry in missing if entry.metric == metric}
    if part in OF_BASE:
        assert sides_that_lack_it == (set() if where == "head" else {"base"})
    elif where != "both" or part not in UNKNOWN_IF_BOTH_LACK_IT:
        assert sides_that_lack_it == {where}


def test_block_of_a_pair__in_another_quad_than_on_the_other_side__is_missing_by_its_quad() -> None:
    def moved(process: Replicate) -> Replicate:
        columns = process.shapes[SHAPE]
        return replace(process, shapes={SHAPE: replace(columns, quad=[*columns.quad[:-1], 0])})

    documents, required = function_documents()
    change = replicates(lambda process: moved(process) if (process.arm, process.pair) == ("ab", 3) else process)
    missing = missing_of(edited(documents, change, "head"), required)
    assert [(entry.metric, entry.side) for entry in missing] == [("quad", "both")]


@pytest.mark.parametrize("part", sorted(PARTS.keys() - UNKNOWN_IF_BOTH_LACK_IT))
def test_part__taken_out_of_both_documents__leaves_no_verdict(part: str) -> None:
    change, metric = PARTS[part]
    documents, required = function_documents()
    decision = judged(edited(documents, change, "both"), required)
    assert (decision.verdict, exit_code(decision)) == ("INCONCLUSIVE", 3)
    side = "base" if part in OF_BASE else "both"
    assert any(f"{metric} ({side})".strip() in reason for reason in worded(decision.reasons))


@pytest.mark.parametrize("part", ["all processes", "pair", "seen_ns", "counters", "checks", "workload"])
@pytest.mark.parametrize("where", WHERE)
def test_part_of_a_slower_head__taken_out__is_no_pass(part: str, where: str) -> None:
    documents, required = function_documents(1.3)
    assert judged(edited(documents, PARTS[part][0], where), required).verdict in ("FAIL", "INCONCLUSIVE")


@pytest.mark.parametrize(
    "part",
    ["count", "steadiness", "counters", "preprocessing", "shape of all pairs", "checks", "check", "signature"],
)
def test_part__that_mains_stored_run_has__is_named_by_it(part: str) -> None:
    change, metric = PARTS[part]
    documents, required = function_documents()
    missing = missing_of(edited(documents, change, "both"), required)
    assert {entry.named_by for entry in missing if entry.metric == metric} == {"store"}


def test_workload_of_the_bases_configuration__not_measured__is_missing_by_its_name() -> None:
    decision = judged(sides(NO_CHANGE), Required(workloads=(WORKLOAD, "tagger")), Policy())
    assert worded(decision.reasons) == ["missing: tagger (both)"]
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    assert "INCONCLUSIVE – `tagger` was not measured, although the base's perfgate.toml requires it" in comment


def test_workload_of_the_bases_configuration__on_one_side_only__is_missing_as_the_document_has_it() -> None:
    base, head = sides(NO_CHANGE)
    bare = document(workloads=[], steps=[], counters=[], correctness=[])
    decision = judged((base, bare(head)), Required(workloads=(WORKLOAD,)), Policy())
    assert [(entry.metric, entry.side, entry.named_by) for entry in decision.gaps.missing] == [("", "head", "document")]


def test_shape_of_mains_stored_run__not_measured__is_missing_by_its_name() -> None:
    base, head = sides(NO_CHANGE)
    stored = replace(base, workloads=[replace(base.workloads[0], shapes=[SHAPE, "short"])])
    decision = judged((base, head), Required(stored=(stored,)), Policy())
    assert worded(decision.reasons)[0] == "missing: encoder/short (both)"
    assert decision.gaps.missing[0].named_by == "store"


def test_listed_shape__taken_out_of_both_documents__is_missing_as_processes_have_it() -> None:
    documents = edited(sides(NO_CHANGE), workload(shapes=[]), "both")
    decision = judged(documents, Required(), Policy())
    assert [(entry.shape, entry.metric, entry.side) for entry in decision.gaps.missing] == [(SHAPE, "", "both")]


def test_harness__taken_out_of_both_documents__is_missing_if_the_workload_file_changed() -> None:
    base, head = sides(NO_CHANGE)
    source = replace(head.source, changes=[CodeChange(file="perf/workload.py", first=3, last=3)])
    decision = judged((base, replace(head, source=source)), Required(), Policy())
    assert [(entry.metric, entry.side) for entry in decision.gaps.missing] == [("harness", "head")]


def test_processes__of_a_workload_that_no_list_has__are_missing_their_workload() -> None:
    base, head = sides(NO_CHANGE)
    bare = document(workloads=[], steps=[], counters=[], correctness=[])
    decision = judged((bare(base), bare(head)), Required(), Policy())
    assert [(entry.workload, entry.metric, entry.side) for entry in decision.gaps.missing] == [(WORKLOAD, "", "both")]


def test_stretches__that_the_trusted_side_takes__are_missing_if_both_documents_lack_them() -> None:
    documents = sides(NO_CHANGE)
    assert judged(documents, Required(), Policy()).gaps.missing == []
    decision = judged(documents, Required(stretches=True), Policy())
    assert [(entry.metric, entry.side) for entry in decision.gaps.missing] == [("latency.mean", "both")]


def test_place_of_a_varying_count__taken_out__is_missing() -> None:
    ranges = {"counters.framework_ops": (1, 2)}
    base, head = (changed(run, counters=[counters({"aten::mm": 2}, ranges=ranges)]) for run in sides(NO_CHANGE))
    bare = counted(lambda one: {"sites": [replace(site, between=None) for site in one.sites]})
    assert judged((base, head), Required(), Policy()).gaps.missing == []
    decision = judged((bare(base), head), Required(), Policy())
    assert "sites.between:counters.framework_ops" in metrics_of(decision)


@pytest.mark.parametrize(
    ("of_base", "of_head"),
    [
        ([WHOLE], [LESS]),
        ([{}], [BROKEN, LESS]),
        ([{}], [LESS, BROKEN]),
        ([WHOLE], [LESS, LESS]),
    ],
)
def test_value_under_a_budget__taken_out_of_a_turn__is_missing(
    of_base: list[dict[str, float]], of_head: list[dict[str, float]]
) -> None:
    """The worst batch size breaks the budget: without it, the others keep it."""
    base, head = sides(NO_CHANGE)
    policy = Policy(budgets=[Budget(metric="batch.throughput", bound=100.0, at_most=False)])
    whole = judged((with_rates(base, *of_base), with_rates(head, BROKEN, BROKEN)), Required(), policy)
    assert whole.verdict == "FAIL"
    decision = judged((with_rates(base, *of_base), with_rates(head, *of_head)), Required(), policy)
    assert worded(decision.reasons) == ["missing: encoder/long batch.throughput (head)"]


def test_operator_in_low_precision__renamed_on_the_base__is_missing_as_it_never_ran() -> None:
    """With the other name, the head would have lost no low precision."""

    def counted_run(run: RunDocument, *, low: int, name: str = "aten::mm") -> RunDocument:
        whole = CounterSite(metric="counters.framework_ops", name="aten::mm", count=2)
        low_sites = [CounterSite(metric=LOW, name=name, count=low)] if low else []
        one = counters({"aten::mm": 2})
        values = {**one.values, LOW: low}
        return changed(run, counters=[replace(one, values=values, sites=[whole, *low_sites], steady=sorted(values))])

    base, head = sides(NO_CHANGE)
    honest = judged((counted_run(base, low=2), counted_run(head, low=0)), Required(), Policy())
    renamed = judged((counted_run(base, low=2, name="other"), counted_run(head, low=0)), Required(), Policy())
    assert (honest.verdict, renamed.verdict) == ("FAIL", "INCONCLUSIVE")
    assert f"sites.{LOW}:other" in metrics_of(renamed)


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "INCONCLUSIVE"), (1.3, "FAIL")])
def test_comment__many_parts_taken_out__eight_names_and_the_number_of_the_others(ratio: float, verdict: str) -> None:
    base, head = sides([ratio + 0.0005 * (-1) ** pair for pair in range(16)])
    bare = changed(column("used_ns")(head), counters=[], correctness=[], steps=[])
    planned = workload(steps=list(range(1, 11)))(bare)
    decision = judged((base, planned), Required(), Policy())
    assert (decision.verdict, len(decision.gaps.missing)) == (verdict, 13)
    english = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    chinese = render_comment(decision, CommentContext(marker="<!-- perfgate -->", language="zh"))
    assert f"- the check of the output of `encoder/{SHAPE}` is missing in the head" not in english  # the last
    assert "- `used_ns` of `encoder/long` is missing in the head" in english
    assert "- 5 more numbers in `decision.json`" in english
    assert "- head 缺少 `encoder/long` `used_ns`" in chinese
    assert ("13 numbers missing, possibly regressed</summary>" in english) == (verdict == "FAIL")


# --- parts that documents may lack


def test_stored_run__of_another_workload_file__requires_nothing() -> None:
    documents, required = function_documents()
    (stored,) = required.stored
    other = replace(stored, workloads=[replace(stored.workloads[0], sha256="0" * 64)])
    bare = edited(documents, checks(status="not_checked"), "both")
    assert judged(bare, dataclasses.replace(required, stored=(other,))).verdict == "PASS"
    assert judged(bare, required).verdict == "INCONCLUSIVE"


def test_stored_run__counts_what_perfgate_no_longer_counts__does_not_require_it() -> None:
    documents, required = function_documents()
    (stored,) = required.stored
    old = counted(lambda one: {"values": {**one.values, "counters.of_old": 3}})(stored)
    assert judged(documents, dataclasses.replace(required, stored=(old,))).verdict == "PASS"


def test_count__that_the_base_says_does_not_apply__may_be_the_heads_alone() -> None:
    base, head = sides(NO_CHANGE)
    compiled = counted(lambda one: {"values": {**one.values, "counters.graph_breaks": 1}})(head)
    plain = counted(lambda _: {"not_applicable": ["counters.graph_breaks"]})(base)
    assert judged((plain, compiled), Required(), Policy()).verdict == "PASS"


def test_failed_pair__is_no_missing_pair() -> None:
    base, head = sides(NO_CHANGE)
    failed = FailedPair(pair=3, arm="ab", workload=WORKLOAD, error=ErrorDetail(kind="exception", message="no"))
    without_pair = of_arm("ab", 3)
    decision = judged((without_pair(base), changed(without_pair(head), failed=[failed])), Required(), Policy())
    assert decision.gaps.missing == []


def test_pairs__numbers_of_a_document_far_apart__some_of_those_between_are_missing() -> None:
    # As many rounds as pairs, each with the last number that a round can have: two million lie between.
    last = PAIRS_PER_ROUND - 1
    apart = replicates(lambda one: replace(one, pair=one.pair * PAIRS_PER_ROUND + last))
    decision = judged(edited(sides(NO_CHANGE), apart, "both"), Required(), Policy())
    (entry,) = decision.gaps.missing
    assert (entry.metric, entry.side, entry.pairs) == ("latency.low", "both", list(range(1000)))


def test_workload__that_the_head_removed__must_be_whole_as_long_as_documents_list_it() -> None:
    base, head = sides(NO_CHANGE)
    harness = Harness(workload=WORKLOAD, reference="perf.py:encoder")
    decision = judged((changed(base, harness=[harness]), changed(head, correctness=[])), Required(), Policy())
    assert "correctness" in metrics_of(decision)


KEPT = "memory.kept_python"


@pytest.mark.parametrize(
    ("base_has", "head_has", "uncounted", "side"),
    [
        (False, False, ("base", "head"), None),
        (False, True, ("base",), None),
        # Only the base's word excuses, and what it has must be there.
        (True, False, ("head",), "head"),
        (True, False, ("base", "head"), "head"),
        (False, True, (), "base"),
    ],
)
def test_count__of_calls_that_cannot_be_counted__is_excused_unless_the_base_was_counted(
    base_has: bool, head_has: bool, uncounted: tuple[str, ...], side: str | None
) -> None:
    def of_side(run: RunDocument, has: bool, name: str) -> RunDocument:
        one = run.checklist.counters[0]
        values = {**one.values, KEPT: 12} if has else one.values
        listed = [KEPT] if name in uncounted else []
        return changed(run, counters=[replace(one, values=values, steady=sorted(values), uncounted=listed)])

    base, head = sides(NO_CHANGE)
    decision = judged((of_side(base, base_has, "base"), of_side(head, head_has, "head")), Required(), Policy())
    assert [(entry.metric, entry.side) for entry in decision.gaps.missing] == ([(KEPT, side)] if side else [])
    assert decision.verdict == ("INCONCLUSIVE" if side else "PASS")


# --- parts of the documents of a job


SHARE = SETTINGS["server"] + 'same_output = "share"\n'
LOSSES = SETTINGS["ranks"] + "loss_tolerance = 0.001\n"


@cache
def job(settings: str, does: Does) -> Documents:
    return job_documents(settings, Does(), does)


SAME, SLOWER = Does(), Does(0.2)


def turns(change: Callable[[Turn], dict[str, Any]]) -> Change:
    return lambda run: changed(run, turns=[replace(turn, **change(turn)) for turn in run.jobs.turns])


def without_values(metric: str) -> Change:
    return turns(lambda turn: {"values": {name: value for name, value in turn.values.items() if name != metric}})


def zeros(metric: str) -> Change:
    return turns(lambda turn: {"values": {**turn.values, metric: 0.0}})


def counts(change: Callable[[RankCounts], RankCounts]) -> Change:
    return turns(lambda turn: {"counts": [change(count) for count in turn.counts]})


def record(**values: Any) -> Change:
    return lambda run: changed(run, records=[replace(one, **values) for one in run.jobs.records])


def no_number_gates(run: RunDocument) -> RunDocument:
    return record(numbers=[replace(number, gating=False) for number in run.jobs.records[0].numbers])(run)


class JobPart(NamedTuple):
    """What is taken out of the documents of a job, and the metric by which it is missing; its settings."""

    change: Change
    metric: str
    settings: str


def _parts_of_jobs() -> dict[str, JobPart]:
    parts: dict[str, JobPart] = {}
    for kind in KINDS:
        settings = SETTINGS[kind]
        number = reference_of(settings).must_gate(on_device=False)[0]
        of_kind: dict[str, tuple[Change, str]] = {
            "turns": (document(turns=[]), ""),
            "record": (document(records=[]), ""),
            "job": (document(records=[], turns=[]), ""),
            "turn": (lambda run: changed(run, turns=run.jobs.turns[:-1]), "job.turns"),
            "quad": (lambda run: changed(run, turns=[turn for turn in run.jobs.turns if turn.quad != 3]), "job.turns"),
            "last quads": (
                lambda run: changed(run, turns=[one for one in run.jobs.turns if one.quad < 2]),
                "job.turns",
            ),
            "number": (without_values(number), number),
            "number above 0": (zeros(number), number),
            "gating numbers": (no_number_gates, "job.numbers"),
        }
        if kind == "command":
            of_kind["lines of Python"] = turns(lambda _: {"counters": {}}), "counters"
        else:
            of_kind["work"] = turns(lambda _: {"work": {}}), f"work.{'requests' if kind == 'server' else 'steps'}"
            of_kind["output"] = turns(lambda _: {"output": ""}), "job.output"
            of_kind["out of turn"] = turns(lambda _: {"out_of_turn": None}), "out_of_turn"
        if kind == "server":
            of_kind["late"] = turns(lambda _: {"late": None}), "late"
            of_kind["requests"] = turns(lambda _: {"requests": ""}), "job.requests"
            of_kind["times between tokens"] = turns(lambda _: {"samples": []}), "serving.itl"
        if kind == "ranks":
            of_kind["counts"] = turns(lambda _: {"counts": []}), "counts"
            of_kind["counts of a rank"] = turns(lambda turn: {"counts": turn.counts[:1]}), "counts"
            of_kind["collectives"] = counts(lambda count: replace(count, collectives=[])), "counts"
        for name, (change, metric) in of_kind.items():
            parts[f"{kind}: {name}"] = JobPart(change, metric, settings)
    parts["share: texts"] = JobPart(turns(lambda _: {"texts": []}), "job.output", SHARE)
    parts["share: texts of a start"] = JobPart(
        turns(lambda turn: {"texts": [] if turn.start == 1 else turn.texts}), "job.output", SHARE
    )
    parts["share: one text"] = JobPart(turns(lambda turn: {"texts": turn.texts[:-1]}), "job.output", SHARE)
    parts["losses"] = JobPart(without_values("ranks.loss"), "ranks.loss", LOSSES)
    return parts


JOB_PARTS = _parts_of_jobs()
# Only the trusted side requires these of a document that lacks them for itself.
OF_TRUSTED_SIDE = ("work", "output", "times between tokens", "losses", "share: texts", "number above 0")
# Both sides may stop earlier, and judge fewer quads.
OF_OTHER_SIDE = ("last quads", "command: turn")


@pytest.mark.parametrize("part", JOB_PARTS)
def test_part_of_a_job__taken_out__is_missing_by_name(part: str) -> None:
    change, metric, settings = JOB_PARTS[part]
    reference = reference_of(settings)
    required = Required(jobs={reference.name: RequiredJob(reference)})
    for where in WHERE:
        if where != "both" or not part.endswith(OF_OTHER_SIDE):
            missing = missing_of(edited(job(settings, SAME), change, where), required)
            assert metric in {entry.metric for entry in missing}, where
    slower = judged(edited(job(settings, SLOWER), change, "both"), required)
    assert slower.verdict in ("FAIL", "INCONCLUSIVE")


@pytest.mark.parametrize("part", [part for part in JOB_PARTS if not part.endswith(OF_TRUSTED_SIDE)])
@pytest.mark.parametrize("where", ["base", "head"])
def test_part_of_a_job__taken_out_of_one_side_without_a_trusted_side__is_missing_by_name(part: str, where: str) -> None:
    change, metric, settings = JOB_PARTS[part]
    missing = missing_of(edited(job(settings, SAME), change, where), Required())
    assert ("texts" if part.startswith("share") else metric) in {entry.metric for entry in missing}


@pytest.mark.parametrize(
    ("kind", "does", "part"),
    [
        ("server", Does(text="a b c e"), "output"),
        ("ranks", Does(loss=2.1), "output"),
        ("ranks", Does(collectives=3), "counts"),
    ],
)
def test_part_of_a_job__that_fails_the_gate__taken_out_of_both_sides__is_no_pass(
    kind: JobKind, does: Does, part: str
) -> None:
    reference = reference_of(SETTINGS[kind])
    required = Required(jobs={reference.name: RequiredJob(reference)})
    documents = job_documents(SETTINGS[kind], SAME, does)
    assert judged(documents, required).verdict == "FAIL"
    decision = judged(edited(documents, JOB_PARTS[f"{kind}: {part}"].change, "both"), required)
    assert decision.verdict == "INCONCLUSIVE"


def test_output_of_one_quad__taken_out_of_both_sides__is_missing_in_that_quad() -> None:
    reference = reference_of(SETTINGS["server"])
    without = turns(lambda turn: {"output": "" if turn.quad == 5 else turn.output})
    documents = edited(job(SETTINGS["server"], SAME), without, "both")
    decision = judged(documents, Required(jobs={reference.name: RequiredJob(reference)}))
    assert [(entry.metric, entry.pairs) for entry in decision.gaps.missing] == [("job.output", [5])]
