"""Whatever row is taken out of the tables of a check, the plan misses it: no omission improves a verdict.

Rows of every kind are taken from the tables that the documents give: of one pair or quad and of all, on one side and on both.
A new kind of evidence is covered as soon as its writer adds rows. tests/end_to_end/test_left_out.py takes fields from the
documents themselves, and judges what is left as ``perfgate publish`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import msgspec
import pytest

from perfgate.document.decision import Missing, Policy
from perfgate.document.run import CorrectnessResult, CounterSite, Harness, RunDocument, Side, StepResult, Value
from perfgate.document.samples import Replicate
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.job_rows import rows_of_job
from perfgate.judging.gate.evidence.rows import Row, RowTable, rows_of_workloads
from perfgate.judging.gate.evidence.trusted import Required, RequiredJob
from perfgate.judging.gate.plan.difference import missing_rows
from perfgate.judging.gate.plan.jobs import JobPlan
from perfgate.judging.gate.plan.workloads import WorkloadPlan
from tests.fakes.jobs import SETTINGS, Does, job_documents, reference_of
from tests.unit.gate.builders import SHAPE, WORKLOAD, counters, sides, stretches_of

replace = msgspec.structs.replace
Tables = dict[Side, RowTable]
POLICY = Policy(tolerances={"op.aten::mm": 0.1, "module.net": 0.1})
WHERE: dict[str, tuple[Side, ...]] = {"base": ("base",), "head": ("head",), "both": ("base", "head")}


class Check(NamedTuple):
    """The tables of one workload or job, and what its plan misses in any others."""

    tables: Tables
    missing: Callable[[Tables], list[Missing]]


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
    harness = Harness(workload=WORKLOAD, reference="perf.py:encoder", shapes={SHAPE: "512"}, functions={"build": "1"})
    return replace(
        run,
        workloads=[replace(run.workloads[0], steps=[1, 4], sla_p99=0.02, sla_rate=8.0)],
        steps=[
            StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[p50]),
            StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok"),
        ],
        counters=[counted],
        correctness=[CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="passed", signature="float32[4]")],
        harness=[replace(harness, sla_p99=0.02)],
        replicates=[_with_all(replicate) for replicate in run.replicates],
    )


def _with_all(replicate: Replicate) -> Replicate:
    shapes = {
        shape: replace(columns, run_delay_ns=[0] * len(columns.quad), throttled=[False] * len(columns.quad))
        for shape, columns in replicate.shapes.items()
    }
    return replace(
        replicate,
        shapes=shapes,
        preprocess=dict(shapes) if replicate.arm == "ab" else {},
        settings={"stopped": "0", "threads": "4"},
        operators={SHAPE: {"aten::mm": 0.004, "outside operators": 0.001}},
        subroutines={SHAPE: {"module.net": 0.005}},
    )


@cache
def function_check() -> Check:
    base, head = sides([1.0] * 8)
    long_base, long_head = stretches_of()
    base = measured(replace(base, replicates=[*base.replicates, *long_base]))
    head = measured(replace(head, replicates=[*head.replicates, *long_head]))
    timed = Value(metric="preprocess.time", value=0.01, labels={"shape": SHAPE})
    preprocessing = StepResult(number=11, slug="preprocess", workload=WORKLOAD, status="ok", values=[timed])
    stored = replace(base, side=None, replicates=[], steps=[*base.steps, preprocessing])
    required = Required(workloads=(WORKLOAD,), aa_pairs=7, stored=(stored,), sealed=True, stretches=True)
    evidence = Evidence(base, head)

    def missing(tables: Tables) -> list[Missing]:
        plan = WorkloadPlan(WORKLOAD, evidence, tables, required, POLICY)
        return missing_rows(plan.requirements(timed=True), tables)

    return Check(
        {
            "base": rows_of_workloads(base, "base", profiles=True)[WORKLOAD],
            "head": rows_of_workloads(head, "head", profiles=True)[WORKLOAD],
        },
        missing,
    )


@cache
def job_check(kind: str) -> Check:
    settings = reference_of(SETTINGS[kind])
    base, head = job_documents(SETTINGS[kind], Does(), Does())
    stored = {number.metric: number for number in base.jobs[0].numbers}
    required = RequiredJob(settings, numbers=stored)
    evidence = Evidence(base, head)

    def missing(tables: Tables) -> list[Missing]:
        return missing_rows(JobPlan(settings.name, evidence, tables, required, settings).requirements(), tables)

    tables: Tables = {
        "base": rows_of_job(base, settings.name, settings, ()),
        "head": rows_of_job(head, settings.name, settings, ()),
    }
    return Check(tables, missing)


def check_of(name: str) -> Check:
    return function_check() if name == "function" else job_check(name)


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
    for table in check.tables.values():
        for row in table.rows:
            kinds.setdefault(Kind.of(row), []).append(row)
    return kinds


def unnoticed(check: Check, where: str, *, one: bool) -> set[str]:
    """The kinds of rows whose omission the plan does not miss."""
    passed: set[str] = set()
    for kind, rows in kinds_of(check).items():
        removed = rows[-1:] if one else rows
        tables = {
            side: without(table, removed) if side in WHERE[where] else table for side, table in check.tables.items()
        }
        is_changed = any(tables[side].rows.keys() != check.tables[side].rows.keys() for side in tables)
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
    passed = unnoticed(check_of(name), where, one=one) - MARKS - EXCUSED[where]
    assert {kind for kind in passed if not kind.endswith(WORDS_OF_NUMBERS)} == set()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", NAMES[1:])
def test_number__that_gates_and_is_not_above_0__is_missing(name: str, where: str) -> None:
    passed = unnoticed(check_of(name), where, one=True)
    must_gate = reference_of(SETTINGS[name]).must_gate
    assert {f"{metric} turn above zero" for metric in must_gate} & passed == set()
