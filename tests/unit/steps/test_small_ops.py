"""Step 12: on a device whose launches and kernels take known times, on the CPU, and on recordings of real NPUs."""

from pathlib import Path

import pytest
import torch

from perfgate import trace
from perfgate.measuring.checklist.step import RecordingContext, StepContext
from perfgate.measuring.checklist.steps.s12_small_ops import STEP
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import NO_CORRELATION, EventTableBuilder
from perfgate.trace.model.recording import Recording, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.recordings import kineto_recording
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, QWEN, sample
from tests.wording import finding_text

US = 1000


def measure(tmp_path, *kernels, launch_us=10, device=None, limits=None, **fields):
    workload = fake_workload(*kernels, **fields)
    device = device or FakeDevice(launch_ns=launch_us * US)
    return STEP.measure(context_on(device, workload, artifacts=tmp_path, limits=limits or {}))


def values(outcome):
    return {value.metric: value.value for value in outcome.values}


def found(outcome):
    return [(finding.rule, finding.severity) for finding in outcome.findings]


def test_small_ops__short_kernels__launch_bound_and_short(tmp_path: Path) -> None:
    outcome = measure(tmp_path, *[FakeKernel("aten::add", 5 * US)] * 10)

    assert values(outcome) == {
        "small_ops.launches": 10,
        "small_ops.short_share": 1.0,
        "small_ops.time_share": 1.0,
        # A kernel of 5 us waits for the next launch, which takes 10.
        "small_ops.gap": pytest.approx(5e-6),
        "small_ops.launch_bound": pytest.approx(2.0),
    }
    assert found(outcome) == [("small_ops.time_share", "warning"), ("small_ops.launch_bound", "severe")]
    short, bound = outcome.findings
    assert short.evidence["op"] == "add_kernel"
    assert "10 of 10 launches" in finding_text(short)
    assert bound.evidence["small_ops.launch_bound"] == pytest.approx(2.0)
    assert outcome.status == "attention"


def test_small_ops__long_kernels__ok(tmp_path: Path) -> None:
    outcome = measure(tmp_path, *[FakeKernel("aten::mm", 100 * US)] * 10)

    assert values(outcome)["small_ops.launch_bound"] == pytest.approx(0.1)
    assert values(outcome)["small_ops.short_share"] == 0.0
    assert values(outcome)["small_ops.gap"] == 0.0
    assert (outcome.status, outcome.findings) == ("ok", [])


@pytest.mark.parametrize(
    ("kernel_us", "expected"),
    [(15, []), (13, ["warning"]), (9, ["severe"])],
    ids=["index 0.67", "index 0.77", "index 1.1"],
)
def test_small_ops__index_at_the_marks__severity(tmp_path: Path, kernel_us: int, expected: list[str]) -> None:
    outcome = measure(tmp_path, *[FakeKernel("aten::mm", kernel_us * US)] * 4, limits={"small_ops.short": 1e-6})

    assert [finding.severity for finding in outcome.findings] == expected


def test_small_ops__what_counts_as_short__as_the_project_sets_it(tmp_path: Path) -> None:
    kernels = [*[FakeKernel("aten::mm", 30 * US)] * 3, FakeKernel("aten::add", 10 * US)]

    as_shipped = measure(tmp_path, *kernels)
    stricter = measure(tmp_path, *kernels, limits={"small_ops.short": 31e-6})

    assert values(as_shipped)["small_ops.short_share"] == 0.0
    assert values(stricter)["small_ops.short_share"] == 1.0


def test_small_ops__half_of_the_launches_short__little_of_the_time(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", 95 * US), FakeKernel("aten::add", 5 * US))

    assert values(outcome)["small_ops.short_share"] == 0.5
    assert values(outcome)["small_ops.time_share"] == pytest.approx(0.05)
    assert outcome.findings == []


def test_small_ops__a_call_that_waits_itself__no_index_and_why(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=10 * US)

    def call(model, inputs):
        output = model(inputs)
        device.synchronize()
        return output

    outcome = measure(tmp_path, FakeKernel("aten::mm", 5 * US), device=device, call=call)

    (index,) = (value for value in outcome.values if value.metric == "small_ops.launch_bound")
    assert index.value is None
    assert "a call itself waits for the device once, and" in reason_of(index)


def test_small_ops__device_that_is_the_host__no_index(tmp_path: Path) -> None:
    outcome = measure(tmp_path, FakeKernel("aten::mm", 50 * US), device=FakeDevice(capabilities=frozenset()))

    (index,) = (value for value in outcome.values if value.metric == "small_ops.launch_bound")
    assert (index.value, "the host is the device" in reason_of(index)) == (None, True)


def test_small_ops__nothing_runs__unavailable(tmp_path: Path) -> None:
    def call(model, inputs):
        model.device.host_works(US)

    outcome = measure(tmp_path, call=call)

    assert (outcome.status, outcome.values) == ("unavailable", [])


def on_cpu(tmp_path, model, batch, features):
    def inputs(items, seed):
        return torch.randn(items, features, generator=torch.Generator().manual_seed(seed))

    workload = Workload(build=lambda device: model, inputs=inputs, batch=batch)
    device = open_device("cpu")
    context = StepContext(
        workload=BoundWorkload("real", workload, device, seed=1, root=Path(__file__).parents[3]),
        limits={}, seed=1, artifacts=tmp_path, progress=lambda text: None,
    )  # fmt: skip
    return STEP.measure(context)


class Looping(torch.nn.Module):
    def forward(self, inputs):
        total = inputs[0]
        for row in inputs[1:]:
            total = total + row  # the line that is named
        return total


def test_small_ops__python_loop_on_the_cpu__operator_line_and_count(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, Looping(), batch=100, features=64)

    (loop,) = (finding for finding in outcome.findings if finding.rule == "small_ops.loop")
    source = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if text.endswith("# the line that is named"))
    assert (loop.evidence["op"], loop.evidence["count"]) == ("aten::add", 99)
    assert loop.evidence["line"] == f"tests/unit/steps/test_small_ops.py:{line}"
    assert outcome.status == "attention"
    # The views that take the rows launch nothing.
    assert values(outcome)["small_ops.launches"] == 99


@pytest.mark.usefixtures("one_thread")
def test_small_ops__one_large_product_on_the_cpu__ok(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, torch.nn.Linear(512, 512), batch=256, features=512)

    assert (outcome.status, outcome.findings) == ("ok", [])
    assert values(outcome)["small_ops.launches"] == 1
    assert values(outcome)["small_ops.short_share"] == 0.0


def judged(recording: Recording, limits=None):
    return STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", limits or {}))


@pytest.mark.recordings
def test_small_ops__recorded_alexnet__short_kernels_and_launches(tmp_path: Path) -> None:
    outcome = judged(trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path)))
    got = values(outcome)

    # 191 rows, of which four are shares of collectives, which are long.
    assert (got["small_ops.launches"], got["small_ops.short_share"]) == (187, pytest.approx(51 / 187))
    # api_statistic.csv: node, launch, 191 times.
    assert got["small_ops.launch_time"] == pytest.approx(4014.44e-6)
    assert got["small_ops.launch_bound"] is None
    assert got["small_ops.gap"] > 0
    assert outcome.status == "ok"
    assert outcome.values[0].labels == {"shape": "rank 0", "under": "profiler"}


@pytest.mark.recordings
def test_small_ops__recorded_qwen__short_kernels(tmp_path: Path) -> None:
    got = values(judged(trace.read(sample(f"{QWEN}/rank_0_ascend_pt", tmp_path))))

    assert (got["small_ops.launches"], got["small_ops.short_share"]) == (2448, pytest.approx(827 / 2448))


def test_small_ops__recorded_steps_of_short_kernels__attention(tmp_path: Path) -> None:
    steps = ((("vectorized_elementwise_kernel", 4),) * 30,) * 3
    outcome = judged(trace.read(kineto_recording(tmp_path / "t.json", steps=steps)))

    assert found(outcome) == [("small_ops.time_share", "warning")]
    assert values(outcome)["small_ops.gap"] == pytest.approx(1e-6)
    # Every kernel of the recording was launched for 4 us.
    assert values(outcome)["small_ops.launch_time"] == pytest.approx(30 * 4e-6)


def test_small_ops__recording_without_work__unavailable() -> None:
    recording = Recording(path=Path("recording"), format="kineto", timelines=())

    assert judged(recording).status == "unavailable"


def launching(*threads, name="Node@launch"):
    """Launches of CANN by thread, start and microseconds each, beside one kernel; tracks as in sample alexnet."""
    builder = EventTableBuilder()
    for number, launches in enumerate(threads):
        for start, length in launches:
            builder.add(
                start * US,
                length * US,
                track=("CANN", f"Thread {number}"),
                name=name,
                kind="runtime",
                correlation=NO_CORRELATION,
            )
    builder.add(5, 10 * US, track=("NPU", "Stream 2"), name="Add", kind="compute", correlation=NO_CORRELATION)
    return Recording(Path("recording"), "ascend-pytorch", (Timeline(rank=0, device=0, events=builder.table()),))


ALONE = [(100 * number, 5) for number in range(40)]


def meeting(length, count=30):
    """Launches that begin while one of ALONE lasts."""
    return [(100 * number + 2, length) for number in range(count)]


def test_small_ops__recorded_threads_whose_launches_wait_for_each_other__said_with_their_number() -> None:
    outcome = judged(launching(ALONE, meeting(20)))

    assert values(outcome)["small_ops.contention"] == 4.0
    (finding,) = (finding for finding in outcome.findings if finding.rule == "small_ops.contention")
    assert (finding.severity, finding.evidence["threads"]) == ("warning", 2)
    assert finding.evidence["share"] == pytest.approx(30 / 70)
    assert "2 threads launch kernels and wait for each other: 43 % of the launches overlap another" in finding_text(
        finding
    )


@pytest.mark.parametrize(
    ("threads", "times"),
    [
        ((ALONE, meeting(15)), 3.0),
        ((ALONE, [(100 * number + 50, 40) for number in range(30)]), None),
        ((ALONE * 1,), None),
        ((ALONE, meeting(20, count=19)), None),
        (([(100 * number, 5) for number in range(300)], meeting(20)), 4.0),
    ],
    ids=["three times as long", "in turns", "one thread", "hardly any meet", "less than a tenth meet"],
)
def test_small_ops__recorded_launches_that_hardly_meet_or_hardly_wait__nothing_said(
    threads: tuple[list[tuple[int, int]], ...], times: float | None
) -> None:
    outcome = judged(launching(*threads))

    assert values(outcome).get("small_ops.contention") == times
    assert "small_ops.contention" not in [finding.rule for finding in outcome.findings]


def test_small_ops__recorded_long_launches__met_by_others_but_no_longer_for_it() -> None:
    # Whoever takes long is met by many; that alone is no waiting.
    outcome = judged(
        launching([(1000 * number, 500) for number in range(40)], [(1000 * number + 100, 5) for number in range(40)])
    )

    assert values(outcome)["small_ops.contention"] == pytest.approx(5 / 500)
