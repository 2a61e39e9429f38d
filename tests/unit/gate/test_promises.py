import msgspec
import pytest

from perfgate.document.comparison import Paired
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import CallAccount, CallRow, CorrectnessResult, CounterSet, CounterSite, OpCount
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.compare.head_rules import compare_signatures
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.bounds import HeadNumbers
from perfgate.judging.gate.evidence.index import Evidence, RunIndex
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.unit.gate.builders import sides
from tests.wording import text_of, worded

CONTEXT = CommentContext(marker="<!-- perfgate:v1:demo -->")
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]


def correctness(signature, status="not_checked"):
    return CorrectnessResult(workload="encoder", shape="long", status=status, signature=signature)


def pair(base, head):
    return (
        changed(make_run("base"), correctness=[base]),
        changed(make_run("head"), correctness=[head]),
    )


def checks(base, head):
    return HeadNumbers.of(RunIndex(base), RunIndex(head), Policy()).checks


def test_compare_signatures__signature_changed__regressed_from_what_to_what() -> None:
    base, head = pair(correctness("(float32[8,48],)"), correctness("(float16[8,48],)"))
    (found,) = compare_signatures(checks(base, head))

    assert (found.metric, found.outcome, found.gating) == ("correctness.signature", "regressed", True)
    assert text_of(found.reason) == "the output changed from (float32[8,48],) to (float16[8,48],)"


@pytest.mark.parametrize(("before", "after"), [("int64[2]", "int64[2]"), (None, "int64[2]"), ("int64[2]", None)])
def test_compare_signatures__signature_equal_or_unknown__no_comparison_that_could_pass(
    before: str | None, after: str | None
) -> None:
    assert list(compare_signatures(checks(*pair(correctness(before), correctness(after))))) == []


def test_decide__signature_changed__fails_and_the_comment_says_how() -> None:
    base, head = sides(NO_CHANGE)
    base = changed(base, correctness=[correctness("float32[8,48]", "passed")])
    head = changed(head, correctness=[correctness("float32[8,47]", "passed")])
    decision = decide(base, head, policy=Policy(), history=History())

    assert decision.verdict == "FAIL"
    assert worded(decision.reasons) == ["regressed: encoder/long correctness.signature"]
    comment = render_comment(decision, CONTEXT)
    assert "FAIL – the output changed from `float32[8,48]` to `float32[8,47]`" in comment
    assert "check failed" not in comment


def counted(values, sites=(), ops=(), unstable=()):
    return CounterSet(
        workload="encoder",
        shape="long",
        repeats=3,
        values=values,
        ops=list(ops),
        sites=list(sites),
        unstable=list(unstable),
    )


def site(line, code, count=1, metric="counters.framework_ops", name="aten::add"):
    return CounterSite(metric=metric, name=name, count=count, line=line, code=code)


def compared(base, head, *, status="not_checked"):
    before = changed(make_run("base"), counters=[base])
    after = changed(make_run("head"), counters=[head], correctness=[correctness(None, status)])
    return {found.metric: found for found in compare_counters(WorkTable(Evidence(before, after)).counted, Policy())}


OPS = "counters.framework_ops"


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        # Lines above came and went; the code that is new is named.
        ([("m.py:5", "a")], [("m.py:9", "a"), ("m.py:4", "b")], "m.py:4"),
        # The same code twice: the later line.
        ([("m.py:5", "a")], [("m.py:6", "a"), ("m.py:12", "a")], "m.py:12"),
        # Sources that cannot be read: the line itself.
        ([("m.py:5", None)], [("m.py:5", None), ("m.py:7", None)], "m.py:7"),
        # An operator that no line of the project calls.
        ([], [(None, None)], None),
    ],
)
def test_compare_counters__line_of_the_rise(before: str | None, after: str | None, line: str | None) -> None:
    base = counted({OPS: len(before)}, [site(*at) for at in before])
    head = counted({OPS: len(after)}, [site(*at) for at in after])
    (part,) = compared(base, head)[OPS].parts

    assert (part.name, part.base, part.head, part.line) == ("aten::add", len(before), len(after), line)


def test_compare_counters__the_line_that_rose_most_not_the_most_frequent() -> None:
    base = counted({OPS: 9}, [site("m.py:5", "loop", 8), site("m.py:9", "tail")])
    head = counted({OPS: 12}, [site("m.py:5", "loop", 9), site("m.py:9", "tail", 3)])

    assert compared(base, head)[OPS].parts[0].line == "m.py:9"


def test_compare_counters__documents_without_sites__the_operators_own_lines() -> None:
    base = counted({OPS: 1}, ops=[OpCount(op="aten::add", count=1, line="m.py:5")])
    head = counted({OPS: 3}, ops=[OpCount(op="aten::add", count=3, line="m.py:5"), OpCount(op="t", count=1, view=True)])

    assert [(part.name, part.head, part.line) for part in compared(base, head)[OPS].parts] == [
        ("aten::add", 3, "m.py:5")
    ]


def test_compare_counters__low_precision_rises__suspected_without_a_check_and_accepted_with_one() -> None:
    name = "counters.low_precision_ops"
    base, head = counted({name: 0}), counted({name: 2}, [site("m.py:5", "h.half()", 2, name, "aten::_to_copy")])

    unchecked, accepted = compared(base, head)[name], compared(base, head, status="passed")[name]
    assert (unchecked.outcome, unchecked.gating, unchecked.parts[0].line) == ("inconclusive", False, "m.py:5")
    assert (accepted.outcome, accepted.gating) == ("unchanged", False)
    assert "the workload's check accepts the output" in (text_of(accepted.reason))
    assert compared(head, base)[name].outcome == "unchanged"


def test_decide__low_precision_rises__warns_and_names_it() -> None:
    name = "counters.low_precision_ops"
    base, head = sides(NO_CHANGE)
    ops = [OpCount(op="aten::mm", count=2)]
    low = counted({name: 2}, [site("m.py:5", "x", 2, name, "aten::mm")], ops)
    base = changed(base, counters=[counted({name: 0}, ops=ops)])
    head = changed(head, counters=[low])
    decision = decide(base, head, policy=Policy(), history=History())

    assert (decision.verdict, worded(decision.reasons)) == ("WARN", [f"doubtful: encoder/long {name}"])
    comment = render_comment(decision, CONTEXT)
    assert "WARN – low-precision ops per call 0 → 2" in comment
    assert "m.py:5" in comment


@pytest.mark.parametrize(("speed", "verdict"), [(1.0, "FAIL"), (0.9, "PASS")])
def test_decide__low_precision_dropped__fails_with_its_line_unless_calls_got_faster(speed: float, verdict: str) -> None:
    name = "counters.low_precision_ops"
    base, head = sides([speed * ratio for ratio in NO_CHANGE])
    low = counted(
        {name: 2}, [site("m.py:5", "with autocast():", 2, name, "aten::mm")], [OpCount(op="aten::mm", count=2)]
    )
    base = changed(base, counters=[low])
    head = changed(head, counters=[counted({name: 0}, ops=[OpCount(op="aten::mm", count=2)])])
    decision = decide(base, head, policy=Policy(), history=History())

    assert decision.verdict == verdict
    if verdict == "FAIL":
        assert worded(decision.reasons) == [f"regressed: encoder/long {name}"]
        comment = render_comment(decision, CONTEXT)
        assert "2 → 0 (exact): 2 more `aten::mm` in full precision at `m.py:5`" in comment


@pytest.mark.parametrize("between", [(0, 2), (2, 3)])
def test_decide__low_precision_in_some_calls_of_the_head_alone__warns(between: tuple[int, int]) -> None:
    name = "counters.low_precision_ops"
    base, head = sides(NO_CHANGE)
    here, ops = site("m.py:5", "with autocast():", 2, name, "aten::mm"), [OpCount(op="aten::mm", count=3)]
    varying = msgspec.structs.replace(
        counted({name: 2}, [msgspec.structs.replace(here, between=between)], ops),
        unstable=[name],
        ranges={name: between},
    )
    base = changed(base, counters=[counted({name: 2}, [here], ops)])
    head = changed(head, counters=[varying])
    decision = decide(base, head, policy=Policy(), history=History())
    assert decision.verdict == "WARN"
    (reason,) = worded(decision.reasons)
    assert name in reason
    assert "differ between calls or processes of the head" in reason
    # A check accepts low precision, and not that it is lost.
    accepted = [changed(run, correctness=[correctness("float32[4]", "passed")]) for run in (base, head)]
    verdict = decide(*accepted, policy=Policy(), history=History()).verdict
    assert verdict == ("WARN" if between[0] < 2 else "PASS")
    swapped = [changed(base, counters=head.checklist.counters), changed(head, counters=base.checklist.counters)]
    assert decide(*swapped, policy=Policy(), history=History()).verdict == "PASS"


@pytest.mark.parametrize(
    "name", ["counters.syncs", "counters.graph_breaks", "counters.recompiles", "memory.kept", "counters.repeat_saves"]
)
def test_compare_counters__from_none_to_one__regressed(name: str) -> None:
    found = compared(counted({name: 0}), counted({name: 1}))[name]

    assert (found.outcome, found.gating, found.delta, found.tolerance) == ("regressed", True, None, 0.0)


def test_compare_counters__only_one_side_has_it__told_and_not_judged() -> None:
    found = compared(counted({"counters.graph_breaks": 0}), counted({}))["counters.graph_breaks"]

    assert (found.outcome, found.gating, text_of(found.reason)) == (
        "not_comparable",
        False,
        "only the base has it",
    )


def test_compare_counters__three_lines_rose_alike__each_with_its_own_count_and_the_new_ones_first() -> None:
    """Three lines copy three times each; the last of them is the old return, which the base has too."""
    tail = "return self.out(heads.transpose(1, 2).reshape(shape))"
    base = counted({OPS: 3}, [site("attention.py:29", tail, 3, name="aten::addmm")])
    head = counted(
        {OPS: 12},
        [
            site("attention.py:32", tail, 3, name="aten::addmm"),
            *(
                site(f"attention.py:{line}", code, 3, name="aten::clone")
                for line, code in ((27, "q = q.contiguous()"), (28, "k = k.contiguous()"), (32, tail))
            ),
        ],
    )
    (part,) = compared(base, head)[OPS].parts

    assert (part.name, part.base, part.head, part.line) == ("aten::clone", 0, 9, "attention.py:27")
    assert [(at.line, at.base, at.head) for at in part.sites] == [
        ("attention.py:27", 0, 3), ("attention.py:28", 0, 3), ("attention.py:32", 0, 3),
    ]  # fmt: skip


def test_decide__three_lines_rose_alike__title_says_the_count_of_its_line() -> None:
    base, head = sides(NO_CHANGE)
    copies = [site(f"attention.py:{line}", f"{line}", 3, name="aten::clone") for line in (27, 28)]
    base = changed(base, counters=[counted({OPS: 10})])
    head = changed(head, counters=[counted({OPS: 16}, copies)])
    comment = render_comment(decide(base, head, policy=Policy(strict=True), history=History()), CONTEXT)

    assert "(exact): 3 more `aten::clone` at `attention.py:27`\n" in comment, comment
    assert "**1.** `attention.py:27` (6 in all, also at `:28`)" in comment
    assert "3 more `aten::clone` at `attention.py:27` (6 in all, also at `:28`); in " in comment


def test_compare_counters__edited_line__only_what_it_adds_beyond_the_line_it_was() -> None:
    base = counted({OPS: 3}, [site("m.py:5", "x = x.contiguous()", 3)])
    head = counted({OPS: 4}, [site("m.py:5", "x = x.contiguous() + bias", 4)])
    (part,) = compared(base, head)[OPS].parts

    assert [(at.line, at.base, at.head) for at in part.sites] == [("m.py:5", 3, 4)]


def test_compare_counters__more_only_where_something_fell_too__unchanged_line_is_not_named() -> None:
    base = counted({OPS: 4}, [site("m.py:5", "a", 3), site("m.py:6", "b", 1)])
    head = counted({OPS: 5}, [site("m.py:5", "a", 3), site("m.py:6", "b", 0), site("m.py:7", "c", 2)])
    (part,) = compared(base, head)[OPS].parts

    assert [at.line for at in part.sites] == ["m.py:7"]


def test_decide__allocations_rose_and_no_operator_ran_more_often__title_names_the_layout_that_changed() -> None:
    """A kernel that is handed another layout takes memory inside, where no operator shows it."""
    base, head = (traced(run, layout) for run, layout in zip(sides(NO_CHANGE), (" channels_last", "")))
    base = changed(base, counters=[counted({"counters.allocations": 68})])
    head = changed(head, counters=[counted({"counters.allocations": 89})])
    comment = render_comment(decide(base, head, policy=Policy(), history=History()), CONTEXT)

    named = "`aten::max_pool2d` on `float32[4,32,24,24]` instead of `float32[4,32,24,24] channels_last` at `m.py:7`"
    assert f"allocations per call 68 → 89, calls not slower: {named}" in comment, comment


def traced(run, layout):
    row = CallRow(
        op="aten::max_pool2d",
        kind="host",
        self_time=1e-3,
        count=2,
        inputs=f"float32[4,32,24,24]{layout}",
        line="m.py:7",
    )
    account = CallAccount(workload="encoder", shape="long", calls=3, wall=2e-3, parts={"operators": 2e-3}, rows=[row])
    return changed(run, accounts=[account])


@pytest.mark.parametrize(
    ("source", "name", "others"),
    [
        ("thread_cpu", "P99 CPU time of a call", {"wall"}),
        # What the device timed is its own; gaps and turnarounds are the host's.
        ("device", "P99 device time of a call", {"wall", "device"}),
    ],
)
def test_decide__tail_that_was_not_timed_by_the_wall__is_not_called_a_latency(
    source: str, name: str, others: set[str]
) -> None:
    """On a CPU it may lie below the P50 beside it, which is wall time."""
    base, head = (other_clock(run, source) for run in sides(NO_CHANGE))
    decision = decide(base, head, policy=Policy(), history=History())
    comment = render_comment(decision, CONTEXT)

    (tail,) = (found for found in decision.comparisons if found.metric == "latency.p99")
    assert tail.clock == {"thread_cpu": "cpu", "device": "device"}[source]
    assert f"| {name} · `encoder/long` |" in comment
    assert "P99 latency" not in comment
    paired = [found for found in decision.comparisons if isinstance(found, Paired)]
    assert {found.clock for found in paired if found.metric != "latency.p99"} == others


def other_clock(run, source):
    replicates = []
    for member in run.pairs.replicates:
        shapes = {shape: changed(columns, cpu_source=source) for shape, columns in member.shapes.items()}
        replicates.append(changed(member, shapes=shapes))
    return changed(run, replicates=replicates)
