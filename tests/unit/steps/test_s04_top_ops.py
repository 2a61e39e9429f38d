from __future__ import annotations

import gzip
import hashlib
import json
import tracemalloc
from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import RecordingContext, Step, StepContext
from perfgate.measuring.checklist.steps.s04_top_ops import STEP
from perfgate.measuring.checklist.steps.s07_format import STEP as FORMAT
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Kernel, Recording, Tensors, Timeline
from perfgate.trace.model.spans import COLLECTIVES, KERNEL_METRICS
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.samples import recorded as recorded_file
from tests.unit.trace.ascend import GPT, sample, written
from tests.wording import finding_text

US = 1000
MIXED = (
    FakeKernel("aten::mm", 10 * US),
    FakeKernel("aten::softmax", 16 * US),
    FakeKernel("aten::transpose", 21 * US),
    FakeKernel("aten::copy", 31 * US),
    FakeKernel("aten::gelu", 11 * US),
    FakeKernel("aten::gelu", 11 * US),
)


def measure(tmp_path, *kernels, device=None, **fields):
    workload = fields.pop("workload", None) or fake_workload(*kernels)
    return STEP.measure(context_on(device or FakeDevice(), workload, artifacts=tmp_path, **fields))


def test_top_ops__scripted_kernels__self_time_share_and_count(tmp_path: Path) -> None:
    outcome = measure(tmp_path, *MIXED)

    rows = [(row.op, row.kind, row.self_time, row.count, row.share) for row in outcome.operators]
    assert rows == [
        ("copy_kernel", "compute", pytest.approx(31e-6), 1.0, pytest.approx(0.31)),
        ("gelu_kernel", "compute", pytest.approx(22e-6), 2.0, pytest.approx(0.22)),
        ("transpose_kernel", "compute", pytest.approx(21e-6), 1.0, pytest.approx(0.21)),
        ("softmax_kernel", "compute", pytest.approx(16e-6), 1.0, pytest.approx(0.16)),
        ("mm_kernel", "compute", pytest.approx(10e-6), 1.0, pytest.approx(0.10)),
    ]
    assert {(row.workload, row.shape) for row in outcome.operators} == {("fake", "default")}


def test_top_ops__scripted_kernels__shares_of_classes_and_findings(tmp_path: Path) -> None:
    outcome = measure(tmp_path, *MIXED)

    shares = {value.labels["class"]: value.value for value in outcome.values if value.metric == "ops.share"}
    assert shares == {
        "conv_matmul": pytest.approx(0.10),
        "copy": pytest.approx(0.31),
        "reshape": pytest.approx(0.21),
        "softmax": pytest.approx(0.16),
        "other": pytest.approx(0.22),
    }
    assert [(finding.rule, finding.severity, finding.evidence["op"]) for finding in outcome.findings] == [
        ("ops.share.copy", "severe", "copy_kernel"),
        ("ops.share.reshape", "warning", "transpose_kernel"),
        ("ops.share.softmax", "warning", "softmax_kernel"),
    ]
    assert outcome.findings[0].evidence["limit"] == 0.30
    assert outcome.status == "attention"


def test_top_ops__mostly_matrix_products__information_and_ok(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", 70 * US), FakeKernel("aten::gelu", 30 * US))

    assert [(finding.rule, finding.severity) for finding in outcome.findings] == [("ops.share.conv_matmul", "info")]
    assert outcome.status == "ok"
    times = {value.labels["op"]: value.value for value in outcome.values if value.metric == "ops.time"}
    assert times == {"mm_kernel": pytest.approx(70e-6), "gelu_kernel": pytest.approx(30e-6)}


def test_top_ops__limits_of_the_project__followed(tmp_path: Path) -> None:
    limits = {"ops.share.copy.severe": 0.5, "ops.share.reshape.warning": 0.5, "ops.share.softmax.warning": 0.5}

    assert measure(tmp_path, *MIXED, limits=limits).findings == []


def test_top_ops__more_ops_than_rows__coverage_says_what_is_missing(tmp_path: Path) -> None:
    kernels = [FakeKernel(f"aten::op{number}", 10 * US) for number in range(150)]
    outcome = measure(tmp_path, *kernels)

    assert len(outcome.operators) == 100
    (coverage,) = (value.value for value in outcome.values if value.metric == "ops.coverage")
    assert coverage == pytest.approx(100 / 150)
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, finding.evidence["limit"]) == ("ops.coverage", "warning", 0.98)


def test_top_ops__trace__is_an_artifact_with_its_hash(tmp_path: Path) -> None:
    workload = fake_workload(FakeKernel("aten::mm", 100 * US), shapes={"plain": {}, "a/b c": {}})
    context = context_on(FakeDevice(), workload, artifacts=tmp_path)
    STEP.measure(context)

    assert [artifact.path for artifact in context.kept] == [
        "trace-fake-plain.json.gz",
        "trace-fake-a-b-c-0af99a60.json.gz",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(artifact.path for artifact in context.kept)
    first = context.kept[0]
    content = (tmp_path / first.path).read_bytes()
    assert (first.kind, first.bytes, first.workload) == ("trace", len(content), "fake")
    assert first.sha256 == hashlib.sha256(content).hexdigest()


def test_top_ops__every_shape__has_its_counters(tmp_path: Path) -> None:
    workload = fake_workload(
        FakeKernel("aten::mm", 100 * US), model={"output_bytes": 64}, shapes={"short": {}, "long": {}}
    )
    outcome = measure(tmp_path, workload=workload)

    assert [(counters.workload, counters.shape) for counters in outcome.counters] == [
        ("fake", "short"),
        ("fake", "long"),
    ]
    # The fake model runs no torch operator. It allocates an activation of no bytes and an output of 64. Every version of Python
    # has bytecodes of its own.
    values = outcome.counters[0].values
    assert min(values.pop("counters.python_calls"), values.pop("counters.bytecodes")) > 0
    assert values.pop("memory.kept_python") <= 512
    assert values == {
        "counters.framework_ops": 0,
        "counters.copies": 0,
        "counters.copy_bytes": 0,
        "counters.noncontiguous_copies": 0,
        "counters.syncs": 0,
        "counters.low_precision_ops": 0,
        "counters.allocations": 2,
        "counters.repeat_saves": 0,
        "memory.peak": 64,
        "memory.kept": 0,
        "counters.kernels": 1,
        "counters.format_conversions": 0,
        "counters.device_copies": 0,
        "counters.collectives": 0,
        "counters.flops": 0,
        "counters.deferred_ops": 0,
        "counters.double_ops": 0,
        "counters.autograd_ops": 0,
        "counters.training_modules": 0,
        "counters.loaders_in_process": 0,
        "counters.blocking_transfers": 0,
    }


class WithoutKernels(FakeDevice):
    """Its profiler may not record the device, as where a driver of NVIDIA reserves that for administrators."""

    def record_trace(self, *args, **fields):
        path = super().record_trace(*args, **fields)
        recorded = json.loads(gzip.decompress(path.read_bytes()))
        recorded["traceEvents"] = [event for event in recorded["traceEvents"] if event.get("cat") != "kernel"]
        path.write_bytes(gzip.compress(json.dumps(recorded).encode()))
        return path


@pytest.mark.parametrize("step", [STEP, FORMAT], ids=["top_ops", "format"])
def test_steps__profiler_that_records_no_kernels__unavailable_with_the_reason_and_no_counter_is_zero(
    tmp_path: Path, step: Step
) -> None:
    workload = fake_workload(FakeKernel("aten::mm", 100 * US))
    outcome = step.measure(context_on(WithoutKernels(), workload, artifacts=tmp_path))

    assert outcome.absent == "unavailable"
    assert reason_of(outcome).startswith("operators ran, but the profiler recorded no work of the device")
    counted = {name for counters in outcome.counters for name in counters.values}
    # Collectives are counted on the host, too.
    assert counted.isdisjoint({*KERNEL_METRICS} - {COLLECTIVES})


def test_top_ops__kernels_that_only_convert_formats__counted_and_named(tmp_path: Path) -> None:
    kernels = [FakeKernel("aten::mm", 100 * US), *[FakeKernel("npu::TransData", 5 * US)] * 2]
    [counted] = measure(tmp_path, *kernels).counters

    assert counted.values["counters.kernels"] == 3
    assert counted.values["counters.format_conversions"] == 2
    assert ("counters.format_conversions", "TransData_kernel", 2) in [
        (site.metric, site.name, site.count) for site in counted.sites
    ]
    assert {op.op: op.count for op in counted.ops} == {"mm_kernel": 1, "TransData_kernel": 2}
    assert counted.unstable == []


def test_top_ops__calls_that_run_different_kernels__unstable(tmp_path: Path) -> None:
    device, made = FakeDevice(), []

    def call(model, inputs):
        made.append(inputs)
        for _ in range(1 + len(made) % 2):
            device.launch("aten::mm", 100 * US)

    [counted] = measure(tmp_path, workload=fake_workload(call=call), device=device).counters

    # The fake kernel is Python too.
    python = ["counters.bytecodes", "counters.python_calls"]
    assert counted.unstable == sorted(["counters.kernels", "ops.count:mm_kernel", *python])


def with_lgamma(device):
    def call(model, inputs):
        device.launch("aten::mm", 100 * US)
        return torch.ones(4).lgamma_()

    return fake_workload(call=call)


def test_top_ops__operators_run_on_the_host__counted_and_found_with_their_line(tmp_path: Path) -> None:
    device = FakeDevice()
    device.fallen_back = {"aten::lgamma"}
    root = Path(__file__).parent
    outcome = measure(tmp_path, workload=with_lgamma(device), device=device, root=root)

    [counted] = outcome.counters
    assert counted.values["counters.fallbacks"] == 1
    [finding] = [finding for finding in outcome.findings if finding.rule == "ops.fallback"]
    line = with_lgamma.__code__.co_firstlineno + 3
    assert finding.severity == "warning"
    assert finding.evidence == {
        "op": "aten::lgamma_",
        "calls": 1,
        "shape": "default",
        "line": f"test_s04_top_ops.py:{line}",
    }


def test_top_ops__nobody_can_tell_what_runs_on_the_host__no_such_counter(tmp_path: Path) -> None:
    device = FakeDevice()
    [counted] = measure(tmp_path, workload=with_lgamma(device), device=device).counters

    assert "counters.fallbacks" not in counted.values


def test_top_ops__a_call_without_operators__unavailable_with_counters(tmp_path: Path) -> None:
    device = FakeDevice()
    outcome = measure(tmp_path, workload=fake_workload(call=lambda *_: device.host_works(100 * US)), device=device)

    assert outcome.status == "unavailable"
    assert "no operator" in reason_of(outcome)
    assert {value.metric: (value.value, reason_of(value)) for value in outcome.values} == dict.fromkeys(
        ("ops.coverage", "ops.kernel_time"), (None, "the trace holds no operator")
    )
    assert len(outcome.counters) == 1


def test_top_ops__kernels_on_cpu_like_device__host_ops(tmp_path: Path) -> None:
    device = FakeDevice(capabilities=frozenset())
    outcome = measure(tmp_path, FakeKernel("aten::mm", 30 * US), FakeKernel("aten::add", 10 * US), device=device)

    assert [(row.op, row.kind, row.share) for row in outcome.operators] == [
        ("aten::mm", "host", pytest.approx(0.75)),
        ("aten::add", "host", pytest.approx(0.25)),
    ]


def cpu_context(workload, artifacts):
    device = open_device("cpu")
    bound = BoundWorkload("real", workload, device, seed=1, root=Path(__file__).parents[3])
    return StepContext(
        workload=bound, limits={}, seed=1, artifacts=artifacts, progress=lambda text: None,
    )  # fmt: skip


def test_top_ops__real_model_on_the_cpu__matrix_product_in_the_table_and_counted(tmp_path: Path) -> None:
    def inputs(batch, seed):
        return torch.randn(batch, 512, generator=torch.Generator().manual_seed(seed))

    workload = Workload(build=lambda device: torch.nn.Linear(512, 512), inputs=inputs, batch=256)
    result, outcome = run_step(STEP, cpu_context(workload, tmp_path))

    assert result.error is None
    # How the time is shared depends on what else the machine does; what ran does not.
    rows = {row.op: row for row in outcome.operators}
    assert rows["aten::addmm"].count == 1.0
    assert rows["aten::addmm"].self_time > 0
    assert sum(row.share for row in rows.values()) == pytest.approx(1.0)
    assert [(op.op, op.count) for op in outcome.counters[0].ops] == [("aten::addmm", 1), ("aten::t", 1)]


def test_top_ops__calls_that_use_tracemalloc__bytes_left_behind_are_not_counted_and_that_is_noted(
    tmp_path: Path,
) -> None:
    def watched(_, x):
        tracemalloc.start()
        tracemalloc.stop()
        return x + 1

    workload = Workload(build=lambda device: 0, inputs=lambda batch, seed: torch.full((batch,), 1.0), call=watched)
    result, found = run_step(STEP, cpu_context(workload, tmp_path))

    assert "counters.kept_uncounted" in {finding.rule for finding in result.findings}
    (counted,) = found.counters
    assert (counted.uncounted, "memory.kept" in counted.values) == (["memory.kept_python", "memory.kept_native"], True)


def test_top_ops__counters_depend_on_the_data__information(tmp_path: Path) -> None:
    def loop(_, x):
        for _ in range(int(x[0])):
            x = x + 1
        return x

    workload = Workload(build=lambda device: 0, inputs=lambda batch, seed: torch.full((batch,), float(seed)), call=loop)
    result, _ = run_step(STEP, cpu_context(workload, tmp_path))

    assert result.error is None
    (finding,) = (finding for finding in result.findings if finding.rule == "counters.unstable")
    assert finding.severity == "info"
    assert "counters.framework_ops" in finding.evidence["metrics"]


@pytest.mark.parametrize(("microseconds", "rules"), [(71, ["ops.heaviest"]), (70, [])])
def test_top_ops__one_kernel_above_seven_tenths__said_first(
    tmp_path: Path, microseconds: int, rules: list[str]
) -> None:
    outcome = measure(
        tmp_path, FakeKernel("aten::gelu", microseconds * US), FakeKernel("aten::sin", (100 - microseconds) * US)
    )

    (heaviest,) = (value for value in outcome.values if value.metric == "ops.heaviest")
    assert (heaviest.value, heaviest.labels["op"]) == (pytest.approx(microseconds / 100), "gelu_kernel")
    assert [finding.rule for finding in outcome.findings] == rules
    assert outcome.status == "ok"


def recorded(*kernels, limits=None):
    timeline = Timeline(rank=0, device=0, events=EventTableBuilder().table(), kernels=kernels)
    return judged(Recording(Path("recording"), "ascend-pytorch", (timeline,)), limits)


def judged(recording, limits=None):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", limits or {}))


def numbers(outcome):
    return {value.metric: value.value for value in outcome.values}


@pytest.mark.recordings
def test_top_ops__recorded_gpt3__attention_above_seven_tenths_and_casts_on_the_ai_cpu(tmp_path: Path) -> None:
    # The same rows as the folder's kernel_details.csv, whose other tables speak of a longer recording.
    outcome = judged(trace.read(sample(f"{GPT}/op_summary_1.csv", tmp_path)))

    found = {finding.rule: finding for finding in outcome.findings}
    # Three whole rows of FlashAttentionScore: 21112.85 of 27130.59 us; the two Casts take 145.02 us.
    assert (found["ops.heaviest"].severity, found["ops.heaviest"].evidence["op"]) == ("info", "FlashAttentionScore")
    assert numbers(outcome)["ops.heaviest"] == pytest.approx(21112.8507 / 27130.59, rel=1e-5)
    on_cpu = found["ops.ai_cpu"]
    assert (on_cpu.severity, on_cpu.evidence["op"], on_cpu.evidence["types"]) == ("warning", "Cast", "INT32 -> UINT64")
    assert (on_cpu.evidence["ops.ai_cpu"], numbers(outcome)["ops.ai_cpu"]) == (pytest.approx(72.8611e-6, abs=1e-9), 2)
    assert "mostly Cast (INT32 -> UINT64): 2 per call" in finding_text(on_cpu)


@pytest.mark.recordings
def test_top_ops__recorded_training_of_2023__its_seven_casts_on_the_ai_cpu(tmp_path: Path) -> None:
    written(
        tmp_path,
        "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        recorded_file("mstt-advisor/compute_advice/kernel_details.csv").read_text(),
    )
    outcome = judged(trace.read(tmp_path))

    assert numbers(outcome)["ops.ai_cpu"] == 7
    assert [finding.evidence["calls"] for finding in outcome.findings if finding.rule == "ops.ai_cpu"] == [7]


def on_unit(core, duration_ns, op="Cast"):
    return Kernel(op, op, core, 0, duration_ns, inputs=Tensors(dtypes=("INT64",)), outputs=Tensors(dtypes=("INT32",)))


@pytest.mark.parametrize(
    ("kernels", "rules", "count"),
    [
        ((on_unit("AI_CPU", 20_001), on_unit("AI_CORE", 10_000)), ["ops.ai_cpu"], 1),
        ((on_unit("AI_CPU", 20_000), on_unit("AI_CORE", 10_000)), [], 1),
        ((on_unit("AI_VECTOR_CORE", 90_000), on_unit("AI_CORE", 90_000, "Mul")), [], 0),
    ],
    ids=["longer than it may be", "just not", "on the cores"],
)
def test_top_ops__recorded_kernels_on_the_ai_cpu__said_from_20_microseconds_on(
    kernels: tuple[Kernel, ...], rules: list[str], count: int
) -> None:
    outcome = recorded(*kernels)

    assert [finding.rule for finding in outcome.findings if finding.rule == "ops.ai_cpu"] == rules
    assert numbers(outcome)["ops.ai_cpu"] == count


def test_top_ops__recorded_at_level_0__nobody_tells_which_unit_and_nothing_is_said() -> None:
    outcome = recorded(on_unit("N/A", 90_000))

    assert "ops.ai_cpu" not in numbers(outcome)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Int4Gemm", "ops.quantized_product"),
        ("gptq_marlin_gemm", "ops.quantized_product"),
        ("MatMul_w4a16", "ops.quantized_product"),
        ("SparseFusedAttention", "ops.block_attention"),
        ("void vllm::paged_attention_v1_kernel<float>", "ops.block_attention"),
        ("FlashAttentionScore", None),
        ("MatMulV2", None),
        ("DynamicQuant", None),
        # Their sizes stand in the table of kernels, and step 13 judges them.
        ("WeightQuantBatchMatmulV2", None),
        ("PagedAttentionMaskNdKernel", None),
    ],
)
def test_top_ops__name_of_what_loads_in_pieces__size_to_try_where_it_takes_much(name: str, rule: str | None) -> None:
    def told(share):
        kernels = [Kernel(name, name, "AI_CORE", 0, share), Kernel("Mul", "Mul", "AI_VECTOR_CORE", share, 100 - share)]
        found = [
            finding
            for finding in recorded(*kernels).findings
            if finding.rule.startswith(("ops.quantized", "ops.block"))
        ]
        return [(finding.rule, finding.severity, finding.evidence["op"]) for finding in found]

    assert told(40) == ([(rule, "info", name)] if rule else [])
    assert told(9) == []
