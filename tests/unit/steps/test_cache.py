"""Step 15: on a device whose cold calls take a known time longer, on the CPU's own cache, and on recorded counters."""

from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.step import RecordingContext, StepContext
from perfgate.measuring.checklist.steps.s15_cache import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import NO_CORRELATION, EventTableBuilder
from perfgate.trace.model.readings import MEMORY_READ, MEMORY_WRITE, Readings
from perfgate.trace.model.recording import Kernel, Recording, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, QWEN, sample
from tests.wording import finding_text

MS = 1_000_000
MIB = 1 << 20


def measure(tmp_path, *, cold_ms, cache=MIB, item_bytes=100_000, limits=None):
    device = FakeDevice()
    device.cache, device.cold_ns = cache, round(cold_ms * MS)
    workload = fake_workload(FakeKernel("aten::mm", 2 * MS), item_bytes=item_bytes, batch=4)
    return STEP.measure(context_on(device, workload, artifacts=tmp_path, limits=limits or {}))


def by_buffers(outcome, metric):
    return {value.labels["buffers"]: value.value for value in outcome.values if value.metric == metric}


def test_cache__cold_calls_half_as_long_again__sensitive(tmp_path: Path) -> None:
    outcome = measure(tmp_path, cold_ms=1.0)

    assert by_buffers(outcome, "cache.call_time") == {"hot": 0.002, "cold": 0.003, "rotating": 0.002}
    assert by_buffers(outcome, "cache.sensitivity") == {"cold": pytest.approx(1.5), "rotating": pytest.approx(1.0)}
    (finding,) = outcome.findings
    assert (finding.rule, finding.severity, finding.evidence["buffers"]) == ("cache.sensitivity", "warning", "cold")
    assert "production caches are colder" in finding_text(finding)
    assert outcome.status == "attention"


def test_cache__cold_calls_hardly_longer__ok(tmp_path: Path) -> None:
    outcome = measure(tmp_path, cold_ms=0.3)

    assert by_buffers(outcome, "cache.sensitivity")["cold"] == pytest.approx(1.15)
    assert (outcome.status, outcome.findings) == ("ok", [])


def test_cache__limit_of_the_project__followed(tmp_path: Path) -> None:
    assert measure(tmp_path, cold_ms=0.3, limits={"cache.sensitivity.warning": 1.1}).status == "attention"


def test_cache__size_unknown__unavailable(tmp_path: Path) -> None:
    outcome = measure(tmp_path, cold_ms=1.0, cache=None)

    assert (outcome.status, outcome.values) == ("unavailable", [])
    assert "size of the device's last-level cache" in reason_of(outcome)


@pytest.mark.parametrize(
    ("item_bytes", "reason"), [(100, "5244 copies of it would be needed"), (0, "the inputs hold no tensor")]
)
def test_cache__inputs_that_no_number_of_copies_makes_large__no_rotation_and_why(
    tmp_path: Path, item_bytes: int, reason: str
) -> None:
    outcome = measure(tmp_path, cold_ms=0.0, item_bytes=item_bytes)

    (rotating,) = (value for value in outcome.values if value.value is None)
    assert reason in reason_of(rotating)
    assert by_buffers(outcome, "cache.call_time").keys() == {"hot", "cold"}


def on_cpu(tmp_path, model, features):
    device = open_device("cpu")
    if device.cache_sweeper() is None:
        pytest.skip("this kernel does not tell the size of the last-level cache, or there is too little memory")

    def inputs(items, seed):
        return torch.randn(items, features, generator=torch.Generator().manual_seed(seed))

    workload = Workload(build=lambda device: model.eval(), inputs=inputs)
    context = StepContext(
        workload=BoundWorkload("real", workload, device, seed=1, root=Path(__file__).parents[3]),
        limits={}, seed=1, artifacts=tmp_path, progress=lambda text: None,
    )  # fmt: skip
    return STEP.measure(context)


class Reuse(torch.nn.Module):
    """A billion operations on half a megabyte: where that lies does not matter."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(384, 384) / 20)

    def forward(self, inputs):
        product = self.weight + inputs
        for _ in range(10):
            product = product @ self.weight
        return product


@pytest.mark.usefixtures("one_thread")
def test_cache__weights_that_are_read_once_a_call_on_the_cpu__sensitive(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, torch.nn.Linear(512, 512), features=512)

    assert by_buffers(outcome, "cache.sensitivity")["cold"] > 1.2
    assert [finding.rule for finding in outcome.findings] == ["cache.sensitivity"]


@pytest.mark.usefixtures("one_thread")
def test_cache__little_data_and_much_work_on_the_cpu__ok(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, Reuse(), features=384)

    assert (outcome.status, outcome.findings) == ("ok", [])


def judged(recording, limits=None):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", limits or {}))


def rates(outcome):
    return {(value.labels["op"], value.labels["access"]): value.value for value in outcome.values}


@pytest.mark.recordings
def test_cache__recorded_l2_counters__hits_over_hits_and_misses(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample("msprof-910B-20cores-2608/PROF_L2Cache", tmp_path)))

    assert rates(outcome) == {
        ("GroupedMatmul", "read"): pytest.approx((7382 + 7389) / (7382 + 7389 + 31 + 24)),
        ("GroupedMatmul", "write"): pytest.approx(18 / (18 + 4098)),
        ("OnesLike", "read"): pytest.approx((43 + 41 + 183 + 176) / (44 + 44 + 184 + 176)),
        ("OnesLike", "write"): 0.0,
    }
    assert (outcome.status, outcome.findings) == ("ok", [])


@pytest.mark.recordings
def test_cache__recorded_without_counters__unavailable_and_how_to_get_them(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{QWEN}/rank_0_ascend_pt", tmp_path)))

    assert (outcome.status, outcome.values) == ("unavailable", [])
    assert "AiCMetrics.L2Cache" in reason_of(outcome)


def traffic(outcome):
    return {
        (value.labels["access"], value.labels.get("of")): value.value
        for value in outcome.values
        if value.metric == "cache.memory_traffic"
    }


@pytest.mark.recordings
def test_cache__recorded_alexnet__bandwidth_of_its_memory_and_no_hit_rates(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path)))

    # Six readings of 20 ms; the highest read is the sum of four counters of 22.3 GiB/s.
    found = traffic(outcome)
    assert found["read", "mean"] == pytest.approx(25.297e9, rel=1e-3)
    assert found["read", "highest"] == pytest.approx(93.6615e9, rel=1e-4)
    assert found["write", "mean"] == pytest.approx(16.423e9, rel=1e-3)
    assert {value.count for value in outcome.values if value.metric == "cache.memory_traffic"} == {6}
    (unknown,) = (value for value in outcome.values if value.metric == "cache.hit_rate")
    assert "AiCMetrics.L2Cache" in reason_of(unknown)
    assert (outcome.status, outcome.findings) == ("ok", [])


MS_20 = 20 * MS


def with_traffic(*rates, kernels=((0, 100 * MS),)):
    """A device whose memory is read and written at rates in GB/s, 20 ms each (table HBM of sample alexnet)."""
    builder = EventTableBuilder()
    for start, length in kernels:
        builder.add(start, length, track=("NPU", "1"), name="Add", kind="compute", correlation=NO_CORRELATION)
    readings = Readings.of([MS_20 * number for number in range(len(rates) + 1)], [0.0, *(rate * 1e9 for rate in rates)])
    return Timeline(None, 0, builder.table(), readings={MEMORY_READ: readings, MEMORY_WRITE: readings})


@pytest.mark.parametrize(("peak", "rules"), [(1.2e12, ["cache.memory_share"]), (1.25e12, []), (0.0, [])])
def test_cache__recorded_traffic_near_the_peak_that_the_project_gives__bandwidth_holds_it_up(
    peak: float, rules: list[str]
) -> None:
    recording = Recording(Path("recording"), "ascend-db", (with_traffic(400, 600, 500, 500, 500),))
    outcome = judged(recording, {"cache.memory_peak": peak})

    assert traffic(outcome)["read", "mean"] == pytest.approx(500e9)
    shares = [value.value for value in outcome.values if value.metric == "cache.memory_share"]
    assert shares == ([pytest.approx(1e12 / peak)] if peak else [])
    assert [finding.rule for finding in outcome.findings] == rules


def test_cache__recorded_steps_shorter_than_a_reading__no_bandwidth_and_why() -> None:
    outcome = judged(
        Recording(Path("recording"), "ascend-db", (with_traffic(400, 600, kernels=((25 * MS, 10 * MS),)),))
    )

    assert (outcome.status, outcome.values) == ("unavailable", [])
    assert "read too rarely for these steps" in reason_of(outcome)


def kernel(op, duration_ns, **counters):
    return Kernel(op, op, "AI_CORE", 0, duration_ns, counters=counters)


def test_cache__recorded_heavy_operator_that_mostly_misses__said() -> None:
    table = EventTableBuilder().table()
    kernels = (
        kernel("MatMulV2", 900, aic_r0_read_cache_hit=10.0, aic_r0_read_cache_miss_allocate=90.0),
        kernel("Add", 50, l2_hit_rate=0.1),
        kernel("Mul", 50, aiv_write_cache_hit=0.0, aiv_write_cache_miss_allocate=5.0),
    )
    outcome = judged(Recording(Path("recording"), "msprof", (Timeline(None, 0, table, kernels=kernels),)))

    assert rates(outcome) == {("MatMulV2", "read"): 0.1, ("Add", "all"): 0.1, ("Mul", "write"): 0.0}
    (finding,) = outcome.findings
    assert (finding.severity, finding.evidence["op"]) == ("info", "MatMulV2")
