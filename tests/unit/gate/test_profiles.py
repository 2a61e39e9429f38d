"""Profiles of jobs: the function and the line that take longer are named, and a verdict never hangs on them."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import DecisionDocument
from perfgate.document.job import CalledFunction, JobNumber, JobProfile, JobRecord, ProfiledLine, ProfiledOperator
from perfgate.document.run import CodeChange, RunDocument
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.records import changed
from tests.unit.gate.test_turns import CPU, NAME, TPOT, judged, runs

# Function, line, CPU seconds a token, seconds waited, samples, text.
_Line = tuple[str, str, float, float, int, str]
FORWARD: _Line = ("Model.forward", "model.py:20", 4e-3, 0.0, 400, "return self.head(states)")
SEND: _Line = ("send", "server.py:60", 1e-3, 0.0, 100, "writer.write(data)")
RECORD = JobRecord(
    name=NAME,
    kind="server",
    reference="python serve.py",
    sha256="0" * 64,
    numbers=[
        JobNumber(metric=TPOT, unit="s", better="lower"),
        JobNumber(metric=CPU, unit="s", better="lower", gating=False),
    ],
)


def profile(
    *lines: _Line,
    seconds: float = 6e-3,
    functions: tuple[CalledFunction, ...] = (),
    operators: tuple[ProfiledOperator, ...] = (),
) -> JobProfile:
    return JobProfile(
        workload=NAME,
        per="token",
        units=500,
        seconds=seconds,
        cpu=sum(line[2] for line in lines),
        lines=[
            ProfiledLine(function=function, line=line, cpu=cpu, waited=waited, samples=samples, code=code)
            for function, line, cpu, waited, samples, code in lines
        ],
        functions=list(functions),
        operators=list(operators),
        operator_units=100 if operators else 0,
    )


def operator(name: str, calls: float, seconds: float, *, on_device: bool = False) -> ProfiledOperator:
    """One that `Model.forward` calls so often in a token, each call taking nearly the same."""
    return ProfiledOperator(
        name=name,
        function="Model.forward",
        line="model.py:18",
        calls=calls,
        seconds=seconds,
        spread=1e-6,
        on_device=on_device,
    )


LINEAR, RELU = operator("aten::linear", 4, 1e-3), operator("aten::relu", 4, 1e-4)


def decided(
    base: JobProfile | None, head: JobProfile | None, *changes: CodeChange, slowdown: float = 0.3
) -> DecisionDocument:
    """Judge a server whose head is slower, with these profiles and these changes of the code."""
    documents: list[RunDocument] = []
    for run, of_side in zip(runs(slowdown, record=RECORD), (base, head)):
        source = msgspec.structs.replace(run.source, changes=list(changes) if run.side == "head" else [])
        documents.append(changed(run, source=source, profiles=[of_side] if of_side else []))
    return judged(*documents)


def change(file: str, line: int, function: str, *, begins: int, ends: int) -> CodeChange:
    return CodeChange(file=file, first=line, last=line, function=function, begins=begins, ends=ends, text=["changed()"])


def test_explain_jobs__a_function_takes_longer__named_with_its_line_first_in_the_title() -> None:
    slow: _Line = ("decode", "tokenizer.py:12", 3e-3, 0.0, 300, "text = slow(tokens)")
    decision = decided(profile(FORWARD, SEND), profile(FORWARD, SEND, slow))
    assert decision.verdict == "FAIL"
    (explained,) = decision.explained.explanations
    assert [(part.op, part.line) for part in explained.contributions] == [("decode", "tokenizer.py:12")]
    assert next(c for c in decision.comparisons if c.metric == TPOT).cause == 0
    title = render_comment(decision, CommentContext(marker="<!-- perfgate -->")).splitlines()[2]
    assert "`decode` takes 3.00 ms longer at `tokenizer.py:12`" in title


def test_explain_jobs__two_lines_of_a_function__the_one_whose_text_takes_longer() -> None:
    moved: _Line = ("Model.forward", "model.py:23", 4e-3, 0.0, 400, "return self.head(states)")
    more: _Line = ("Model.forward", "model.py:22", 2e-3, 0.0, 200, "states = states.contiguous().clone()")
    decision = decided(profile(FORWARD, SEND), profile(moved, more, SEND))
    assert [part.line for part in decision.explained.explanations[0].contributions] == ["model.py:22"]


@pytest.mark.parametrize(
    "head",
    [
        # A few samples more are chance.
        [("Model.forward", "model.py:20", 4.3e-3, 0.0, 430, "return self.head(states)"), SEND],
        [FORWARD, SEND, ("log", "server.py:90", 2e-4, 0.0, 8, "print()")],
        # What waits in the background waits for as long as the work takes.
        [FORWARD, SEND, ("watch", "server.py:95", 0.0, 9e-3, 900, "await asyncio.sleep(1)")],
    ],
)
def test_explain_jobs__chance_or_background__nothing_is_named(head: list[_Line]) -> None:
    background: _Line = ("watch", "server.py:95", 0.0, 6e-3, 600, "await asyncio.sleep(1)")
    decision = decided(profile(FORWARD, SEND, background), profile(*head, seconds=9e-3))
    assert decision.verdict == "FAIL"
    assert (decision.explained.explanations, decision.explained.causes) == ([], [])


def test_explain_jobs__requests_sleep__named_though_it_takes_no_cpu() -> None:
    sleeps: _Line = ("stream", "server.py:50", 0.0, 3e-3, 300, "await asyncio.sleep(0.003)")
    decision = decided(profile(FORWARD, SEND), profile(FORWARD, SEND, sleeps, seconds=9e-3))
    assert [(part.op, part.line) for part in decision.explained.explanations[0].contributions] == [
        ("stream", "server.py:50")
    ]


def test_explain_jobs__two_grew_alike__the_files_of_the_diff_decide() -> None:
    grown: list[_Line] = [
        ("Model.forward", "model.py:20", 7.2e-3, 0.0, 700, "return self.head(states)"),
        ("send", "server.py:60", 4e-3, 0.0, 400, "writer.write(data)"),
    ]
    calls = CalledFunction(name="send", file="server.py", first=58, last=62)
    decision = decided(
        profile(FORWARD, SEND),
        profile(*grown, functions=(calls,)),
        change("server.py", 60, "send", begins=58, ends=62),
    )
    assert [part.op for part in decision.explained.explanations[0].contributions] == ["Model.forward", "send"]
    first = decision.explained.causes[0]
    assert (first.op, first.line, first.origin and first.origin.reach) == ("send", "server.py:60", "line")


def test_explain_jobs__no_slowdown__a_profile_shows_none() -> None:
    slow: _Line = ("decode", "tokenizer.py:12", 3e-3, 0.0, 300, "text = slow(tokens)")
    decision = decided(profile(FORWARD), profile(FORWARD, slow), slowdown=0.0)
    assert (decision.verdict, decision.explained.explanations, decision.explained.causes) == ("PASS", [], [])


@pytest.mark.parametrize("slowdown", [0.0, 0.3])
@pytest.mark.parametrize(("base", "head", "sides"), [(True, False, ["head"]), (False, False, ["base", "head"])])
def test_missing_profiles__are_named_and_change_no_verdict(
    base: bool, head: bool, sides: list[str], slowdown: float
) -> None:
    whole = decided(profile(FORWARD), profile(FORWARD), slowdown=slowdown)
    lacking = decided(profile(FORWARD) if base else None, profile(FORWARD) if head else None, slowdown=slowdown)
    assert lacking.verdict == whole.verdict
    notes = [note for note in lacking.warnings if note.code == "notes.no-profile"]
    assert [note.values["sides"] for note in notes] == ([sides] if slowdown else [])


def test_explain_jobs__a_function_takes_longer__the_operators_that_it_calls_more_often_follow() -> None:
    slower: _Line = ("Model.forward", "model.py:20", 6e-3, 0.0, 600, "return self.head(states)")
    sort = operator("aten::sort", 0.5, 2e-3)
    decision = decided(profile(FORWARD, operators=(LINEAR, RELU)), profile(slower, operators=(LINEAR, RELU, sort)))
    (explained,) = decision.explained.explanations
    assert [(part.op, part.kind, part.base_count, part.head_count, part.line) for part in explained.contributions] == [
        ("Model.forward", "slower", None, None, "model.py:20"),
        ("aten::sort", "added", 0, 0.5, "model.py:20"),
    ]
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    assert "`Model.forward` takes 2.00 ms longer at `model.py:20`" in comment.splitlines()[2]
    assert "`aten::sort`" in comment


@pytest.mark.parametrize(
    ("grown", "kind"),
    [(operator("aten::linear", 8, 2e-3), "more"), (operator("aten::linear", 4, 2e-3), "slower")],
)
def test_explain_jobs__no_function_is_sure__the_operator_with_the_changed_line(
    grown: ProfiledOperator, kind: str
) -> None:
    decision = decided(
        profile(FORWARD, operators=(LINEAR, RELU)),
        profile(FORWARD, operators=(grown, RELU)),
        change("model.py", 19, "Model.forward", begins=18, ends=20),
    )
    (part,) = decision.explained.explanations[0].contributions
    assert (part.op, part.kind, part.seconds, part.line) == ("aten::linear", kind, 1e-3, "model.py:19")
    assert (decision.explained.causes[0].op, decision.explained.causes[0].line) == ("aten::linear", "model.py:19")


def test_explain_jobs__work_of_a_device_takes_longer__it_and_not_the_function_that_waits() -> None:
    waits: _Line = ("step", "engine.py:9", 5e-3, 0.0, 500, "torch.cuda.synchronize()")
    before, after = (operator("aten::linear", 4, seconds, on_device=True) for seconds in (1e-3, 4e-3))
    decision = decided(profile(FORWARD, operators=(before,)), profile(FORWARD, waits, operators=(after,)))
    assert [part.op for part in decision.explained.explanations[0].contributions] == ["aten::linear"]


def test_explain_jobs__smaller_batches__every_operator_is_called_more_often_and_none_named() -> None:
    base = tuple(operator(f"aten::{number}", 4, 1e-3) for number in range(20))
    head = tuple(operator(f"aten::{number}", 6, 1.5e-3) for number in range(20))
    assert decided(profile(FORWARD, operators=base), profile(FORWARD, operators=head)).explained.explanations == []
    # A document from elsewhere may hold anything.
    none = tuple(operator(f"aten::{number}", 0, 0.0) for number in range(20))
    assert decided(profile(FORWARD, operators=none), profile(FORWARD, operators=head)).verdict == "FAIL"
