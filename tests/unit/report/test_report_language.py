"""Two languages: every sentence has its Chinese, no Chinese is left over, and escaping is the same in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.catalogue.lookup import RULES
from perfgate.document.run import Finding
from perfgate.judging.report.escape import prose
from perfgate.judging.report.format import counted, directed_percent
from perfgate.judging.report.messages import Pieces, word, word_finding
from perfgate.judging.report.text import environment
from perfgate.judging.report.words import Words, say
from perfgate.locale import current_language, speaking
from tests.unit.report.sentences import TEMPLATES, step_sentences, unsaid_words

# What both languages call the same.
UNTRANSLATED = {"perfgate", "base", "head"}
HOSTILE = "</details> @octocat `x` | [a](https://evil.example)"


def test_steps__every_sentence_that_may_be_a_reason__has_its_chinese() -> None:
    with speaking("zh"):
        assert {text: place for text, place in step_sentences().items() if not isinstance(word(text), Pieces)} == {}


@pytest.mark.parametrize(
    ("message", "chinese_words"),
    [
        ("base against base differs in latency.low", "base 对 base 的 latency.low 不同"),
        ("the batch was 8 and is 4", "batch 由 8 变为 4"),
        ("base and head: encoder: nothing checks the output; give the workload a `check`, so that a wrong model cannot pass",
         "base 与 head：encoder：没有检查输出；请为 workload 提供 `check`，以免结果错误的模型通过"),
        ("not in the recording, so not checked to be equal: the device's name; versions of the software",
         "录制数据中没有，因此未核对是否一致：设备名称；软件版本"),
        ("the shares of the pipes were not collected; on an NPU record at Level1 with AiCMetrics.PipeUtilization; " + HOSTILE,
         "没有采集流水线占比；NPU 上请以 Level1 和 AiCMetrics.PipeUtilization 采集；" + HOSTILE),
        ("2 more operators a call compute below 32-bit floating point (aten::mm at model.py:3) and no check looks at it",
         "每次调用多出 2 个算子以低于 32 位浮点的精度计算（aten::mm，model.py:3），且没有 check 检查输出"),
        ("a slowdown of 2 % is not excluded (at most 3.1 % with 97.5 % confidence)",
         "不能排除 2 % 的变慢（至多 3.1 %，置信度 97.5 %）"),
    ],
)  # fmt: skip
def test_told__message_of_the_gate__its_chinese_words_also_inside_another(message: str, chinese_words: str) -> None:
    with speaking("zh"):
        assert word(message) == chinese_words


@pytest.mark.parametrize("template", sorted(TEMPLATES.rglob("*.j2")), ids=lambda path: path.stem)
def test_template__words_outside_of_sentences__are_those_both_languages_share(template: Path) -> None:
    assert set(unsaid_words(template)) <= UNTRANSLATED


def test_speaking__block__its_language_inside_and_english_again_after() -> None:
    with speaking("zh"):
        assert (current_language(), counted(2, "pair"), directed_percent(0.068, "s")) == ("zh", "2 对", "慢 6.8 %")
    assert (current_language(), counted(2, "pair"), directed_percent(0.068, "s")) == ("en", "2 pairs", "6.8 % slower")


def test_say__sentence_without_translation__stays_english() -> None:
    with speaking("zh"):
        assert say("{count} unheard of", count=3) == "3 unheard of"
        assert counted(3, "unheard") == "3 unheards"


def test_sentence_tag__other_order_in_chinese__values_are_escaped_as_ever() -> None:
    template = "{% trans metric=row.metric, place=row.place %}{{ metric }} of {{ place }}{% endtrans %}"
    row = {"metric": Words("P50"), "place": HOSTILE}
    with speaking("zh"):
        assert environment("markdown").from_string(template).render(row=row) == (
            "``</details> @octocat `x` ∣ [a](https://evil.example)`` P50"
        )
        assert "&lt;/details&gt;" in environment("html").from_string(template).render(row=row)


def test_prose_filter__number_inside_a_sentence__is_one_and_where_it_begins_it_may_start_a_list() -> None:
    with speaking("zh"):
        text = environment("markdown").from_string("{{ text|prose }}").render(text="5 pairs are too few for a bound")
        inside = environment("markdown").from_string("{{ text|prose }}").render(text="the batch was 8 and is 4")
    assert (text, inside) == ("`5` 对太少，给不出界", "batch 由 8 变为 4")


def test_told_finding__known_rule__its_chinese_words_with_the_evidence_as_outside_text() -> None:
    finding = Finding(
        rule="collectives.slowest_rank",
        severity="info",
        message="English",
        evidence={"collective": HOSTILE, "longest": "rank 0", "shortest": "rank 1"},
    )
    with speaking("zh"):
        found = word_finding(finding)
    assert isinstance(found, Pieces)
    assert [piece for piece in found.pieces if not isinstance(piece, Words)] == ["rank 0", HOSTILE, "rank 1"]
    assert "rank 0" in word_finding(finding)
    assert HOSTILE in word_finding(finding)


@pytest.mark.parametrize(("rule", "evidence"), [("no.such", {}), ("batch.loss", {"batch": 8})])
def test_told_finding__unknown_rule_or_missing_evidence__the_message(rule: str, evidence: dict[str, float]) -> None:
    with speaking("zh"):
        assert (
            word_finding(Finding(rule=rule, severity="info", message="English", evidence=dict(evidence))) == "English"
        )


def test_told__message_of_a_rule__its_chinese_words() -> None:
    message = RULES["batch.refused"].message.format(batch=4)
    with speaking("zh"):
        assert word(message) == "workload 不接受 batch size 4"
        assert word("nobody knows this") == "nobody knows this"
    assert word(message) == message


def test_prose_filter__known_sentence_in_chinese__outside_values_become_code() -> None:
    message = RULES["latency.steady_state"].message.format(shape=HOSTILE)
    with speaking("zh"):
        text = environment("markdown").from_string("{{ text|prose }}").render(text=message)
    assert text == f"shape {prose(HOSTILE)} 未达到稳态；其数值仅供参考，仍可能漂移"
