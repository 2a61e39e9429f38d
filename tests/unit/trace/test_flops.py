"""The operations of products and convolutions, as the tables of recorded NPUs write their shapes."""

import pytest

from perfgate.trace.model.flops import arithmetic, flops
from perfgate.trace.model.recording import Kernel, Tensors


def kernel(op, inputs, output, *, formats=None, output_format="ND", dtypes=None):
    return Kernel(
        op, op, "AI_CORE", 0, 1,
        inputs=Tensors(inputs, dtypes or ("FLOAT16",) * len(inputs), formats or ("ND",) * len(inputs)),
        outputs=Tensors((output,), formats=(output_format,)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "output", "expected"),
    [
        # Samples msinsight-910B-qwen3 (MatMulV3, both transposed in turn) and mstt-advisor (MatMul, BatchMatMul).
        ("MatMulV3", ((4096, 1024), (4096, 1024)), (4096, 4096), 2 * 4096 * 4096 * 1024),
        ("MatMulV3", ((4096, 1024), (4096, 3072)), (1024, 3072), 2 * 1024 * 3072 * 4096),
        ("MatMulV2", ((4096, 4096), (4096, 1024)), (4096, 1024), 2 * 4096 * 1024 * 4096),
        ("MatMul", ((4096, 12288), (4608, 12288)), (4096, 4608), 2 * 4096 * 4608 * 12288),
        ("BatchMatMul", ((12, 1024, 512), (12, 512, 1024)), (12, 1024, 1024), 2 * 12 * 1024 * 1024 * 512),
        ("MatMulV2", ((32, 9216), (4096, 9216), (4096,)), (32, 4096), 2 * 32 * 4096 * 9216),
        ("QuantBatchMatmulV3", ((16, 4096), (4096, 512)), (16, 512), 2 * 16 * 512 * 4096),
        # Weights of four bits, eight of them in one int32.
        ("WeightQuantBatchMatmulV2", ((16, 4096), (4096, 64), (32, 512)), (16, 512), 2 * 16 * 512 * 4096),
    ],
)
def test_flops__products__twice_the_three_sizes(
    op: str, inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...], expected: int
) -> None:
    assert flops(kernel(op, inputs, output)) == expected


def test_flops__product_of_the_recorded_table__as_the_hardware_counted_within_its_overhead() -> None:
    # mstt-advisor, MatMul91: aic_cube_fops 473250242560, of which 2 % are its own.
    counted = 473250242560

    assert flops(kernel("MatMul", ((4096, 12288), (4608, 12288)), (4096, 4608))) == pytest.approx(counted, rel=0.021)


@pytest.mark.parametrize(
    ("inputs", "output", "formats", "output_format"),
    [
        (((4096, 1024), (1024, 4096)), (4096, 512), ("ND", "ND"), "ND"),  # sizes that do not meet
        (((128, 256, 16, 16), (64, 256, 16, 16)), (64, 128, 16, 16), ("FRACTAL_NZ",) * 2, "FRACTAL_NZ"),
        (((4096,), (4096, 8)), (8,), ("ND", "ND"), "ND"),
        (((4096, 1024),), (4096, 512), ("ND",), "ND"),
        ((), (4096, 512), (), "ND"),
    ],
)
def test_flops__product_whose_shapes_do_not_tell__none(
    inputs: tuple[tuple[int, ...], ...], output: tuple[int, ...], formats: tuple[str, ...], output_format: str
) -> None:
    assert flops(kernel("MatMulV2", inputs, output, formats=formats, output_format=output_format)) is None


def test_flops__weights_alone_in_a_format_of_blocks__known_by_the_others() -> None:
    inputs = ((16, 4096), (32, 256, 16, 16))

    assert flops(kernel("MatMulV2", inputs, (16, 512), formats=("ND", "FRACTAL_NZ"))) == 2 * 16 * 512 * 4096


@pytest.mark.parametrize(
    ("op", "inputs", "output", "formats", "output_format"),
    [
        ("Conv2D", ((8, 64, 56, 56), (128, 16, 3, 3)), (8, 128, 28, 28), ("NCHW", "NCHW"), "NCHW"),
        ("Conv2D", ((8, 56, 56, 64), (3, 3, 16, 128)), (8, 28, 28, 128), ("NHWC", "HWCN"), "NHWC"),
        ("Conv2DBackpropInput", ((4,), (128, 16, 3, 3), (8, 128, 28, 28)), (8, 64, 56, 56), ("ND", "NCHW", "NCHW"), "NCHW"),
        ("Conv2DBackpropFilter", ((8, 64, 56, 56), (4,), (8, 128, 28, 28)), (128, 16, 3, 3), ("NCHW", "ND", "NCHW"), "NCHW"),
    ],
    ids=["NCHW", "NHWC", "gradient of the input", "gradient of the filter"],
)  # fmt: skip
def test_flops__convolution_in_four_groups__each_output_channel_sees_a_fourth(
    op: str,
    inputs: tuple[tuple[int, ...], ...],
    output: tuple[int, int, int, int],
    formats: tuple[str, ...],
    output_format: str,
) -> None:
    found = flops(kernel(op, inputs, output, formats=formats, output_format=output_format))

    assert found == 2 * 8 * 128 * 28 * 28 * 16 * 3 * 3


def test_flops__convolution_in_formats_of_blocks__none() -> None:
    # Sample msinsight-910B-alexnet: three channels are padded to eight, so the shapes tell of more than there is.
    inputs = ((32, 1, 224, 224, 8), (121, 4, 16, 8), (64,))
    formats = ("NC1HWC0", "FRACTAL_Z", "NCHW")

    assert flops(kernel("Conv2D", inputs, (32, 8, 55, 55, 8), formats=formats, output_format="NC1HWC0")) is None


@pytest.mark.parametrize(
    "op", ["FlashAttentionScore", "GroupedMatmul", "Add", "MatMulAllReduce", "TransposeBatchMatMul"]
)
def test_flops__other_kernels__none(op: str) -> None:
    assert flops(kernel(op, ((64, 64), (64, 64)), (64, 64))) is None


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("BF16", "BF16"), "float16"),
        (("FLOAT16", "INT8", "FLOAT16"), "float16"),
        (("INT32", "FLOAT", "FLOAT"), "float32"),
        (("INT8", "INT8", "UINT64"), "int8"),
        (("DOUBLE", "DOUBLE"), None),
        ((), None),
    ],
)
def test_arithmetic__first_type_that_it_computes_in(dtypes: tuple[str, ...], expected: str | None) -> None:
    assert arithmetic(kernel("MatMulV2", ((8, 8),) * len(dtypes), (8, 8), dtypes=dtypes)) == expected
