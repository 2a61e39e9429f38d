"""What docs/advisor.md says: our numbers and advice on recorded Ascend folders beside those of the real msprof-analyze."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perfgate import trace
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import Artifact, RunDocument
from perfgate.flows.run.advisors import advise_run
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.flows.shared.decision import decide_with_advice
from perfgate.judging.advice.advise import suggestions
from tests.fakes.documents import make_run
from tests.samples import unpacked
from tests.wording import worded

pytest.importorskip(
    "msprof_analyze",
    reason="msprof-analyze is not installed (pip install msprof-analyze openpyxl)",
)
openpyxl = pytest.importorskip(
    "openpyxl", reason="openpyxl is not installed (pip install msprof-analyze openpyxl)"
)

pytestmark = pytest.mark.recordings

ALEXNET = "msinsight-910B-alexnet-2501/text/level1"
TOOL = Path(sys.executable).parent / "msprof-analyze"
SOURCE = "msprof-analyze advisor"


class Kernels(NamedTuple):
    """Calls and microseconds of a type of kernel."""

    calls: float
    time: float


class Compared(NamedTuple):
    """What ``msprof-analyze compare`` says of its base and of what it compares with it."""

    overall: dict[str, tuple[float, ...]]
    kernels: tuple[dict[str, Kernels], dict[str, Kernels]]
    communication: float


def recorded(folder: Path, name: str) -> RunDocument:
    return run_from_profile(
        folder, folder / name, folder / f"out-{name}", lambda _: None, keep_files=False
    )


def compare(base: Path, head: Path, out: Path) -> Compared:
    command = [
        str(TOOL),
        "compare",
        "-d",
        str(head),
        "-bp",
        str(base),
        "-o",
        str(out),
        "--force",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (path,) = out.glob("performance_comparison_result_*.xlsx")
    book = openpyxl.load_workbook(path)
    rows = {
        sheet.title: list(sheet.iter_rows(values_only=True))[3:]
        for sheet in book.worksheets
    }
    overall = {
        str(row[0]).strip(): tuple(float(row[at]) for at in (1, 4))
        for row in rows["OverallMetrics"]
    }
    return Compared(
        overall,
        _kernels(rows["KernelCompare"]),
        float(rows["CommunicationCompare"][0][15]),
    )


def _kernels(
    rows: list[tuple[Any, ...]],
) -> tuple[dict[str, Kernels], dict[str, Kernels]]:
    """Return the kernels of both sides, added up over the shapes that they are listed by."""
    sides = []
    for time, calls in ((3, 7), (8, 12)):
        found: dict[str, Kernels] = defaultdict(lambda: Kernels(0, 0))
        for row in rows:
            before = found[row[1]]
            found[row[1]] = Kernels(
                before.calls + float(row[calls] or 0),
                before.time + float(row[time] or 0),
            )
        sides.append(dict(found))
    return sides[0], sides[1]


def value(run: RunDocument, metric: str) -> float:
    found = next(
        value.value
        for step in run.checklist.steps
        for value in step.values
        if value.metric == metric
    )
    assert found is not None
    return found


def rules(run: RunDocument) -> dict[str, str]:
    return {one.rule: one.source for one in suggestions(run)}


def milliseconds_of_step(run: RunDocument) -> float:
    return 1e3 * value(run, "latency.p50")


class Ranks(NamedTuple):
    """Two ranks of one training step: their folder, our documents and what the package makes of both."""

    folder: Path
    rank0: RunDocument
    rank1: RunDocument
    theirs: Compared


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("alexnet")
    paths = [
        unpacked(folder / f"{rank}_ascend_pt", f"{ALEXNET}/{rank}_ascend_pt")
        for rank in ("rank0", "rank1")
    ]
    rank0, rank1 = (recorded(folder, path.name) for path in paths)
    return Ranks(folder, rank0, rank1, compare(paths[1], paths[0], folder / "compared"))


def test_compare__two_ranks__same_times_and_calls_of_every_type_of_kernel(
    ranks: Ranks,
) -> None:
    ours, theirs = ranks.rank0, ranks.theirs
    step = milliseconds_of_step(ours)
    assert step == pytest.approx(154.483511)
    # Its first columns are those of -bp: the base. Its time computing is that of a timeline that rounded every kernel.
    assert theirs.overall["Computing Time"][1] == pytest.approx(
        value(ours, "utilization.computing") * step, abs=5e-5
    )
    assert theirs.overall["Uncovered Communication Time"][1] == pytest.approx(
        value(ours, "communication.exposed") * step
    )
    assert value(ours, "communication.exposed") == pytest.approx(0.66, abs=5e-5)
    assert theirs.overall["Free Time"][1] == pytest.approx(25.744, abs=5e-4)
    parts = ("utilization.free", "preprocess.preparing_share", "transfer.exposed_share")
    assert [value(ours, part) * step for part in parts] == pytest.approx(
        [25.733, 17.060, 0.853], abs=5e-4
    )

    table = {row.op: Kernels(row.count, row.self_time * 1e6) for row in ours.operators}
    kernels = theirs.kernels[1]
    assert len(kernels) == 34
    assert table.keys() - kernels.keys() == {"MEMCPY_ASYNC"}
    for name, kernel in kernels.items():
        assert table[name].calls == kernel.calls, name
        assert table[name].time == pytest.approx(kernel.time, abs=0.03), name


def test_compare__kernels_of_a_step__the_two_of_random_numbers_are_counted_by_us_alone(
    ranks: Ranks,
) -> None:
    ours, kernels = ranks.rank0, ranks.theirs.kernels[1]
    computing = sum(
        kernel.calls for name, kernel in kernels.items() if not name.startswith("hcom_")
    )
    assert computing == ours.counters[0].values["counters.kernels"] == 187
    assert kernels["DSAGenBitMask"].calls == 2


def test_diff__two_ranks__same_difference_of_the_all_reduce(ranks: Ranks) -> None:
    sides = (ranks.rank1, ranks.rank0)
    base, head = (
        next(
            row.self_time
            for row in run.checklist.operators
            if row.op == "hcom_allReduce_"
        )
        for run in sides
    )
    assert ranks.theirs.communication == pytest.approx((head - base) * 1e6, abs=0.01)
    decision = decide_with_advice(
        sides[0], sides[1], policy=Policy(), history=History()
    )
    assert (decision.verdict, [found.field for found in decision.sides.testbed_differences]) == (
        "INCONCLUSIVE", ["profile.shapes"]
    )  # fmt: skip


def test_gate_and_advice__conversions_added__both_see_them_and_we_say_what_to_do(
    ranks: Ranks,
) -> None:
    sides = [ranks.folder / name for name in ("base_ascend_pt", "head_ascend_pt")]
    for side in sides:
        shutil.copytree(ranks.folder / "rank0_ascend_pt", side)
    _add_conversions(sides[1] / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", 3)
    theirs = compare(*sides, ranks.folder / "compared-conversions")
    # What adds up the same kernels, or shows them, would contradict their changed table.
    for side in sides:
        for pattern in ("op_statistic.csv", "step_trace_time.csv", "trace_view.json*"):
            for file in (side / "ASCEND_PROFILER_OUTPUT").glob(pattern):
                file.unlink()
    base, ours = (recorded(ranks.folder, side.name) for side in sides)
    decision = decide_with_advice(base, ours, policy=Policy(), history=History())

    before, after = (side["TransData"].calls for side in theirs.kernels)
    found = next(
        one
        for one in decision.comparisons
        if one.metric == "counters.format_conversions"
    )
    assert (
        (found.base, found.head, found.outcome)
        == (before, after, "regressed")
        == (57, 60, "regressed")
    )
    assert decision.verdict == "FAIL"
    assert [one.rule for one in decision.explained.suggestions if one.introduced] == [
        "format-conversion"
    ]


def _add_conversions(path: Path, count: int) -> None:
    with path.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    last = [row for row in rows if row[header.index("Type")] == "TransData"][-count:]
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows, *last])


def test_advisor__alexnet__problems_of_its_own_merged_and_those_of_ours_said_once(
    ranks: Ranks,
) -> None:
    run = ranks.rank0
    assert {advisory.category for advisory in run.checklist.advisories} == {
        "Affinity API Issues", "Byte Alignment Analysis", "Environment Variable Issues", "Operator Dynamic Shape Issues",
        "Vector Operator Perf Analysis",
    }  # fmt: skip
    found = rules(run)
    assert {rule for rule, source in found.items() if source.startswith(SOURCE)} == {
        "Affinity API Issues", "Byte Alignment Analysis", "Environment Variable Issues", "Operator Dynamic Shape Issues",
    }  # fmt: skip
    assert next(iter(found)) == "communication.exposed"
    assert {
        "utilization.communication",
        "format.share",
        "tiling.attained",
        "contiguity.kernel_share",
    } <= found.keys()
    assert suggestions(run)[0].gain.speedup == pytest.approx(2.94, abs=0.01)  # type: ignore[union-attr]
    # Step 16 sees small packets where the advisor sees none.
    assert value(run, "communication.small_packets") == pytest.approx(0.4433, abs=5e-5)
    affinity = next(
        one for one in run.checklist.advisories if one.category == "Affinity API Issues"
    )
    assert affinity.evidence == {"count": 1, "op": "torch_npu.optim.NpuFusedSGD"}


def test_advisor__recording_that_a_run_packed__advised_on_like_its_folder(
    ranks: Ranks, tmp_path: Path
) -> None:
    name = shutil.make_archive(
        str(tmp_path / "trace-encoder"), "zip", ranks.folder / "rank0_ascend_pt"
    )
    trace = Artifact(
        name="trace",
        kind="trace",
        path=Path(name).name,
        bytes=1,
        sha256="0" * 64,
        workload="encoder",
    )
    advised = advise_run(make_run(artifacts=[trace]), tmp_path, lambda _: None)
    assert {one.category for one in advised.found} == {
        one.category for one in ranks.rank0.advisories
    }
    assert ({one.workload for one in advised.found}, worded(advised.warnings)) == (
        {"encoder"},
        [],
    )


def test_advisor__same_problems_on_both_ranks__nothing_is_new(ranks: Ranks) -> None:
    decision = decide_with_advice(
        ranks.rank1, ranks.rank0, policy=Policy(), history=History()
    )
    assert not any(one.introduced for one in decision.explained.suggestions)


def test_advisor__recording_of_cann_7__casts_on_the_ai_cpu_seen_by_both(
    tmp_path: Path,
) -> None:
    unpacked(
        tmp_path / "gpt_ascend_pt", "msinsight-gpt3-cann7-2309/test_rank_0_ascend_pt"
    )
    run = recorded(tmp_path, "gpt_ascend_pt")
    on_ai_cpu = next(
        one for one in run.checklist.advisories if one.category == "AICPU Issues"
    )
    assert on_ai_cpu.evidence["count"] == 2
    # The folder's tables contradict each other, so that step 4 judges no times there.
    assert rules(run)["AICPU Issues"].startswith(SOURCE)
    assert rules(run)["Packet Analysis"].startswith(SOURCE)

    table = unpacked(tmp_path / "gpt", "msinsight-gpt3-cann7-2309") / "op_summary_1.csv"
    alone = run_from_profile(
        tmp_path, table, tmp_path / "out-alone", lambda _: None, keep_files=False
    )
    ours = next(one for one in suggestions(alone) if one.rule == "ops.ai_cpu")
    assert (ours.evidence["calls"], ours.evidence["op"], ours.evidence["types"]) == (
        2,
        "Cast",
        "INT32 -> UINT64",
    )


def test_advisor__language_model__sequences_counted_apart_and_room_that_step_13_does_not_mind(
    tmp_path: Path,
) -> None:
    unpacked(
        tmp_path / "qwen_ascend_pt",
        "msinsight-910B-qwen3-cann8.3RC1-2511/level2/rank_0_ascend_pt",
    )
    run = recorded(tmp_path, "qwen_ascend_pt")
    fusible = next(
        one
        for one in run.checklist.advisories
        if one.category == "Fusible Operator Analysis"
    )
    assert "75 operator sequences" in fusible.description
    assert value(run, "fusion.sequences") == 59
    assert value(run, "fusion.sequence_share") == pytest.approx(0.034, abs=0.001)
    assert rules(run)["FA Operator Perf Analysis"].startswith(SOURCE)
    packets = next(
        one for one in run.checklist.advisories if one.category == "Packet Analysis"
    )
    assert "30.00%" in packets.description
    assert value(run, "communication.small_packets") == pytest.approx(0.009, abs=5e-4)
    products = next(
        one
        for step in run.checklist.steps
        for one in step.values
        if one.metric == "tiling.mfu"
    )
    assert (products.labels["op"], products.value) == (
        "MatMulV3",
        pytest.approx(0.686, abs=5e-4),
    )


class Exported(NamedTuple):
    """Rank 0 of the same program as a database: its folder and our document."""

    folder: Path
    run: RunDocument


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported")
    unpacked(
        folder / "rank0_ascend_pt",
        "msinsight-910B-alexnet-2501/db/level1/rank0_ascend_pt",
    )
    return Exported(folder / "rank0_ascend_pt", recorded(folder, "rank0_ascend_pt"))


def recipe(name: str, exported: Exported, out: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables that a recipe of the cluster analysis writes about the database; none where it writes nothing."""
    command = [
        str(TOOL),
        "cluster",
        "-m",
        name,
        "-d",
        str(exported.folder.parent),
        "-o",
        str(out),
        "--force",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    path = out / "cluster_analysis_output" / "cluster_analysis.db"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        names = [
            name
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        ]
        return {
            table: [dict(row) for row in database.execute(f'SELECT * FROM "{table}"')]
            for table in names
        }


def test_recipes__time_of_a_step__same_parts(
    exported: Exported, tmp_path: Path
) -> None:
    (theirs,) = recipe("cluster_time_summary", exported, tmp_path)["ClusterTimeSummary"]
    ours, step = exported.run, milliseconds_of_step(exported.run)

    # Of host's mark to mark, and from there to the last task of the device.
    assert (theirs["stepTime"] / 1e3, step) == (
        pytest.approx(151.88875),
        pytest.approx(150.289215),
    )
    assert [
        theirs[part] / 1e3
        for part in ("computation", "communicationNotOverlapComputation")
    ] == pytest.approx(
        [
            value(ours, part) * step
            for part in ("utilization.computing", "communication.exposed")
        ]
    )
    copies = theirs["memoryNotOverlapComputationCommunication"] / 1e3
    assert copies == pytest.approx(value(ours, "transfer.exposed_share") * step)
    assert [
        round(theirs[part] / 1e3, 3)
        for part in ("computation", "communicationNotOverlapComputation")
    ] == [
        8.903,
        98.072,
    ]
    assert round(copies, 3) == 0.842


def test_recipes__kernels_and_collectives__same_calls_and_times(
    exported: Exported, tmp_path: Path
) -> None:
    types = recipe("compute_op_sum", exported, tmp_path / "compute")[
        "ComputeOpAllRankStats"
    ]
    (collectives,) = recipe("hccl_sum", exported, tmp_path / "hccl")["HcclAllRankStats"]
    ours = {row.op: row for row in exported.run.checklist.operators}

    assert (
        len(types),
        sum(row["Count"] for row in types),
        sum(row["SumNs"] for row in types),
    ) == (33, 187, 8_903_431)
    for row in types:
        assert (ours[row["OpType"]].count, ours[row["OpType"]].self_time) == (
            row["Count"],
            pytest.approx(row["SumNs"] / 1e9),
        )
    assert (collectives["OpType"], collectives["Count"], collectives["SumNs"]) == (
        "hcom_allReduce_",
        4,
        102_108_100,
    )
    assert value(exported.run, "communication.time") == pytest.approx(0.1021081)


def test_recipes__times_and_packets_of_collectives__same_transit_and_what_is_small(
    exported: Exported, tmp_path: Path
) -> None:
    tables = recipe("communication_time_sum", exported, tmp_path)
    times = [
        row
        for row in tables["ClusterCommunicationTime"]
        if row["hccl_op_name"] != "Total Op Info"
    ]
    elapsed, transit = (
        sum(row[name] for row in times) for name in ("elapsed_time", "transit_time")
    )

    assert (elapsed, transit) == (
        pytest.approx(102.108, abs=5e-4),
        pytest.approx(3.986, abs=5e-4),
    )
    assert value(exported.run, "communication.transit") == pytest.approx(
        transit / elapsed
    )
    packets = [
        row
        for row in tables["ClusterCommunicationBandwidth"]
        if row["band_type"] == "HCCS" and row["hccl_op_name"] != "Total Op Info"
    ]
    small = sum(row["total_duration"] for row in packets if row["package_size"] < 16)
    share = small / sum(row["total_duration"] for row in packets)
    assert value(exported.run, "communication.small_packets") == pytest.approx(share)
    assert share == pytest.approx(0.46, abs=5e-3)


def test_recipes__calls_of_the_host__same_launches_and_none_of_them_compiles(
    exported: Exported, tmp_path: Path
) -> None:
    calls = {
        row["name"]: row
        for row in recipe("cann_api_sum", exported, tmp_path)["CannApiSum"]
    }

    assert (calls["launch"]["totalCount"], calls["launch"]["totalTimeNs"]) == (
        191,
        3_722_090,
    )
    assert value(exported.run, "small_ops.launch_time") == pytest.approx(3.72209e-3)
    assert value(exported.run, "graph.launches") == 191
    compiling = calls["aclopCompileAndExecute"]
    assert (compiling["totalCount"], compiling["totalTimeNs"]) == (19, 27_601_640)
    assert (
        calls["opCompile"]["maxNs" if "maxNs" in calls["opCompile"] else "Q3Ns"]
        < 1_000_000
    )
    assert value(exported.run, "graph.compiled") == 0


def test_recipes__longest_gaps__those_of_ours_but_for_one_before_the_step_and_a_copy(
    exported: Exported, tmp_path: Path
) -> None:
    theirs = [
        row["duration(us)"]
        for row in recipe("free_analysis", exported, tmp_path)["FreeAnalysis"]
    ]
    (timeline,) = trace.read(exported.folder).timelines
    gaps = trace.device_gaps(timeline.events)
    assert gaps is not None
    lengths = sorted((gap.duration_ns / 1e3 for gap in gaps.gaps), reverse=True)

    assert (len(theirs), len(lengths), theirs[0], round(lengths[0] / 1e3, 3)) == (
        10,
        103,
        pytest.approx(2338.607),
        4.339,
    )
    # In one of theirs a copy runs for 2.7 us.
    assert theirs == pytest.approx(lengths[1:11], abs=3)


def test_recipes__clock__no_rank_is_abnormal_and_no_kernel_below_the_rated_one(
    exported: Exported, tmp_path: Path
) -> None:
    assert recipe("freq_analysis", exported, tmp_path) == {}
    assert value(exported.run, "thermal.clock") == 1
    assert not any(
        one.metric == "thermal.kernel_clock"
        for step in exported.run.checklist.steps
        for one in step.values
    )


def test_recipes__links__of_one_rank_to_itself_and_none_is_slow(
    exported: Exported, tmp_path: Path
) -> None:
    matrix = recipe("communication_matrix_sum", exported, tmp_path)[
        "ClusterCommunicationMatrix"
    ]

    assert {
        (row["src_rank"], row["dst_rank"], row["transport_type"]) for row in matrix
    } == {(0, 0, "LOCAL")}


def test_recipes__who_holds_collectives_up__nobody_where_one_rank_is_recorded(
    exported: Exported, tmp_path: Path
) -> None:
    rows = recipe("communication_bottleneck", exported, tmp_path)[
        "CommunicationBottleneck"
    ]

    assert len(rows) == 4
    assert all("No slow NPU detected" in row["reason"] for row in rows)


@pytest.mark.parametrize(
    "name",
    [
        "slow_rank", "slow_link", "operator_mfu", "cluster_compare_baseline", "ep_load_balance", "p2p_pairing", "pp_chart",
        "module_statistic", "mstx_sum", "computational_op_masking",
    ],
)  # fmt: skip
def test_recipes__that_need_more_than_one_rank_or_ranges_of_mstx__nothing(
    exported: Exported, tmp_path: Path, name: str
) -> None:
    assert recipe(name, exported, tmp_path) == {}


def test_trace_ranks__of_the_two_exported_as_text__who_is_slow_and_that_no_link_is(
    tmp_path: Path,
) -> None:
    unpacked(tmp_path / "text", ALEXNET)
    command = [
        str(TOOL.with_name("perfgate")),
        "trace",
        "ranks",
        "--json",
        str(tmp_path / "text"),
    ]
    done = subprocess.run(command, check=True, capture_output=True, timeout=600)
    found = json.loads(done.stdout)

    assert [(row["rank"], round(row["behind"], 3)) for row in found["slow_ranks"]] == [
        (1, 0.066)
    ]
    assert (found["slow_links"], found["links"]) == ([], 16)
