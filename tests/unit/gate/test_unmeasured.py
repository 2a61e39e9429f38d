"""The decision on a change whose code no workload runs, by the base's setting."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate.document.coverage import ChangedFunction, Coverage
from perfgate.document.decision import DecisionDocument, Policy, Unmeasured, Verdict
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.errors import EXIT_FAIL, EXIT_PASS
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.gate.paths import settles
from perfgate.judging.gate.verdict import exit_code
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.unit.gate.builders import sides

DECODE = ChangedFunction(line="decoder.py:2", function="decode", executed="no")


def decided(coverage: Coverage, setting: Unmeasured = "skip", *, changed: set[str] | None = None) -> DecisionDocument:
    """The decision on documents without a measurement."""
    nothing: dict[str, Any] = {"workloads": [], "steps": [], "counters": [], "operators": [], "replicates": []}
    base, head = make_run("base", **nothing), make_run("head", coverage=coverage, **nothing)
    required = Required(changed=None if changed is None else frozenset(changed))
    return decide(base, head, policy=Policy(unmeasured=setting), history=History(), required=required)


@pytest.mark.parametrize(
    ("setting", "verdict", "code"),
    [("skip", "SKIPPED", EXIT_PASS), ("warn", "WARN", EXIT_PASS), ("fail", "FAIL", EXIT_FAIL)],
)
def test_decide__no_workload_runs_the_changed_code__verdict_of_the_setting(
    setting: Unmeasured, verdict: Verdict, code: int
) -> None:
    coverage = Coverage(files=["decoder.py"], functions=[DECODE])
    decision = decided(coverage, setting, changed={"decoder.py"})
    assert decision.verdict == verdict
    assert exit_code(decision) == code
    assert decision.reasons == [Message("gate.unmeasured")]
    assert decision.procedure.name == "none"
    assert decision.measured.coverage == coverage


@pytest.mark.parametrize("setting", ["skip", "warn", "fail"])
def test_decide__only_text_changed_that_no_workload_reads__skipped_whatever_the_setting(setting: Unmeasured) -> None:
    decision = decided(Coverage(files=["docs/a.md"]), setting)
    assert decision.verdict == "SKIPPED"
    assert decision.reasons == [Message("gate.unread", {"count": 1})]


@pytest.mark.parametrize(
    ("setting", "verdict"), [("skip", "SKIPPED"), ("warn", "INCONCLUSIVE"), ("fail", "INCONCLUSIVE")]
)
def test_decide__changed_python_without_a_changed_function__text_only_where_no_workload_is_demanded(
    setting: Unmeasured, verdict: Verdict
) -> None:
    coverage = Coverage(files=["decoder.py", "docs/a.md"])
    assert decided(coverage, setting, changed={"decoder.py"}).verdict == verdict
    assert settles(coverage, Policy(unmeasured=setting)) == (setting == "skip")


@pytest.mark.parametrize(
    ("coverage", "changed"),
    [
        (Coverage(files=["decoder.py"], functions=[DECODE]), {"decoder.py", "model.py"}),
        (Coverage(files=["decoder.py"], functions=[DECODE], doubts=[Message("coverage.processes")]), None),
        (Coverage(files=["decoder.py"], functions=[DECODE, ChangedFunction(line="a.py:1", executed="unknown")]), None),
        (Coverage(files=["decoder.py"], functions=[DECODE, ChangedFunction(line="a.py:1", executed="yes")]), None),
        (Coverage(files=[]), None),
    ],
    ids=["a file that was not looked at", "doubts", "code that may run", "code that runs", "no file"],
)
@pytest.mark.parametrize("setting", ["skip", "warn", "fail"])
def test_decide__not_shown_that_nothing_runs__no_verdict_without_a_measurement(
    coverage: Coverage, changed: set[str] | None, setting: Unmeasured
) -> None:
    assert decided(coverage, setting, changed=changed).verdict == "INCONCLUSIVE"


def test_decide__measured_all_the_same__verdict_of_the_measurement() -> None:
    base, head = sides([1.0 + 0.0005 * (-1) ** pair for pair in range(12)])
    coverage = Coverage(files=["decoder.py"], functions=[DECODE])
    head = changed(head, coverage=coverage)
    measured = decide(base, head, policy=Policy(unmeasured="fail"), history=History())
    assert measured.verdict != "FAIL"
    assert measured.measured.coverage == coverage
