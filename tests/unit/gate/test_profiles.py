"""Profiles of jobs: the function and the line that take longer are named, and a verdict never hangs on them."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import DecisionDocument
from perfgate.document.job import JobNumber, JobRecord
from perfgate.document.profile import CalledFunction, JobProfile, ProfiledLine
from perfgate.document.run import CodeChange, RunDocument
from perfgate.judging.report.render.comment import CommentContext, render_comment
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


def profile(*lines: _Line, seconds: float = 6e-3, functions: tuple[CalledFunction, ...] = ()) -> JobProfile:
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
    )


def decided(
    base: JobProfile | None, head: JobProfile | None, *changes: CodeChange, slowdown: float = 0.3
) -> DecisionDocument:
    """Judge a server whose head is slower, with these profiles and these changes of the code."""
    documents: list[RunDocument] = []
    for run, of_side in zip(runs(slowdown, record=RECORD), (base, head)):
        source = msgspec.structs.replace(run.source, changes=list(changes) if run.side == "head" else [])
        documents.append(msgspec.structs.replace(run, source=source, profiles=[of_side] if of_side else []))
    return judged(*documents)


def change(file: str, line: int, function: str, *, begins: int, ends: int) -> CodeChange:
    return CodeChange(file=file, first=line, last=line, function=function, begins=begins, ends=ends, text=["changed()"])


def test_explain_jobs__a_function_takes_longer__named_with_its_line_first_in_the_title() -> None:
    slow: _Line = ("decode", "tokenizer.py:12", 3e-3, 0.0, 300, "text = slow(tokens)")
    decision = decided(profile(FORWARD, SEND), profile(FORWARD, SEND, slow))
    assert decision.verdict == "FAIL"
    (explained,) = decision.explanations
    assert [(part.op, part.line) for part in explained.contributions] == [("decode", "tokenizer.py:12")]
    assert next(c for c in decision.comparisons if c.metric == TPOT).cause == 0
    title = render_comment(decision, CommentContext(marker="<!-- perfgate -->")).splitlines()[2]
    assert "`decode` takes 3.00 ms longer at `tokenizer.py:12`" in title


def test_explain_jobs__two_lines_of_a_function__the_one_whose_text_takes_longer() -> None:
    moved: _Line = ("Model.forward", "model.py:23", 4e-3, 0.0, 400, "return self.head(states)")
    more: _Line = ("Model.forward", "model.py:22", 2e-3, 0.0, 200, "states = states.contiguous().clone()")
    decision = decided(profile(FORWARD, SEND), profile(moved, more, SEND))
    assert [part.line for part in decision.explanations[0].contributions] == ["model.py:22"]


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
    assert (decision.explanations, decision.causes) == ([], [])


def test_explain_jobs__requests_sleep__named_though_it_takes_no_cpu() -> None:
    sleeps: _Line = ("stream", "server.py:50", 0.0, 3e-3, 300, "await asyncio.sleep(0.003)")
    decision = decided(profile(FORWARD, SEND), profile(FORWARD, SEND, sleeps, seconds=9e-3))
    assert [(part.op, part.line) for part in decision.explanations[0].contributions] == [("stream", "server.py:50")]


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
    assert [part.op for part in decision.explanations[0].contributions] == ["Model.forward", "send"]
    first = decision.causes[0]
    assert (first.op, first.line, first.origin and first.origin.reach) == ("send", "server.py:60", "line")


def test_explain_jobs__no_slowdown__a_profile_shows_none() -> None:
    slow: _Line = ("decode", "tokenizer.py:12", 3e-3, 0.0, 300, "text = slow(tokens)")
    decision = decided(profile(FORWARD), profile(FORWARD, slow), slowdown=0.0)
    assert (decision.verdict, decision.explanations, decision.causes) == ("PASS", [], [])


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
