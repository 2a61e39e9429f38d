"""Step 9: breaks and recompiles with their lines, what compiling takes and gains, and a process as it was before."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from perfgate import trace
from perfgate.catalogue.lookup import RULES
from perfgate.measuring.checklist.experiment import TimeUpError
from perfgate.measuring.checklist.graph_head import HeadSpans, head_times
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.step import RecordingContext
from perfgate.measuring.checklist.steps import s09_graph
from perfgate.measuring.checklist.steps.s09_graph import STEP
from perfgate.measuring.checklist.steps.s09_graph.compilation import time_limit
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import StepSettings
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.arithmetic import Intervals
from perfgate.trace.model.events import NO_CORRELATION, EventTableBuilder
from perfgate.trace.model.recording import Kernel, Launch, ProfilerStep, Recording, Timeline
from perfgate.trace.model.steps import profiler_steps
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, sample
from tests.wording import finding_text

pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parent
WIDTH = 32


class Breaking(nn.Module):
    """A print breaks its graph, and each length is compiled anew."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.layer(x)
        print(end="")  # break
        for _ in range(x.shape[1] // 8):  # recompile
            y = y + 1
        return self.layer(y)


class Clean(nn.Module):
    """Elementwise work that a compiler makes one kernel of."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.layer(x)
        return ((y * 2 + 1).abs() / 3 - y).exp().clamp(max=5)


def line_of(comment: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"test_graph.py:{next(number for number, line in enumerate(lines, 1) if line.endswith('# ' + comment))}"


def workload(model, lengths=(64,), **fields):
    def inputs(batch, seed, length):
        return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(seed))

    shapes = {str(length): {"length": length} for length in lengths}
    return Workload(build=lambda device: model, inputs=inputs, batch=2, shapes=shapes, **fields)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine make a call of microseconds one of milliseconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the compiler the time that it takes while other tests run beside it."""
    monkeypatch.setattr(s09_graph, "_QUICK", s09_graph._Effort(compile=120.0, compare=0.3))


@pytest.fixture(autouse=True)
def no_precompiled_headers() -> Iterator[None]:
    """Compile torch's headers with the few kernels of these tests: precompiling them takes eight seconds and 155 MB of /tmp."""
    from torch._inductor import config  # a second of CPU for whoever only collects the tests

    # Not every torch knows it.
    with config.patch({name: False for name in ("cpp_cache_precompile_headers",) if hasattr(config, name)}):
        yield


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")


def measured(given, folder, **fields):
    context = context_on(open_device("cpu"), given, artifacts=folder, root=ROOT, **fields)
    result, _ = run_step(STEP, context)
    assert result.error is None, result.error
    return result


def value_of(result, metric):
    (value,) = (value for value in result.values if value.metric == metric)
    return value


def test_graph__print_and_a_loop_over_the_length__break_and_recompiles_with_reason_and_line(
    tmp_path: Path, no_compiler: None
) -> None:
    result = measured(workload(Breaking().eval(), lengths=(8, 16, 32, 64)), tmp_path)

    assert result.status == "attention"
    assert value_of(result, "graph.breaks").value == 1
    assert value_of(result, "graph.recompiles").value >= 2
    found = {finding.rule: finding for finding in result.findings}
    assert found["graph.break"].severity == "warning"
    assert found["graph.break"].evidence["line"] == line_of("break")
    assert "builtin" in found["graph.break"].evidence["reason"]
    assert found["graph.recompiles"].evidence["line"] == line_of("recompile")
    assert "size()" in found["graph.recompiles"].evidence["reason"]


def test_graph__two_shapes_and_a_whole_graph__once_compiled_again_is_no_finding(
    tmp_path: Path, no_compiler: None
) -> None:
    result = measured(workload(Clean().eval(), lengths=(16, 32, 64)), tmp_path)

    assert (result.status, result.findings) == ("ok", [])
    assert value_of(result, "graph.breaks").value == 0
    assert value_of(result, "graph.recompiles").value == 1


def test_graph__no_cpp_compiler__says_so_instead_of_a_number(tmp_path: Path, no_compiler: None) -> None:
    result = measured(workload(Clean().eval()), tmp_path)

    for metric in ("graph.speedup", "graph.compile_cold", "graph.compile_cached", "graph.break_even", "graph.head"):
        assert value_of(result, metric).value is None
        assert "no-such-compiler" in reason_of(value_of(result, metric))


@pytest.mark.slow
def test_graph__clean_model__times_gain_and_parts_and_a_process_as_it_was(tmp_path: Path) -> None:
    model = Clean().eval()
    result = measured(workload(model, lengths=(2048,)), tmp_path)

    assert value_of(result, "graph.compile_cold").value > value_of(result, "graph.compile_cached").value > 0
    speedup = value_of(result, "graph.speedup")
    assert speedup.interval[0] <= speedup.value <= speedup.interval[1]
    heads = [value for value in result.values if value.metric == "graph.head"]
    if torch.__version__.startswith("2.7."):
        assert [(value.value, "does not show" in reason_of(value)) for value in heads] == [(None, True)]
    else:
        assert {value.labels["part"] for value in heads} == {"framework", "compiler", "graph"}
        assert all(value.value > 0 for value in heads)
    paid = value_of(result, "graph.break_even")
    faster = speedup.interval[0] > 1
    assert (paid.value is not None) == faster
    assert [finding.rule for finding in result.findings] == ["graph.gain"] * faster
    assert list(tmp_path.iterdir()) == []
    assert not has_compiled()


@pytest.mark.slow
def test_graph__compiling_takes_too_long__stopped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s09_graph, "_QUICK", s09_graph._Effort(compile=0.3, compare=0.1))
    result = measured(workload(Clean().eval()), tmp_path)

    assert "did not finish in its time limit" in reason_of(value_of(result, "graph.speedup"))
    assert value_of(result, "graph.breaks").value == 0
    assert list(tmp_path.iterdir()) == []


def test_graph__workload_that_compiles_itself__compared_with_itself_run_without(tmp_path: Path) -> None:
    model = torch.compile(Clean().eval(), backend="eager")
    result = measured(workload(model), tmp_path)

    assert "graph.compiled_already" in [finding.rule for finding in result.findings]
    assert value_of(result, "graph.breaks").value == 0
    # The backend "eager" runs what it was given: there is nothing to gain.
    assert value_of(result, "graph.speedup").interval[0] < 1.5
    # It is the workload's own doing, and must count as such afterwards too.
    assert has_compiled()


@pytest.mark.slow
def test_graph__model_that_cannot_be_copied__original_untouched_and_reason(tmp_path: Path) -> None:
    model = Clean().eval()
    with Path(__file__).open() as model.file:
        result = measured(workload(model), tmp_path)

    assert result.status == "unavailable"
    assert "cannot be copied" in reason_of(result)
    assert result.values == []


def test_graph__training_step__its_modules_are_compiled(tmp_path: Path, no_compiler: None) -> None:
    trainee = nn.Linear(WIDTH, WIDTH)

    def train(model, x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    result = measured(workload(trainee, train_step=train), tmp_path)

    assert value_of(result, "graph.breaks").value == 0


def test_graph__fake_device__no_compiler_is_known_for_it(tmp_path: Path) -> None:
    context = context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", 1000)), artifacts=tmp_path)
    result, _ = run_step(STEP, context)

    assert (result.status, result.values) == ("unavailable", [])
    assert "kind fake" in reason_of(result)


def test_time_limit__a_process_that_hangs__ended_with_those_below_it() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = time.monotonic()
    with pytest.raises(TimeUpError), time_limit(0.5):
        subprocess.run([sys.executable, "-c", program], check=False)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("seconds", [0, -1.5])
def test_time_limit__nothing_left_of_it__up_at_once(seconds: float) -> None:
    ran = []
    with pytest.raises(TimeUpError), time_limit(seconds):
        ran.append(True)
    assert not ran


def test_time_limit__done_in_time__nothing_rings_later() -> None:
    with time_limit(0.1):
        pass
    time.sleep(0.2)


def events(*rows):
    builder = EventTableBuilder()
    for name, kind, start, duration in rows:
        builder.add(start, duration, track=("1", "1"), name=name, kind=kind, correlation=NO_CORRELATION)
    return builder.table()


def test_head_times__torchair_call__framework_compiler_and_graph() -> None:
    table = events(
        ("npu_fx_compiler inference", "annotation", 30, 60),
        ("ExecuteGraph", "host_op", 50, 40),
        ("MatMulV2", "compute", 75, 10),
    )
    calls = Intervals(np.array([10]), np.array([100]))

    parts = head_times(table, calls, HeadSpans("npu_fx_compiler inference", "ExecuteGraph"))
    assert {name: part.ns for name, part in parts.items()} == {"framework": 20, "compiler": 20, "graph": 25}


def test_head_times__names_of_somebody_elses_backend__as_they_are_given() -> None:
    table = events(
        ("my entry", "annotation", 12, 60), ("my run", "annotation", 20, 40), ("aten::mm", "host_op", 21, 10)
    )
    calls = Intervals(np.array([10]), np.array([100]))

    parts = head_times(table, calls, HeadSpans("my entry", "my run"))
    assert {name: part.ns for name, part in parts.items()} == {"framework": 2, "compiler": 8, "graph": 1}
    assert {part.exposed_ns for part in parts.values()} == {None}, (
        "without a device in the trace nobody knows when none works"
    )


def test_head_times__device_begins_after_the_host_is_done__the_work_that_the_call_launched() -> None:
    builder = EventTableBuilder()
    for name, kind, start, duration, launch in (
        ("npu_fx_compiler inference", "annotation", 30, 60, -1),
        ("ExecuteGraph", "host_op", 50, 40, -1),
        ("Node@launch", "runtime", 60, 2, 7),
        # Of the call before.
        ("MatMulV2", "compute", 70, 60, 3),
        ("MatMulV2", "compute", 130, 10, 7),
    ):
        builder.add(start, duration, track=("p", kind), name=name, kind=kind, correlation=launch)
    calls = Intervals(np.array([10]), np.array([100]))

    found = head_times(builder.table(), calls, HeadSpans("npu_fx_compiler inference", "ExecuteGraph"))

    assert {name: part.ns for name, part in found.items()} == {"framework": 20, "compiler": 20, "graph": 80}
    # The device still worked on the call before until 130, which is when this one's first kernel begins.
    assert found["graph"].exposed_ns == 20


def test_recorded__steps_marked_on_the_host__the_frameworks_part_too() -> None:
    table = events(
        ("ProfilerStep#1", "annotation", 10, 90),
        ("npu_fx_compiler inference", "annotation", 30, 60),
        ("ExecuteGraph", "host_op", 50, 40),
        ("MatMulV2", "compute", 75, 10),
    )
    outcome = judged(Timeline(0, 0, table, kernels=(kernel(0, 7),), steps=profiler_steps(table)))

    parts = {value.labels["part"]: value.value for value in outcome.values if value.metric == "graph.head"}
    assert parts == {
        "framework": pytest.approx(20e-9), "compiler": pytest.approx(20e-9), "graph": pytest.approx(25e-9),
    }  # fmt: skip


def test_head_times__several_modules_in_a_call__all_of_them() -> None:
    table = events(
        ("npu_fx_compiler inference", "annotation", 30, 25),
        ("ExecuteGraph", "host_op", 40, 10),
        ("MatMulV2", "compute", 45, 5),
        ("npu_fx_compiler inference", "annotation", 60, 30),
        ("ExecuteGraph", "host_op", 75, 10),
        ("MatMulV2", "compute", 82, 5),
    )
    calls = Intervals(np.array([10]), np.array([100]))

    parts = head_times(table, calls, HeadSpans("npu_fx_compiler inference", "ExecuteGraph"))
    assert {name: part.ns for name, part in parts.items()} == {"framework": 20, "compiler": 25, "graph": 12}


@pytest.mark.parametrize(
    ("before", "framework"),
    [
        ([], 30),
        ([("enumerate(DataLoader)#_SingleProcess.__next__", "annotation", 10, 15)], 15),
        ([("nn.Module: OptimizedModule_0", "python", 32, 60)], 8),
    ],
)
def test_head_times__data_is_loaded_before_the_module__no_part_of_the_head(
    before: list[tuple[str, str, int, int]], framework: int
) -> None:
    table = events(
        *before,
        ("npu_fx_compiler inference", "annotation", 40, 50),
        ("ExecuteGraph", "host_op", 50, 40),
        ("MatMulV2", "compute", 75, 10),
    )
    parts = head_times(
        table, Intervals(np.array([10]), np.array([100])), HeadSpans("npu_fx_compiler inference", "ExecuteGraph")
    )
    assert parts["framework"].ns == framework


def test_head_times__a_call_without_a_graph__none() -> None:
    table = events(("npu_fx_compiler inference", "annotation", 30, 60))

    assert head_times(table, Intervals(np.array([10]), np.array([100])), HeadSpans("npu", "ExecuteGraph")) == {}


@pytest.mark.parametrize("entry", ["npu_fx_compiler inference", "npu_fx_compiler_inference"])
def test_recorded__both_spellings_of_the_entry__parts_of_torchair_and_whom_each_is_reported_to(entry: str) -> None:
    """As torch_npu's source and as other documents write it; TorchAir's sides meet at TorchNpuGraphBase::Run."""
    table = events(
        ("ProfilerStep#1", "annotation", 0, 100),
        (entry, "annotation", 2, 90),
        ("aten::scalar_tensor", "host_op", 4, 20),
        ("TorchNpuGraphBase::Run", "host_op", 30, 60),
        ("aten::contiguous", "host_op", 31, 18),
        ("aten::clone", "host_op", 32, 16),
        ("ExecuteGraph", "host_op", 60, 30),
        ("MatMulV2", "compute", 75, 20),
    )
    outcome = judged(Timeline(0, 0, table, kernels=(kernel(0, 7),), steps=profiler_steps(table)))

    parts = {value.labels["part"]: value.value for value in outcome.values if value.metric == "graph.head"}
    assert {part: round(seconds * 1e9) for part, seconds in parts.items()} == {
        "framework": 2, "python": 28, "native": 30, "graph": 15,
    }  # fmt: skip
    found = {finding.rule: finding for finding in outcome.findings}
    assert set(found) == {"graph.head_python", "graph.head_native"}
    assert found["graph.head_python"].evidence["operators"] == "aten::scalar_tensor"
    assert found["graph.head_native"].evidence["operators"] == "aten::contiguous, aten::clone"
    assert found["graph.head_native"].evidence["graph.head_native"] == pytest.approx(0.3)
    advice = {rule: RULES[rule].advice.message for rule in found}
    assert "Python side: report it to gitcode.com/Ascend/torchair" in advice["graph.head_python"]
    assert "C++ side: report it to gitcode.com/Ascend/torchair" in advice["graph.head_native"]


def test_recorded__no_steps_marked__a_call_lasts_until_the_next_entry() -> None:
    rows = [
        (name, kind, start + begin, duration)
        for start in (0, 1000)
        for name, kind, begin, duration in (
            ("npu_fx_compiler_inference", "annotation", 0, 500),
            ("ExecuteGraph", "host_op", 100, 400),
            ("MatMulV2", "compute", 600, 400),
        )
    ]
    outcome = judged(Timeline(0, 0, events(*rows), kernels=(kernel(0, 7),)))

    assert {value.labels["part"]: value.value for value in outcome.values if value.metric == "graph.head"} == {
        "compiler": pytest.approx(100e-9), "graph": pytest.approx(500e-9),
    }  # fmt: skip
    (found,) = outcome.findings
    assert (found.rule, found.evidence["graph.head_graph"]) == ("graph.head_graph", pytest.approx(0.5))


def test_recorded__head_behind_a_busy_device__nothing_to_find() -> None:
    """The host runs ahead: whatever its parts take, the device works on the call before."""
    table = events(
        ("ProfilerStep#1", "annotation", 0, 100),
        ("npu_fx_compiler inference", "annotation", 10, 80),
        ("ExecuteGraph", "host_op", 50, 40),
        ("Cast", "compute", 0, 75),
        ("MatMulV2", "compute", 75, 25),
    )
    outcome = judged(Timeline(0, 0, table, kernels=(kernel(0, 7),), steps=profiler_steps(table)))

    assert next(value.value for value in outcome.values if value.metric == "graph.head") == pytest.approx(10e-9)
    assert outcome.findings == []


def judged(timeline: Timeline, settings=None, spans=()):
    recording = Recording(Path("recording"), "ascend-pytorch", (timeline,), settings=settings or {})
    summaries, of_project = summarize(recording.timelines), StepSettings(graph_spans=[*spans])
    return STEP.judge_recording(RecordingContext(recording, summaries, "model", {}, of_project))


def kernel(number: int, model_id: int | None) -> Kernel:
    return Kernel(
        "MatMulV2", "MatMulV2", "AI_CORE", 100 + number, 1, step=1, launch=Launch(stream=2, model_id=model_id)
    )


def recorded(*model_ids: int | None) -> Timeline:
    table = events(
        ("Node@launch", "runtime", 40, 2),
        ("Node@launch", "runtime", 44, 2),
        ("npu_fx_compiler inference", "annotation", 30, 60),
        ("ExecuteGraph", "host_op", 50, 40),
        ("MatMulV2", "compute", 75, 10),
    )
    kernels = tuple(kernel(number, model_id) for number, model_id in enumerate(model_ids))
    return Timeline(0, 0, table, kernels=kernels, steps=(ProfilerStep(1),))


def test_recorded__kernels_with_the_number_of_a_graph__share_launches_and_head() -> None:
    outcome = judged(recorded(7, 7, None, 7), {"level": "Level1"})

    assert [finding.rule for finding in outcome.findings] == ["graph.head_compiler", "graph.head_graph"]
    found = {
        (value.metric, value.labels.get("kind") or value.labels.get("part")): value.value for value in outcome.values
    }
    assert found == {
        ("graph.launches", "kernel"): 2.0,
        ("graph.replayed_share", None): 0.75,
        ("graph.head", "compiler"): pytest.approx(20e-9),
        ("graph.head", "graph"): pytest.approx(25e-9),
    }


def test_recorded__spans_as_the_project_names_them__instead_of_the_usual_ones() -> None:
    def parts(*names):
        outcome = judged(recorded(7), spans=names)
        return [value.labels["part"] for value in outcome.values if value.metric == "graph.head"]

    assert parts("fx_compiler", "Execute") == ["compiler", "graph"]
    assert parts("somebody else", "ExecuteGraph") == []


@pytest.mark.recordings
def test_recorded__eager_training_on_a_910b__every_kernel_is_a_launch_of_its_own(tmp_path: Path) -> None:
    recording = trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))

    assert {value.metric: value.value for value in outcome.values} == {
        "graph.launches": 191.0,  # the rows of its table of kernels
        "graph.replayed_share": 0.0,
        "graph.compiled": 0.0,  # its 19 calls of AscendCL@opCompile found what was compiled, in 47 us at most
    }
    assert outcome.findings == []


def compiling(*spans, steps=2):
    table = events(("AscendCL@aclopCompileAndExecute", "runtime", 0, 9_000_000), *spans)
    return Timeline(0, 0, table, steps=tuple(ProfilerStep(number) for number in range(steps)))


def test_recorded__operators_compiled_while_steps_run__how_often_how_long_and_what_to_set() -> None:
    # Names and nesting as in sample msinsight-910B-alexnet; compiling takes 8 and 6 ms here, finding 40 us.
    calls = [
        ("AscendCL@opCompile", "runtime", at, length) for at, length in ((10, 8_000_000), (20, 6_000_000), (30, 40_000))
    ]
    outcome = judged(compiling(*calls))

    assert {value.labels["kind"]: value.value for value in outcome.values if value.metric == "graph.compiled"} == {
        "operator": 1.0
    }
    (found,) = outcome.findings
    assert (found.rule, found.severity, found.evidence["count"]) == ("graph.op_compiled", "warning", 1.0)
    assert found.evidence["time"] == pytest.approx(0.007)
    assert "1 per step, taking 7.00 ms of it" in finding_text(found)


def test_recorded__operators_found_in_the_cache__none_compiled() -> None:
    outcome = judged(compiling(("AscendCL@opCompile", "runtime", 10, 999_999)))

    assert {value.metric: value.value for value in outcome.values} == {"graph.compiled": 0.0}
    assert outcome.findings == []


def test_recorded__functions_that_torch_compiles_for_each_size__as_a_real_trace_has_them(tmp_path: Path) -> None:
    layer = torch.compile(torch.nn.Linear(4, 4).eval(), backend="eager", dynamic=False)
    with torch.no_grad():
        layer(torch.ones(2, 4))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for rows in (2, 3, 5):
                layer(torch.ones(rows, 4))
        profiler.export_chrome_trace(str(tmp_path / "t.json"))
    torch._dynamo.reset()

    recording = trace.read(tmp_path / "t.json")
    outcome = STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))

    # Two sizes are new, and no step is marked.
    assert {value.labels["kind"]: value.value for value in outcome.values} == {"function": 2.0}
    assert [(found.rule, found.evidence["count"]) for found in outcome.findings] == [("graph.compiled_again", 2.0)]


def test_recorded__level_0_tells_no_numbers_of_graphs__no_share() -> None:
    metrics = {value.metric for value in judged(recorded(None, None), {"level": "Level0"}).values}

    assert "graph.replayed_share" not in metrics


def test_recorded__operators_of_a_cpu__unavailable() -> None:
    outcome = judged(Timeline(None, None, events(("aten::mm", "host_op", 0, 5))))

    assert (outcome.status, outcome.values) == ("unavailable", [])
