"""What got worse, one block a cause: what is joined, what it costs, and what accepts it."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from perfgate.document.comparison import Comparison
from perfgate.document.decision import DecisionDocument, SideSummary
from perfgate.document.explanation import OperatorDelta, Part
from perfgate.document.message import Message
from perfgate.document.run import CodeChange
from perfgate.flows.shared.decision import write_decision_folder
from perfgate.flows.shared.results import folder_to_name
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.terminal import render_terminal
from perfgate.judging.report.view.blocks import RegressionBlock, blocks
from perfgate.judging.report.view.summary import Summary
from tests.fakes.documents import make_comparison, make_counter, make_decision, make_run

CONTEXT = CommentContext(marker="<!-- m -->")
SLOWER = make_comparison("latency.low", outcome="regressed", delta=0.068, interval=(0.059, 0.077))
UNCHANGED = make_comparison("latency.low", outcome="unchanged", delta=0.002, interval=(-0.004, 0.009))


def counted(metric: str, base: int, head: int, op: str, line: str | None, **fields: object) -> Comparison:
    made = make_counter(metric, base, head)
    part = Part(name=op, base=base, head=head, line=line)
    return msgspec.structs.replace(made, parts=[part], **fields)


def shown(*comparisons: Comparison, verdict: str = "FAIL", **fields: object) -> list[RegressionBlock]:
    return blocks(Summary(made(*comparisons, verdict=verdict, **fields), "markdown", CONTEXT))


def made(*comparisons: Comparison, verdict: str = "FAIL", **fields: object) -> DecisionDocument:
    fields.setdefault("operator_changes", [])
    fields.setdefault("operator_times", [])
    return make_decision(verdict, comparisons=list(comparisons), **fields)  # type: ignore[arg-type]


def test_blocks__counters_of_one_line__one_block() -> None:
    found = shown(
        counted("counters.copies", 0, 1, "aten::copy_", "model.py:7"),
        counted("counters.copy_bytes", 0, 4096, "aten::copy_", "model.py:7"),
        counted("counters.allocations", 4, 5, "aten::empty_strided", "model.py:7"),
        counted("counters.syncs", 0, 1, "aten::_local_scalar_dense", "model.py:9"),
    )
    # The title gives one of the first.
    assert [len(block.counts) for block in found] == [2, 1]
    assert {block.cause.line for block in found if block.cause} == {"model.py:7", "model.py:9"}


def test_blocks__counter_where_times_are_unchanged__no_slowdown_and_how_much_is_possible() -> None:
    (block,) = shown(UNCHANGED, counted("counters.syncs", 0, 1, "aten::item", "model.py:9"))
    assert block.cost.at_most == "0.9 %"
    text = render_comment(made(UNCHANGED, counted("counters.syncs", 0, 1, "aten::item", "model.py:9")), CONTEXT)
    assert "\n- Cost: no slowdown detected (at most 0.9 %)\n- If" in text


def test_blocks__counter_where_times_prove_nothing__no_bound_on_its_cost() -> None:
    set_aside = msgspec.structs.replace(UNCHANGED, outcome="not_comparable")
    (block,) = shown(set_aside, counted("counters.syncs", 0, 1, "aten::item", "model.py:9"))
    assert block.cost.at_most is None


def test_blocks__counter_where_pairs_are_too_few_for_an_alarm__costs_what_the_interval_says() -> None:
    undecided = msgspec.structs.replace(SLOWER, outcome="inconclusive")
    counter = counted("counters.syncs", 0, 1, "aten::item", "model.py:9")
    assert "- Cost: fast-path latency 6.8 % slower (5.9 to 7.7 %)" in render_comment(made(undecided, counter), CONTEXT)
    for interval in ((-0.01, 0.15), (-0.08, -0.05)):
        unknown = msgspec.structs.replace(undecided, interval=interval, delta=sum(interval) / 2)
        (block,) = shown(unknown, counter)
        assert not block.cost.slower


def test_blocks__slower_call_that_nothing_explains__says_so_and_leads() -> None:
    first, second = shown(counted("counters.syncs", 0, 1, "aten::item", "model.py:9"), SLOWER)
    assert (first.cause, [time.metric for time, _ in first.cost.slower]) == (None, ["latency.low"])
    assert second.cost.at_most is None
    text = render_comment(made(SLOWER), CONTEXT)
    assert (
        "**1. Cause unknown: no counter or profile explains it**\n- Cost: fast-path latency 5.9 to 7.7 % (99 % CI)\n"
        in text
    )


def test_blocks__times_of_operators__what_costs_most_first_and_each_by_itself() -> None:
    found = shown(
        SLOWER,
        counted("counters.framework_ops", 10, 11, "aten::add", "model.py:7"),
        counted("counters.copies", 0, 1, "aten::clone", "model.py:9"),
        operator_times=[
            OperatorDelta(workload="encoder", shape="long", op=op, base=0.0, head=seconds, seconds=seconds)
            for op, seconds in (("aten::add", 1e-4), ("aten::clone", 2e-3))
        ],
        operator_changes=[
            OperatorDelta(workload="encoder", shape="long", op=op, base_count=0, head_count=1, line=line)
            for op, line in (("aten::add", "model.py:7"), ("aten::clone", "model.py:9"))
        ],
    )
    assert [(block.cause and block.cause.op, block.cost.apart) for block in found] == [
        ("aten::clone", "2.00 ms"),
        ("aten::add", "100 µs"),
    ]
    assert [bool(block.cost.slower) for block in found] == [True, False]


@pytest.mark.parametrize(
    ("interval", "cost"), [((-0.006, 0.009), "0.9 %"), ((-0.0006, 0.0003), "0.1 %"), ((-0.06, -0.02), "0.0 %")]
)
def test_cost__no_call_is_slower__the_slowdown_that_is_still_possible(interval: tuple[float, float], cost: str) -> None:
    time = make_comparison("latency.low", outcome="unchanged", delta=-0.0001, interval=interval)
    text = render_comment(made(time, counted("counters.copies", 0, 1, "aten::copy_", "model.py:7")), CONTEXT)
    assert f"- Cost: no slowdown detected (at most {cost})" in text


def test_accept__metrics_of_one_cause__exactly_these_for_the_measured_commit() -> None:
    elsewhere = msgspec.structs.replace(counted("counters.copies", 0, 1, "aten::clone", "model.py:9"), shape="short")
    commands = [
        block.accept.command
        for block in shown(counted("counters.copies", 0, 1, "aten::copy_", "model.py:7"), SLOWER, elsewhere)
    ]
    assert commands == [
        f"perfgate baseline accept {named} --commit 0f1e2d3c4 --reason TEXT"
        for named in ("latency.low", "counters.copies@encoder/long", "counters.copies@encoder/short")
    ]


@pytest.mark.parametrize(
    ("in_ci", "folder", "named"),
    [
        (False, "", "1"),
        (False, "out", "1 --from {folder}"),
        (True, "out", "latency.low"),
    ],
)
def test_accept__files_and_terminal_of_one_check__the_same_command(
    in_ci: bool, folder: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / folder if folder else Path("perfgate-out")
    out.mkdir()
    decision = made(SLOWER, in_ci=in_ci)
    write_decision_folder(out, decision, make_run("base"), make_run("head"), "en")
    terminal = io.StringIO()
    render_terminal(decision, Console(file=terminal, width=300), folder=folder_to_name(out), language="en")
    texts = [(out / name).read_text("utf-8") for name in ("comment.md", "report.html")]
    commands = [
        re.findall(r"perfgate baseline accept .*? --reason TEXT", html.unescape(text))
        for text in (*texts, terminal.getvalue())
    ]
    command = f"perfgate baseline accept {named.format(folder=out)} --commit 0f1e2d3c4 --reason TEXT"
    assert commands == [[command]] * 3


METRICS = ["framework_ops", "copies", "copy_bytes", "allocations", "bytecodes", "python_calls"]


def counted_in(workload: str, op: str, line: str, shape: str) -> list[Comparison]:
    return [
        msgspec.structs.replace(counted(f"counters.{name}", 0, 1, op, line), workload=workload, shape=shape)
        for name in METRICS
    ]


def test_accept__as_many_metrics_and_places_as_one_command_may_have__it_is_whole_everywhere() -> None:
    rows = []
    for side, line in (("encoder", "a.py:1"), ("decoder", "b.py:1")):
        for batch in (32, 64):
            rows += counted_in(f"transformer_{side}_large", f"aten::{side}", line, f"batch{batch}-sequence512")
    decision = made(*rows)
    terminal = io.StringIO()
    render_terminal(decision, Console(file=terminal, width=3000), "en")
    page = html.unescape(render_html(decision, None, make_run("head"), "en"))
    for text in (render_comment(decision, CONTEXT), terminal.getvalue(), page):
        commands = re.findall(r"perfgate baseline accept ([^…\n]*?) --commit 0f1e2d3c4 --reason TEXT", text)
        assert [len(keys.split()) for keys in commands] == [12, 12]


@pytest.mark.parametrize("shape", ["long" * 40, "a|b", "a\nb", "a\u202eb"])
def test_accept__names_that_no_medium_can_show_as_they_are__no_line(shape: str) -> None:
    rows = counted_in("encoder", "aten::add", "a.py:1", shape) + counted_in("decoder", "aten::mul", "b.py:1", "short")
    of_encoder, of_decoder = shown(*rows)
    assert of_encoder.accept.command is None
    assert of_decoder.accept.command


@pytest.mark.parametrize(
    "fields",
    [
        {"head": SideSummary(commit="0f1e2d3c4b5a", dirty=True)},
        {"head": SideSummary()},
        {"verdict": "WARN"},
        {"comparing": "stack"},
    ],
)
def test_accept__what_cannot_be_accepted__no_line(fields: dict[str, object]) -> None:
    assert [block.accept.command for block in shown(SLOWER, **fields)] == [None]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("folder", "command"), [("out", "perfgate baseline accept 1 --from out --commit"), (None, None)]
)
def test_accept__more_metrics_than_fit_a_command__by_number_alone(folder: str | None, command: str | None) -> None:
    counts = [counted(f"counters.c{at}", 0, 1, "aten::bmm", "a.py:1") for at in range(13)]
    context = dataclasses.replace(CONTEXT, folder=folder)
    (block,) = blocks(Summary(made(*counts), "markdown", context))
    assert (block.accept.command or "").startswith(command or "")
    assert (block.accept.command is None) == (command is None)
    decision = made(*counts)
    assert len(decision.explained.regressions[0].accepts) == 13


def test_accept__hostile_workload__one_word_of_the_shell() -> None:
    hostile = msgspec.structs.replace(counted("counters.syncs", 0, 1, "aten::item", "a.py:1"), workload="x; rm -rf ~")
    other = counted("counters.syncs", 0, 1, "aten::item", "b.py:1")
    commands = " ".join(block.accept.command or "" for block in shown(hostile, other))
    assert "'counters.syncs@x; rm -rf ~/long'" in commands


@pytest.mark.parametrize("shape", ["*", "l?ng", "[a-z]", "x@encoder"])
def test_accept__shape_that_reads_like_a_pattern__cannot_accept_others(shape: str) -> None:
    odd = msgspec.structs.replace(counted("counters.syncs", 0, 1, "aten::item", "a.py:1"), shape=shape)
    other = counted("counters.syncs", 0, 1, "aten::item", "b.py:1")
    decision = made(odd, other)
    found = {decision.explained.causes[one.causes[0]].line: one.accepts for one in decision.explained.regressions}
    assert found == {"a.py:1": [], "b.py:1": ["counters.syncs@encoder/long"]}


def test_comment__metrics_that_one_person_accepted__are_named_once() -> None:
    lines = {"counters.copies": "model.py:7", "counters.copy_bytes": "model.py:7", "counters.syncs": "model.py:9"}
    accepted = [
        counted(metric, 0, 1, f"aten::op{line[-1]}", line, gating=False, accepted="mei: twice the layers")
        for metric, line in lines.items()
    ]
    reasons = [Message("verdict.accepted", {"name": Message("verdict.accepted-by", {"place": "x", "by": "mei"})})] * 3
    decision = made(*accepted, verdict="WARN", reasons=reasons)
    text = render_comment(decision, CONTEXT).partition("<details>")[0]
    # In the title for the first cause, and with the second.
    assert text.count("mei") == 2
    assert "\n- Accepted by mei: twice the layers\n" in text
    assert "(exact), accepted by mei: twice the layers: 1 more `aten::op7` at `model.py:7`\n" in text
    console = Console(file=io.StringIO(), width=200, color_system=None)
    render_terminal(decision, console, language="en")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("mei: twice the layers") == 2


def test_blocks__verdict_that_is_no_regression__none() -> None:
    assert shown(SLOWER, verdict="PASS") == []
    assert shown(SLOWER, verdict="INCONCLUSIVE") == []


def of_lines(**texts: str) -> DecisionDocument:
    """Return a decision whose counters grew at ``lineN`` of model.py, each a change of its own with this text."""
    lines = {int(name.removeprefix("line")): text for name, text in texts.items()}
    metrics = ("counters.copies", "counters.syncs", "counters.framework_ops")
    counters = [counted(m, 0, 1, f"aten::op{n}", f"model.py:{n}") for m, n in zip(metrics, lines)]
    changes = [
        CodeChange(file="model.py", first=n, last=n, chains=[[(n, n)]], text=[text]) for n, text in lines.items()
    ]
    return made(*counters, changes=changes)


def address(line: str) -> str:
    return f"https://forge.example/{line.replace(':', '#L')}"


def test_comment__cause_that_the_title_names__its_block_has_line_and_text_alone() -> None:
    text = render_comment(of_lines(line7="x = x.clone()", line9="y = x.item()"), replace(CONTEXT, source=address))
    title = next(line for line in text.splitlines() if line.startswith("## "))
    assert title.endswith("1 more `aten::op7` at `model.py:7`")
    assert "\n**1.** [`model.py:7`](https://forge.example/model.py#L7): `x = x.clone()`\n" in text
    assert (
        "\n**2. 1 more `aten::op9` at [`model.py:9`](https://forge.example/model.py#L9)** in `encoder/long`: "
        "`y = x.item()`\n" in text
    )
    assert text.partition("<details>")[0].count("aten::op7") == 1


@pytest.mark.parametrize(
    "code",
    [
        "x = `</details>`",
        "[a](https://evil.example)",
        "@octocat #1 !2 /approve",
        "<img src=x onerror=alert(1)>",
        "a\u202eb",
        "```\n/close\n```",
        "\x1b[2J",
        "|" * 50,
    ],
)
def test_comment__hostile_line__is_one_code_span(code: str) -> None:
    text = render_comment(of_lines(line7=code), replace(CONTEXT, source=address))
    (line,) = [line for line in text.splitlines() if line.startswith("**1.** ")]
    assert re.fullmatch(
        r"\*\*1\.\*\* \[`model\.py:7`\]\(https://forge\.example/model\.py#L7\): (`+)(?!`).*?(?<!`)\1", line
    )


def test_comment__line_longer_than_a_comment_is_wide__is_cut() -> None:
    text = render_comment(of_lines(line7=f"x = {'a + ' * 100}b"), CONTEXT)
    (line,) = [line for line in text.splitlines() if line.startswith("**1.** ")]
    assert line.endswith("…`")
    assert len(line) < 150


@pytest.mark.parametrize(
    ("line", "url"),
    [("model.py:7", "javascript:alert(1)"), ("model.py:7", "https://x.example/a)b"), ("model.py:7", None)],
)
def test_comment__address_that_is_none__the_line_alone(line: str, url: str | None) -> None:
    text = render_comment(of_lines(line7="x"), replace(CONTEXT, source=lambda _: url))
    assert f"**1.** `{line}`: `x`\n" in text


def test_blocks__one_chain__one_block_with_its_other_lines() -> None:
    change = CodeChange(
        file="model.py",
        first=25,
        last=26,
        chains=[[(25, 25), (26, 26)]],
        text=["scores = query @ key", "weights = scores.softmax(-1)"],
    )
    comparisons = (
        counted("counters.framework_ops", 1, 9, "aten::bmm", "model.py:25"),
        counted("memory.peak", 4096, 8192, "aten::_softmax", "model.py:26"),
    )
    (block,) = shown(*comparisons, changes=[change])
    assert [(cause.op, cause.line) for cause in block.also] == [("aten::_softmax", "model.py:26")]
    text = render_comment(made(*comparisons, changes=[change]), CONTEXT)
    assert "\n- Also on other lines: 4.00 KiB more held by `aten::_softmax` at `model.py:26`\n" in text
    assert text.count("| see 1 |") == 2


def test_terminal__block__quotes_its_line() -> None:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    render_terminal(of_lines(line7="x = x.clone()\x1b[2J"), console, language="en")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "\n1. model.py:7: x = x.clone()\ufffd[2J\n" in text


def test_blocks__stalls_with_a_known_line__explained_by_it_and_sized() -> None:
    how = Message("gate.stall-computing")
    reason = Message("gate.rare-slow-calls-at", {"every": 92, "how": how, "line": "model.py:31", "seconds": 0.00123})
    stalls = make_comparison(
        "latency.stalls",
        shape="short",
        unit="1",
        outcome="regressed",
        base=0.0005,
        head=0.0115,
        delta=22.0,
        interval=None,
        reason=reason,
    )
    (block,) = shown(stalls)
    assert (block.stalls, block.unexplained) == (reason, False)
    text = render_comment(made(stalls), CONTEXT)
    assert "| 2,200 % higher |" in text
    assert "Cause unknown" not in text
