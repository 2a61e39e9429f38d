"""Limits are data on the step's card; the project may set its own."""

from __future__ import annotations

import pytest

from perfgate.catalogue.lookup import RULES
from perfgate.measuring.checklist.step import StepOutcome
from tests.wording import finding_text


def test_limit__given_by_the_project__comes_first() -> None:
    assert StepOutcome(limits={"transfer.share.warning": 0.1}).limit("transfer.share.warning") == 0.1
    assert StepOutcome().limit("transfer.share.warning") == 0.05


def test_limit__unknown_name__key_error() -> None:
    with pytest.raises(KeyError, match="shape"):
        StepOutcome().limit("transfer.shape")


@pytest.mark.parametrize(("value", "severity"), [(0.05, None), (0.06, "warning"), (0.20, "warning"), (0.21, "severe")])
def test_above__value__severity_of_the_highest_limit_crossed(value: float, severity: object) -> None:
    outcome = StepOutcome()
    assert outcome.above("transfer.share", value, {"mode": "pageable"}) is (severity is not None)
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_above__finding__carries_value_limit_and_evidence() -> None:
    outcome = StepOutcome()
    outcome.above("transfer.share", 0.5, {"mode": "pageable"})
    (found,) = outcome.findings
    assert (found.rule, finding_text(found)) == ("transfer.share", RULES["transfer.share"].message)
    assert found.evidence == {"transfer.share": 0.5, "limit": 0.2, "mode": "pageable"}


def test_below__rule_with_a_single_limit_for_information__that_severity() -> None:
    outcome = StepOutcome(labels={"shape": "default"})
    assert outcome.below("utilization.host", 0.5)
    (found,) = outcome.findings
    assert (found.severity, found.evidence) == ("info", {"utilization.host": 0.5, "limit": 0.8, "shape": "default"})
    assert not outcome.below("utilization.host", 0.8)


def test_note__words_of_the_card__take_the_evidence() -> None:
    outcome = StepOutcome()
    outcome.note("batch.refused", "info", {"batch": 4, "error": "shape"})
    assert finding_text(outcome.findings[0]) == "the workload does not support a batch size of 4"
    with pytest.raises(KeyError, match="batch"):
        outcome.note("batch.refused", "info", {})
