"""Messages of documents become sentences; what is from outside in them is escaped and never translated."""

from __future__ import annotations

from string import Formatter

import pytest

from perfgate.catalogue.lookup import MESSAGES
from perfgate.document.message import Message, english, quote
from perfgate.document.run import Finding
from perfgate.judging.report.text.messages import word, word_finding, word_findings
from perfgate.judging.report.text.templates import environment
from perfgate.locale import speaking
from tests.each import each

HOSTILE = "</details> @octocat `x` | [a](https://evil.example)"


@pytest.mark.parametrize(
    ("message", "english", "chinese"),
    [
        (Message("gate.throttled"), "the device was throttled", "设备被降频"),
        (Message("harness.workload-new", {"name": "tiny"}), "workload tiny is new", "新增 workload tiny"),
        (
            Message("notes.base", {"note": Message("notes.no-flame-graph", {"error": "boom"})}),
            "base: no flame graph: boom",
            "base：没有火焰图：boom",
        ),
        (
            Message("notes.not-in-recording", {"what": [Message("notes.device-name"), Message("notes.software-versions")]}),
            "not in the recording, so not checked for equality: the device's name; versions of the software",
            "采集数据中没有，因此未核对是否一致：设备名称；软件版本",
        ),
        (
            Message("gate.nothing-changed", {"count": 1, "rules": ["docs/**", "*.md"]}),
            "nothing relevant changed: 1 file, by the rule docs/**, *.md",
            "没有相关改动：1 个文件，依据规则 docs/**、*.md",
        ),
        (quote("got 3 rows and expected 4 more"), "got 3 rows and expected 4 more", "got 3 rows and expected 4 more"),
    ],
    ids=lambda value: value.code if isinstance(value, Message) else "",
)  # fmt: skip
def test_word__message__its_sentence_in_both_languages(message: Message, english: str, chinese: str) -> None:
    assert word(message) == english
    with speaking("zh"):
        assert word(message) == chinese


@pytest.mark.parametrize("code", sorted(code for code in MESSAGES if MESSAGES[code].one is not None))
def test_word__count_of_one__has_no_plural_in_reports_and_errors(code: str) -> None:
    names = [name for _, name, _, _ in Formatter().parse(MESSAGES[code].other) if name]
    values = {**dict.fromkeys(names, 0.5), "count": 1}
    assert word(Message(code, values)) == MESSAGES[code].one.format_map(values)
    assert english(Message(code, values)) == word(Message(code, values))
    assert english(Message(code, {**values, "count": 2})) == MESSAGES[code].other.format_map({**values, "count": 2})


def test_word_finding__rates_and_counts__have_no_exponent() -> None:
    full = Finding(rule="batching.saturated", severity="warning", evidence={"rate": 5000.0, "most": 1234.5})
    assert word_finding(full).endswith("5000 requests per second; the maximum is about 1,234")
    on_cpu = Finding(rule="ops.ai_cpu", severity="warning", evidence={"op": "Cast", "types": "int64", "calls": 1e4 / 3})
    assert "Cast (int64): 3,333 per call" in word_finding(on_cpu)


def test_advice__compiled_while_steps_run__its_count_has_the_digits_of_the_finding() -> None:
    values = {"count": 7 / 3, "time": 0.01}
    for rule in ("graph.op_compiled", "graph.compiled_again"):
        finding = word_finding(Finding(rule=rule, severity="warning", evidence=values))
        advice = word(Message(f"advice.{rule}", values))
        assert "2.33 per step" in finding
        assert "2.33" in advice
        assert "2.333" not in advice


@pytest.mark.parametrize("code", sorted(code for code in MESSAGES if code.startswith("advice.")))
def test_advice__any__can_be_worded_where_the_report_is_not(code: str) -> None:
    """Suggestions are compared by their English sentences, which Python's own formats have to understand."""
    for _, name, spec, _ in Formatter().parse(MESSAGES[code].other):
        if name is not None:
            assert format(1.0, spec)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (Message("no.such-code", {"count": 3}), "no.such-code (count=3)"),
        (Message("harness.workload-new"), "harness.workload-new"),
        (Message(HOSTILE, {"x": HOSTILE}), f"{HOSTILE} (x={HOSTILE})"),
    ],
    ids=["unknown code", "value missing", "hostile"],
)
def test_word__unknown_code_or_values__are_shown_as_they_stand(message: Message, shown: str, language: str) -> None:
    with speaking("zh" if language == "zh" else "en"):
        assert word(message) == shown


@pytest.mark.parametrize("language", ["en", "zh"])
def test_prose__hostile_code_and_values__are_escaped(language: str) -> None:
    template = environment("markdown").from_string("{{ text|prose }}")
    page = environment("html").from_string("{{ text|prose }}")
    with speaking("zh" if language == "zh" else "en"):
        for message in [Message(HOSTILE, {HOSTILE: HOSTILE}), Message("harness.workload-new", {"name": HOSTILE})]:
            assert "`</details>`" in template.render(text=message)
            assert "`@octocat`" in template.render(text=message)
            # Backticks of a name mark it as code; everything else is escaped.
            assert "<" not in page.render(text=message).replace("<code>x</code>", "x")


@each("code", sorted(MESSAGES))
def test_catalogue__sentence_for_one__has_no_value_that_the_other_lacks(code: str) -> None:
    names = [
        {name for _, name, _, _ in Formatter().parse(text or "")} for text in (MESSAGES[code].one, MESSAGES[code].other)
    ]
    assert names[0] <= names[1]


def _packets(shape: str, share: float, link: str = "HCCS") -> Finding:
    evidence = {"shape": shape, "link": link, "share": share, "smaller": 1e6, "limit": 0.3}
    return Finding(rule="communication.small_packets", severity="warning", evidence={**evidence, RULE: share})


RULE = "communication.small_packets"


def test_word_findings__the_same_of_several_ranks__once_with_the_worst_and_the_others_named() -> None:
    found = [_packets("rank 0", 0.44), _packets("rank 1", 0.61), _packets("rank 0", 0.5, "RDMA")]
    of_two, of_one = word_findings(found)
    assert (of_two[0], of_one[0]) == (found[1], found[2])
    assert of_two[1].startswith("61 % of the time on HCCS")
    assert of_two[1].endswith("(rank 1; also rank 0)")
    assert of_one[1].endswith("(rank 0)")


def test_word_findings__ranks_of_a_large_job__eight_are_named_and_the_others_counted() -> None:
    ((_, words),) = word_findings([_packets(f"rank {rank}", 0.5) for rank in range(64)])
    assert words.endswith("(rank 0; also rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, rank 8 and 55 more)")


def test_word_findings__shapes_of_a_workload__each_says_its_own() -> None:
    found = [_packets("short", 0.44), _packets("long", 0.61)]
    assert [words for _, words in word_findings(found)] == [word_finding(finding) for finding in found]
