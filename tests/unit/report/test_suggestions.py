"""What to try, as people read it: a comment has what the change brought, the page all, a run ends with the first three."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from perfgate.document.decision import Gain, Suggestion
from perfgate.document.message import Message, as_message
from perfgate.judging.report.render.comment import render_comment
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.terminal import render_first_suggestions, render_suggestions, render_terminal
from perfgate.judging.report.view.summary import CommentContext
from tests.fakes.documents import make_decision, make_run, regressed_counters

CONTEXT = CommentContext(marker="<!-- m -->")
MEASURED = Gain(kind="measured", speedup=1.392, interval=(1.371, 1.414))


def suggestion(message: Message | str = "compile the model", **fields: Any) -> Suggestion:
    return Suggestion(
        **{"rule": "any", "workload": "encoder", "message": as_message(message), "introduced": True, **fields}
    )


def bullets(*suggestions: Suggestion, verdict: Any = "FAIL", language: Any = "en") -> list[str]:
    decision = make_decision(verdict, comparisons=regressed_counters(), suggestions=list(suggestions))
    text = render_comment(decision, CommentContext(marker="<!-- m -->", language=language))
    _, _, rest = text.partition("条建议</summary>" if language == "zh" else " more suggestion")
    return [line[2:] for line in rest.partition("</details>")[0].splitlines() if line[:2] == "- "]


def printed(*suggestions: Suggestion, language: Any = "en") -> str:
    stream = io.StringIO()
    render_first_suggestions(list(suggestions), Console(file=stream, width=100), language, folder="out")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "compile the model"),
        ({"line": "model.py:9", "step": 9}, "compile the model (`model.py:9`, step 9)"),
        ({"evidence": {"op": "aten::mm"}}, "compile the model (`aten::mm`)"),
        ({"evidence": {"op": "model"}}, "compile the model"),  # named already
        ({"gain": MEASURED}, "compile the model; measured: a call 1.39 times as fast (1.37 to 1.41)"),
        (
            {"gain": Gain(kind="measured", of="item", speedup=12.4)},
            "compile the model; measured: an item 12 times as fast",
        ),
        (
            {"gain": Gain(kind="estimated", speedup=1.25, share=0.2)},
            "compile the model; estimate: a call at most 1.25 times as fast without these 20.0 %",
        ),
        (
            {"code": "torch.compile(model)", "command": "perfgate run --steps 9"},
            "compile the model; write `torch.compile(model)`; see `perfgate run --steps 9`",
        ),
        ({"gain": Gain(kind="estimated", speedup=1.004, share=0.004)}, "compile the model"),
        (
            {"source": "msprof-analyze advisor 26.2.0"},
            "compile the model, according to `msprof-analyze advisor 26.2.0`",
        ),
    ],
)
def test_comment__suggestion__its_evidence_gain_code_command_and_source(fields: dict[str, Any], words: str) -> None:
    assert bullets(suggestion(**fields)) == [words]


def test_comment__chinese__words_of_the_advice_and_of_the_gain() -> None:
    one = suggestion(message=Message("advice.graph.gain"), gain=MEASURED, step=9)
    assert bullets(one, language="zh") == [
        "请编译模型：同样的调用更快，且输出一致 (第 9 步)；实测：一次调用快至 1.39 倍（1.37 到 1.41）"
    ]


def test_comment__advice_on_what_was_there_before__is_not_the_changes_business() -> None:
    assert bullets(suggestion("new"), suggestion("old", introduced=False)) == ["new"]
    assert bullets(suggestion("old", introduced=False)) == []


def test_comment__seven_suggestions__five_and_where_the_rest_is() -> None:
    found = bullets(*(suggestion(f"advice {number}") for number in range(7)))
    assert found == [*(f"advice {number}" for number in range(5)), "2 more suggestions in `report.html`"]


def test_comment__one_advice_on_two_workloads__said_once() -> None:
    assert bullets(suggestion(), suggestion(workload="decoder")) == ["compile the model"]


def test_comment__nothing_got_worse__no_advice() -> None:
    assert bullets(suggestion(), verdict="PASS") == []


def test_page__suggestions__what_the_change_brought_and_all_the_rest() -> None:
    old = [suggestion(f"old advice {number}", introduced=False, gain=MEASURED) for number in range(50)]
    decision = make_decision("FAIL", comparisons=regressed_counters(), suggestions=[suggestion("new advice"), *old])
    page = render_html(decision, make_run("base"), make_run(), language="en")
    brought, found, rest = page.partition("Other suggestions")
    assert found
    assert "new advice" in brought
    assert "old advice" not in brought
    assert rest.count("old advice") == 50
    assert "1.39 times as fast (1.37 to 1.41)" in rest


def test_terminal__decision__only_what_the_change_brought() -> None:
    stream = io.StringIO()
    decision = make_decision(
        "FAIL", comparisons=regressed_counters(), suggestions=[suggestion("new"), suggestion("old", introduced=False)]
    )
    render_terminal(decision, Console(file=stream, width=100), language="en")
    assert "• new" in stream.getvalue()
    assert "• old" not in stream.getvalue()


def test_run__suggestions__the_first_three_with_what_to_copy_on_lines_of_its_own() -> None:
    found = [suggestion(f"advice {number}", code="x = 1", command="perfgate run") for number in range(5)]
    assert printed(*found).splitlines() == [
        "Try",
        "  • advice 0",
        "      x = 1",
        "      perfgate run",
        "  • advice 1",
        "      x = 1",
        "      perfgate run",
        "  • advice 2",
        "      x = 1",
        "      perfgate run",
        "  … 2 more suggestions: perfgate advise out",
    ]


def test_run__nothing_to_try__not_a_word() -> None:
    assert printed() == ""


def test_advise__nothing_to_try__says_so_in_either_language() -> None:
    for language, words in (("en", "No suggestions"), ("zh", "没有建议")):
        stream = io.StringIO()
        render_suggestions([], Console(file=stream, width=100), language, only_measured=False)  # type: ignore[arg-type]
        assert stream.getvalue().startswith(words)
