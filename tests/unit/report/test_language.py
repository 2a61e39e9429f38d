"""Two languages: every sentence has its Chinese, no Chinese is left over, and escaping is the same in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.catalogue.lookup import RULES
from perfgate.document.message import Message, quote
from perfgate.document.run import Finding
from perfgate.judging.report.text.escape import prose
from perfgate.judging.report.text.formats import SECONDS, directed_percent
from perfgate.judging.report.text.messages import word, word_finding
from perfgate.judging.report.text.numbers import counted
from perfgate.judging.report.text.templates import environment
from perfgate.judging.report.text.words import SentencePieces, Words, say
from perfgate.locale import current_language, speaking
from tests.each import each
from tests.unit.report.sentences import TEMPLATES, step_sentences, unsaid_words

# What both languages call the same.
UNTRANSLATED = {"perfgate", "base", "head"}
HOSTILE = "</details> @octocat `x` | [a](https://evil.example)"


def test_steps__source__holds_no_sentences() -> None:
    assert step_sentences() == {}


@each("template", sorted(TEMPLATES.rglob("*.j2")))
def test_template__words_outside_of_sentences__are_those_both_languages_share(template: Path) -> None:
    assert set(unsaid_words(template)) <= UNTRANSLATED


def test_speaking__block__its_language_inside_and_english_again_after() -> None:
    with speaking("zh"):
        assert (current_language(), counted(2, "pair"), directed_percent(0.068, SECONDS)) == (
            "zh",
            "2 对",
            "变慢 6.8 %",
        )
    assert (current_language(), counted(2, "pair"), directed_percent(0.068, SECONDS)) == (
        "en",
        "2 pairs",
        "6.8 % slower",
    )


def test_say__sentence_without_translation__stays_english() -> None:
    with speaking("zh"):
        assert say("{count} unheard of", count=3) == "3 unheard of"
        assert counted(3, "unheard") == "3 unheards"


def test_sentence_tag__other_order_in_chinese__values_are_escaped_as_ever() -> None:
    template = "{% trans what=pair.what, workload=pair.workload %}failed: {{ what }} of {{ workload }}{% endtrans %}"
    pair = {"what": Words("P50"), "workload": HOSTILE}
    with speaking("zh"):
        assert environment("markdown").from_string(template).render(pair=pair) == (
            "失败：``</details> @octocat `x` ∣ [a](https://evil.example)`` 的 P50"
        )
        assert "&lt;/details&gt;" in environment("html").from_string(template).render(pair=pair)


def test_prose_filter__number_inside_a_sentence__is_one_and_where_it_begins_it_may_start_a_list() -> None:
    template = environment("markdown").from_string("{{ text|prose }}")
    assert template.render(text=Message("gate.too-few-pairs", {"pairs": 5})) == "`5` are too few for a bound"
    with speaking("zh"):
        assert template.render(text=Message("harness.batch-changed", {"before": 8, "after": 4})) == "batch 由 8 变为 4"


def test_prose_filter__code_in_html__marked_up_around_escaped_text() -> None:
    template = environment("html").from_string("{{ text|prose }}")

    def shown(line: str) -> str:
        return template.render(text=Message("job.exited", {"line": line, "code": 3}))

    assert shown("run <b>") == "<code>run &lt;b&gt;</code> exited with code 3"
    assert shown("a`</code><script>`b") == (
        "<code>a</code>&lt;/code&gt;&lt;script&gt;<code>b</code> exited with code 3"
    )
    with speaking("zh"):
        assert shown("run <b>").startswith("<code>run &lt;b&gt;</code>")
    assert (
        environment("html").from_string("{% trans %}see `report.html`{% endtrans %}").render()
        == "see <code>report.html</code>"
    )


def test_told_finding__known_rule__its_chinese_words_with_the_evidence_as_outside_text() -> None:
    finding = Finding(
        rule="collectives.slowest_rank",
        severity="info",
        message=quote("English"),
        evidence={"collective": HOSTILE, "longest": "rank 0", "shortest": "rank 1"},
    )
    with speaking("zh"):
        found = word_finding(finding)
    assert isinstance(found, SentencePieces)
    assert [piece for piece in found.pieces if not isinstance(piece, Words)] == ["rank 0", HOSTILE, "rank 1"]
    assert "rank 0" in word_finding(finding)
    assert HOSTILE in word_finding(finding)


@pytest.mark.parametrize(("rule", "evidence"), [("no.such", {}), ("batch.loss", {"batch": 8})])
def test_told_finding__unknown_rule_or_missing_evidence__the_message(rule: str, evidence: dict[str, float]) -> None:
    with speaking("zh"):
        assert (
            word_finding(Finding(rule=rule, severity="info", message=quote("English"), evidence=dict(evidence)))
            == "English"
        )


def test_word__text_of_somebody_else__is_never_matched_against_our_sentences() -> None:
    texts = [
        "got 3 rows and expected 4 more",
        "the device was throttled",
        RULES["batch.refused"].message.format(batch=4),
    ]
    with speaking("zh"):
        assert [word(text) for text in texts] == texts
        assert [word(quote(text)) for text in texts] == texts


def test_prose_filter__finding_in_chinese__outside_values_become_code() -> None:
    finding = Finding(rule="latency.steady_state", severity="info", evidence={"shape": HOSTILE})
    with speaking("zh"):
        text = environment("markdown").from_string("{{ text|prose }}").render(text=word_finding(finding))
    assert text == f"shape {prose(HOSTILE)} 未达到稳态；其数值仅供参考，仍可能漂移"
