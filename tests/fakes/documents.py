"""Small builders of decision and run documents: what a test does not name has a plausible value."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from perfgate.document.comparison import Bound, Checked, Comparison, Exact, Paired
from perfgate.document.coverage import ChangedFunction, Coverage
from perfgate.document.decision import (
    DecisionDocument,
    Failure,
    Gain,
    HarnessChange,
    JudgedFinding,
    NoiseFloor,
    PackageDifference,
    Policy,
    Procedure,
    SideSummary,
    StepSummary,
    Suggestion,
    TestbedDifference,
    Verdict,
)
from perfgate.document.explanation import OperatorDelta, Part
from perfgate.document.message import Message, quote
from perfgate.document.run import (
    Artifact,
    CodeChange,
    CounterSet,
    ErrorDetail,
    Finding,
    OpCount,
    OperatorRow,
    RunDocument,
    Session,
    Side,
    Source,
    StepResult,
    Value,
    WorkloadRecord,
)
from perfgate.document.samples import (
    BlockColumns,
    PackedArray,
    PackedTimes,
    Replicate,
    WorkerColumns,
    WorkerState,
    pack,
)
from perfgate.document.seal import Seal
from perfgate.document.testbed import Testbed
from perfgate.judging.advice.advise import suggested
from perfgate.judging.gate.evidence.changed_code import HeadCode
from perfgate.judging.gate.explain.explain import explain
from perfgate.judging.gate.explain.operators import joined
from tests.fakes.records import built

BASE_COMMIT = "a1b2c3d4e5f60718293a4b5c6d7e8f9001122334"
HEAD_COMMIT = "0f1e2d3c4b5a69788796a5b4c3d2e1f001122334"
TESTBED = {
    "cpu.model": "AMD EPYC 7B13",
    "os.kernel": "6.1.0",
    "python": "3.11.7",
    "settings.threads": "2",
    "torch": "2.13.0+cpu",
}


def make_comparison(metric: str = "latency.low", **fields: Any) -> Paired:
    """Return a comparison of ``encoder``/``long``; a paired, unchanged, gating time metric unless said otherwise."""
    values: dict[str, Any] = {
        "workload": "encoder",
        "shape": "long",
        "unit": "s",
        "better": "lower",
        "outcome": "unchanged",
        "gating": True,
        "base": 0.0361,
        "head": 0.0362,
        "delta": 0.002,
        "interval": (-0.004, 0.009),
        "confidence": 0.99,
        "tolerance": 0.01,
        "pairs": 14,
    }
    return Paired(metric=metric, **{**values, **fields})


def make_counter(metric: str, base: float, head: float, **fields: Any) -> Exact:
    """Return an exact comparison of ``encoder``/``long``; its outcome follows from the counts unless said otherwise."""
    values: dict[str, Any] = {
        "workload": "encoder",
        "shape": "long",
        "unit": "B" if metric in {"counters.copy_bytes", "memory.peak"} else "1",
        "better": "lower",
        "outcome": "regressed" if head > base else "improved" if head < base else "unchanged",
        "gating": True,
        "base": base,
        "head": head,
        "delta": None if base == 0 else head / base - 1,
        "tolerance": 0.0,
    }
    return Exact(metric=metric, **{**values, **fields})


def make_bound(metric: str, bound: float, head: float | None, **fields: Any) -> Bound:
    """Return the bound of a time of ``encoder``/``long``, which is met unless said otherwise."""
    values: dict[str, Any] = {
        "workload": "encoder",
        "shape": "long",
        "unit": "s",
        "better": "lower",
        "outcome": "unchanged",
        "gating": True,
    }
    return Bound(metric=metric, bound=bound, head=head, **{**values, **fields})


def make_failed_check(reason: Message | None, metric: str = "correctness") -> Checked:
    """Return a check of the output of ``encoder``/``long`` that fails on head alone."""
    return Checked(
        workload="encoder",
        shape="long",
        metric=metric,
        unit="1",
        better="neutral",
        outcome="regressed",
        gating=True,
        base=1.0,
        head=0.0,
        reason=reason,
    )


def make_decision(verdict: Verdict = "PASS", **fields: Any) -> DecisionDocument:
    """Return a decision about one change to ``encoder``; operators that changed were profiled in the pairs too.

    ``changes`` are the places of the code that it changed.
    """
    changes: list[CodeChange] = fields.pop("changes", [])
    counted = fields.pop("operator_changes", [])
    timed = fields.pop("operator_times", operator_times() if counted else [])
    values: dict[str, Any] = {
        "operators": joined(counted, fields.pop("operator_tests", []), timed),
        "perfgate_version": "0.1.0",
        "project": "demo",
        "reasons": [],
        "base": SideSummary(
            commit=BASE_COMMIT, branch="main", chosen_because=quote("merge-base with main"), sha256="ab" * 32
        ),
        "head": SideSummary(commit=HEAD_COMMIT, branch="faster-pooling", subject="Pool in a loop", sha256="cd" * 32),
        "device": "AMD EPYC 7B13, 2 CPUs",
        "procedure": Procedure(
            name="signed-rank",
            version=1,
            seed=20201120,
            quantiles=[0.02, 0.04, 0.06, 0.08, 0.10],
            policy=Policy(),
        ),
        "comparisons": unchanged_comparisons(),
        "noise_floors": [
            NoiseFloor(
                workload="encoder",
                shape="long",
                metric="latency.low",
                floor=0.009,
                pairs=7,
                differs=False,
                effects=[0.004, -0.004, 0.002, -0.002, 0.001, -0.001, 0.0],
            )
        ],
        "steps": checklist(),
        "pairs": 14,
        "duration": 190.0,
    }
    decision = built(DecisionDocument, {"verdict": verdict, **values, **fields})
    return suggested(explained(decision, HeadCode(changes or ())))


def explained(
    decision: DecisionDocument,
    code: HeadCode | None = None,
) -> DecisionDocument:
    """Return the decision with its comparisons explained by the work that it lists."""
    is_acceptable = decision.verdict == "FAIL" and decision.sides.comparing == "code" and not decision.sides.head.dirty
    result = explain(decision.comparisons, decision.explained, code or HeadCode(), {}, acceptable=is_acceptable)
    return replace(decision, comparisons=result.comparisons, explained=result.record)


def partial_coverage() -> Coverage:
    """Return five changed functions, of which workloads run three; of the others one may run where lines are not seen."""
    return Coverage(
        files=["model.py", "export.py", "csrc/pool.cpp"],
        functions=[
            ChangedFunction(line="model.py:88", function="Encoder.forward", executed="yes", workloads=["encoder"]),
            ChangedFunction(line="model.py:120", function="pool", executed="yes", workloads=["encoder"]),
            ChangedFunction(line="model.py:141", function="mask", executed="yes", workloads=["encoder"]),
            ChangedFunction(line="export.py:7", function="export", executed="no"),
            ChangedFunction(line="model.py:203", function="old_pool", side="base", executed="unknown"),
        ],
        doubts=[Message("coverage.changed", {"file": "csrc/pool.cpp"})],
        calls=5000,
    )


def unchanged_comparisons() -> list[Comparison]:
    """Return six metrics that did not move."""
    return [
        make_comparison("latency.low"),
        make_comparison("latency.p50", base=0.0371, head=0.0370, delta=-0.003, interval=(-0.008, 0.006)),
        make_counter("counters.framework_ops", 40, 40),
        make_counter("counters.copies", 2, 2),
        make_counter("counters.copy_bytes", 1_572_864, 1_572_864),
        make_counter("memory.peak", 3_145_728, 3_145_728),
    ]


def checklist() -> list[StepSummary]:
    """Return the five steps of a CPU run, one of them with a finding."""
    small = JudgedFinding(
        rule="ops.share", severity="warning", message=quote("Softmax takes 18 % of the busy time, the limit is 15 %")
    )
    return [
        StepSummary(number=1, slug="latency", workload="encoder", status="ok"),
        StepSummary(number=2, slug="utilization", workload="encoder", status="ok"),
        StepSummary(
            number=3,
            slug="transfer",
            workload="encoder",
            status="not_applicable",
            reason=quote("the device shares the host's memory"),
        ),
        StepSummary(number=4, slug="top_ops", workload="encoder", status="attention", findings=[small]),
        StepSummary(number=5, slug="batch", workload="encoder", status="ok"),
    ]


def regressed_counters() -> list[Comparison]:
    """Return the exact counters of a change that adds a loop of small ops and a layout copy."""
    added = [Part(name="aten::add", base=12, head=36, line="model.py:88"), Part(name="aten::clone", base=0, head=1)]
    copied = [Part(name="aten::clone", base=0, head=1, line="model.py:91")]
    return [
        make_counter("counters.framework_ops", 40, 65, parts=added),
        make_counter("counters.copies", 2, 3, parts=copied),
        make_counter("counters.copy_bytes", 1_572_864, 1_966_080, parts=copied),
        make_counter("ops.count:aten::add", 12, 36, gating=False),
        make_counter("ops.count:aten::clone", 0, 1, gating=False),
    ]


def regressed_time() -> list[Comparison]:
    """Return the time metrics of the same change: slower beyond the tolerance."""
    return [
        make_comparison(
            "latency.low",
            outcome="regressed",
            base=0.0361,
            head=0.0386,
            delta=0.068,
            interval=(0.059, 0.077),
            p_adjusted=0.0002,
            effects=[0.064, 0.072] * 7,
        ),
        make_comparison(
            "latency.p50",
            outcome="regressed",
            base=0.0371,
            head=0.0391,
            delta=0.054,
            interval=(0.041, 0.066),
            p_adjusted=0.0003,
        ),
    ]


def code_changes() -> list[CodeChange]:
    """Return the places of the same change, which have nothing to do with each other."""
    lines = {88: "out = out + part.unsqueeze(0)", 91: "self.seen = rows.clone()"}
    return [
        CodeChange(file="model.py", first=line, last=line, chains=[[(line, line)]], text=[text])
        for line, text in lines.items()
    ]


def operator_changes() -> list[OperatorDelta]:
    """Return what the traces show of the same change."""
    return [
        OperatorDelta(
            workload="encoder", shape="long", op="aten::add", base_count=12, head_count=36, line="model.py:88",
        ),
        OperatorDelta(
            workload="encoder", shape="long", op="aten::clone", base_count=0, head_count=1, line="model.py:91",
        ),
    ]  # fmt: skip


def operator_times() -> list[OperatorDelta]:
    """Return what the pairs say of the same operators."""
    return [
        OperatorDelta(workload="encoder", shape="long", op="aten::add", base=0.0009, head=0.0028, seconds=0.0019),
        OperatorDelta(workload="encoder", shape="long", op="aten::clone", base=0.0, head=0.0004, seconds=0.0004),
    ]


def make_operator_test(op: str = "aten::mm", **fields: Any) -> OperatorDelta:
    """Return a tested operator of ``encoder``/``long``: 3 % of the call, ten percent slower unless said otherwise."""
    values: dict[str, Any] = {
        "workload": "encoder",
        "shape": "long",
        "base": 0.00108,
        "head": 0.00119,
        "share": 0.031,
        "delta": 0.098,
        "interval": (0.083, 0.112),
        "confidence": 0.95,
        "q": 0.0044,
        "outcome": "regressed",
        "pairs": 12,
        "line": "model.py:41",
    }
    values |= fields
    return OperatorDelta(op=op, seconds=values["head"] - values["base"], **values)


def operator_tests() -> list[OperatorDelta]:
    """Return one operator that got slower, and three that say something else."""
    same: dict[str, Any] = {"delta": 0.002, "interval": (-0.011, 0.014), "q": 0.6, "line": None}
    return [
        make_operator_test(),
        make_operator_test("aten::addmm", outcome="unchanged", base=0.0148, head=0.0148, share=0.42, **same),
        make_operator_test("aten::view", outcome="inconclusive", base=9e-5, head=9e-5, share=0.003,
                           **{**same, "interval": (-0.08, 0.09)}),
        make_operator_test("aten::gelu", outcome="improved", base=0.002, head=0.0018, share=0.06, delta=-0.1,
                           interval=(-0.12, -0.08), line=None),
    ]  # fmt: skip


def suggestions() -> list[Suggestion]:
    """Return advice on the same change."""
    return [
        Suggestion(
            rule="small-ops",
            workload="encoder",
            message=quote("Replace the loop of 24 aten::add by one batched call: each op costs a launch."),
            shape="long",
            line="model.py:88",
            evidence={"op": "aten::add", "more seconds a call": 0.0019},
            gain=Gain(kind="estimated", speedup=1.0526, share=0.05),
            command="perfgate local --workload encoder",
            introduced=True,
        )
    ]


def kept_file(path: str, size: int, kind: Literal["trace", "flamegraph"] = "trace") -> Artifact:
    return Artifact(name=path.rpartition("/")[2], kind=kind, path=path, bytes=size, sha256="c" * 64)


def traces() -> list[Artifact]:
    """Return the kept traces of both sides."""
    return [
        kept_file("base/encoder-long.trace.json.gz", 1_258_291),
        kept_file("head/encoder-long.trace.json.gz", 1_363_148),
    ]


def make_failure(side: str = "head", **fields: Any) -> Failure:
    """Return an exception of the workload with its traceback."""
    error = ErrorDetail(
        kind="exception",
        message="RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x384 and 512x384)",
        traceback=(
            "Traceback (most recent call last):\n"
            '  File "model.py", line 88, in forward\n'
            "    return self.out(pooled)\n"
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x384 and 512x384)\n"
        ),
    )
    values: dict[str, Any] = {"side": side, "workload": "encoder", "what": "loading", "error": error}
    return Failure(**{**values, **fields})


def make_difference(
    field: str = "torch", base: str | None = "2.12.0", head: str | None = "2.13.0"
) -> TestbedDifference:
    """Return a differing field of the testbed."""
    return TestbedDifference(field=field, base=base, head=head)


def make_package(name: str, base: str | None, head: str | None, *, loaded: bool = True) -> PackageDifference:
    """Return a package that differs."""
    return PackageDifference(field=name, base=base, head=head, loaded=loaded)


def make_harness_change(kind: type[HarnessChange], message: Message) -> HarnessChange:
    """Return a change of the workload file of ``encoder``."""
    return kind(workload="encoder", message=message)


def make_run(side: Side | None = "head", *, slowdown: float = 0.0, pairs: int = 14, **fields: Any) -> RunDocument:
    """Return a run of ``encoder`` with synthetic samples; ``slowdown`` 0.07 makes every call of it 7 % slower."""
    loop = slowdown > 0
    values: dict[str, Any] = {
        "perfgate_version": "0.1.0",
        "side": side,
        "project": "demo",
        "session": Session(
            id="5e551011",
            started_at="2026-08-01T10:00:00Z",
            finished_at="2026-08-01T10:03:10Z",
            seed=20201120,
            command="perfgate check",
        ),
        "source": Source(commit=BASE_COMMIT if side == "base" else HEAD_COMMIT, branch="main"),
        "seal": Seal(entries=40_000, before="5e" * 32, after="5e" * 32) if side else None,
        "testbed": Testbed(
            fingerprint="f" * 64, device_kind="cpu", comparable=dict(TESTBED), observed={"load.1m": "0.41"}
        ),
        "workloads": [
            WorkloadRecord(
                name="encoder", reference="perf/workload.py:encoder", sha256="e" * 64, batch=8, shapes=["short", "long"]
            )
        ],
        "steps": run_steps(),
        "counters": [
            CounterSet(
                workload="encoder",
                shape="long",
                repeats=3,
                values={"counters.framework_ops": 65 if loop else 40, "counters.copies": 3 if loop else 2},
                ops=[OpCount(op="aten::add", count=36 if loop else 12, line="model.py:88")],
            )
        ],
        "operators": operator_rows(loop=loop),
        "replicates": replicates(side or "head", slowdown=slowdown, pairs=pairs),
    }
    return built(RunDocument, {**values, **fields})


def run_steps() -> list[StepResult]:
    """Return steps 1 to 5 of a CPU run, with values and one finding."""
    p50 = Value(metric="latency.p50", value=0.0371, interval=(0.0368, 0.0375), confidence=0.95, count=800)
    p99 = Value(metric="latency.p99", value=None, reason=quote("needs 662 calls, 400 were measured"), count=400)
    return [
        StepResult(number=1, slug="latency", workload="encoder", status="ok", values=[p50, p99], duration=6.2),
        StepResult(
            number=2, slug="utilization", workload="encoder", status="ok",
            values=[Value(metric="utilization.host", value=0.91)], duration=2.0,
        ),
        StepResult(
            number=3, slug="transfer", workload="encoder", status="not_applicable",
            reason=quote("the device shares the host's memory"),
        ),
        StepResult(
            number=4, slug="top_ops", workload="encoder", status="attention",
            findings=[Finding(rule=f.rule, severity=f.severity, message=f.message) for f in checklist()[3].findings],
            values=[Value(metric="ops.coverage", value=0.994)], duration=4.1,
        ),
        StepResult(
            number=5, slug="batch", workload="encoder", status="ok",
            values=[Value(metric="batch.knee", value=16.0)], duration=9.7,
        ),
    ]  # fmt: skip


def operator_rows(*, loop: bool = False) -> list[OperatorRow]:
    """Return the operator table of one side."""
    times = [("aten::addmm", 0.0148, 24), ("aten::softmax", 0.0065, 6), ("aten::native_layer_norm", 0.0041, 13)]
    times += [("aten::add", 0.0028 if loop else 0.0009, 36 if loop else 12)]
    times += [("aten::clone", 0.0004, 1)] if loop else []
    busy = sum(time for _, time, _ in times)
    return [
        OperatorRow(
            workload="encoder", shape="long", op=op, kind="copy" if op == "aten::clone" else "compute",
            self_time=time, count=count, share=time / busy,
        )
        for op, time, count in times
    ]  # fmt: skip


def replicates(side: Side, *, slowdown: float = 0.0, pairs: int = 14, calls: int = 60) -> list[Replicate]:
    """Return one worker process per pair, and for the base both members of seven A/A pairs."""
    made = [_replicate(pair, "ab", "first" if side == "base" else "second", slowdown, calls) for pair in range(pairs)]
    if side == "base":
        members = [(pair, member) for pair in range(pairs // 2) for member in ("first", "second")]
        made += [_replicate(pair, "aa", member, 0.0, calls) for pair, member in members]
    return made


@cache
def _calls(pair: int, arm: Any, member: Any, slowdown: float, calls: int) -> PackedArray:
    seed = 1000 * pair + 100 * (arm == "aa") + 10 * (member == "second")
    random = np.random.default_rng(seed)
    # Both members of a pair share the process-to-process spread of their memory layout.
    layout = np.random.default_rng(7000 + pair).normal(0, 0.02)
    wall = 0.036e9 * np.exp(layout + random.normal(0, 0.003)) * (1 + slowdown) * (1 + random.gamma(1.5, 0.008, calls))
    return pack(wall.astype(np.int64))


def _replicate(pair: int, arm: Any, member: Any, slowdown: float, calls: int) -> Replicate:
    samples = _calls(pair, arm, member, slowdown, calls)
    block = calls // 6
    columns = BlockColumns(
        quad=list(range(6)),
        sequence=[0] * 6,
        calls=[block] * 6,
        times=PackedTimes(wall=samples, cpu=samples),
        worker=WorkerColumns(start_ns=[0] * 6, end_ns=[1] * 6, involuntary_switches=[0] * 6, minor_faults=[0] * 6),
    )
    worker = WorkerState(layout_seed=pair, cpus=[1], start_up=1.1, steady=True, settings={"stopped": "0"})
    return Replicate(pair=pair, arm=arm, member=member, workload="encoder", worker=worker, shapes={"long": columns})
