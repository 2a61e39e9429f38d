"""What a slower call is explained by: seconds from the pairs, what became of an operator and its line from the traces."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.decision import Policy
from perfgate.document.explanation import Explanation, OperatorDelta, Part
from perfgate.document.history import History
from perfgate.document.run import OUTSIDE_OPERATORS, CallAccount, CallRow, CodeChange, LeastWork, Roof, RunDocument
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.explain.contributions import explanations
from tests.fakes.documents import make_comparison, make_counter
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides

US = 1e-6
Times = dict[str, float]
# A call of 10 ms: its operators, and what is outside them.
BASE: Times = {"aten::addmm": 8e-3, "aten::gelu": 1e-3, "aten::add": 0.5e-3, OUTSIDE_OPERATORS: 0.5e-3}
LINE = "model.py:31"


def row(op: str, time: float, count: float = 1, *, line: str | None = LINE, **fields: object) -> CallRow:
    values = {"op": op, "kind": "host", "self_time": time, "count": count, "line": line, "code": line, **fields}
    return msgspec.convert(values, CallRow)


def account(*rows: CallRow, **parts: float) -> CallAccount:
    shares = parts or {"operators": 9.5e-3, "outside": 0.5e-3}
    return CallAccount(
        workload=WORKLOAD, shape=SHAPE, calls=10, wall=sum(shares.values()), parts=shares, rows=list(rows)
    )  # type: ignore[arg-type]


def traced(times: Times) -> list[CallRow]:
    return [row(op, time) for op, time in times.items() if op != OUTSIDE_OPERATORS]


def measured(times: Times, rows: list[CallRow] | None = None, *, base_rows: list[CallRow] | None = None,
             pairs: int = 8, **parts: float) -> tuple[RunDocument, RunDocument]:  # fmt: skip
    """Return both sides; head has the operators ``times``, pair by pair a percent more or less than that on both."""
    base, head = sides([1.0] * pairs, aa_ratios=())

    def side(run: RunDocument, own: Times, own_rows: list[CallRow]) -> RunDocument:
        replicates = [
            msgspec.structs.replace(
                replicate,
                profile=msgspec.structs.replace(
                    replicate.profile,
                    operators={SHAPE: {op: time * (1 + 0.01 * (number % 3 - 1)) for op, time in own.items()}},
                ),
            )
            for number, replicate in enumerate(run.pairs.replicates)
        ]
        return changed(run, replicates=replicates, accounts=[account(*own_rows, **parts)])

    return side(base, BASE, base_rows or traced(BASE)), side(head, times, rows or traced(times))


def slower(seconds: float, *others: Comparison) -> list[Comparison]:
    delta = seconds / 0.01
    return [
        make_comparison("latency.low", outcome="regressed", base=0.01, head=0.01 + seconds, delta=delta,
                        interval=(delta - 0.01, delta + 0.01)),
        *others,
    ]  # fmt: skip


def explained(documents: tuple[RunDocument, RunDocument], comparisons: list[Comparison]) -> Explanation:
    (found,) = explanations(WorkTable(Evidence(*documents)).traced, comparisons)
    return found


def named(found: Explanation) -> list[tuple[str, str, int]]:
    return [(part.op, part.kind, round(part.seconds / US)) for part in found.contributions]


def test_explanations__operator_came__explains_what_it_took_and_names_line_and_counts() -> None:
    times = {**BASE, "aten::copy_": 0.9e-3}
    found = explained(measured(times, [*traced(BASE), row("aten::copy_", 2e-3, 3, line="model.py:40")]), slower(1e-3))
    # Traced seconds are those of another profiler and count for nothing.
    assert named(found) == [("aten::copy_", "added", 900)]
    assert found.contributions[0] == OperatorDelta(
        op="aten::copy_", kind="added", seconds=pytest.approx(900 * US, rel=1e-3), base_count=0, head_count=3,
        line="model.py:40", sites=[Part(line="model.py:40", base=0, head=3)],
    )  # fmt: skip
    assert found.measured == pytest.approx(1e-3)
    assert found.explained == pytest.approx(900 * US, rel=1e-3)


def test_explanations__same_operators_on_larger_inputs__other_inputs_with_both_forms() -> None:
    small, large = "float32[8,512], float32[512,512]", "float32[8,768], float32[768,768]"
    other = row("aten::addmm", 6e-3, inputs="float32[8,10]", line="model.py:50")
    documents = measured(
        {**BASE, "aten::addmm": 12e-3},
        [row("aten::addmm", 6e-3, inputs=large), other],
        base_rows=[row("aten::addmm", 2e-3, inputs=small), other],
    )  # fmt: skip
    (part,) = explained(documents, slower(4e-3)).contributions
    assert (part.kind, part.inputs_change, part.base_inputs, part.head_inputs) == (
        "other_inputs",
        "shape",
        small,
        large,
    )
    assert part.line == LINE


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("bfloat16[8,512]", "float32[8,512]", "dtype"),
        ("float32[8,3,64,64] channels_last", "float32[8,3,64,64]", "layout"),
        ("[[8, 512]]", "[[8, 768]]", None),
        ("[[8, 512]]", "float32[8,768]", None),
    ],
)
def test_explanations__inputs_differ__says_in_what_and_nothing_of_the_profilers_own_words(
    before: str, after: str, change: str | None
) -> None:
    documents = measured(
        {**BASE, "aten::addmm": 12e-3},
        [row("aten::addmm", 12e-3, inputs=after)],
        base_rows=[row("aten::addmm", 8e-3, inputs=before)],
    )
    (part,) = explained(documents, slower(4e-3)).contributions
    assert part.inputs_change == change
    assert part.kind == ("slower" if change is None else "other_inputs")


def test_explanations__more_python__the_function_that_grew_most() -> None:
    python = [
        row("prepare", 3e-3, kind="python", line="model.py:8"),
        row("forward", 0.6e-3, kind="python", line="model.py:20"),
    ]
    before = [row("forward", 0.5e-3, kind="python", line="model.py:20")]
    documents = measured(
        {**BASE, OUTSIDE_OPERATORS: 2.5e-3}, [*traced(BASE), *python], base_rows=[*traced(BASE), *before]
    )
    (part,) = explained(documents, slower(2e-3)).contributions
    assert (part.kind, part.function, part.line) == ("outside", "prepare", "model.py:8")


def test_explanations__function_that_grew_changed_in_one_place__that_place_is_its_line() -> None:
    python = row("prepare", 3e-3, kind="python", line="model.py:8")
    base, head = measured({**BASE, OUTSIDE_OPERATORS: 2.5e-3}, [*traced(BASE), python])
    source = msgspec.structs.replace(
        head.source, changes=[CodeChange(file="model.py", first=11, last=11, function="prepare", begins=8, ends=12)]
    )
    (part,) = explained((base, msgspec.structs.replace(head, source=source)), slower(2e-3)).contributions
    assert (part.function, part.line) == ("prepare", "model.py:11")


def test_explanations__many_more_operators__the_time_between_them_comes_last_and_is_no_functions() -> None:
    times = {**BASE, "aten::mul": 1e-3, OUTSIDE_OPERATORS: 2e-3}
    # Three operators with half a millisecond around them, and now nine.
    documents = measured(times, [*traced(BASE), row("aten::mul", 1e-3, 6)])
    found = explained(documents, slower(2.5e-3))
    assert [(part.op, part.kind) for part in found.contributions] == [
        ("aten::mul", "added"),
        (OUTSIDE_OPERATORS, "launching"),
    ]


def test_explanations__base_without_the_time_outside_operators__none_is_put_down_to_more_operators() -> None:
    base, head = measured({**BASE, OUTSIDE_OPERATORS: 2e-3}, [*traced(BASE), row("aten::mul", 1e-3, 6)])
    lacking = [
        msgspec.structs.replace(
            replicate,
            profile=msgspec.structs.replace(
                replicate.profile, operators={SHAPE: {op: t for op, t in BASE.items() if op != OUTSIDE_OPERATORS}}
            ),
        )
        for replicate in base.pairs.replicates
    ]
    found = explained((changed(base, replicates=lacking), head), slower(2e-3))
    assert [part.kind for part in found.contributions if part.op == OUTSIDE_OPERATORS] == ["outside"]


def test_explanations__profiler_slows_every_operator__what_it_adds_is_taken_off() -> None:
    # A call of 10 ms takes 13 ms under the profiler: 1 ms for each of three operators.
    base = {**BASE, "aten::addmm": 11e-3}
    documents = measured({**base, "aten::mul": 3e-3}, [*traced(base), row("aten::mul", 3e-3, 2)])
    first = changed(
        documents[0],
        replicates=[
            msgspec.structs.replace(one, profile=msgspec.structs.replace(one.profile, operators={SHAPE: base}))
            for one in documents[0].pairs.replicates
        ],
    )
    found = explained((first, documents[1]), slower(1e-3))
    (multiplied,) = (part for part in found.contributions if part.op == "aten::mul")
    assert multiplied.seconds == pytest.approx(1e-3, rel=0.05)


def test_explanations__profiler_slows_the_host_of_a_device__taken_off_between_the_kernels_and_not_from_them() -> None:
    # Calls that wait for the host of an H100: 0.8 ms longer, 4.8 ms more between kernels under the profiler.
    base = {"gemm": 0.5e-3, OUTSIDE_OPERATORS: 14e-3}
    kernel = {"kind": "compute", "line": LINE}
    rows = [row("gemm", 0.5e-3, 20, **kernel)]
    documents = measured(
        {**base, "elementwise": 0.1e-3, OUTSIDE_OPERATORS: 18.8e-3},
        [*rows, row("elementwise", 0.1e-3, 40, **kernel)],
        base_rows=rows,
        compute=0.5e-3,
        gap_host=9.5e-3,
    )
    first = changed(
        documents[0],
        replicates=[
            msgspec.structs.replace(one, profile=msgspec.structs.replace(one.profile, operators={SHAPE: base}))
            for one in documents[0].pairs.replicates
        ],
    )
    found = explained((first, documents[1]), slower(0.8e-3))
    assert named(found) == [
        ("elementwise", "added", pytest.approx(100, abs=2)),
        (OUTSIDE_OPERATORS, "launching", pytest.approx(700, abs=2)),
    ]


def test_explanations__loop_of_small_operators_within_what_was_measured__nothing_is_taken_off() -> None:
    # Seen on the demo's model: a call with 48 more multiplications takes 243 us longer, and is 1 ms slower under the profiler
    # for reasons of its own, which are no operator's.
    base = {**BASE, "aten::addmm": 9e-3}
    documents = measured({**base, "aten::mul": 100 * US}, [*traced(base), row("aten::mul", 100 * US, 48)])
    first = changed(
        documents[0],
        replicates=[
            msgspec.structs.replace(one, profile=msgspec.structs.replace(one.profile, operators={SHAPE: base}))
            for one in documents[0].pairs.replicates
        ],
    )
    found = explained((first, documents[1]), slower(243 * US))
    assert [round(part.seconds / US) for part in found.contributions if part.op == "aten::mul"] == [100]


def test_explanations__operator_that_did_not_change_lost_most__is_named_before_a_small_addition() -> None:
    # Seen on the software NPU: two more TransData of 1.9 us in a call that Relu slowed by 306 us.
    times = {**BASE, "aten::gelu": 1e-3 + 306 * US, "aten::copy_": 10 * US}
    found = explained(measured(times, [*traced(times)[:-1], row("aten::copy_", 10 * US, 2)]), slower(316 * US))
    assert [part.op for part in found.contributions] == ["aten::gelu", "aten::copy_"]


def test_explanations__additions_explain_much__operators_slower_in_their_wake_come_behind() -> None:
    times = {**BASE, "aten::gelu": 1.6e-3, "aten::copy_": 0.4e-3}
    found = explained(measured(times), slower(1e-3))
    assert [part.op for part in found.contributions] == ["aten::copy_", "aten::gelu"]


def test_explanations__operators_that_did_not_change_explain_little__what_came_is_named_first() -> None:
    # Seen on a leak: add and gelu are 2.7 and 3.3 us of the 39 us that fresh memory costs.
    times = {**BASE, "aten::gelu": 1e-3 + 80 * US, "aten::copy_": 70 * US}
    found = explained(measured(times, [*traced(times)[:-1], row("aten::copy_", 70 * US)]), slower(1e-3))
    assert [part.op for part in found.contributions] == ["aten::copy_", "aten::gelu"]


def test_explanations__operator_and_what_it_is_made_of_on_one_line__the_one_that_was_called_comes_first() -> None:
    times = {**BASE, "aten::copy_": 0.9e-3, "aten::clone": 0.1e-3}
    rows = [*traced(BASE), row("aten::copy_", 0.9e-3, 2), row("aten::clone", 0.1e-3, 2)]
    copies = msgspec.structs.replace(
        make_counter("counters.copies", 0, 2), parts=[Part(name="aten::clone", base=0, head=2, line=LINE)]
    )
    found = explained(measured(times, rows), slower(1e-3, copies))
    assert [part.op for part in found.contributions] == ["aten::clone", "aten::copy_"]


def test_explanations__one_line_costs_several_operators__it_comes_before_a_larger_single_one() -> None:
    times = {**BASE, "aten::mul": 0.4e-3, "aten::tanh": 0.4e-3, "aten::copy_": 0.5e-3}
    rows = [*traced(BASE), row("aten::mul", 0.4e-3, line="model.py:9"), row("aten::tanh", 0.4e-3, line="model.py:9"),
            row("aten::copy_", 0.5e-3, line="model.py:70")]  # fmt: skip
    found = explained(measured(times, rows), slower(1.3e-3))
    assert [part.op for part in found.contributions] == ["aten::mul", "aten::tanh", "aten::copy_"]


def test_explanations__host_waits_for_its_device_more_often__the_wait_with_its_line() -> None:
    waits = msgspec.structs.replace(
        make_counter("counters.syncs", 0, 1), parts=[Part(name="aten::item", base=0, head=1, line="model.py:44")]
    )
    documents = measured({**BASE, OUTSIDE_OPERATORS: 1.5e-3}, compute=9e-3, gap_synchronization=1e-3)
    (part,) = explained(documents, slower(1e-3, waits)).contributions
    assert (part.op, part.kind, part.line) == ("aten::item", "waiting", "model.py:44")


def test_explanations__nothing_moved__no_parts_and_what_holds_the_call_up() -> None:
    found = explained(measured(BASE, outside=4e-3, operators=6e-3), [])
    # The pairs say that 0.5 of 10 ms are outside operators, and their profiler costs less than that of the trace.
    assert (found.measured, found.contributions, found.base_bound) == (None, [], None)


def test_explanations__too_few_pairs_or_a_faint_difference__stays_unexplained() -> None:
    assert explained(measured({**BASE, "aten::gelu": 2e-3}, pairs=5), slower(1e-3)).contributions == []
    assert explained(measured({**BASE, "aten::gelu": 1e-3 + 5 * US}), slower(1e-3)).contributions == []


def test_decide__both_sides_traced__the_decision_holds_the_explanation() -> None:
    base, head = measured(BASE)
    roof = Roof(flops_per_second=1e11, bytes_per_second=1e10)
    work = [LeastWork(flops=1e9, moved_bytes=1e6, count=1)]
    base, head = (
        changed(side, accounts=[msgspec.structs.replace(side.checklist.accounts[0], roof=roof, work=work)])
        for side in (base, head)
    )
    (found,) = decide(base, head, policy=Policy(), history=History()).explained.explanations
    assert (found.workload, found.shape, found.head_bound) == (WORKLOAD, SHAPE, "compute")
