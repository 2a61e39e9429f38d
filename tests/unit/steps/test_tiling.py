"""Step 13: products of a real model run again on the CPU, and the use of cores on recordings of real NPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.experiment import agreement
from perfgate.measuring.checklist.step import RecordingContext, StepContext
from perfgate.measuring.checklist.steps.s13_tiling import STEP, core_uses, known_cores
from perfgate.measuring.checklist.steps.s13_tiling.products import ProductReplay, record_products
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Kernel, Recording, Tensors, Timeline
from tests.fakes.recordings import kineto_recording
from tests.fakes.wording import reason_of
from tests.unit.trace.ascend import ALEXNET, GPT, QWEN, sample
from tests.wording import finding_text

ROOT = Path(__file__).parents[3]


def products(function, *inputs):
    with torch.inference_mode():
        return record_products(lambda: function(*inputs), root=ROOT)


@pytest.mark.parametrize(
    ("function", "inputs", "padding", "sizes", "padded"),
    [
        (torch.mm, [(31, 100), (100, 64)], {"m": 32, "k": 112}, "31x100 @ 100x64", "32x112 @ 112x64"),
        (torch.addmm, [(60,), (16, 32), (32, 60)], {"n": 64}, "16x32 @ 32x60", "16x32 @ 32x64"),
        (torch.addmm, [(16, 1), (16, 31), (31, 32)], {"k": 32}, "16x31 @ 31x32", "16x32 @ 32x32"),
        (torch.bmm, [(3, 31, 16), (3, 16, 31)], {"m": 32, "n": 32}, "3x31x16 @ 3x16x31", "3x32x16 @ 3x16x32"),
        (
            torch.nn.functional.conv2d,
            [(2, 15, 9, 9), (31, 15, 3, 3), (31,)],
            {"c": 16, "o": 32},
            "2x15x9x9 @ 31x15x3x3",
            "2x16x9x9 @ 32x16x3x3",
        ),
    ],
    ids=["mm", "addmm", "addmm with a bias that is spread", "bmm", "convolution"],
)
def test_products__sizes_near_a_multiple__padded_and_the_same_result(
    function: Callable[..., torch.Tensor],
    inputs: list[tuple[int, ...]],
    padding: dict[str, int],
    sizes: str,
    padded: str,
) -> None:
    (product,) = products(function, *(torch.randn(shape) for shape in inputs))

    assert product.padding(16) == padding
    assert (product.shapes({}), product.shapes(padding)) == (sizes, padded)
    with torch.inference_mode():
        plain, other = ProductReplay(product, padding, torch.device("cpu")).outputs()
    assert agreement(plain, other).within(1e-5)
    assert float(plain.abs().max()) > 0


def test_products__far_from_a_multiple__not_padded() -> None:
    """A batch of one, or three channels: padding would compute several times as much."""
    single, image = (
        products(torch.mm, torch.randn(1, 64), torch.randn(64, 64)),
        products(torch.conv2d, torch.randn(1, 3, 8, 8), torch.randn(16, 3, 3, 3)),
    )

    assert [product.padding(16) for product in (*single, *image)] == [{}, {}]


def test_products__layout__that_of_the_model() -> None:
    weight = torch.randn(50, 32)
    (product,) = products(torch.mm, torch.randn(16, 32), weight.t())
    images = torch.randn(2, 15, 8, 8).to(memory_format=torch.channels_last)
    (convolution,) = products(torch.conv2d, images, torch.randn(16, 15, 1, 1))

    transposed = ProductReplay(product, {"n": 64}, torch.device("cpu"))._padded[1]
    channels_last = ProductReplay(convolution, {"c": 16}, torch.device("cpu"))._padded[0]

    assert (tuple(transposed.shape), transposed.stride()) == ((32, 64), (1, 32))
    assert channels_last.is_contiguous(memory_format=torch.channels_last)


def test_products__what_is_run_again__largest_first_with_line_and_count() -> None:
    small, large = torch.nn.Linear(16, 16), torch.nn.Linear(64, 64)

    def model(first, second):
        for _ in range(3):
            first = small(first)
        return first, large(second)

    found = products(model, torch.randn(8, 16), torch.randn(8, 64))

    assert [(product.op, product.count, product.flops) for product in found] == [
        ("aten::addmm", 1, 2 * 8 * 64 * 64),
        ("aten::addmm", 3, 2 * 8 * 16 * 16),
    ]
    assert all(product.line.startswith("tests/unit/steps/test_tiling.py:") for product in found)


def test_products__grouped_transposed_and_whole_numbers__left_out() -> None:
    def model(images, numbers):
        torch.nn.functional.conv2d(images, torch.randn(4, 1, 3, 3), groups=4)
        torch.nn.functional.conv_transpose2d(images, torch.randn(4, 4, 3, 3))
        torch.mm(numbers, numbers)

    assert products(model, torch.randn(1, 4, 8, 8), torch.ones(4, 4, dtype=torch.int64)) == []


def on_cpu(tmp_path, model, inputs, batch, limits=None):
    device = open_device("cpu")
    workload = Workload(build=lambda device: model.eval(), inputs=inputs, batch=batch)
    context = StepContext(
        workload=BoundWorkload("real", workload, device, seed=1, root=ROOT),
        limits=limits or {}, seed=1, artifacts=tmp_path, progress=lambda text: None,
    )  # fmt: skip
    return STEP.measure(context)


class Plain(torch.nn.Module):
    def __init__(self, features, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(features, features).to(dtype))

    def forward(self, inputs):
        return inputs @ self.weight


def rows(features, dtype):
    def inputs(items, seed):
        return torch.randn(items, features, generator=torch.Generator().manual_seed(seed)).to(dtype)

    return inputs


def has_tiles():
    return getattr(torch.cpu, "_is_amx_tile_supported", bool)()


@pytest.mark.skipif(
    not has_tiles(), reason="this CPU has no tiles (AMX), and no other size is known to be a cliff on it"
)
@pytest.mark.usefixtures("one_thread")
def test_tiling__sizes_beside_the_tiles_of_the_cpu__padding_is_faster_and_said(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, Plain(1000, torch.bfloat16), rows(1000, torch.bfloat16), batch=31)

    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, outcome.status) == ("tiling.padding_gain", "warning", "attention")
    assert (finding.evidence["op"], finding.evidence["sizes"]) == ("aten::mm", "31x1000 @ 1000x1000")
    assert finding.evidence["padded"] == "32x1008 @ 1008x1008"
    assert finding.evidence["line"].startswith("tests/unit/steps/test_tiling.py:")
    assert finding.evidence["saves"] > 0
    assert "is slower than on 32x1008 @ 1008x1008" in finding_text(finding)


def test_tiling__sizes_that_fit__ok_and_nothing_to_pad(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, Plain(512, torch.float32), rows(512, torch.float32), batch=32)

    aligned, gain = outcome.values
    assert (aligned.metric, aligned.value) == ("tiling.aligned_share", 1.0)
    assert (gain.value, "multiples already" in reason_of(gain)) == (None, True)
    assert (outcome.status, outcome.findings) == ("ok", [])


@pytest.mark.usefixtures("one_thread")
def test_tiling__another_multiple__as_the_project_sets_it(tmp_path: Path) -> None:
    outcome = on_cpu(
        tmp_path, Plain(32, torch.float32), rows(32, torch.float32), batch=32, limits={"tiling.multiple": 40}
    )

    gain = outcome.values[1]
    assert gain.labels["padded"] == "40x40 @ 40x40"
    assert gain.value is not None


def test_tiling__no_product__not_applicable(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, torch.nn.ReLU(), rows(32, torch.float32), batch=32)

    assert (outcome.status, outcome.values) == ("not_applicable", [])
    assert "no matrix product" in reason_of(outcome)


def kernel(op, core, blocks, duration_ns, **counters):
    return Kernel(op, op, core, 0, duration_ns, blocks=blocks, counters=counters)


def test_core_uses__blocks_and_pipes__weighted_by_time() -> None:
    kernels = [
        kernel("MatMulV2", "AI_CORE", 10, 300, aic_mac_ratio=0.9, aic_mte2_ratio=0.2),
        kernel("MatMulV2", "AI_CORE", 30, 100, aic_mac_ratio=0.1, aic_mte2_ratio=0.6),
        kernel("Add", "AI_VECTOR_CORE", 40, 400, aiv_vec_ratio=0.1, aiv_mte2_ratio=0.3, aiv_mte3_ratio=0.8),
        kernel("TopK", "AI_CPU", 1, 200),
    ]
    add, matmul = core_uses(kernels, {"cube": 20, "vector": 40}, attainable=0.5)

    assert (matmul.op, matmul.unit, matmul.time_share) == ("MatMulV2", "cube", 0.4)
    # 10 of 20 cores, then 30 blocks on 20 cores.
    assert matmul.occupancy == pytest.approx((300 * 0.5 + 100 * 1.0) / 400)
    assert (matmul.attained, matmul.bound) == (pytest.approx(0.7), "compute")
    assert (add.unit, add.occupancy, add.attained, add.bound) == ("vector", 1.0, pytest.approx(0.8), "memory")


def test_core_uses__chip_with_one_kind_of_core__columns_without_prefix() -> None:
    (use,) = core_uses(
        [kernel("Conv2D", "AI_CORE", 8, 100, mac_ratio=0.3, mte2_ratio=0.4)], {"cube": 8}, attainable=0.5
    )

    assert (use.attained, use.bound) == (0.4, "neither")


def test_known_cores__a_device_that_tells__its_word() -> None:
    assert known_cores({"cube cores": "20", "vector cores": "40"}, [], None) == {"cube": 20, "vector": 40}


def test_known_cores__nobody_tells__not_known_however_kernels_are_split() -> None:
    kernels = [kernel("A", "AI_CORE", blocks, 10) for blocks in (1, 1, 1)]

    assert known_cores({"aic_cores": "20 | 24"}, kernels, None) == {}
    assert [use.occupancy for use in core_uses(kernels, {}, attainable=0.5)] == [None]


def judged(recording):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))


def of_op(outcome, metric):
    return {value.labels.get("op"): value.value for value in outcome.values if value.metric == metric}


@pytest.mark.recordings
def test_tiling__recorded_alexnet__cores_from_its_counters_and_an_operator_that_no_pipe_keeps_busy(
    tmp_path: Path,
) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path)))

    occupancy, attained = of_op(outcome, "tiling.occupancy"), of_op(outcome, "tiling.attained")
    # 24 cube and 48 vector cores, as cube_utilization at 1800 MHz implies; every Conv2D is split over 16.
    assert (occupancy["Conv2D"], occupancy["ForeachAddList"]) == (pytest.approx(16 / 24), 1.0)
    assert attained["ForeachAddList"] == pytest.approx(0.9796, abs=1e-4)
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, finding.evidence["op"]) == ("tiling.attained", "warning", "TransData")
    assert outcome.status == "attention"
    # Nobody tells what a cube core does in float32, and convolutions are in formats of blocks, each below a tenth of the time.
    (unknown,) = (value for value in outcome.values if value.metric == "tiling.mfu")
    assert (unknown.labels["op"], unknown.labels["arithmetic"]) == ("MatMulV2", "float32")
    assert '[limits] "tiling.peak.float32"' in reason_of(unknown)


@pytest.mark.recordings
def test_tiling__recorded_alexnet_and_a_peak_of_the_projects__operations_of_its_shapes_over_it(tmp_path: Path) -> None:
    recording = trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path))
    limits = {"tiling.peak.float32": 75e12}
    outcome = STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", limits))

    # Its eight MatMulV2: 32 x 9216 x 4096 twice, 32 x 4096 x 4096 three times, 32 x 4096 x 1000 three times, in 921.498 us.
    operations = 2 * 32 * 4096 * (2 * 9216 + 3 * 4096 + 3 * 1000)
    assert of_op(outcome, "tiling.mfu")["MatMulV2"] == pytest.approx(operations / 921.498e-6 / 75e12)
    assert not any(finding.rule == "tiling.mfu" for finding in outcome.findings)  # it is bound by memory


@pytest.mark.recordings
def test_tiling__recorded_qwen__heavy_operators_are_bound_by_memory_and_fill_the_cores(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{QWEN}/rank_0_ascend_pt", tmp_path)))

    bounds = {
        value.labels["op"]: value.labels["bound"] for value in outcome.values if value.metric == "tiling.attained"
    }
    assert (bounds["FlashAttentionScore"], bounds["MatMulV3"]) == ("memory", "memory")
    (unknown,) = (value for value in outcome.values if value.metric == "tiling.occupancy")
    assert unknown.value is None
    assert (
        reason_of(unknown) == "the number of cores of the device is unknown, so the numbers of blocks cannot be judged"
    )
    assert (outcome.status, outcome.findings) == ("ok", [])


@pytest.mark.recordings
def test_tiling__recorded_qwen__products_by_what_their_cores_can_do_and_attention_not_known(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{QWEN}/rank_0_ascend_pt", tmp_path)))

    # cube_utilization implies 33.0 GHz of all cube cores together, 8192 operations a cycle each: 270.3 TFLOP/s.
    # 56 times 2 x 4096 x 4096 x 1024 in 10.022 ms, and 280 of ten shapes.
    mfu = of_op(outcome, "tiling.mfu")
    assert mfu["MatMulV2"] == pytest.approx(56 * 2 * 4096 * 4096 * 1024 / 10.02207e-3 / (33.0e9 * 8192), rel=1e-3)
    assert mfu["MatMulV3"] == pytest.approx(0.6858, abs=1e-4)
    unknown = {
        value.labels["op"]: reason_of(value)
        for value in outcome.values
        if value.metric == "tiling.mfu" and value.value is None
    }
    assert unknown.keys() == {"FlashAttentionScore", "FlashAttentionScoreGrad"}
    assert "mask" in unknown["FlashAttentionScore"]


def product(duration_ns, *, mac=0.6, mte2=0.2, dtype="BF16", **fields):
    """One MatMulV3 as the table of sample msinsight-910B-qwen3 has it: 32768 x 64 by 64 x 64 are 268 MFLOP."""
    given = {
        "inputs": Tensors(((32768, 64), (64, 64)), (dtype, dtype), ("ND", "ND")),
        "outputs": Tensors(((32768, 64),), formats=("ND",)),
        "counters": {"aic_mac_ratio": mac, "aic_mte2_ratio": mte2},
        **fields,
    }
    return Kernel("MatMulV3", "MatMulV3", "AI_CORE", 0, duration_ns, **given)


def recorded(*kernels, limits=None, settings=None):
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table(), kernels=kernels)
    recording = Recording(Path("recording"), "ascend-pytorch", (timeline,), settings=settings or {})
    return STEP.judge_recording(RecordingContext(recording, summarize([timeline]), "model", limits or {}))


CORES = {"aic_cores": "20", "aiv_cores": "40", "aic_frequency_mhz": "1800"}


@pytest.mark.parametrize(
    ("microseconds", "fields", "rules"),
    [
        (4, {}, ["tiling.mfu"]),
        (3, {}, []),  # 0.30 of the peak
        (4, {"mte2": 0.9}, []),  # bound by memory
    ],
    ids=["slow", "just fast enough", "bound by memory"],
)
def test_tiling__recorded_product_below_a_third_of_the_peak__said_where_memory_does_not_hold_it_up(
    microseconds: int, fields: dict[str, float], rules: list[str]
) -> None:
    outcome = recorded(product(microseconds * 1000, **fields), settings=CORES)

    # 20 cores at 1.8 GHz with 8192 operations a cycle: 294.9 TFLOP/s.
    expected = 2 * 32768 * 64 * 64 / (microseconds * 1e-6) / 294.912e12
    assert of_op(outcome, "tiling.mfu") == {"MatMulV3": pytest.approx(expected)}
    assert [finding.rule for finding in outcome.findings] == rules


def test_tiling__recorded_product_in_eight_bits__twice_the_peak() -> None:
    outcome = recorded(product(4000, dtype="INT8"), settings=CORES)

    assert of_op(outcome, "tiling.mfu") == {"MatMulV3": pytest.approx(2 * 32768 * 64 * 64 / 4e-6 / 589.824e12)}


@pytest.mark.recordings
def test_tiling__recorded_with_other_counters__no_pipes_and_why(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{GPT}/test_rank_0_ascend_pt", tmp_path)))

    assert (outcome.status, outcome.values) == ("unavailable", [])
    for words in (
        "number of cores of the device is unknown",
        "PipeUtilization",
        "does not define the amount of computation",
    ):
        assert words in reason_of(outcome)


def test_tiling__recorded_by_torch_on_a_gpu__unavailable(tmp_path: Path) -> None:
    outcome = judged(trace.read(kineto_recording(tmp_path / "t.json")))

    assert (outcome.status, outcome.values) == ("unavailable", [])
    assert "neither cores nor pipes" in reason_of(outcome)


def paged(block, *, op="PagedAttentionMaskNdKernel", duration_ns=500, keys=None, options=None):
    """A decode step over a paged cache, its inputs as Huawei describes PagedAttentionOperation (ATB, CANN 9.0.0)."""
    keys = keys or (4000, block, 8, 128)
    options = options or (((32, 64), "INT32"), ((32,), "INT32"))
    inputs = Tensors(
        shapes=((32, 32, 128), keys, keys, *(shape for shape, _ in options)),
        dtypes=("BF16", "BF16", "BF16", *(dtype for _, dtype in options)),
        formats=("ND",) * (3 + len(options)),
    )
    return Kernel(op, op, "MIX_AIC", 0, duration_ns, inputs=inputs, outputs=Tensors(((32, 32, 128),)))


OTHER = Kernel("MatMulV3", "MatMulV3", "AI_CORE", 1000, 500)


def test_tiling__recorded_paged_attention_in_blocks_of_16__many_small_loads() -> None:
    outcome = recorded(paged(16), OTHER)

    assert of_op(outcome, "tiling.kv_block") == {"PagedAttentionMaskNdKernel": 16}
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity) == ("tiling.kv_block", "warning")
    # Eight heads of 128 values of two bytes; each of 32 requests has a table of 64 blocks.
    assert (finding.evidence["block [B]"], finding.evidence["blocks"]) == (16 * 8 * 128 * 2, 32 * 64)
    assert "in blocks of 16 tokens" in finding_text(finding)


@pytest.mark.parametrize(
    ("kernels", "blocks"),
    [
        ((paged(128), OTHER), {"PagedAttentionMaskNdKernel": 128}),
        ((paged(16, duration_ns=50), OTHER), {"PagedAttentionMaskNdKernel": 16}),  # a tenth of the time is not reached
        ((OTHER,), {}),
        ((paged(16, op="FlashAttentionScore"), OTHER), {}),
        # A decode step whose cache is not paged has no block table.
        ((paged(16, op="FusedInferAttentionScore", options=(((32,), "INT64"),)), OTHER), {}),
    ],
    ids=["as recommended", "light", "no attention", "other attention", "not paged"],
)
def test_tiling__recorded_attention_without_small_blocks_or_of_little_time__nothing_said(
    kernels: tuple[Kernel, ...], blocks: dict[str, int]
) -> None:
    outcome = recorded(*kernels)

    assert of_op(outcome, "tiling.kv_block") == blocks
    assert outcome.findings == []


@pytest.mark.parametrize(
    ("op", "keys"),
    [
        ("FusedInferAttentionScore", (4000, 32, 1024)),
        ("FusedInferAttentionScore", (4000, 8, 32, 128)),
        ("IncreFlashAttention", (4000, 8, 8, 32, 16)),
        ("PagedAttentionMaskNdKernel", (4000, 32, 8, 128)),
    ],
)
def test_tiling__recorded_paged_cache_in_each_layout__tokens_of_a_block(op: str, keys: tuple[int, ...]) -> None:
    # (blocknum, blocksize, H), (blocknum, KV_N, blocksize, D) and NZ of npu_fused_infer_attention_score; ATB's.
    outcome = recorded(paged(0, op=op, keys=keys), OTHER)

    assert of_op(outcome, "tiling.kv_block") == {op: 32}


def quantized(scales, *, op="WeightQuantBatchMatmulV2", duration_ns=500, weight=(4096, 11008)):
    """A product of packed weights, its inputs in the order of npu_weight_quant_batchmatmul (torch_npu's API reference)."""
    inputs = [((16, 4096), "BF16"), (weight, "INT4"), (scales, "BF16"), (scales, "BF16")]
    if op.startswith("Grouped"):
        # Empty ones as in sample msprof-910B-20cores-2608: bias, scale, offset before antiquant_scale, group_list last.
        inputs = [*inputs[:2], ((), "FLOAT"), ((), "UINT64"), ((), "FLOAT"), *inputs[2:], ((8,), "INT64")]
    shapes, dtypes = zip(*inputs)
    return Kernel(op, op, "MIX_AIC", 0, duration_ns, inputs=Tensors(shapes, dtypes), outputs=Tensors(((16, 11008),)))


@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        (quantized((128, 11008)), 32),
        (quantized((11008, 64), weight=(11008, 4096)), 64),  # transposed
        (quantized((8, 128, 11008), op="GroupedMatmul"), 32),
    ],
    ids=["plain", "transposed", "grouped"],
)
def test_tiling__recorded_weights_in_small_groups__said_with_their_size(kernel: Kernel, group: int) -> None:
    outcome = recorded(kernel, OTHER)

    assert of_op(outcome, "tiling.quant_group") == {kernel.type: group}
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, finding.evidence["size"]) == ("tiling.quant_group", "info", group)
    assert outcome.status == "ok"


@pytest.mark.parametrize(
    ("kernel", "groups"),
    [
        (quantized((32, 11008)), {"WeightQuantBatchMatmulV2": 128}),
        (quantized((1, 11008)), {}),
        (quantized((11008,)), {}),
        (quantized((128, 11008), duration_ns=50), {"WeightQuantBatchMatmulV2": 32}),
        (OTHER, {}),
    ],
    ids=["groups of 128", "a scale a column", "the same in one dimension", "light", "not quantized"],
)
def test_tiling__recorded_weights_in_large_groups_or_none__nothing_said(kernel: Kernel, groups: dict[str, int]) -> None:
    outcome = recorded(kernel, OTHER)

    assert of_op(outcome, "tiling.quant_group") == groups
    assert outcome.findings == []
