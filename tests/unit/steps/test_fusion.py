"""Step 6: patterns by the flow of data, what they cost, and what the kernels of a recording tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from perfgate import trace
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import RecordingContext, StepOutcome
from perfgate.measuring.checklist.steps.s06_fusion import STEP, judge_patterns, merged_share
from perfgate.measuring.checklist.steps.s06_fusion.kernels import is_elementwise, is_fused, read_fusion_result
from perfgate.measuring.checklist.steps.s06_fusion.node_times import NodeTimes, node_times
from perfgate.measuring.checklist.steps.s06_fusion.patterns import Node, Pattern, find_patterns, record_dataflow
from perfgate.measuring.counting.collect import CallTrace
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import CALL, NO_CORRELATION, EventTableBuilder
from perfgate.trace.model.recording import Kernel, Launch, ProfilerStep, Recording, Tensors, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.recordings import ADD, GEMM, kineto_recording
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, sample

WIDTH = 128
ROOT = Path(__file__).parent
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>"


class WrittenOut(nn.Module):
    """Attention, RMS normalization and GELU, each in its parts."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        q = self.project(x)
        a = torch.softmax(q @ q.transpose(-1, -2) / 11.3, dim=-1) @ q  # attention
        n = a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight  # normalization
        return n * 0.5 * (1 + torch.erf(n / 1.41421356))  # activation


class InOne(WrittenOut):
    """The same by operators that do it in one."""

    def forward(self, x):
        q = self.project(x).unsqueeze(1)  # with three dimensions torch itself takes attention apart on a CPU
        a = nn.functional.scaled_dot_product_attention(q, q, q).squeeze(1)
        return nn.functional.gelu(nn.functional.layer_norm(a, (WIDTH,), self.weight))


def line_of(comment: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"test_fusion.py:{next(number for number, line in enumerate(lines, 1) if line.endswith('# ' + comment))}"


def workload(build, *size):
    def inputs(batch, seed):
        return torch.randn(batch, *size, generator=torch.Generator().manual_seed(seed))

    return Workload(build=lambda device: build().eval(), inputs=inputs, batch=4)


def measured(given, folder, **fields):
    context = context_on(open_device("cpu"), given, artifacts=folder, root=ROOT, **fields)
    result, _ = run_step(STEP, context)
    assert result.error is None, result.error
    return result


def values(result):
    return {value.metric: value.value for value in result.values}


def patterns(call):
    with torch.inference_mode():
        nodes = record_dataflow(call, root=ROOT)
    return [(found.kind, [nodes[at].plain for at in found.ops]) for found in find_patterns(nodes)]


def kinds(call):
    nodes = record_dataflow(call, root=ROOT)
    return [(found.kind, tuple(nodes[at].plain for at in found.ops), found.broken_by) for found in find_patterns(nodes)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine a product waits for its threads, and beside that nothing costs anything."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_fusion__three_written_out__found_with_line_operators_and_cost(tmp_path: Path) -> None:
    result = measured(workload(WrittenOut, WIDTH, WIDTH), tmp_path, limits={"fusion.share.warning": 1e-6})

    assert values(result)["fusion.patterns"] == 3
    found = {finding.rule: finding.evidence for finding in result.findings}
    assert {rule: evidence["line"] for rule, evidence in found.items()} == {
        "fusion.attention": line_of("attention"),
        "fusion.rms_norm": line_of("normalization"),
        "fusion.gelu": line_of("activation"),
    }
    assert found["fusion.gelu"]["ops"] == ["mul", "div", "erf", "add", "mul"]
    assert found["fusion.attention"]["op"] in ("aten::div", "aten::_softmax")
    # The shares are medians of their own, so their sum is theirs but for rounding.
    assert sum(evidence["fusion.share"] for evidence in found.values()) == pytest.approx(values(result)["fusion.share"])


def test_fusion__much_of_the_time_in_them__to_look_at(tmp_path: Path) -> None:
    result = measured(workload(WrittenOut, WIDTH, WIDTH), tmp_path)

    assert result.status == "attention"
    assert 0.05 < values(result)["fusion.share"] <= 1.0
    assert {finding.severity for finding in result.findings} == {"warning"}


def test_fusion__same_work_by_operators_that_do_it_in_one__nothing_found(tmp_path: Path) -> None:
    result = measured(workload(InOne, WIDTH, WIDTH), tmp_path)

    assert (result.status, result.findings) == ("ok", [])
    assert (values(result)["fusion.patterns"], values(result)["fusion.share"]) == (0, 0.0)
    assert values(result)["fusion.fused_kernels"] >= 1


class Patches(nn.Module):
    """The beginning of a vision transformer: a convolution, its result turned into rows, a layer on these, positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, stride=8)
        self.positions = nn.Parameter(torch.zeros(1, 16, 32))
        self.rows = nn.Linear(32, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.rows(self.patches(images).flatten(2).transpose(1, 2))
        return torch.relu(rows) + self.positions


class ConvolutionsThenRows(nn.Module):
    """Convolutions with their norms, then a linear layer on rows that do not stand one after another in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.mix = nn.Linear(16, 16)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.stem(images).flatten(2).transpose(1, 2)
        return torch.sigmoid(self.mix(rows)) * torch.tanh(rows) + rows


STOCK = {
    "transformer encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64), 2, enable_nested_tensor=False),
        (8, 32),
    ),
    "vision transformer": (Patches, (3, 32, 32)),
    "convolutions then rows": (ConvolutionsThenRows, (3, 16, 16)),
}


@pytest.mark.parametrize("name", STOCK)
def test_fusion__stock_models__every_pattern_has_its_cost(name: str, tmp_path: Path) -> None:
    build, size = STOCK[name]

    result = measured(workload(build, *size), tmp_path)

    share = values(result)["fusion.share"]
    assert share is not None
    assert "fusion.unknown_cost" not in [finding.rule for finding in result.findings]
    assert values(result)["fusion.patterns"] > 0
    assert share > 0


def test_node_times__an_operator_in_the_middle_under_another_name__only_that_one_is_unknown() -> None:
    nodes = [Node(f"aten::{name}", "pointwise", (), 4, None) for name in ("mul", "add", "relu", "mul")]
    trace = recorded_call("aten::mul", "vendor::add", "aten::relu_", "aten::mul")

    times = node_times(nodes, trace, on_device=False)

    assert times.nodes == [1000.0, None, 1000.0, 1000.0]
    assert (times.of([0, 2]), times.of([0, 1])) == (2000.0, None)


def test_fusion__cost_of_some_patterns_unknown__named_and_the_others_judged() -> None:
    nodes = [Node(f"aten::{name}", "pointwise", (), 4, f"m.py:{at}") for at, name in enumerate(("mul", "add", "relu"))]
    found = [Pattern("elementwise", (0,), (0,)), Pattern("gelu", (1, 2), (1, 2))]

    outcome = StepOutcome()
    judge_patterns(outcome, found, nodes, NodeTimes([50.0, None, 10.0], 100.0))

    assert [(finding.rule, finding.severity, finding.evidence["ops"]) for finding in outcome.findings] == [
        ("fusion.elementwise", "warning", ["mul"]), ("fusion.unknown_cost", "info", ["add", "relu"]),
    ]  # fmt: skip
    assert merged_share(found, NodeTimes([50.0, None, 10.0], 100.0)) == 0.5
    assert merged_share(found, None) is None


def recorded_call(*names: str) -> CallTrace:
    """A trace of one call in which operators ran one after another, 1 µs each."""
    table = EventTableBuilder()
    add = partial(table.add, track=("host", "1"), correlation=NO_CORRELATION)
    add(0, 1_000_000, name=CALL, kind="annotation")
    for at, name in enumerate(names):
        add(10_000 * at, 1000, name=name, kind="host_op")
    return CallTrace(Timeline(rank=None, device=None, events=table.table()), calls=1, path=Path("trace.json"))


@pytest.mark.slow
def test_fusion__a_device_without_framework_operators__not_applicable(tmp_path: Path) -> None:
    context = context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", 1000)), artifacts=tmp_path)
    result, _ = run_step(STEP, context)

    assert (result.status, result.values) == ("not_applicable", [])


def test_patterns__layer_norm_by_hand__one_pattern() -> None:
    x, weight, bias = torch.randn(8, 16), torch.ones(16), torch.zeros(16)

    def call():
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) * weight + bias

    assert patterns(call) == [("layer_norm", ["mean", "sub", "pow", "mean", "add", "sqrt", "div", "mul", "add"])]


def test_patterns__convolution_normalized_by_constants__found_up_to_the_activation() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).eval()
    x = torch.randn(1, 3, 8, 8)

    assert patterns(lambda: model(x)) == [("conv_norm_activation", ["convolution", "native_batch_norm", "relu"])]


def test_patterns__convolution_with_activation_alone__nothing_to_fold() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)

    assert patterns(lambda: model(x)) == [("conv_activation", ["convolution", "relu"])]


def test_patterns__convolution_normalized_by_its_batch__cannot_be_folded() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train()
    x = torch.randn(2, 3, 8, 8)

    assert patterns(lambda: model(x)) == []


def test_patterns__linear_with_activation__found_also_through_a_view() -> None:
    model, x = nn.Linear(16, 16), torch.randn(2, 3, 16)

    assert patterns(lambda: nn.functional.silu(model(x))) == [("matmul_activation", ["addmm", "silu"])]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("shape", [(4, 16), (2, 4, 16)])
def test_patterns__linear_with_softmax__found_whatever_torch_makes_of_linear(
    shape: tuple[int, ...], gradients: bool
) -> None:
    model, x = nn.Linear(16, 8), torch.randn(shape)

    def call():
        with torch.inference_mode(not gradients):
            return nn.functional.log_softmax(model(x) / 2, dim=-1)

    assert kinds(call) == [("matmul_softmax", ("addmm", "div", "_log_softmax"), None)]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    ("between", "by"),
    [
        (lambda y: y.reshape(2, 4, 8), "view"),
        (lambda y: y.reshape(4, 16), "view"),
        (lambda y: y.flatten(), "view"),
        (lambda y: y.t(), "t"),
        (lambda y: y.transpose(0, 1).contiguous(), "transpose"),
        (lambda y: y.clone(), "clone"),
    ],
)
def test_patterns__layout_changed_behind_a_product__broken_and_by_what(
    between: Callable[[torch.Tensor], torch.Tensor], by: str, gradients: bool
) -> None:
    x, weight = torch.randn(8, 16), torch.randn(16, 8)

    def call():
        with torch.inference_mode(not gradients):
            return torch.relu(between(torch.matmul(x, weight)) + 1)

    ((kind, ops, broken_by),) = kinds(call)

    assert (kind, broken_by) == ("broken", by)
    assert (ops[0], ops[-2:]) == ("mm", ("add", "relu"))


@pytest.mark.filterwarnings("ignore::UserWarning")  # nested tensors are a prototype, says torch
def test_patterns__tensors_without_a_layout__recorded_all_the_same() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()  # nests its rows where some are padding
    padding = torch.tensor([[False, False, True], [False, False, False]])
    rows = torch.randn(2, 3, 32)

    with torch.inference_mode():
        nodes = record_dataflow(lambda: model(rows, src_key_padding_mask=padding), root=ROOT)

    assert any("nested" in node.name for node in nodes)


def test_patterns__reshaped_behind_the_activation__not_broken() -> None:
    x, weight = torch.randn(8, 16), torch.randn(16, 8)

    assert kinds(lambda: torch.relu(x @ weight + 1).reshape(4, 16).exp()) == [
        ("matmul_activation", ("mm", "add", "relu"), None)
    ]


def test_patterns__reshaped_and_nothing_to_fuse_behind__no_pattern() -> None:
    x, weight = torch.randn(8, 16), torch.randn(16, 8)

    assert kinds(lambda: (x @ weight).reshape(4, 16) + 1) == []


def test_fusion__reshape_behind_a_product__not_counted_but_named_with_its_cost(tmp_path: Path) -> None:
    class Reshaped(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            y = self.linear(x).reshape(-1, 2 * WIDTH)
            return torch.tanh(y + 1)  # behind a reshape

    result = measured(workload(Reshaped, WIDTH, WIDTH), tmp_path, limits={"fusion.share.warning": 1e-6})

    assert (values(result)["fusion.patterns"], values(result)["fusion.share"]) == (0, 0.0)
    (found,) = result.findings
    assert (found.rule, found.severity) == ("fusion.broken", "warning")
    assert (found.evidence["ops"], found.evidence["by"]) == (["add", "tanh"], "view")
    assert found.evidence["line"] == line_of("behind a reshape")
    assert found.evidence["fusion.share"] > 0


def test_patterns__three_elementwise_on_one_tensor__found_also_in_place() -> None:
    x = torch.randn(8, 8)

    assert patterns(lambda: (x * 2).add_(1).abs()) == [("elementwise", ["mul", "add", "abs"])]


def test_patterns__three_elementwise_on_three_tensors__no_pattern() -> None:
    x, y, z = torch.randn(3, 8, 8)

    assert patterns(lambda: (x * 2, y + 1, z.abs())) == []


def test_patterns__sums_of_residual_branches__not_one_kernel() -> None:
    model, x = nn.ModuleList(nn.Linear(16, 16) for _ in range(3)), torch.randn(4, 16)

    def call():
        y = x
        for layer in model:
            y = y + layer(y)
        return y

    assert patterns(call) == []


def test_patterns__result_taken_twice__epilogue_is_not_the_products_own() -> None:
    model, x = nn.Linear(16, 16), torch.randn(4, 16)

    assert patterns(lambda: (model(x).relu(), model(x).sum())) == [("matmul_activation", ["addmm", "relu"])]
    # Whoever else takes it needs it unchanged.
    assert patterns(lambda: [(y := model(x)).relu(), y.sum()]) == []


def judged(recording: Recording):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))


def test_recorded__elementwise_kernels_in_a_row__found_with_their_share(tmp_path: Path) -> None:
    step = [(GEMM, 100), (ELEMENTWISE, 20), (ELEMENTWISE, 20), (ELEMENTWISE, 60), (GEMM, 100)]
    outcome = judged(trace.read(kineto_recording(tmp_path / "t.json", steps=[step] * 3)))

    found = {value.metric: value.value for value in outcome.values}
    assert found == {
        "fusion.fused_kernels": 0.0,
        "fusion.sequences": 1.0,
        "fusion.sequence_share": pytest.approx(100 / 300),
    }
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity) == ("fusion.sequence_share", "warning")


def test_recorded__products_between_them__no_sequence(tmp_path: Path) -> None:
    step = [(ELEMENTWISE, 20), (GEMM, 100), (ADD, 20), (GEMM, 100), (ELEMENTWISE, 20), ("triton_poi_fused_add_0", 20)]
    outcome = judged(trace.read(kineto_recording(tmp_path / "t.json", steps=[step] * 3)))

    assert (outcome.status, outcome.findings) == ("ok", [])
    assert {value.metric: value.value for value in outcome.values}["fusion.fused_kernels"] == 1.0


def ascend(*kernels: Kernel) -> Recording:
    timeline = Timeline(0, 0, EventTableBuilder().table(), kernels=kernels, steps=(ProfilerStep(1),))
    return Recording(path=Path("recording"), format="ascend-pytorch", timelines=(timeline,))


def vector_kernel(number: int, type_: str, given: tuple[int, ...], made: tuple[int, ...]) -> Kernel:
    launch, inputs, outputs = Launch(stream=2), Tensors((given,)), Tensors((made,))
    return Kernel(type_, type_, "AI_VECTOR_CORE", number * 10, 8, step=1, launch=launch, inputs=inputs, outputs=outputs)


def test_recorded__vector_kernels_that_hand_on_their_shape__a_sequence_and_else_none() -> None:
    same = [vector_kernel(number, type_, (8, 8), (8, 8)) for number, type_ in enumerate(("Muls", "Add", "Relu"))]
    other = [same[0], vector_kernel(1, "Add", (4, 4), (4, 4)), same[2]]

    assert [finding.rule for finding in judged(ascend(*same)).findings] == ["fusion.sequence_share"]
    assert judged(ascend(*other)).findings == []


@pytest.mark.recordings
def test_recorded__eager_training_on_a_910b__fused_optimizer_kernels_and_next_to_no_sequence(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path)))

    found = {value.metric: value.value for value in outcome.values}
    # ForeachAddList three times and ForeachMulScalar once; sequences of its 20 Mul mostly differ in shape.
    assert (found["fusion.fused_kernels"], found["fusion.sequences"]) == (4.0, 1.0)
    assert 0 < found["fusion.sequence_share"] < 0.01
    assert outcome.status == "ok"


def test_recorded__no_kernels__unavailable() -> None:
    recording = Recording(
        path=Path("r"), format="kineto", timelines=(Timeline(None, None, EventTableBuilder().table()),)
    )
    assert judged(recording).status == "unavailable"


@pytest.mark.parametrize(
    "name", ["FlashAttentionScore", "AddRmsNorm", "SwiGlu", "triton_poi_fused_add_relu_0", "mkldnn::_linear_pointwise"]
)
def test_is_fused__kernels_of_several_operators__yes(name: str) -> None:
    assert is_fused(name)


@pytest.mark.parametrize("name", ["MatMulV2", "cudnn::winograd_nonfused::winogradForwardData4x4", "aten::add", "Add"])
def test_is_fused__kernels_of_one__no(name: str) -> None:
    assert not is_fused(name)


def test_is_elementwise__filling_and_copying__no_computing() -> None:
    assert is_elementwise("ReluGrad")
    assert is_elementwise(ELEMENTWISE)
    assert not is_elementwise("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>")
    assert not is_elementwise("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>")
    assert not is_elementwise("AddRmsNorm")


def test_fusion_result__documented_form__counts_of_every_pass(tmp_path: Path) -> None:
    # As the writer of the graph engine and torchair's documentation have it; counts are strings.
    graph = {
        "graph_fusion": {"ABatchNormFusionPass": {"effect_times": "2", "match_times": "3"}},
        "ub_fusion": {
            "TbeConvReluFusionPass": {"effect_times": "0", "match_times": "1", "repository_hit_times": "0"},
            "ABatchNormFusionPass": {"effect_times": "1", "match_times": "1"},
        },
    }
    (tmp_path / "fusion_result.json").write_text(json.dumps({"session_and_graph_id_0_0": graph}))

    matched, took_effect = read_fusion_result(tmp_path / "nowhere", tmp_path)
    assert took_effect == {"ABatchNormFusionPass": 3, "TbeConvReluFusionPass": 0}
    assert matched == {"ABatchNormFusionPass": 4, "TbeConvReluFusionPass": 1}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": {"effect_times": "x"}}', "1", "[" * 100_000])
def test_fusion_result__broken_or_empty__nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "fusion_result.json").write_text(text)
    found = read_fusion_result(tmp_path)
    assert found is None or not any(found[0].values())


def test_fusion__graph_engine_left_its_report__fusions_and_the_pass_without_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {
        "graph_fusion": {"A": {"effect_times": "2", "match_times": "2"}, "B": {"effect_times": "0", "match_times": "1"}}
    }
    (tmp_path / "fusion_result.json").write_text(json.dumps(report))
    monkeypatch.chdir(tmp_path)
    result = measured(workload(InOne, WIDTH, WIDTH), tmp_path)

    assert values(result)["fusion.graph_fusions"] == 2
    assert [(finding.rule, finding.severity) for finding in result.findings] == [("fusion.pass_without_effect", "info")]
