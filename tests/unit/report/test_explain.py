"""``perfgate explain``: every metric and step has a text, and a wrong name gets the right one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from perfgate.catalogue.lookup import CARDS, FAMILIES, LIMITS, METRICS, RULES
from perfgate.catalogue.terms import DEVICE_KINDS
from perfgate.cli.commands.explain import COMMAND, columns, wrapped
from perfgate.document.decision import Policy
from perfgate.errors import UsageError
from perfgate.judging.gate.repeated import repeated_metrics
from perfgate.judging.report.render.explain import Reader
from perfgate.judging.report.render.explain import explain as explain_to
from perfgate.locale import translate


def explain(name: str, **reader: Any) -> str:
    return explain_to(name, Reader(**reader))


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
    assert "a worsening above 0.5 % regresses" in explain("latency.low")
    assert "a worsening above 0 % regresses" in explain("counters.copies")


@pytest.mark.parametrize("name", METRICS)
def test_explain__every_metric__says_how_the_gate_compares_it(name: str) -> None:
    text, entry = explain(name), METRICS[name]
    assert ("over pairs of processes" in text) == any(name in family.metrics for family in FAMILIES.values())
    assert ("only if [gate.tolerance] in perfgate.toml names it" in text) == (
        name in repeated_metrics(Policy(tolerances={name: 0.1}))
    )
    assert ("unit      a count;" in text) == (entry.unit == "1" and entry.counted)
    if entry.share:
        assert "unit      a share of the whole;" in text


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


@pytest.mark.parametrize("name", sorted(RULES))
def test_explain__every_rule__its_words_and_its_step(name: str) -> None:
    text = explain(name)
    assert text.startswith(f"{name}: ") or name in METRICS
    assert "step      " in text


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_explain__every_limit__value_and_source(name: str) -> None:
    text = explain(name)
    assert text.startswith(f"{name} = {LIMITS[name].default:g}\n")
    assert "source    " in text


def test_explain__limit_that_the_project_sets__says_so_with_the_default() -> None:
    own = {"transfer.share.warning": 0.1}
    assert "perfgate.toml; the default is 0.05" in explain("transfer.share.warning", limits=own)
    assert "transfer.share.warning = 0.1 (perfgate.toml; the default is 0.05)" in explain("3", limits=own)


def test_explain__step__what_this_device_shows_and_then_the_others() -> None:
    text = explain("3", device="npu")
    assert text.index("Here, on npu: ") < text.index("On other devices:") < text.index("cuda: ") < text.index("cpu: ")


@pytest.mark.parametrize("device", DEVICE_KINDS)
@pytest.mark.parametrize("number", range(1, 21))
def test_explain__step_in_chinese__no_english_sentence_left(number: int, device: str) -> None:
    card = CARDS[number]
    text = explain(str(number), device=device, language="zh")
    assert text.startswith(f"第 {number} 步，{card.slug}：{translate(card.title, 'zh')}\n")
    assert translate(card.remedy, "zh") in text
    assert card.remedy not in text


def test_explain__metric_in_chinese__title_unit_and_source() -> None:
    text = explain("latency.p50", language="zh")
    assert text.startswith("latency.p50: P50 时延\n")
    assert "单位      秒；越低越好" in text


def test_command__language_and_configured_device__from_perfgate_toml(tmp_path: Path) -> None:
    written = 'workload = "perf/workload.py:encoder"\ndevice = "npu:1"\n[report]\nlanguage = "zh"\n'
    written += '[limits]\n"transfer.share.warning" = 0.1\n'
    (tmp_path / "perfgate.toml").write_text(written, encoding="utf-8")
    chinese = CliRunner().invoke(COMMAND, ["3", "-C", str(tmp_path)])
    assert "当前设备 npu：" in chinese.output
    assert "transfer.share.warning = 0.1（取自 perfgate.toml；默认值为 0.05）" in chinese.output
    english = CliRunner().invoke(COMMAND, ["3", "-C", str(tmp_path), "--lang", "en", "--device", "cpu"])
    assert "Here, on cpu: Not applicable" in english.output


def test_wrapped__chinese__within_the_width_and_words_whole() -> None:
    line = "来源      每次调用以 NPU 同步结束的墙钟时间；torch_npu.profiler 由独立线程下发，体现在调用间隙中。"
    lines = wrapped(line, 40).splitlines()
    assert max(map(columns, lines)) <= 42  # a mark at the end of a line stays there
    assert "".join(part.strip() for part in lines).replace(" ", "") == line.replace(" ", "")
    assert all(part.startswith(" " * 10) for part in lines[1:])
    assert any("torch_npu.profiler" in part for part in lines)
