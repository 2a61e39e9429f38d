"""``perfgate explain``: every metric and step has a text, and a wrong name gets the right one."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from perfgate.catalogue.lookup import (
    CARDS,
    FAMILIES,
    GATING_LIMITS,
    GLOSSARY,
    LIMITS,
    METRICS,
    RULES,
    compared,
    judged_by,
)
from perfgate.catalogue.records import Term
from perfgate.catalogue.terms import DEVICE_KINDS
from perfgate.cli.commands.explain import COMMAND, wrapped_line
from perfgate.cli.language import columns
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import StepResult, Value
from perfgate.errors import UsageError
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.tolerance import metrics_in_turns, repeated_metrics
from perfgate.judging.report.render.explain import explain, list_names
from perfgate.locale import Language, translate
from tests.each import each
from tests.fakes.records import changed
from tests.unit.gate.builders import counters, sides


@each("name", METRICS)
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


@each("number", range(1, 21))
def test_explain__all_twenty_steps__have_a_text(number: int) -> None:
    assert explain(str(number)).startswith(f"step {number}, ")


def test_explain__metric_of_an_operator__is_derived() -> None:
    assert "dispatches the operator aten::clone" in explain("ops.count:aten::clone")


def test_explain__gated_metric__says_the_default_tolerance() -> None:
    assert "a worsening above 0.5 % regresses" in explain("latency.low")
    assert "a worsening above 0 % regresses" in explain("counters.copies")


GATE_LINES = {
    "pairs": "gate      compared in pairs of base and head; it decides\n",
    "beside": "gate      compared in pairs of base and head; it informs and decides nothing\n",
    "count": "gate      compared as an exact count; it decides\n",
    "named_pairs": "pairs of base and head; it decides only if [gate.tolerance] in perfgate.toml names it\n",
    "named_turns": "only if [gate.tolerance] in perfgate.toml names it\n",
    "job": "gate      compared in turns of a job of [workloads] in perfgate.toml\n",
    "recorded": "gate      compared between two recordings\n",
    "rule": "gate      judged by its own rule, not by a tolerance\n",
    "never": "gate      never ",
}


@pytest.fixture(scope="module")
def decided() -> dict[str, bool]:
    """The metrics that the gate compares where head has half of all that steps and counters hold, and whether they decide."""
    runs = []
    for run, factor in zip(sides([1.0 + 0.0005 * (-1) ** pair for pair in range(14)]), (2, 1)):
        counted = {name: 1000 * factor for name, entry in METRICS.items() if entry.origin.counted}
        steps = [
            StepResult(
                number=card.number,
                slug=card.slug,
                workload="encoder",
                status="ok",
                values=[Value(metric=entry.name, value=1.0 * factor) for entry in card.metrics],
            )
            for card in CARDS.values()
            if card.number < 20
        ]
        runs.append(
            changed(run, counters=[msgspec.structs.replace(counters({"aten::mm": 40}), values=counted)], steps=steps)
        )
    return {c.metric: c.gating for c in decide(*runs, policy=Policy(), history=History()).comparisons}


@each("name", METRICS)
def test_explain__every_metric__compared_as_the_gate_does(name: str, decided: dict[str, bool]) -> None:
    text, entry = explain(name), METRICS[name]
    how = compared(name)
    assert GATE_LINES[how] in text
    assert sum(line.startswith("gate ") for line in text.splitlines()) == 1
    families = [family for family in FAMILIES.values() if name in family.metrics]
    assert [family.gating for family in families] == ([how == "pairs"] if how in ("pairs", "beside") else [])
    named = Policy(tolerances={name: 0.1})
    assert (name in repeated_metrics(named)) == (how in ("named_pairs", "named_turns"))
    assert (name in metrics_in_turns(named)) == (how == "named_turns")
    if entry.step < 20 and not families and how != "rule":
        assert decided.get(name) == (True if how == "count" else None)
    assert ("allowed   a worsening above" in text) == (entry.gate.tolerance is not None and how != "beside")


SORTS = {"ratio": "a ratio", "count": "a count", "answer": "yes or no", "value": "a number without a unit"}


@each("name", [name for name, entry in METRICS.items() if entry.unit == "1"])
def test_explain__metric_without_a_unit__the_sort_of_its_entry(name: str) -> None:
    entry = METRICS[name]
    sort = "a share of the whole" if entry.number.sort == "share" else SORTS[entry.number_sort]
    assert f"unit      {sort};" in explain(name)
    if entry.is_whole:
        assert sort in ("a count", "yes or no")


@each("name", sorted(GATING_LIMITS))
def test_explain__metric_that_a_limit_bounds__names_the_limit(name: str) -> None:
    judged = judged_by(name)
    assert judged is not None
    assert f"limit     {name} = " in explain(judged.metric)


@each("term", GLOSSARY.values())
def test_explain__word_of_the_glossary__in_both_languages(term: Term) -> None:
    for word in (term.name, *term.also, translate(term.name, "zh")):
        assert explain(word) == f"{term.name}\n\n{term.explanation}\n", word
    assert translate(term.explanation, "zh") in explain(term.name, language="zh")


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("std", "latency.std: standard deviation of latency"),
        ("fast-path latency", "latency.low: fast-path latency"),
        ("fast-path CPU time", "latency.low: fast-path latency"),
        ("无干扰时延", "latency.low: fast-path latency"),
        ("Operator fusion", "step 6, fusion: Operator fusion"),
    ],
)
def test_explain__title_or_last_part_of_a_name__explains_it(word: str, first: str) -> None:
    assert explain(word).splitlines()[0] == first


def test_explain__last_part_of_several_names__lists_them() -> None:
    assert explain("P50") == (
        "P50 is part of several names:\n"
        "  latency.p50: P50 latency\n  copies.p50: P50 among copies\n  batching.p50: P50 from arrival\n"
    )


def test_titles__every_metric__explained_by_its_title_in_both_languages() -> None:
    for name, entry in METRICS.items():
        for title in (entry.title, *entry.display.clock_titles.values()):
            for language in ("en", "zh"):
                assert f"{name}: " in explain(translate(title, language)), title
    assert "batch.knee: " in explain("batch knee, without CPU waits")
    assert "latency.p90: " in explain("P90 latency, in CPU time")


def test_explain__unknown_word__at_most_five_suggestions() -> None:
    with pytest.raises(UsageError) as caught:
        explain("latencyy")
    assert 1 <= str(caught.value).count("', '") <= 4
    assert len(str(caught.value)) < 300


def test_command__list__every_name_once() -> None:
    lines = CliRunner().invoke(COMMAND, ["--list"], terminal_width=100).output.splitlines()
    listed = [
        line.strip().partition(": ")[0] for line in lines if line.startswith("  ") and not line.startswith("    ")
    ]
    assert {*METRICS, *RULES, *LIMITS, *GLOSSARY} <= set(listed)


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


@each("name", sorted(RULES))
def test_explain__every_rule__its_words_and_its_step(name: str) -> None:
    text = explain(name)
    assert text.startswith(f"{name}: ") or name in METRICS
    assert "step      " in text


def test_explain__rule_with_values_and_advice__their_names_and_what_advise_says() -> None:
    text = " ".join(explain("graph.op_compiled").split())
    assert "as it does for new sizes: COUNT per step, taking TIME of it" in text
    assert "What to do: use CANN's precompiled dynamic-shape operators" in text
    assert "What to do: Configure the best size if latency allows" in " ".join(explain("batch.out_of_memory").split())


@each("language", ["en", "zh"])
def test_list__titles_of_findings__no_place_of_a_value_is_left(language: Language) -> None:
    assert "{" not in list_names(language)


@each("name", sorted(LIMITS))
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


@each("number, device", product(range(1, 21), DEVICE_KINDS))
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
    lines = wrapped_line(line, 40).splitlines()
    assert max(map(columns, lines)) <= 42  # a mark at the end of a line stays there
    assert "".join(part.strip() for part in lines).replace(" ", "") == line.replace(" ", "")
    assert all(part.startswith(" " * 10) for part in lines[1:])
    assert any("torch_npu.profiler" in part for part in lines)
