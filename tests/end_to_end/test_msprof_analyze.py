"""What docs/advisor.md says: our numbers and advice on recorded Ascend folders beside those of the real msprof-analyze."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import Artifact, RunDocument
from perfgate.jobs.run.advisor import advise_run
from perfgate.jobs.run.from_profile import ProfileOptions, run_from_profile
from perfgate.jobs.shared.decision import decide_with_advice
from perfgate.judging.advice.advise import suggestions
from tests.fakes.documents import make_run
from tests.samples import unpacked
from tests.wording import worded

pytest.importorskip("msprof_analyze", reason="msprof-analyze is not installed (pip install msprof-analyze openpyxl)")
openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed (pip install msprof-analyze openpyxl)")

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
    return run_from_profile(folder, ProfileOptions(folder / name, folder / f"out-{name}"), lambda _: None)


def compare(base: Path, head: Path, out: Path) -> Compared:
    command = [str(TOOL), "compare", "-d", str(head), "-bp", str(base), "-o", str(out), "--force"]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (path,) = out.glob("performance_comparison_result_*.xlsx")
    book = openpyxl.load_workbook(path)
    rows = {sheet.title: list(sheet.iter_rows(values_only=True))[3:] for sheet in book.worksheets}
    overall = {str(row[0]).strip(): tuple(float(row[at]) for at in (1, 4)) for row in rows["OverallMetrics"]}
    return Compared(overall, _kernels(rows["KernelCompare"]), float(rows["CommunicationCompare"][0][15]))


def _kernels(rows: list[tuple[Any, ...]]) -> tuple[dict[str, Kernels], dict[str, Kernels]]:
    """Return the kernels of both sides, added up over the shapes that they are listed by."""
    sides = []
    for time, calls in ((3, 7), (8, 12)):
        found: dict[str, Kernels] = defaultdict(lambda: Kernels(0, 0))
        for row in rows:
            before = found[row[1]]
            found[row[1]] = Kernels(before.calls + float(row[calls] or 0), before.time + float(row[time] or 0))
        sides.append(dict(found))
    return sides[0], sides[1]


def value(run: RunDocument, metric: str) -> float:
    found = next(value.value for step in run.steps for value in step.values if value.metric == metric)
    assert found is not None
    return found


def rules(run: RunDocument) -> dict[str, str]:
    return {one.rule: one.source for one in suggestions(run)}


class Ranks(NamedTuple):
    """Two ranks of one training step: their folder, our documents and what the package makes of both."""

    folder: Path
    rank0: RunDocument
    rank1: RunDocument
    theirs: Compared


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("alexnet")
    paths = [unpacked(folder / f"{rank}_ascend_pt", f"{ALEXNET}/{rank}_ascend_pt") for rank in ("rank0", "rank1")]
    rank0, rank1 = (recorded(folder, path.name) for path in paths)
    return Ranks(folder, rank0, rank1, compare(paths[1], paths[0], folder / "compared"))


def test_compare__two_ranks__same_times_and_calls_of_every_type_of_kernel(ranks: Ranks) -> None:
    ours, theirs = ranks.rank0, ranks.theirs
    # Its first columns are those of -bp: the base.
    step = theirs.overall["E2E Time"][1]
    assert theirs.overall["Computing Time"][1] == pytest.approx(value(ours, "utilization.busy") * step)
    assert theirs.overall["Uncovered Communication Time"][1] == pytest.approx(
        value(ours, "communication.exposed") * step
    )
    assert theirs.overall["Free Time"][1] == pytest.approx(value(ours, "utilization.gap") * 1e3)

    table = {row.op: Kernels(row.count, row.self_time * 1e6) for row in ours.operators}
    kernels = theirs.kernels[1]
    assert len(kernels) == 34
    assert table.keys() - kernels.keys() == {"MEMCPY_ASYNC"}
    for name, kernel in kernels.items():
        assert table[name].calls == kernel.calls, name
        assert table[name].time == pytest.approx(kernel.time, abs=0.03), name


def test_compare__kernels_of_a_step__the_two_of_random_numbers_are_counted_by_us_alone(ranks: Ranks) -> None:
    ours, kernels = ranks.rank0, ranks.theirs.kernels[1]
    computing = sum(kernel.calls for name, kernel in kernels.items() if not name.startswith("hcom_"))
    assert computing == ours.counters[0].values["counters.kernels"] == 187
    assert kernels["DSAGenBitMask"].calls == 2


def test_diff__two_ranks__same_difference_of_the_all_reduce(ranks: Ranks) -> None:
    sides = (ranks.rank1, ranks.rank0)
    base, head = (next(row.self_time for row in run.operators if row.op == "hcom_allReduce_") for run in sides)
    assert ranks.theirs.communication == pytest.approx((head - base) * 1e6, abs=0.01)
    decision = decide_with_advice(sides[0], sides[1], policy=Policy(), history=History())
    assert (decision.verdict, [found.field for found in decision.testbed_differences]) == (
        "INCONCLUSIVE", ["profile.shapes"]
    )  # fmt: skip


def test_gate_and_advice__conversions_added__both_see_them_and_we_say_what_to_do(ranks: Ranks) -> None:
    head = ranks.folder / "head_ascend_pt"
    shutil.copytree(ranks.folder / "rank0_ascend_pt", head)
    _add_conversions(head / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", 3)
    theirs = compare(ranks.folder / "rank0_ascend_pt", head, ranks.folder / "compared-conversions")
    ours = recorded(ranks.folder, "head_ascend_pt")
    decision = decide_with_advice(ranks.rank0, ours, policy=Policy(), history=History())

    before, after = (side["TransData"].calls for side in theirs.kernels)
    found = next(one for one in decision.comparisons if one.metric == "counters.format_conversions")
    assert (found.base, found.head, found.outcome) == (before, after, "regressed") == (57, 60, "regressed")
    assert decision.verdict == "FAIL"
    assert [one.rule for one in decision.suggestions if one.introduced] == ["format-conversion"]


def _add_conversions(path: Path, count: int) -> None:
    with path.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    last = [row for row in rows if row[header.index("Type")] == "TransData"][-count:]
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows, *last])


def test_advisor__alexnet__problems_of_its_own_merged_and_those_of_ours_said_once(ranks: Ranks) -> None:
    run = ranks.rank0
    assert {advisory.category for advisory in run.advisories} == {
        "Affinity API Issues", "Byte Alignment Analysis", "Environment Variable Issues", "Operator Dynamic Shape Issues",
        "Vector Operator Perf Analysis",
    }  # fmt: skip
    found = rules(run)
    assert {rule for rule, source in found.items() if source.startswith(SOURCE)} == {
        "Affinity API Issues", "Byte Alignment Analysis", "Environment Variable Issues", "Operator Dynamic Shape Issues",
    }  # fmt: skip
    assert next(iter(found)) == "communication.exposed"
    assert {"utilization.busy", "format.share", "tiling.attained", "contiguity.kernel_share"} <= found.keys()
    affinity = next(one for one in run.advisories if one.category == "Affinity API Issues")
    assert affinity.evidence == {"count": 1, "op": "torch_npu.optim.NpuFusedSGD"}


def test_advisor__recording_that_a_run_packed__advised_on_like_its_folder(ranks: Ranks, tmp_path: Path) -> None:
    name = shutil.make_archive(str(tmp_path / "trace-encoder"), "zip", ranks.folder / "rank0_ascend_pt")
    trace = Artifact(name="trace", kind="trace", path=Path(name).name, bytes=1, sha256="0" * 64, workload="encoder")
    advised = advise_run(make_run(artifacts=[trace]), tmp_path, lambda _: None)
    assert {one.category for one in advised.found} == {one.category for one in ranks.rank0.advisories}
    assert ({one.workload for one in advised.found}, worded(advised.warnings)) == ({"encoder"}, [])


def test_advisor__same_problems_on_both_ranks__nothing_is_new(ranks: Ranks) -> None:
    decision = decide_with_advice(ranks.rank1, ranks.rank0, policy=Policy(), history=History())
    assert not any(one.introduced for one in decision.suggestions)


def test_advisor__recording_of_cann_7__casts_on_the_ai_cpu_seen_by_both(tmp_path: Path) -> None:
    unpacked(tmp_path / "gpt_ascend_pt", "msinsight-gpt3-cann7-2309/test_rank_0_ascend_pt")
    run = recorded(tmp_path, "gpt_ascend_pt")
    on_ai_cpu = next(one for one in run.advisories if one.category == "AICPU Issues")
    ours = next(one for one in suggestions(run) if one.rule == "format.share")
    assert (on_ai_cpu.evidence["count"], ours.evidence["op"], ours.evidence["pair"]) == (2, "Cast", "INT32 -> UINT64")
    assert "Packet Analysis" in rules(run)


def test_advisor__language_model__sequences_counted_apart_and_room_that_step_13_does_not_mind(tmp_path: Path) -> None:
    unpacked(tmp_path / "qwen_ascend_pt", "msinsight-910B-qwen3-cann8.3RC1-2511/level2/rank_0_ascend_pt")
    run = recorded(tmp_path, "qwen_ascend_pt")
    fusible = next(one for one in run.advisories if one.category == "Fusible Operator Analysis")
    assert "75 operator sequences" in fusible.description
    assert value(run, "fusion.sequences") == 59
    assert value(run, "fusion.sequence_share") == pytest.approx(0.034, abs=0.001)
    assert rules(run)["FA Operator Perf Analysis"].startswith(SOURCE)
