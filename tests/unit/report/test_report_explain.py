"""``perfgate explain``: every metric and step has a text, and a wrong name gets the right one."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from perfgate.catalogue.lookup import METRICS
from perfgate.cli.commands.explain import COMMAND
from perfgate.errors import UsageError
from perfgate.judging.report.explain import explain


@pytest.mark.parametrize("name", METRICS)
def test_explain__every_metric__meaning_unit_direction_and_source(name: str) -> None:
    text = explain(name)
    assert text.startswith(f"{name}: {METRICS[name].title}\n")
    assert METRICS[name].explanation in text
    assert METRICS[name].source in text
    assert "better" in text


@pytest.mark.parametrize("name", ["4", "s04", "04", "top_ops", "top-ops"])
def test_explain__step_by_number_or_slug__the_same_text(name: str) -> None:
    assert explain(name).startswith("step 4, top_ops: Operators that take the most time\n")
    assert "ops.share.softmax.warning = 0.15" in explain(name)


@pytest.mark.parametrize("number", range(1, 21))
def test_explain__all_twenty_steps__have_a_text(number: int) -> None:
    assert explain(str(number)).startswith(f"step {number}, ")


def test_explain__metric_of_an_operator__is_derived() -> None:
    assert "dispatches the operator aten::clone" in explain("ops.count:aten::clone")


def test_explain__gated_metric__says_the_default_tolerance() -> None:
    assert "a worsening above 1 % regresses" in explain("latency.low")
    assert "a worsening above 0 % regresses" in explain("counters.copies")


@pytest.mark.parametrize(("wrong", "near"), [("latency.p5O", "latency.p50"), ("utilisation", "utilization")])
def test_explain__typing_error__names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean '{near}'"):
        explain(wrong)


def test_explain__number_outside_the_checklist__is_refused() -> None:
    with pytest.raises(UsageError, match="steps: 1 to 20"):
        explain("21")


def test_command__metric__prints_the_explanation() -> None:
    result = CliRunner().invoke(COMMAND, ["latency.p50"])
    assert result.exit_code == 0
    assert "Half of the calls were faster than this." in result.output
