import numpy as np

from perfgate.document.run import CallRow, CounterSet
from perfgate.measuring.counting.counters import kernel_counters, with_kernel_lines, with_kernels
from perfgate.trace.model.arithmetic import Intervals
from perfgate.trace.model.events import NO_CORRELATION, EventTableBuilder
from perfgate.trace.model.spans import COLLECTIVES, Work, WorkItem, is_format_conversion, span_of, work_by_span

HOST, STREAM = ("1", "1"), ("0", "7")


def spans(*pairs):
    return Intervals(np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]))


def built(*events):
    """Make a table of (kind, name, start, duration, correlation, group)."""
    builder = EventTableBuilder()
    for kind, name, start, duration, correlation, group in events:
        track = HOST if kind == "runtime" else STREAM
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation, group=group)
    return builder.table()


def empty(repeats):
    return CounterSet(workload="w", shape="s", repeats=repeats, values={}, ops=[])


def test_work_by_span__launches_known__a_kernel_belongs_to_the_span_that_launched_it() -> None:
    table = built(
        ("runtime", "cudaLaunchKernel", 10, 2, 1, None),
        ("runtime", "cudaLaunchKernel", 90, 2, 2, None),
        ("compute", "gemm", 40, 5, 1, None),
        # Runs while the host is in the second span already.
        ("compute", "gemm", 140, 5, 2, None),
        ("compute", "relu", 150, 5, NO_CORRELATION, None),
    )

    works = work_by_span(table, spans((0, 100), (100, 200)))

    assert works == [{WorkItem("compute", "gemm"): 2}, {WorkItem("compute", "relu"): 1}]


def test_span_of__before_between_and_after_the_spans__outside() -> None:
    table = built(*(("compute", "k", start, 1, NO_CORRELATION, None) for start in (5, 10, 20, 25, 30, 40)))

    found = span_of(table, spans((10, 20), (30, 40)), launches=table.of_kind("runtime"))

    assert found.tolist() == [-1, 0, -1, -1, 1, -1]


def test_span_of__one_launch_at_two_levels__the_first_counts() -> None:
    table = built(
        ("runtime", "Node@launch", 120, 2, 7, None),
        ("runtime", "AscendCL@aclnnMm", 90, 60, 7, None),
        ("compute", "MatMulV2", 150, 5, 7, None),
    )

    assert work_by_span(table, spans((0, 100), (100, 200))) == [{WorkItem("compute", "MatMulV2"): 1}, {}]


def test_kernel_counters__ascend_types__conversions_copies_and_collectives_apart() -> None:
    table = built(
        ("compute", "trans_TransData_1", 1, 1, NO_CORRELATION, "TransData"),
        ("compute", "trans_TransData_2", 2, 1, NO_CORRELATION, "TransData"),
        ("compute", "aclnnMm_MatMulCommon_MatMulV2", 3, 1, NO_CORRELATION, "MatMulV2"),
        ("copy", "MEMCPY_ASYNC", 4, 1, NO_CORRELATION, None),
        ("comm", "hcom_allReduce__586_0_1", 5, 1, NO_CORRELATION, "hcom_allReduce_"),
    )

    (work,) = work_by_span(table, spans((0, 10)))

    assert kernel_counters(work) == {
        "counters.kernels": 3,
        "counters.format_conversions": 2,
        "counters.device_copies": 1,
        "counters.collectives": 1,
    }


def test_is_format_conversion__names_of_vendors__only_layout_changes() -> None:
    names = ["TransData", "trans_TransData_3", "void nchwToNhwcKernel<float>", "Transpose", "TransposeD", "Cast"]

    assert [is_format_conversion(name) for name in names] == [True, True, True, False, False, False]


def test_with_kernels__equal_spans__values_ops_and_sites() -> None:
    work = Work({WorkItem("compute", "TransData"): 2, WorkItem("compute", "Add"): 1})

    counted = with_kernels(empty(2), [work, work], absent=())

    assert counted.values["counters.kernels"] == 3
    assert [(op.op, op.count) for op in counted.ops] == [("TransData", 2), ("Add", 1)]
    assert [(site.metric, site.name, site.count) for site in counted.sites] == [
        ("counters.format_conversions", "TransData", 2),
        ("counters.kernels", "Add", 1),
        ("counters.kernels", "TransData", 2),
    ]
    assert counted.unstable == []


def test_with_kernels__spans_differ__what_differs_is_unstable() -> None:
    table = built(
        ("compute", "Add", 1, 1, NO_CORRELATION, None),
        ("compute", "Mul", 2, 1, NO_CORRELATION, None),
        ("compute", "Mul", 11, 1, NO_CORRELATION, None),
    )

    counted = with_kernels(empty(2), work_by_span(table, spans((0, 10), (10, 20))), absent={"counters.device_copies"})

    assert counted.unstable == ["counters.kernels", "ops.count:Add"]
    assert counted.values == {"counters.kernels": 1, "counters.format_conversions": 0, "counters.collectives": 0}


def row(op, count, line=None, code=None, kind="compute"):
    return CallRow(op=op, kind=kind, self_time=1e-6, count=count, line=line, code=code)


def test_with_kernel_lines__rows_hold_every_kernel__sites_by_line_and_the_most_frequent_line_of_each() -> None:
    counted = with_kernels(
        empty(1), [Work({WorkItem("compute", "TransData"): 3, WorkItem("compute", "Relu"): 1})], absent=(COLLECTIVES,)
    )

    found = with_kernel_lines(
        counted,
        [
            row("TransData", 1.0, "model.py:7", "cast(x)"),
            row("TransData", 2.0, "model.py:9", "back(x)"),
            row("Relu", 1.0),
            # An operator of the host with the name of a kernel.
            row("Relu", 4.0, "model.py:1", kind="host"),
        ],
    )

    assert [(op.op, op.line) for op in found.ops] == [("TransData", "model.py:9"), ("Relu", None)]
    conversions = [site for site in found.sites if site.metric == "counters.format_conversions"]
    assert [(site.name, site.count, site.line, site.code) for site in conversions] == [
        ("TransData", 1, "model.py:7", "cast(x)"),
        ("TransData", 2, "model.py:9", "back(x)"),
    ]
    assert sum(site.count for site in found.sites if site.metric == "counters.kernels") == 4


def test_with_kernel_lines__rows_hold_another_number__the_site_stays_whole() -> None:
    counted = with_kernels(empty(1), [Work({WorkItem("compute", "Relu"): 3})], absent=(COLLECTIVES,))

    found = with_kernel_lines(counted, [row("Relu", 2.5, "model.py:7", "relu(x)")])

    assert [(site.count, site.line) for site in found.sites] == [(3, None)]
