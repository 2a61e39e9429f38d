"""Which changed place a line goes back to, and that a cause on it leads one on an unchanged line."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.explanation import Origin, Part
from perfgate.document.job import CalledFunction
from perfgate.document.run import CodeChange
from perfgate.judging.gate.evidence.changed_code import ChangedCode, HeadCode
from tests.fakes.documents import explained, make_counter, make_decision, make_run
from tests.fakes.records import changed

FUNCTIONS = [
    CalledFunction(name="forward", file="m.py", first=10, last=20, callers=["service.py:7"]),
    CalledFunction(name="helper", file="m.py", first=30, last=40, callers=["m.py:15"]),
    CalledFunction(name="call", file="service.py", first=1, last=9),
]


def place(file: str, line: int, function: str | None = None, begins: int = 0, ends: int = 0) -> CodeChange:
    return CodeChange(file=file, first=line, last=line, function=function, begins=begins or None, ends=ends or None)


HOOK = place("service.py", 7, "call", 1, 9)
LOOP = place("m.py", 15, "forward", 10, 20)
TOP = place("m.py", 12, "forward", 10, 20)


@pytest.mark.parametrize(
    ("changes", "line", "origin"),
    [
        ([LOOP], "m.py:15", Origin(line="m.py:15", reach="line", function="forward")),
        ([LOOP], "m.py:33", Origin(line="m.py:15", reach="caller", function="forward")),
        ([HOOK], "m.py:33", Origin(line="service.py:7", reach="caller", function="call")),
        ([TOP], "m.py:18", Origin(line="m.py:12", reach="function", function="forward")),
        ([place("other.py", 3)], "m.py:18", Origin(line="other.py:3", reach="elsewhere")),
        ([place("other.py", n) for n in range(1, 9)], "m.py:18", None),
        ([], "m.py:18", None),
    ],
)
def test_origin__what_changed_and_who_calls__nearest_changed_place(
    changes: list[CodeChange], line: str, origin: Origin | None
) -> None:
    assert ChangedCode(changes, FUNCTIONS, texts=None).line(line).origin == origin


def test_chain__line_that_the_only_change_reaches__its_chain_whatever_is_imported() -> None:
    imports = msgspec.structs.replace(place("m.py", 3), imports=True, chains=[[(3, 3)]])
    one = msgspec.structs.replace(LOOP, last=16, chains=[[(15, 15), (16, 16)]])
    two = msgspec.structs.replace(LOOP, last=16, chains=[[(15, 15)], [(16, 16)]])
    assert ChangedCode([imports, one], FUNCTIONS, texts=None).line("other.py:5").origin == Origin(
        line="m.py:15", reach="elsewhere", function="forward"
    )
    assert ChangedCode([imports, one], FUNCTIONS, texts=None).line("other.py:5").chain == ("m.py", 15)
    assert ChangedCode([imports, one], FUNCTIONS, texts=None).line("m.py:19").chain == ("m.py", 15)
    # Which of two it is would be a guess.
    for changes in ([two], [one, TOP], [one, place("service.py", 7, "call", 1, 9)]):
        assert ChangedCode(changes, FUNCTIONS, texts=None).line("other.py:5").chain is None
    assert ChangedCode([imports], functions=(), texts=None).line("other.py:5").origin == Origin(
        line="m.py:3", reach="elsewhere"
    )


def test_callers__functions_that_call_each_other__ends() -> None:
    loop = [
        CalledFunction(name="a", file="m.py", first=1, last=3, callers=["m.py:5"]),
        CalledFunction(name="b", file="m.py", first=4, last=6, callers=["m.py:2"]),
    ]
    assert ChangedCode([], loop, texts=None).callers("m.py:2") == ["m.py:2", "m.py:5"]


def test_causes__more_calls_on_an_unchanged_line_and_on_a_changed_one__the_changed_line_leads() -> None:
    parts = [
        Part(name="aten::clone", base=1, head=4, line="m.py:18"),
        Part(name="aten::select", base=0, head=3, line="m.py:15"),
    ]
    decision = make_decision("FAIL", comparisons=[make_counter("counters.framework_ops", 1, 7, parts=parts)])
    head = make_run("head")
    counters = [
        msgspec.structs.replace(head.checklist.counters[0], workload="encoder", shape="long", functions=FUNCTIONS)
    ]
    head = changed(head, counters=counters, source=msgspec.structs.replace(head.source, changes=[LOOP]))
    assert [cause.line for cause in explained(decision).explained.causes] == ["m.py:18", "m.py:15"]
    (lead, *_) = explained(decision, HeadCode.of(head)).explained.causes
    assert (lead.line, lead.origin) == ("m.py:15", Origin(line="m.py:15", reach="line", function="forward"))
