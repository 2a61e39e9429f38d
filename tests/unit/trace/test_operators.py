from perfgate.trace.analysis.operators import OperatorTotal, class_totals, op_class, operator_totals
from perfgate.trace.model.events import EventTableBuilder
from tests.each import each


@each(
    "name, expected",
    [
        ("aten::addmm", "conv_matmul"),
        ("aten::mm", "conv_matmul"),
        ("aten::baddbmm", "conv_matmul"),
        ("aten::mkldnn_convolution", "conv_matmul"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "conv_matmul"),
        ("volta_sgemm_128x64_nn", "conv_matmul"),
        ("MatMulV2", "conv_matmul"),
        ("Conv2D", "conv_matmul"),
        ("aten::_convert_indices_from_coo_to_csr", "other"),
        ("aten::upsample_bilinear2d", "other"),
        ("aten::comm", "other"),
        ("aten::copy_", "copy"),
        ("aten::clone", "copy"),
        ("aten::_to_copy", "copy"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("TransData", "copy"),
        ("aten::transpose", "reshape"),
        ("aten::t", "reshape"),
        ("aten::tanh", "other"),
        ("TransposeD", "reshape"),
        ("aten::view", "reshape"),
        ("aten::_log_softmax", "softmax"),
        ("SoftmaxV2", "softmax"),
        ("aten::relu", "other"),
    ],
)
def test_op_class__names_of_torch_cuda_and_ascend__class(name: str, expected: str) -> None:
    assert op_class(name) == expected


def test_operator_totals__nested_ops_on_two_threads__self_time_and_count() -> None:
    builder = EventTableBuilder()
    main, other = ("1", "1"), ("1", "2")
    for name, start, duration, track in [
        ("aten::linear", 0, 100, main),
        ("aten::addmm", 10, 70, main),
        ("aten::linear", 200, 50, main),
        ("aten::addmm", 210, 30, main),
        ("aten::mm", 0, 100, other),
    ]:
        builder.add(start, duration, track=track, name=name, kind="host_op", correlation=-1)

    assert operator_totals(builder.table(), calls=1) == [
        OperatorTotal("aten::addmm", "host", 100.0, 2),
        OperatorTotal("aten::mm", "host", 100.0, 1),
        OperatorTotal("aten::linear", "host", 50.0, 2),
    ]


def test_operator_totals__one_call_interrupted__typical_time_is_the_median_of_calls() -> None:
    builder = EventTableBuilder()
    for start, duration in [(0, 10), (20, 12), (100, 10), (120, 14), (200, 900), (1200, 12)]:
        builder.add(start, duration, track=("1", "1"), name="aten::mm", kind="host_op", correlation=-1)

    # Three calls of two events each: 22, 24 and 912 ns.
    assert operator_totals(builder.table(), calls=3) == [OperatorTotal("aten::mm", "host", 24.0, 6)]


def test_operator_totals__events_do_not_divide_into_calls__typical_time_is_the_mean() -> None:
    builder = EventTableBuilder()
    for start in (0, 100, 200):
        builder.add(start, 10, track=("1", "1"), name="aten::mm", kind="host_op", correlation=-1)

    assert operator_totals(builder.table(), calls=2) == [OperatorTotal("aten::mm", "host", 15.0, 3)]


def test_class_totals__some_operators__every_class_named() -> None:
    rows = [OperatorTotal("aten::mm", "host", 7.0, 1), OperatorTotal("aten::copy_", "host", 2.0, 3)]

    assert class_totals(rows) == {"conv_matmul": 7, "copy": 2, "reshape": 0, "softmax": 0, "other": 0}
