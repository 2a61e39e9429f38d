"""Step 16: collectives between real processes over gloo, their arithmetic, and what recordings say of communication."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate import trace
from perfgate.catalogue.lookup import LIMITS
from perfgate.document.run import Finding
from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.collectives import job
from perfgate.measuring.checklist.collectives.job import (
    OperationSamples,
    Plan,
    RankReport,
    environment,
    run_job,
    sizes_up_to,
)
from perfgate.measuring.checklist.step import RecordingContext, StepContext, StepOutcome
from perfgate.measuring.checklist.steps.s16_communication import (
    STEP,
    Skew,
    bus_factor,
    judge_skew,
    operation_times,
    skew,
)
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import Workload
from perfgate.trace.analysis.ranks import SLOW_LINK, SLOW_RANK
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.recording import Collective, LinkUse, Packets, ProfilerStep, RankLink, Recording, Timeline
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import FakeKernel, context_on, fake_workload
from tests.unit.trace.ascend import ALEXNET, GPT, sample
from tests.waiting import left_in_the_end
from tests.wording import finding_text

MS = 1_000_000


def values(outcome: StepOutcome, metric: str) -> dict[tuple[str, ...], float | None]:
    return {tuple(value.labels.values()): value.value for value in outcome.values if value.metric == metric}


def on_cpu(folder: Path, *, ranks: int, **fields: Any) -> StepOutcome:
    workload = Workload(
        build=lambda _: torch.nn.Linear(8, 8), inputs=lambda batch, seed: torch.randn(batch, 8), ranks=ranks
    )
    return STEP.measure(context_on(open_device("cpu"), workload, artifacts=folder, **fields))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> StepOutcome:
    """Two processes over gloo, and a peak that nothing reaches."""
    folder = tmp_path_factory.mktemp("collectives")
    outcome = on_cpu(folder, ranks=2, limits={"communication.peak": 1e15})
    assert list(folder.iterdir()) == []
    return outcome


@pytest.mark.slow
def test_communication__two_ranks_over_gloo__every_operation_timed_and_right(two_ranks: StepOutcome) -> None:
    times = values(two_ranks, "communication.time")
    assert {operation for operation, _ in times} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert {int(size) for operation, size in times if operation == "all_reduce"} == set(sizes_up_to(4 << 20))
    assert all(seconds and seconds > 0 for seconds in times.values())
    assert not any(finding.rule == "communication.wrong_result" for finding in two_ranks.findings)
    assert len(two_ranks.samples) == len(times)


@pytest.mark.slow
def test_communication__two_ranks_over_gloo__a_line_of_start_up_and_bandwidth(two_ranks: StepOutcome) -> None:
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        start_up = values(two_ranks, "communication.start_up")[operation,]
        bandwidth = values(two_ranks, "communication.bandwidth")[operation,]
        fit = values(two_ranks, "communication.fit")[operation,]
        # Where the line lies and how well it fits is the machine's doing: a busy one stalls one size and not the next.
        assert start_up is not None
        assert start_up >= 0
        assert bandwidth is None or bandwidth > 0
        assert fit is not None
        assert 0 <= fit <= 1


@pytest.mark.slow
def test_communication__far_below_the_known_peak__severe(two_ranks: StepOutcome) -> None:
    (finding,) = (one for one in two_ranks.findings if one.rule == "communication.peak_share")

    assert finding.severity == "severe"
    assert finding.evidence["limit"] == 0.5
    assert two_ranks.status == "attention"


def report(
    rank: int, nanoseconds: dict[int, list[int]], *, right: bool = True, arrived: list[int] | None = None
) -> RankReport:
    return RankReport(
        rank=rank,
        timed=[
            OperationSamples(operation="all_reduce", size=size, nanoseconds=ns, right=right)
            for size, ns in nanoseconds.items()
        ],
        arrived_ns=arrived or [0],
        worked_ns=[MS] * len(arrived or [0]),
    )


def test_operation_times__ranks_that_differ__the_slowest_of_each_repetition() -> None:
    (found,) = operation_times([report(0, {1000: [10, 40, 30]}), report(1, {1000: [20, 30, 50]}, right=False)])

    assert found.nanoseconds[1000].tolist() == [20, 40, 50]
    assert found.wrong == (1000,)
    # 1000 bytes in 40 ns over two ranks: 25 GB/s x 2 x 1/2.
    assert found.bus_bandwidth(1000) == pytest.approx(25e9)


def test_operation_times__times_of_a_known_line__start_up_and_bandwidth() -> None:
    times = {size: [round(50_000 + size / 2)] * 3 for size in sizes_up_to(4 << 20)}
    (found,) = operation_times([report(0, times), report(1, times)])

    line = found.line()
    assert line is not None
    assert line.start_up == pytest.approx(50e-6, rel=1e-3)
    assert line.bandwidth == pytest.approx(2e9, rel=1e-3)
    assert found.best() == 4 << 20


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75)],
)
def test_bus_factor__as_nccl_tests_has_it(operation: Any, ranks: int, factor: float) -> None:
    assert bus_factor(operation, ranks) == factor


def skew_findings(met: Skew, context: StepContext) -> list[Finding]:
    judge_skew(outcome := context.outcome(), met, context)
    return outcome.findings


def test_skew__one_rank_always_last__named_and_judged_by_what_its_device_is() -> None:
    early, late = [number * 10 * MS for number in range(20)], [number * 10 * MS + MS // 2 for number in range(20)]
    met = skew([report(0, {}, arrived=early), report(1, {}, arrived=late)])

    assert met == Skew(seconds=0.0005, work_seconds=0.001, rounds=20, last=1)
    workload = fake_workload(FakeKernel("aten::mm", MS))
    (finding,) = skew_findings(met, context_on(FakeDevice(), workload))
    assert (finding.rule, finding.severity) == ("communication.slow_rank", "warning")
    (shared,) = skew_findings(met, context_on(FakeDevice(capabilities=frozenset()), workload))
    assert shared.severity == "info"


def test_skew__ranks_that_take_turns_at_being_last__nobody_is_named() -> None:
    one = [number * 10 * MS + (number % 2) * MS for number in range(20)]
    other = [number * 10 * MS + MS // 2 for number in range(20)]
    met = skew([report(0, {}, arrived=one), report(1, {}, arrived=other)])

    assert met.last is None
    assert skew_findings(met, context_on(FakeDevice(), fake_workload(FakeKernel("aten::mm", MS)))) == []


def test_communication__one_rank__not_applicable_with_the_line_to_add(tmp_path: Path) -> None:
    outcome = on_cpu(tmp_path, ranks=0)

    assert (outcome.status, outcome.values) == ("not_applicable", [])
    assert "ranks=2 in its Workload" in reason_of(outcome)


def test_communication__more_ranks_than_devices__unavailable(tmp_path: Path) -> None:
    workload = fake_workload(FakeKernel("aten::mm", MS), ranks=2)

    outcome = STEP.measure(context_on(FakeDevice(), workload, artifacts=tmp_path))
    assert outcome.status == "unavailable"
    assert reason_of(outcome) == "torch.distributed has no backend for devices of kind fake"


def quick_plan(**fields: Any) -> Plan:
    given = {
        "kind": "cpu",
        "backend": "gloo",
        "sizes": [1024],
        "repetitions": 3,
        "seconds": 0.05,
        "rounds": 1,
        "timeout_seconds": 30.0,
    }
    return Plan(**{**given, **fields})


@pytest.mark.slow
def test_run_job__two_jobs_at_once__do_not_meet(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run_job, quick_plan(), ranks=2, folder=tmp_path, limit_seconds=60.0) for _ in range(2)]
        reports = [job.result() for job in jobs]

    assert [[one.rank for one in job] for job in reports] == [[0, 1], [0, 1]]
    assert all(timed.right for job in reports for one in job for timed in one.timed)


@pytest.mark.slow
def test_run_job__backend_that_is_not_there__error_with_what_was_printed(tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="a job of 2 ranks over nosuch ended with exit status 1") as raised:
        run_job(quick_plan(backend="nosuch"), ranks=2, folder=tmp_path, limit_seconds=60.0)
    assert "nosuch" in str(raised.value).partition("status 1")[2]


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have this folder among their arguments, but for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in arguments and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


@pytest.fixture
def endless(tmp_path: Path) -> Plan:
    """A plan that takes minutes."""
    return quick_plan(repetitions=10**9, seconds=600.0)


def test_run_job__takes_too_long__ended_with_all_its_ranks(endless: Plan, tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="did not end in time"):
        run_job(endless, ranks=2, folder=tmp_path, limit_seconds=2.5)

    assert left_in_the_end(lambda: processes_of(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_run_job__ranks_that_hold_the_interpreter__ended_all_the_same(
    endless: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_RANKS", "tests.fakes.stuck_rank")
    for limit_seconds in (12.0, 60.0, 300.0):  # on a busy machine the ranks have not begun by then
        with pytest.raises(MeasuringError, match="did not end in time"):
            run_job(endless, ranks=2, folder=tmp_path, limit_seconds=limit_seconds)
        assert left_in_the_end(lambda: processes_of(tmp_path)) == []
        if (tmp_path / "stuck").exists():
            break
    assert (tmp_path / "stuck").exists()


@pytest.mark.slow
def test_run__rank_that_outlives_its_launcher__what_was_printed_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_END_SECONDS", 0.3)
    ended = job._run(["sh", "-c", "echo begun; setsid sleep 20 & wait"], os.environ, 5.0, folder=tmp_path)
    assert ended == (None, b"begun\n")


STARTER = """
import sys
from pathlib import Path
import msgspec
from perfgate.measuring.checklist.collectives.job import Plan, run_job
run_job(msgspec.json.decode(sys.argv[1], type=Plan), ranks=2, folder=Path(sys.argv[2]), limit_seconds=600.0)
"""


def waited_for(true: Any, seconds: float) -> Iterator[bool]:
    latest = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < latest:
        time.sleep(0.1)
    yield bool(found)


@pytest.mark.slow
def test_run_job__its_starter_is_killed__no_process_is_left(endless: Plan, tmp_path: Path) -> None:
    import msgspec

    starter = subprocess.Popen([sys.executable, "-c", STARTER, msgspec.json.encode(endless).decode(), str(tmp_path)])
    try:
        # The starter, the launcher and two ranks.
        (started,) = waited_for(lambda: len(processes_of(tmp_path)) >= 4, 120)
    finally:
        starter.kill()
        starter.wait()
    (gone,) = waited_for(lambda: not processes_of(tmp_path), 120)

    assert started
    assert gone


def recorded(*timelines: Timeline, limits: dict[str, float] | None = None) -> StepOutcome:
    recording = Recording(path=Path("recording"), format="ascend-pytorch", timelines=timelines)
    return STEP.judge_recording(RecordingContext(recording, summarize(timelines), "model", limits or {}))


@pytest.mark.recordings
def test_communication__recorded_npus__times_links_and_what_nothing_hid(tmp_path: Path) -> None:
    recording = trace.read(sample(ALEXNET, tmp_path))
    summaries = summarize(recording.timelines)
    outcome = STEP.judge_recording(RecordingContext(recording, summaries, "model", {}))

    shape = next(
        one.shape
        for one in summaries
        if one.timeline.collectives and one.timeline.collectives[0].elapsed_ns == 79_089_520
    )
    # step_trace_time.csv: 105991.878 us of communication, 101963.203 us of them exposed, in 136581.009 us.
    assert values(outcome, "communication.hidden")[shape, "profiler"] == pytest.approx(1 - 101963.203 / 105991.878)
    assert values(outcome, "communication.exposed")[shape, "profiler"] == pytest.approx(101963.203 / 154483.511)
    assert values(outcome, "communication.time")[shape, "hcom_allReduce_"] == pytest.approx(0.105991878)
    # 427.6 MB of all four over HCCS in 27.3 ms.
    assert values(outcome, "communication.link_bandwidth")[shape, "HCCS"] == pytest.approx(
        427596800 / 0.027315583, rel=1e-3
    )
    assert {finding.rule for finding in outcome.findings if finding.severity == "warning"} == {
        "communication.behind",  # rank 1, by 6.6 %
        "communication.exposed",
        "communication.small_packets",
        "communication.waiting",
    }
    # Of the packets of its four all-reduces, 42 of 1.2 to 8.4 MB took 12.11 of 27.32 ms; 14 of 18.9 MB took the rest.
    assert values(outcome, "communication.small_packets")[shape, "HCCS"] == pytest.approx(
        12.110058 / 27.315706, rel=1e-5
    )
    small = next(
        one for one in outcome.findings if one.rule == "communication.small_packets" and one.evidence["shape"] == shape
    )
    assert (small.evidence["small packets"], small.evidence["packets"]) == (42, 56)
    assert (small.evidence["small ones [B/s]"], small.evidence["others [B/s]"]) == (
        pytest.approx(13.489e9, rel=1e-3),
        pytest.approx(17.378e9, rel=1e-3),
    )
    assert outcome.status == "attention"


@pytest.mark.recordings
def test_communication__recorded_npus__waiting_transit_and_idle_as_the_file_has_them(tmp_path: Path) -> None:
    recording = trace.read(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path))
    summaries = summarize(recording.timelines)
    outcome = STEP.judge_recording(RecordingContext(recording, summaries, "model", {}))

    # Total Op Info of communication.json: Elapse 105.9919 ms, Transit 3.6834, Wait 5.9406, Idle 96.3679.
    shares = {value.metric: value.value for value in outcome.values}
    assert shares["communication.waiting"] == pytest.approx(5.9406 / 105.9919, rel=1e-4)
    assert shares["communication.transit"] == pytest.approx(3.6833535 / 105.9918777, rel=1e-6)
    assert shares["communication.idle"] == pytest.approx(96.3679055 / 105.9918777, rel=1e-6)
    assert sum(shares[f"communication.{part}"] for part in ("waiting", "transit", "idle")) == pytest.approx(
        1.0, rel=1e-4
    )


def test_judge_recording__fused_kernels__their_share_of_a_step_apart() -> None:
    step = ProfilerStep(1, None, None, 60, 0, 0, None, 0, 0, fused_ns=40)
    outcome = recorded(Timeline(0, 0, EventTableBuilder().table(), steps=(step,), collectives=()))
    assert values(outcome, "communication.fused") == {("rank 0", "profiler"): pytest.approx(0.4)}


def on_rank(number: int, *, exposed: int) -> Timeline:
    collective = Collective("hcom_allReduce__1_0_1", "collective", None, 1, None, 10 * MS, 9 * MS, MS, None)
    step = ProfilerStep(
        number=1,
        computing_ns=90 * MS,
        communication_ns=10 * MS,
        exposed_communication_ns=exposed,
        preparing_ns=0,
        free_ns=10 * MS - exposed,
    )
    return Timeline(
        rank=number, device=number, events=EventTableBuilder().table(), steps=(step,), collectives=(collective,)
    )


def test_communication__recorded_and_hidden_behind_computing__green() -> None:
    outcome = recorded(on_rank(0, exposed=MS), on_rank(1, exposed=MS))

    assert values(outcome, "communication.hidden")["rank 0", "profiler"] == pytest.approx(0.9)
    assert values(outcome, "communication.exposed")["rank 0", "profiler"] == pytest.approx(0.01)
    assert values(outcome, "communication.waiting") == {
        ("rank 0",): pytest.approx(0.1),
        ("rank 1",): pytest.approx(0.1),
    }
    assert outcome.status == "ok"


def test_communication__recorded_ranks_that_mostly_wait__the_wait_is_named_before_the_overlap() -> None:
    waiting = Collective("hcom_allReduce__1_0_1", "collective", None, 1, None, 10 * MS, MS, 2 * MS, 7 * MS)
    step = ProfilerStep(
        number=1,
        computing_ns=50 * MS,
        communication_ns=50 * MS,
        exposed_communication_ns=50 * MS,
        preparing_ns=0,
        free_ns=0,
    )
    timeline = Timeline(0, 0, EventTableBuilder().table(), steps=(step,), collectives=(waiting,))
    exposed, wait = recorded(timeline).findings
    assert (exposed.rule, exposed.evidence["waiting"]) == ("communication.exposed", pytest.approx(0.9))
    assert (wait.rule, wait.evidence["share"]) == ("communication.waiting", pytest.approx(0.45))


def linked(number: int, computing: int, *, slow_to: int | None = None) -> Timeline:
    """A rank that computes so long of a step, waits for the others for the rest, and sends to each of four ranks."""
    step = ProfilerStep(
        number=1,
        computing_ns=computing,
        communication_ns=100 * MS - computing,
        exposed_communication_ns=100 * MS - computing,
        preparing_ns=0,
        free_ns=0,
    )
    links = tuple(
        RankLink(
            "allreduce-top1",
            "collective",
            "17",
            1,
            number,
            target,
            "HCCS",
            4e7,
            MS * (8 if target == slow_to else 1),
            None,
        )
        for target in range(4)
        if target != number
    )
    events = EventTableBuilder().table()
    return Timeline(rank=number, device=number, events=events, steps=(step,), collectives=(), rank_links=links)


def test_communication__recorded_rank_that_takes_longer_on_its_own__named_as_by_the_command() -> None:
    outcome = recorded(linked(0, 80 * MS), linked(1, 88 * MS), linked(2, 80 * MS), linked(3, 81 * MS, slow_to=2))

    assert values(outcome, "communication.behind") == {
        ("rank 0",): pytest.approx(0.0),
        ("rank 1",): pytest.approx(0.1),
        ("rank 2",): pytest.approx(0.0),
        ("rank 3",): pytest.approx(81 / 80 - 1),
    }
    behind, link = outcome.findings
    assert (behind.rule, behind.severity, behind.evidence["rank"]) == ("communication.behind", "warning", "rank 1")
    assert (link.rule, link.evidence["source"], link.evidence["target"]) == ("communication.slow_link", 3, 2)
    assert link.evidence["share"] == pytest.approx(1 / 8)
    assert finding_text(link) == "HCCS from rank 3 to rank 2 carries 12 % of the median of its kind"


def test_communication__recorded_ranks_that_are_alike__none_named() -> None:
    outcome = recorded(*(linked(number, (80 + number) * MS) for number in range(4)))

    assert outcome.findings == []
    assert (LIMITS["communication.behind.warning"].default, LIMITS["communication.slow_link.warning"].default) == (
        pytest.approx(SLOW_RANK - 1),
        SLOW_LINK,
    )


def test_communication__recorded_without_collectives__not_applicable() -> None:
    outcome = recorded(Timeline(rank=0, device=0, events=EventTableBuilder().table()))

    assert (outcome.status, reason_of(outcome)) == ("not_applicable", "the recording holds no collective")


def test_communication__workload_in_a_group__overlap_of_its_own_trace(tmp_path: Path) -> None:
    import torch.distributed as dist

    device = FakeDevice()

    def call(model: Any, inputs: Any) -> None:
        device.launch("aten::mm", MS)
        device.launch("ncclDevKernel_AllReduce", MS)

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        outcome = STEP.measure(context_on(device, fake_workload(call=call), artifacts=tmp_path))
    finally:
        dist.destroy_process_group()

    # Nothing is computed while the reduction runs, and both take as long.
    assert values(outcome, "communication.hidden") == {("all", "profiler"): 0.0}
    (exposed,) = values(outcome, "communication.exposed").values()
    assert exposed == pytest.approx(0.5, abs=0.01)
    assert [finding.rule for finding in outcome.findings] == ["communication.exposed"]
    assert outcome.status == "attention"


def test_environment__ports_of_hccl_and_the_interface__chosen_unless_given() -> None:
    names = ("HCCL_NPU_SOCKET_PORT_RANGE", "GLOO_SOCKET_IFNAME")
    given = {"HCCL_NPU_SOCKET_PORT_RANGE": "61000-61050", "GLOO_SOCKET_IFNAME": "eth1"}

    assert [environment({})[name] for name in names] == ["auto", "lo"]
    assert [environment(given)[name] for name in names] == ["61000-61050", "eth1"]


def sent(*links: LinkUse, rank: int = 0, name: str = "hcom_allReduce__483_0_1", elapsed: int = 5 * MS) -> Timeline:
    """One collective as communication.json has it (samples msinsight-910B-alexnet and msinsight-gpt3-cann7)."""
    collective = Collective(name, "collective", "group", 1, None, elapsed, elapsed, 0, 0, links)
    return Timeline(rank=rank, device=rank, events=EventTableBuilder().table(), collectives=(collective,))


def link(name: str, *packets: tuple[float, int, int]) -> LinkUse:
    """Packets of so many bytes, their number and nanoseconds."""
    rows = tuple(Packets(*packet) for packet in packets)
    return LinkUse(
        name, sum(size * number for size, number, _ in packets), sum(time for *_, time in packets), None, rows
    )


@pytest.mark.parametrize(
    ("link", "share", "rules"),
    [
        (link("HCCS", (15.9e6, 2, 21), (20.97152e6, 7, 79)), 0.21, ["communication.small_packets"]),
        (link("HCCS", (15.9e6, 2, 20), (20.97152e6, 7, 80)), 0.20, []),
        (link("HCCS", (16e6, 2, 100)), 0.0, []),
        (link("RDMA", (0.9e6, 50, 60), (65.536e6, 2, 40)), 0.6, ["communication.small_packets"]),
        (link("RDMA", (15.9e6, 2, 100)), 0.0, []),
        (LinkUse("SDMA", 1e6, 100, None), None, []),
    ],
    ids=["small", "a fifth", "just large enough", "small over RDMA", "large over RDMA", "sizes not recorded"],
)
def test_communication__recorded_packets__small_ones_by_their_link_and_share_of_the_time(
    link: LinkUse, share: float | None, rules: list[str]
) -> None:
    outcome = recorded(sent(link))

    assert values(outcome, "communication.small_packets") == (
        {} if share is None else {("rank 0", link.link): pytest.approx(share)}
    )
    assert [finding.rule for finding in outcome.findings] == rules


def test_communication__recorded_packets__limits_of_the_project_followed() -> None:
    outcome = recorded(sent(link("HCCS", (2e6, 5, 100))), limits={"communication.small_packets.sdma": 1e6})

    assert values(outcome, "communication.small_packets") == {("rank 0", "HCCS"): 0.0}


@pytest.mark.recordings
def test_communication__recorded_gpt3__few_small_packets_in_time_though_many_in_number(tmp_path: Path) -> None:
    recording = trace.read(sample(f"{GPT}/test_rank_0_ascend_pt", tmp_path))
    outcome = STEP.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))

    # 14 of 77 packets over HCCS are of some kilobytes and take 0.03 % of its time, 4 of 7 over RDMA 0.6 %.
    shares = values(outcome, "communication.small_packets")
    assert shares["rank 0", "HCCS"] == pytest.approx(0.0224942 / 70.1739948, rel=1e-3)
    assert shares["rank 0", "RDMA"] == pytest.approx(0.03847 / 6.2744287, rel=1e-3)
    assert "communication.small_packets" not in [finding.rule for finding in outcome.findings]


SECOND = 1000 * MS


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        ((4.2, 5.0), (0.1, 4.1), ["communication.retransmission"]),
        ((4.0, 5.0), (0.1, 4.1), []),
        # One rank was done at once: it came last, and the other waited for it.
        ((4.2, 5.0), (0.1, 0.3), []),
    ],
    ids=["all took so long", "not longer than one retransmission", "one rank was late"],
)
def test_communication__recorded_transfer_over_rdma_of_seconds__packets_were_sent_again(
    first: tuple[float, float], second: tuple[float, float], rules: list[str]
) -> None:
    """Seconds over RDMA, and in the whole collective, of two ranks."""
    timelines = [
        sent(link("RDMA", (65.536e6, 2, round(transit * SECOND))), rank=rank, elapsed=round(elapsed * SECOND))
        for rank, (transit, elapsed) in enumerate((first, second))
    ]
    outcome = recorded(*timelines)

    found = [finding for finding in outcome.findings if finding.rule == "communication.retransmission"]
    assert [finding.rule for finding in found] == rules
    for finding in found:
        assert finding.severity == "warning"
        assert finding.evidence == {
            "communication.retransmission": pytest.approx(4.2), "limit": 4.0, "shape": "rank 0",
            "collective": "hcom_allReduce_", "time": pytest.approx(4.2), "size [B]": 131.072e6, "collectives": 1,
        }  # fmt: skip


def test_communication__recorded_seconds_over_hccs__no_retransmission() -> None:
    outcome = recorded(sent(link("HCCS", (65.536e6, 2, 6 * SECOND)), elapsed=7 * SECOND))

    assert "communication.retransmission" not in [finding.rule for finding in outcome.findings]
