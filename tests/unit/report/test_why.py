"""The comment's Why: what explains a slower call stands first, and the parts add up in words."""

from __future__ import annotations

import re

import msgspec
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument
from perfgate.document.explanation import Explanation, OperatorDelta, Part
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from tests.causes.comments import cause_of
from tests.fakes.documents import make_comparison, make_counter, make_decision, make_operator_test, make_run

US = 1e-6


def part(op: str, kind: str, microseconds: float, **fields: object) -> OperatorDelta:
    return OperatorDelta(op=op, kind=kind, seconds=microseconds * US, **fields)  # type: ignore[arg-type]


def explained(*parts: OperatorDelta, measured: float = 400, **fields: object) -> Explanation:
    return Explanation(
        workload="encoder", shape="long", metric="latency.low", measured=measured * US,
        explained=sum(one.seconds for one in parts), contributions=list(parts), **fields,
    )  # type: ignore[arg-type]  # fmt: skip


def decision(explanation: Explanation, *others: object, **fields: object) -> DecisionDocument:
    slower = make_comparison(outcome="regressed", base=0.001, head=0.0014, delta=0.4, interval=(0.3, 0.5))
    return make_decision(
        "FAIL", comparisons=[slower, *others], explanations=[explanation], operator_changes=[], **fields
    )


def counting(metric: str, counted: Part) -> Comparison:
    return msgspec.structs.replace(make_counter(metric, int(counted.base), int(counted.head)), parts=[counted])


def render(made: DecisionDocument) -> str:
    return render_comment(made, CommentContext(marker="<!-- perfgate -->"))


def why(made: DecisionDocument) -> list[str]:
    lines = render(made).splitlines()
    first = next(
        number
        for number, line in enumerate(lines)
        if line == "**Contributing operators**" or "<summary>Contributing operators" in line
    )
    return [line for line in lines[first + 1 : lines.index("</details>", first)] if line]


def cell(made: DecisionDocument) -> str:
    comment = render(made)
    row = next(line for line in comment.splitlines() if line.startswith("| **FAIL** | fast-path"))
    return cause_of(row, comment)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            [part("aten::mm", "slower", 392)],
            "takes 400 µs longer (fast-path latency): 392 µs added, which explains 98.0 %",
        ),
        (
            [part("aten::mm", "slower", 300)],
            "takes 400 µs longer (fast-path latency): "
            "300 µs added, which explains 75.0 %; the remaining 100 µs is spread over changes too small to "
            "distinguish from noise",
        ),
        (
            [part("aten::mm", "added", 700), part("aten::sdpa", "removed", -300)],
            "takes 400 µs longer (fast-path latency): 700 µs added, 300 µs saved, which explains 100 %",
        ),
        (
            [part("aten::mm", "added", 500)],
            "takes 400 µs longer (fast-path latency): "
            "500 µs added, 100 µs more than was measured, because the profiler slows operators down",
        ),
    ],
)
def test_why__parts_and_measured__add_up_in_words(parts: list[OperatorDelta], said: str) -> None:
    assert said in why(decision(explained(*parts)))[0]


def test_why__parts_that_together_got_faster__are_not_said_to_explain_a_slower_call() -> None:
    parts = part("aten::mm", "removed", -300), part("aten::add", "added", 100, base_count=1, head_count=2)
    assert not any("explains" in line for line in why(decision(explained(*parts))))


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        ("memory", "memory", "; like the base, it is bound by memory"),
        ("compute", "scheduling", "; it is bound by the host (scheduling), the base by compute"),
        (None, "memory", None),
    ],
)
def test_why__what_holds_the_call_up__is_said_of_both_sides(base: str, head: str, said: str | None) -> None:
    (line, *_) = why(decision(explained(part("aten::mm", "slower", 400), base_bound=base, head_bound=head)))
    assert line.endswith(said) if said else "bound by" not in line


@pytest.mark.parametrize(
    ("contribution", "bullet", "in_table"),
    [
        (
            part("aten::clone", "added", 300, base_count=0, head_count=8, line="model.py:25"),
            "- 8 more `aten::clone` at `model.py:25`; in `encoder/long`, 0 → 8, 300 µs more self time",
            "8 more `aten::clone` at `model.py:25`",
        ),
        (
            part("aten::addmm", "other_inputs", 300, base_count=2, head_count=2, line="model.py:31", inputs_change="shape",
                 base_inputs="float32[512], float32[8,512], float32[512,512] strided",
                 head_inputs="float32[768], float32[8,768], float32[768,768] strided"),
            "- `aten::addmm` on `float32[768,768]` instead of `float32[512,512]` takes 300 µs longer at `model.py:31`; "
            "in `encoder/long`",
            "`aten::addmm` on `float32[768,768]` instead of `float32[512,512]` takes 300 µs longer at `model.py:31`",
        ),
        (
            part("outside operators", "outside", 300, function="tokenize", line="model.py:8"),
            "- `tokenize` takes 300 µs longer at `model.py:8`; in `encoder/long`",
            "`tokenize` takes 300 µs longer at `model.py:8`",
        ),
        (
            part("aten::item", "waiting", 300, base_count=0, head_count=1, line="model.py:44"),
            "- waiting for `aten::item` takes 300 µs longer at `model.py:44`; in `encoder/long`",
            "waiting for `aten::item` takes 300 µs longer at `model.py:44`",
        ),
        (
            part("outside operators", "launching", 300, base_count=40, head_count=90),
            "- the host takes 300 µs longer between operators, because there are more of them; in `encoder/long`",
            "the host takes 300 µs longer between operators, because there are more of them",
        ),
    ],
)  # fmt: skip
def test_why__what_became_of_an_operator__is_said_in_its_own_words(
    contribution: OperatorDelta, bullet: str, in_table: str
) -> None:
    made = decision(explained(contribution))
    assert why(made)[1] == bullet
    assert cell(made) == in_table


def test_why__counted_operator_and_one_that_lost_most__the_explanations_order_counts() -> None:
    # Two more TransData of 1.9 us were named for a call that Relu slowed by 306 us.
    counted = counting("counters.format_conversions", Part(name="TransData", base=0, head=2))
    relu = part("Relu", "slower", 306, line="model.py:41")
    made = decision(explained(relu, part("TransData", "added", 1.9, base_count=0, head_count=2)), counted)
    assert cell(made) == "`Relu` takes 306 µs longer at `model.py:41`"
    assert why(made)[1].startswith("- `Relu` takes")


def test_why__time_between_operators_that_grew_with_their_number__the_operators_that_were_added_are_the_cause() -> None:
    # A model that waits for the host of its GPU: the added kernels themselves take no time that shows.
    counted = counting("counters.ops", Part(name="aten::clone", base=0, head=8, line="model.py:25"))
    between = part("outside operators", "launching", 860, base_count=23, head_count=63)
    made = decision(explained(between), counted)
    assert cell(made) == "8 more `aten::clone` at `model.py:25`"


def test_table__no_explanation__of_counted_and_tested_operators_the_one_with_more_time() -> None:
    slower = make_comparison(outcome="regressed", base=0.001, head=0.0014, delta=0.4, interval=(0.3, 0.5))
    change = OperatorDelta(workload="encoder", shape="long", op="TransData", base_count=0, head_count=2)  # fmt: skip
    made = make_decision("FAIL", comparisons=[slower], operator_changes=[change],
                         operator_tests=[make_operator_test("Relu", base=1e-5, head=3.16e-4)])  # fmt: skip
    assert "`Relu` takes 306 µs longer" in cell(made)


def test_why__graph_breaks__come_before_the_operators_that_changed_with_them() -> None:
    broken = counting("counters.graph_breaks", Part(name="data-dependent branch", base=0, head=1, line="model.py:12"))
    made = decision(explained(part("aten::mul", "added", 400, base_count=0, head_count=9)), broken)
    assert why(made)[1] == ("- 1 more graph break at `model.py:12`: `data-dependent branch`; in `encoder/long`, 0 → 1")
    assert cell(made) == "1 more graph break at `model.py:12`: `data-dependent branch`"


def test_why__compiled_again_without_a_guard__the_words_of_its_code() -> None:
    again = counting("counters.recompiles", Part(name="graph.new-input", base=0, head=1, line="model.py:12"))
    assert cell(decision(explained(), again)) == "1 more recompilation at `model.py:12`: `called with something new`"


def test_why__bytes_left_behind_in_python__how_many_and_the_line() -> None:
    kept = counting("memory.kept_python", Part(name="forward", base=0, head=100_500, line="model.py:19"))
    assert "98.1 KiB more left behind by `forward` at `model.py:19`" in render(
        make_decision("FAIL", comparisons=[kept])
    )


@pytest.mark.parametrize(
    ("metric", "counted", "said", "entries"),
    [
        ("memory.kept", Part(name="aten::add", aspect="kept", base=0, head=1, line="model.py:44"),
         "1 more `aten::add` at `model.py:44`, and its result is kept", 1),
        ("counters.repeat_saves", Part(name="aten::add", aspect="saved", base=0, head=1, line="model.py:44"),
         "1 more `aten::add` at `model.py:44`, skipped on a repeated input", 1),
        ("memory.kept", Part(name="aten::add", aspect="kept", base=0, head=1, line="model.py:9"),
         "1 more `aten::add` at `model.py:44`", 2),
    ],
)  # fmt: skip
def test_why__counter_tells_more_of_an_operator_that_came__one_entry_of_one_line_says_both(
    metric: str, counted: Part, said: str, entries: int
) -> None:
    added = part("aten::add", "more", 300, base_count=4, head_count=5, line="model.py:44")
    made = decision(explained(added), counting(metric, counted))
    assert cell(made) == said
    assert len([line for line in why(made) if "`aten::add`" in line]) == entries


def test_why__what_a_line_calls_is_too_fast_to_show__named_before_the_views_around_it() -> None:
    # Seen on rows[0, 0].item(): select, of which there are two, takes six times as long.
    select = part("aten::select", "added", 300, base_count=0, head_count=2, line="model.py:43")
    other = part("aten::mul", "added", 50, base_count=0, head_count=1, line="model.py:9")
    item = Part(name="aten::_local_scalar_dense", base=0, head=1, line="model.py:43")
    made = decision(explained(select, other), counting("counters.syncs", item))
    assert cell(made) == "1 more `aten::_local_scalar_dense` (`.item()`) at `model.py:43`"
    assert [line.split("`")[1] for line in why(made)[1:]] == ["aten::_local_scalar_dense", "aten::select", "aten::mul"]


def test_why__operators_in_full_precision_again__say_so_with_the_line_that_had_asked_for_less() -> None:
    counted = counting(
        "counters.low_precision_ops",
        Part(name="aten::addmm", aspect="full precision", base=0, head=6, line="model.py:56"),
    )
    comment = render(make_decision("WARN", comparisons=[counted]))
    (row,) = [line for line in comment.splitlines() if "**worse**" in line]
    assert cause_of(row, comment) == "6 more `aten::addmm` in full precision at `model.py:56`"


def test_table__count_without_parts__refers_to_what_changed() -> None:
    counted = counting("counters.framework_ops", Part(name="aten::add", base=4, head=67, line="model.py:43"))
    blind = make_counter("counters.allocations", 28, 218)
    text = render(make_decision("FAIL", comparisons=[blind, counted], operator_changes=[]))
    assert text.splitlines()[2].endswith("(exact): 63 more `aten::add` at `model.py:43`")
    rows = [line for line in text.splitlines() if line.startswith("| **FAIL**")]
    assert ["framework ops" in rows[0], rows[1].endswith("| changed operators are listed below |")] == [True, True]


def test_page__slower_call__says_how_the_parts_add_up() -> None:
    made = decision(explained(part("aten::mm", "slower", 392)))
    assert "which explains 98.0 %" in render_html(made, make_run("base"), make_run("head"), language="en")


def test_page__cause_without_counts__shows_none_of_either_side() -> None:
    made = decision(explained(part("aten::gelu", "slower", 392)))
    (row,) = re.findall(
        r"<tr><td><code>aten::gelu</code> takes 392 µs longer</td>.*?</tr>",
        render_html(made, make_run("base"), make_run("head"), language="en"),
        re.DOTALL,
    )
    assert row.count('<td class="number">–</td>') == 2


def test_why__python_that_an_exact_counter_found__leads_what_runs_outside_operators() -> None:
    made = decision(
        explained(
            part("outside", "outside", 300, function="forward", line="model.py:22"),
            part("aten::mm", "slower", 100, line="model.py:24"),
        ),
        counting("counters.bytecodes", Part(name="warning", base=0, head=2577, line="model.py:27")),
        counting("counters.bytecodes", Part(name="<lambda>", base=0, head=12, line="model.py:9")),
        counting("counters.python_calls", Part(name="stream", base=0, head=12, line="model.py:27")),
        counting("counters.python_calls", Part(name="helper", base=0, head=30, line="model.py:31")),
    )
    assert cell(made) == "2,577 more bytecodes in `warning` at `model.py:27`"
    assert why(made)[1:] == [
        "- 2,577 more bytecodes in `warning` at `model.py:27`; in `encoder/long`, 0 → 2,577",
        "- `forward` takes 300 µs longer at `model.py:22`; in `encoder/long`",
        "- `aten::mm` takes 100 µs longer at `model.py:24`; in `encoder/long`",
        "- 30 more calls to `helper` at `model.py:31`; in `encoder/long`, 0 → 30",
        "- 12 more bytecodes in `<lambda>` at `model.py:9`; in `encoder/long`, 0 → 12",
    ]


def test_why__cause_on_many_lines__the_rest_is_counted_in_words() -> None:
    sites = [Part(line=f"model.py:{number}", base=0, head=10 - number) for number in range(1, 7)]
    counted = Part(name="aten::clone", base=0, head=39, line="model.py:1", sites=sites)
    text = render(decision(explained(part("aten::mm", "slower", 400)), counting("counters.framework_ops", counted)))
    assert " and 3 more" in text
    assert "mores" not in text
