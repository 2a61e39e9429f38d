"""Golden numbers of every recorded Ascend sample, as SOURCES.md beside them names it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace import Recording
from perfgate.trace.model.arithmetic import Intervals, gaps, union_length
from perfgate.trace.model.readings import MEMORY_READ, MEMORY_WRITE
from perfgate.trace.model.recording import Launch, NamedTotal
from tests.wording import text_of

from .ascend import ALEXNET, GPT, QWEN, groups, kinds, sample


def compute(timeline):
    return [kernel for kernel in timeline.kernels if not kernel.is_collective]


def only(path):
    (timeline,) = trace.read(path).timelines
    return timeline


@pytest.fixture
def level1(tmp_path: Path) -> Recording:
    return trace.read(sample(f"{ALEXNET}/text/level1", tmp_path))


@pytest.mark.recordings
def test_alexnet_level1__two_ranks__kernels_types_and_step(level1: Recording) -> None:
    first, second = level1.timelines
    kernels = compute(first)

    assert [(timeline.rank, timeline.device) for timeline in level1.timelines] == [(0, 0), (1, 1)]
    assert (len(first.kernels), len(kernels)) == (191, 187)
    assert sum(kernel.duration_ns for kernel in kernels) == 8_873_737
    assert sum(kernel.duration_ns < 10_000 for kernel in kernels) == 51
    assert first.totals.types[1] == NamedTotal("TransData", 57, 1_423_208)
    # The rows are rounded one by one, the profiler's total once.
    assert sum(k.duration_ns for k in kernels if k.type == "TransData") == 1_423_202
    (row,) = first.step_table
    assert (row.number, row.computing_ns, row.exposed_communication_ns) == (50, 8_873_756, 101_963_203)
    assert (row.communication_ns, row.free_ns, row.preparing_ns) == (105_991_878, 25_744_050, 17_902_500)
    assert second.step_table[0].computing_ns == 8_878_295
    (step,) = first.steps
    # From the host's mark to the end of the last kernel: Preparing + Stage of the table are 154483.509 us. The device copied
    # for 853137 ns of what the table calls Preparing and Free.
    assert (step.start_ns, step.end_ns) == (1736408883686740710, 1736408883841224221)
    assert (step.length_ns, step.computing_ns, step.exposed_communication_ns) == (154_483_511, 8_873_737, 101_963_203)
    assert (step.exposed_copies_ns, step.preparing_ns, step.free_ns) == (853_137, 17_060_125, 25_733_309)


@pytest.mark.recordings
def test_alexnet_level1__first_kernels__every_cell(level1: Recording) -> None:
    kernel = level1.timelines[0].kernels[1]

    assert (kernel.name, kernel.type, kernel.core) == ("trans_TransData_1", "TransData", "AI_VECTOR_CORE")
    assert (kernel.start_ns, kernel.duration_ns, kernel.wait_ns) == (1736408883704801156, 6_540, 104_202)
    assert (kernel.step, kernel.launch) == (50, Launch(2, 11052, None, "dynamic"))
    assert (kernel.blocks, kernel.mix_blocks, kernel.hf32) == (8, 0, False)
    assert (kernel.inputs.shapes, kernel.inputs.dtypes, kernel.inputs.formats) == (
        ((64, 3, 11, 11),),
        ("FLOAT",),
        ("NCHW",),
    )
    assert (kernel.outputs.shapes, kernel.outputs.formats) == (((121, 4, 16, 8),), ("FRACTAL_Z",))
    assert kernel.counters["aiv_total_cycles"] == 75273
    # l2_cache.csv: no hit rate on a 910B, and the first operator has no row.
    assert kernel.counters["l2_victim_rate"] == 0.23264
    assert "l2_hit_rate" not in kernel.counters
    assert "l2_victim_rate" not in level1.timelines[0].kernels[0].counters
    collective = next(kernel for kernel in level1.timelines[0].kernels if kernel.is_collective)
    assert (collective.core, collective.launch.stream, len(collective.counters)) == ("HCCL", None, 0)


@pytest.mark.recordings
def test_alexnet_level1__collectives__times_links_and_pairs_of_ranks(level1: Recording) -> None:
    first = level1.timelines[0].collectives[0]
    link = next(use for use in first.links if use.link == "HCCS")

    assert len(level1.timelines[0].collectives) == 4
    assert (first.name, first.group, first.kind) == ("hcom_allReduce__586_0_1", "17522688603477080586", "collective")
    assert (first.step, first.start_ns, first.elapsed_ns) == (50, 1736408883732241500, 79_089_520)
    assert (first.transit_ns, first.wait_ns, first.idle_ns) == (239_185, 5_646_633, 73_203_703)
    assert (link.size_bytes, link.transit_ns, link.bandwidth) == (28_647_232, 1_816_836, 15_767_600_000)
    assert [use.link for use in first.links] == ["HCCS", "SDMA"]
    assert link.packets == ((2_064_384, 12, 1_578_892), (1_937_312, 2, 237_945))
    assert first.links[1].packets == ()
    pair = level1.timelines[0].rank_links[1]
    assert (pair.operation, pair.source, pair.target, pair.link) == ("allreduce-top1", 0, 1, "HCCS")
    assert (pair.size_bytes, pair.transit_ns, pair.bandwidth) == (37_781_504, 2_153_383, 17_545_200_000)


@pytest.mark.recordings
def test_alexnet_level1__memory_and_totals__peaks_in_bytes(level1: Recording) -> None:
    timeline = level1.timelines[0]

    assert timeline.memory.peaks["PTA.reserved"] == 1452.0 * 2**20
    assert timeline.memory.peaks["PTA.allocated"] == 1245688832
    assert timeline.memory.peaks["module.HCCL.reserved"] == 423690240
    assert timeline.core_frequency == (1.8e9, 1.8e9)
    assert sum(total.count for total in timeline.totals.operators) == 859
    assert sum(total.count for total in timeline.memory.allocations) == 184
    products = next(total for total in timeline.memory.allocations if total.name == "aten::mm")
    assert (products.count, products.total_bytes, products.held_bytes) == (7, 258591744, 234489344)
    launches = next(total for total in timeline.totals.calls if (total.level, total.name) == ("hccl", "Launch_Ffts"))
    assert (launches.count, launches.total_ns) == (4, 474_410)


@pytest.mark.recordings
def test_alexnet_level1__settings__what_decides_whether_profiles_compare(level1: Recording) -> None:
    assert level1.settings == {
        "level": "Level1",
        "aic_metrics": "PIPE_UTILIZATION",
        "l2_cache": "true",
        "export_type": "text",
        "record_shapes": "true",
        "profile_memory": "true",
        "with_stack": "true",
        "with_flops": "false",
        "with_modules": "true",
    }
    assert (level1.software, level1.environment) == ({}, {})
    assert list(level1.absent) == ["operators of rank1_ascend_pt"]


@pytest.mark.recordings
def test_alexnet_level1__timeline__kinds_types_and_every_kernel_launched(level1: Recording) -> None:
    events = level1.timelines[0].events
    work = events.of_kind("compute", "copy", "comm")
    runtime = events.of_kind("runtime")

    assert kinds(events) == {
        "python": 1282, "runtime": 1025, "host_op": 855, "other": 620, "compute": 187, "copy": 24, "annotation": 5, "comm": 4,
    }  # fmt: skip
    assert groups(events.of_kind("compute"))["TransData"] == 57
    assert groups(events.of_kind("comm")) == {"hcom_allReduce_": 4}
    # 206 arrows of compute and copies and 4 of collectives; five of them start two tasks each.
    assert (len(work), np.unique(work.correlation).size) == (215, 210)
    assert np.isin(work.correlation, runtime.correlation[runtime.correlation >= 0]).all()
    names = [runtime.names[name] for name in runtime.name[np.isin(runtime.correlation, work.correlation)].tolist()]
    assert (len(names), names.count("Node@launch")) == (210, 191)


@pytest.mark.recordings
def test_alexnet_level0__no_types_and_no_launching_spans__names_and_the_task_queue_tell(tmp_path: Path) -> None:
    timeline = only(sample(f"{ALEXNET}/text/level0/rank0_ascend_pt", tmp_path))
    work = timeline.events.of_kind("compute", "copy", "comm")
    launched = timeline.events.select(np.isin(timeline.events.correlation, work.correlation))

    assert (len(timeline.kernels), sum(kernel.duration_ns for kernel in compute(timeline))) == (191, 8_827_454)
    assert {kernel.type for kernel in compute(timeline)} == {None}
    assert groups(timeline.events.of_kind("compute"))["TransData"] == 57
    assert (timeline.totals.types, timeline.collectives) == (None, None)
    assert (work.correlation >= 0).all()
    assert {
        name.partition("@")[0] for name in (launched.names[n] for n in launched.of_kind("runtime").name.tolist())
    } == {"Dequeue"}


@pytest.mark.recordings
def test_alexnet_database__agrees_with_its_own_analysis(tmp_path: Path) -> None:
    timeline = only(sample(f"{ALEXNET}/db/level1/rank0_ascend_pt", tmp_path))
    kernels = compute(timeline)
    work = timeline.events.of_kind("compute", "copy", "comm")
    runtime = timeline.events.of_kind("runtime")

    assert (timeline.rank, timeline.device, len(timeline.kernels), len(kernels)) == (0, 0, 191, 187)
    # analysis.db says 8903.431 us computing.
    assert sum(kernel.duration_ns for kernel in kernels) == 8_903_431 == timeline.steps[0].computing_ns
    assert (timeline.steps[0].number, timeline.steps[0].start_ns) == (50, 1736410576386409710)
    assert kinds(work) == {"compute": 187, "copy": 24, "comm": 4}
    assert np.isin(work.correlation, runtime.correlation).all()
    assert kernels[2].counters["aic_mac_time(us)"] == pytest.approx(162.2277777777778)
    assert (kernels[2].inputs.formats, kernels[2].blocks) == (("NC1HWC0", "FRACTAL_Z", "NCHW"), 16)
    assert timeline.memory.peaks["PTA.reserved"] == 1522532352
    assert timeline.memory.peaks["APP.reserved"] == 2216402944
    assert timeline.collectives[0].links[0].bandwidth == pytest.approx(15.7239e9)
    assert timeline.collectives[0].links[0].packets == ((2_064_384, 12, 1_581_392), (1_937_312, 2, 240_505))
    assert timeline.core_frequency == (1.8e9, 1.8e9)
    # Rows of one moment are of four memories; the second moment is 20 ms after the first.
    read, write = timeline.readings[MEMORY_READ], timeline.readings[MEMORY_WRITE]
    assert read.time[:2].tolist() == [1736410576286319200, 1736410576306286200]
    assert (read.value[:2].tolist(), write.value.size) == ([0.0, 28937346 + 26780187 + 27430860 + 27732158], 13)


@pytest.mark.recordings
def test_alexnet_level1__counters_of_the_memory__all_four_together_in_bytes(level1: Recording) -> None:
    read = level1.timelines[0].readings[MEMORY_READ]

    # HBM 0/Read to HBM 3/Read, in MiB a second: 25.1546, 24.0356, 24.6269 and 23.7020.
    assert (read.time[1], read.value.size) == (1736408883594164920, 13)
    assert read.value[1] == pytest.approx(
        (25.15459934882248 + 24.035606321732004 + 24.62694410027575 + 23.702031164604758) * 2**20
    )


@pytest.mark.recordings
def test_alexnet_database_and_text__two_runs_of_one_program__same_operators(tmp_path: Path) -> None:
    text = only(sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path / "text"))
    database = only(sample(f"{ALEXNET}/db/level1/rank0_ascend_pt", tmp_path / "database"))

    def described(timeline):
        return [
            (k.name, k.type, k.core, k.blocks, k.inputs.shapes, k.inputs.dtypes, k.inputs.formats, k.outputs.formats)
            for k in compute(timeline)
        ]

    assert sorted(described(text)) == sorted(described(database))
    assert groups(text.events.of_kind("compute")) == groups(database.events.of_kind("compute"))
    ops = [timeline.events.of_kind("annotation") for timeline in (text, database)]
    assert groups(ops[0]) == groups(ops[1])


@pytest.mark.recordings
def test_qwen3__cann_8_3__new_words_and_no_format_conversion(tmp_path: Path) -> None:
    recording = trace.read(sample(QWEN, tmp_path))
    first, second = recording.timelines
    kernels = compute(first)

    assert (len(first.kernels), len(kernels)) == (2463, 2448)
    assert sum(kernel.duration_ns for kernel in kernels) == 231_290_100 == first.steps[0].computing_ns
    assert sum(kernel.duration_ns < 10_000 for kernel in kernels) == 827
    by_type = {total.name: total for total in first.totals.types}
    share = by_type["Cast"].total_ns / sum(total.total_ns for total in first.totals.types)
    assert (by_type["Cast"].count, round(share, 5)) == (287, 0.02593)
    assert "TransData" not in by_type
    products = [kernel for kernel in kernels if kernel.type.startswith("MatMul")]
    assert (len(products), {kernel.inputs.dtypes[0] for kernel in products}) == (336, {"BF16"})
    assert [sum(k.type == kind for k in kernels) for kind in ("Slice", "TensorMove")] == [136, 85]
    assert recording.software == {"torch_npu": "2.7.1", "cann": "8.3.RC1"}
    assert recording.settings["world_size"] == "4"
    assert recording.environment == {
        "ASCEND_GLOBAL_LOG_LEVEL": "3", "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    }  # fmt: skip
    assert {collective.kind for collective in first.collectives} == {"p2p", "collective"}
    # Rank 1 has no tables of kernels, which is not the same as no kernels.
    assert (second.rank, second.kernels, len(second.collectives)) == (1, None, 15)
    assert "kernels of rank_1_ascend_pt" in recording.absent


@pytest.mark.recordings
def test_gpt3_2309__old_headers_and_a_shifted_row__counted_not_guessed(tmp_path: Path) -> None:
    recording = trace.read(sample(f"{GPT}/test_rank_0_ascend_pt", tmp_path))
    (timeline,) = recording.timelines

    assert len(timeline.kernels) == 20
    assert text_of(recording.absent["kernels, some"]) == "1 rows of kernel_details lack cells or have too many"
    assert timeline.kernels[0].start_ns == 1695115378713661000
    assert timeline.kernels[0].duration_ns == 496_851
    assert timeline.kernels[0].inputs.formats == ("ND",)
    assert timeline.kernels[0].counters["aiv_total_cycles"] == 43632970
    assert (timeline.step_table[0].number, timeline.step_table[0].computing_ns) == (2, 75_174_575)
    # Written without Preparing, so nothing says when the step began.
    assert timeline.steps[0].length_ns is None
    assert timeline.memory.peaks["APP.reserved"] == 11224.375 * 2**20
    assert sorted({collective.name.partition("__")[0] for collective in timeline.collectives}) == [
        "hcom_allGather", "hcom_allReduce", "hcom_broadcast", "hcom_reduceScatter", "hcom_send",
    ]  # fmt: skip
    # No timeline was kept: what ran is known from the table of kernels alone.
    assert kinds(timeline.events) == {"compute": 16, "comm": 4}


@pytest.mark.recordings
def test_gpt3_op_summary__the_same_rows_under_msprofs_names(tmp_path: Path) -> None:
    text = only(sample(f"{GPT}/test_rank_0_ascend_pt", tmp_path))

    assert tuple(only(sample(f"{GPT}/op_summary_1.csv", tmp_path)).kernels) == tuple(text.kernels)


@pytest.mark.recordings
def test_mstt_compute_advice__2023_table__aicpu_random_numbers_and_collectives(tmp_path: Path) -> None:
    timeline = only(sample("mstt-advisor/compute_advice", tmp_path))
    cores = [kernel.core for kernel in timeline.kernels]

    assert (len(cores), sum(kernel.is_collective for kernel in timeline.kernels)) == (591, 19)
    assert [cores.count(core) for core in ("AI_CPU", "DSA_SQE", "AI_CORE", "MIX_AIV")] == [7, 7, 13, 25]
    assert sum(kernel.duration_ns for kernel in compute(timeline)) == 50_408_300
    assert timeline.kernels[0].counters["aiv_vector_fops"] == 137176320


@pytest.mark.recordings
def test_mstt_timeline_advice__gaps_of_the_hardware__exact_where_floats_are_not(tmp_path: Path) -> None:
    path = sample("mstt-advisor/timeline_advice/trace_view.json.gz", tmp_path)
    events = only(path).events
    hardware = events.of_kind("compute", "copy")
    window = (int(hardware.start.min()), int(hardware.end.max()))
    with gzip.open(path) as stream:
        floats = sorted(
            (float(e["ts"]), float(e["ts"]) + e["dur"]) for e in json.load(stream) if e["pid"] == 800 and "dur" in e
        )
    reach, wrong = floats[0][1], 0
    for start, end in floats[1:]:
        wrong += start > reach
        reach = max(reach, end)

    assert kinds(events) == {"host_op": 706, "runtime": 678, "compute": 274, "annotation": 5, "copy": 2}
    assert gaps(Intervals(hardware.start, hardware.end), window).start.size == 275
    assert wrong == 236
    assert union_length(Intervals(hardware.start, hardware.end)) == hardware.duration.sum() == 1_790_457
    # The arrow of each kernel starts in the call of CANN around it, whose own connection_id is another.
    assert (hardware.correlation >= 0).sum() == 274


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("group", "column", "value"),
    [
        ("PipeUtilization", "aic_mac_ratio", 0.007),
        ("ArithmeticUtilization", "aic_cube_fops", 49807360.0),
        ("Memory", "aic_l1_read_bw(gb/s)", 1.661),
        ("L2Cache", "aic_r0_read_cache_hit", 7382.0),
    ],
)
def test_msprof__each_group_of_counters__by_its_columns(group: str, column: str, value: float, tmp_path: Path) -> None:
    timeline = only(sample(f"msprof-910B-20cores-2608/PROF_{group}", tmp_path))
    kernel = timeline.kernels[2]

    assert (timeline.device, len(timeline.kernels), kernel.type, kernel.blocks) == (0, 3, "GroupedMatmul", 20)
    assert kernel.counters[column] == value
    assert kernel.inputs.shapes == ((512, 16), (8, 2048, 16), (), (), (), (), (), (8,))
    assert kernel.inputs.dtypes[:2] == ("BF16", "BF16")


@pytest.mark.recordings
def test_msprof_pipe_utilization__cube_utilization__is_occupancy_of_cores(tmp_path: Path) -> None:
    recording = trace.read(sample("msprof-910B-20cores-2608/PROF_PipeUtilization", tmp_path))
    kernel = recording.timelines[0].kernels[2]
    cores, megahertz = int(recording.settings["aic_cores"]), float(recording.settings["aic_frequency_mhz"])

    occupancy = kernel.counters["aic_total_cycles"] / (megahertz * cores * kernel.duration_ns / 1000)

    assert round(occupancy * 100, 3) == kernel.counters["cube_utilization(%)"] == 87.384


@pytest.mark.recordings
def test_msprof_memory__calls_tasks_and_types(tmp_path: Path) -> None:
    timeline = only(sample("msprof-910B-20cores-2608/PROF_Memory", tmp_path))

    assert [(total.name, total.count, total.total_ns) for total in timeline.totals.types] == [
        ("GroupedMatmul", 1, 25_860), ("OnesLike", 2, 13_660),
    ]  # fmt: skip
    launch = next(total for total in timeline.totals.calls if total.name == "launch")
    assert (launch.level, launch.count, launch.total_ns) == ("node", 3, 1_220_300)
    # Place holders of task_time.csv are events of their own; its kernels are those of op_summary.csv.
    assert kinds(timeline.events) == {"compute": 3, "other": 3}


@pytest.mark.recordings
def test_msprof__folder_of_several_runs__all_of_them(tmp_path: Path) -> None:
    recording = trace.read(sample("msprof-910B-20cores-2608", tmp_path))

    assert recording.format == "msprof"
    assert [len(timeline.kernels) for timeline in recording.timelines] == [3, 3, 3, 3]


@pytest.mark.recordings
def test_heat_map__process_names_behind_the_events__still_by_name(tmp_path: Path) -> None:
    timeline = only(sample("msinsight-misc/heatMap_trace_view.json", tmp_path))

    assert groups(timeline.events.of_kind("compute")) == {"GroupedMatmul": 1}


@pytest.mark.recordings
def test_cluster_tables__no_profile__refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="is a result of msprof-analyze"):
        trace.read(sample("mstt-advisor/cluster_analysis_output", tmp_path))
