"""The smallest documents that hold one of everything the tests here look at."""

from __future__ import annotations

from perfgate.document.comparison import Paired
from perfgate.document.decision import ComparedSides, DecisionDocument, Measurement, Policy, Procedure, SideSummary
from perfgate.document.message import quote
from perfgate.document.run import (
    Checklist,
    RunDocument,
    Session,
    Source,
    StepProcedure,
    StepResult,
    Value,
    WorkloadRecord,
)
from perfgate.document.testbed import Testbed


def minimal_run(
    *,
    session: str = "s1",
    dirty: bool = False,
    value: float = 0.002,
    fingerprint: str = "f1",
    project: str = "shop",
) -> RunDocument:
    return RunDocument(
        perfgate_version="0.1.0",
        project=project,
        session=Session(
            id=session, started_at="2026-01-02T03:04:05Z", finished_at="2026-01-02T03:05:05Z", seed=7, command="run"
        ),
        source=Source(
            commit="a" * 40, branch="main", dirty=dirty, committed_at="2026-01-01T00:00:00Z", subject="Größer ✓"
        ),
        testbed=Testbed(fingerprint=fingerprint, device_kind="cpu", comparable={"cpu": "x"}),
        workloads=[
            WorkloadRecord(name="encoder", reference="w.py:encoder", sha256="0" * 64, batch=8, shapes=["short"])
        ],
        checklist=Checklist(
            steps=[
                StepResult(
                    number=1,
                    slug="latency",
                    workload="encoder",
                    status="ok",
                    procedure=StepProcedure(quick=False),
                    values=[
                        Value(
                            metric="latency.p50",
                            value=value,
                            interval=(0.001, None),
                            confidence=0.95,
                            count=100,
                            labels={"shape": "short"},
                        ),
                        Value(
                            metric="latency.p99",
                            value=None,
                            labels={"shape": "short"},
                            reason=quote("100 calls are too few"),
                        ),
                    ],
                )
            ]
        ),
    )


def minimal_decision() -> DecisionDocument:
    return DecisionDocument(
        perfgate_version="0.1.0",
        project="shop",
        verdict="FAIL",
        reasons=[quote("counters.framework_ops rose")],
        sides=ComparedSides(base=SideSummary(commit="a" * 40), head=SideSummary(commit="b" * 40, dirty=True)),
        measured=Measurement(device="cpu"),
        procedure=Procedure(
            name="signed-rank",
            version=1,
            seed=3,
            quantiles=[0.02, 0.04],
            policy=Policy(tolerances={"latency.low": 0.01}),
        ),
        comparisons=[
            Paired(
                workload="encoder",
                shape="short",
                metric="latency.low",
                unit="s",
                better="lower",
                outcome="regressed",
                gating=True,
                delta=0.05,
                interval=(0.04, 0.06),
            )
        ],
    )
