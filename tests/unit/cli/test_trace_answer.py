"""The first screen of recorded profiles answers five questions: operator, line, what holds the device up, overlap, changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from perfgate.cli.main import cli
from tests.samples import recorded

NO_LINES = "no lines: the recording has no Python functions; record with with_stack=True"
NO_COMMUNICATION, HOST_ALONE = "no communication", "the host alone was recorded: nothing overlaps with a device"
COMPARE = "changes: add --base OTHER, an earlier recording of the same program"
ALEXNET, HTA = "msinsight-910B-alexnet-2501/text", "cuda-hta"


class Screen(NamedTuple):
    """What the first screen has of each question; ``steps`` is empty where the recording marks fewer than two."""

    recording: str
    bound: str
    operator: str
    line: str
    overlap: str
    steps: str = ""


SCREENS = (
    Screen(
        f"{HTA}/a100_alexnet.json.gz",
        "host bound: the device is busy 0.5 % of 12.9 s",
        "ampere_sgemm_32x32_sliced1x4_tn: 2.62 ms, 4.0 % of the busy time, 6 ×, from aten::addmm",
        NO_LINES,
        "copies 55.5 ms, 0.0 % of it hidden by kernels",
    ),
    Screen(
        f"{HTA}/mi250_rocm62.json.gz",
        "host bound: the device is busy 1.7 % of 8.91 ms",
        "Cijk…MT64x16x32: 17.6 µs, 11.8 % of the busy time, 1 ×, from aten::addmm",
        NO_LINES,
        NO_COMMUNICATION,
        "2 steps of 196 µs and 9.18 ms; the longer is step 1",
    ),
    Screen(
        f"{HTA}/nccl_data.json.gz",
        "host bound: the device is busy 23.8 % of 661 ms",
        "cudnn::ops::nchwToNhwcKernel<…>: 12.6 ms, 8.0 % of the busy time, 474 ×, from aten::convolution_backward",
        NO_LINES,
        "communication 46.9 ms, 15.6 % of it hidden by computing",
        "3 steps of 222 ms, 220 ms to 225 ms; the longest is step 6",
    ),
    Screen(
        f"{HTA}/sampled_rank-0.json.gz",
        "29.7 % idle until the host launched, 27.6 % communication alone, 25.5 % idle with work in the queue, 17.2 % computing",
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function",
        NO_LINES,
        "communication 396 ms, 14.9 % of it hidden by computing",
        "2 steps of 603 ms and 623 ms; the longer is step 552",
    ),
    Screen(
        f"{HTA}/cpu_only_rank-34.json.gz",
        "nothing ran on a device",
        "aten::empty: 3.96 µs, 100 % of the host's self time, 4 ×",
        NO_LINES,
        HOST_ALONE,
    ),
    Screen(
        "cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz",
        "bound by computing: the device is busy 68.7 % of 876 ms",
        "cudnn::detail::dgrad_engine<…>: 80.7 ms, 13.4 % of the busy time, 162 ×, from aten::cudnn_convolution_backward_input",
        "idle 165 ms (18.8 %) in 5 gaps: enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, before Memcpy HtoD",
        NO_COMMUNICATION,
        "6 steps of 152 ms, 150 ms to 172 ms; the longest is step 16",
    ),
    Screen(
        "mstt-advisor/timeline_advice/trace_view.json.gz",
        "host bound: the device is busy 15.9 % of 11.3 ms",
        "TransData: 438 µs, 24.5 % of the busy time, 52 ×, from aclnnMm",
        NO_LINES,
        "copies 2.19 µs, 0.0 % of it hidden by kernels",
    ),
    Screen(
        f"{ALEXNET}/level1/rank0_ascend_pt",
        "bound by communication: the device is busy 79.1 % of 141 ms",
        "ForeachAddList: 1.96 ms, 1.8 % of the busy time, 3 ×, from aclnnForeachAddListV2 · main.py(375): train",
        "aten::linear · torch/nn/modules/linear.py(113): forward, before aclnnAddmm_MatMulCommon_MatMulV2",
        "communication 106 ms, 3.8 % of it hidden by computing",
    ),
    Screen(
        "cpu-torch2.13/cnn-infer-stack.pt.trace.json",
        "nothing ran on a device",
        "aten::mkldnn_convolution: 9.50 ms, 83.4 % of the host's self time, 3 ×",
        "from gen.py(7): forward",
        HOST_ALONE,
        "3 steps of 1.62 ms, 1.49 ms to 9.86 ms; the longest is step 4",
    ),
    Screen(
        "mstt-advisor/compute_advice/kernel_details.csv",
        "bound by communication: the device is busy 76.3 % of 517 ms",
        "MatMul: 14.1 ms, 3.6 % of the busy time, 9 ×",
        NO_LINES,
        "communication 346 ms, 0.3 % of it hidden by computing",
    ),
    Screen(
        "msinsight-910B-alexnet-2501/db/level1/rank0_ascend_pt",
        "bound by communication: the device is busy 80.9 % of 132 ms",
        "neither events nor a table of kernels or operators was collected",
        NO_LINES,
        "communication 102 ms, 4.0 % of it hidden by computing",
    ),
    Screen(
        "msinsight-910B-qwen3-cann8.3RC1-2511/level2/rank_0_ascend_pt",
        "bound by communication: the device is busy 80.4 % of 810 ms",
        "FlashAttentionScoreGrad: 63.1 ms, 9.7 % of the busy time, 28 ×",
        NO_LINES,
        "communication 420 ms, 0.0 % of it hidden by computing",
    ),
)


def first_screen(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["trace", "show", *map(str, arguments)], env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.recordings
@pytest.mark.parametrize("screen", SCREENS, ids=[Path(screen.recording).name for screen in SCREENS])
def test_show__recorded_profile__all_five_answers(screen: Screen) -> None:
    text = first_screen(recorded(*screen.recording.split("/")))
    missing = [answer for answer in screen[1:] if answer not in text]
    assert (missing, COMPARE in text) == ([], True)
    assert len(text.splitlines()) <= 18


@pytest.mark.recordings
def test_show__earlier_recording_given__what_changed() -> None:
    text = first_screen(
        recorded(*ALEXNET.split("/"), "level1", "rank0_ascend_pt"),
        "--base",
        recorded(*ALEXNET.split("/"), "level0", "rank0_ascend_pt"),
    )
    assert "changed since …/level0/rank0_ascend_pt, in one profiler step:" in text
    assert "slower hcom_allReduce_: +20.5 ms, from HcclAllreduce" in text
    assert "kernel +46.3 µs, copy −156 µs, communication +20.5 ms" in text


@pytest.mark.recordings
def test_show__parts__add_up_to_the_window() -> None:
    path = recorded(*HTA.split("/"), "sampled_rank-0.json.gz")
    document = json.loads(CliRunner().invoke(cli, ["trace", "show", str(path), "--json"]).stdout)
    (timeline,) = document["timelines"]
    assert sum(part["time"] for part in timeline["parts"]) == pytest.approx(timeline["gaps"]["window"], rel=1e-12)
    assert timeline["busy"] == pytest.approx(timeline["gaps"]["busy"], rel=1e-12)
    assert timeline["bound"] == timeline["parts"][0]["part"] == "host"


def served(path: Path, *, slowdown: int, kernel: str = "gemm") -> Path:
    """A batch of prefill and two of decode as SGLang marks them, each with two products of one line and a kernel of each."""
    host, events = {"ph": "X", "pid": 5, "tid": 5}, []
    on_device = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": kernel}
    for number, (name, begin) in enumerate(
        (("step[EXTEND bs=2 toks=64]", 0), ("step[DECODE bs=3]", 1000), ("step[DECODE bs=5]", 2000))
    ):
        events += [
            {**host, "cat": "user_annotation", "name": name, "ts": begin, "dur": 900},
            {**host, "cat": "python_function", "name": "model.py(7): forward", "ts": begin + 1, "dur": 800},
        ]
        for place, shape in enumerate(("[[64, 8], [8, 8]]", "[[3, 8], [8, 512]]")):
            at, launch = begin + 10 + 300 * place, {"correlation": 2 * number + place + 1}
            dims = {"Input Dims": json.loads(shape)}
            events += [
                {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 50 * slowdown, "args": dims},
                {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 1, "dur": 2, "args": launch},
                {**on_device, "ts": at + 10, "dur": 100, "args": {**launch, "device": 0, "stream": 7}},
            ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_show__batches_of_a_server__time_and_requests_of_each_phase(tmp_path: Path) -> None:
    text = first_screen(served(tmp_path / "a.pt.trace.json", slowdown=1))
    # Each has 200 of computing; a later batch begins where the one before ended on the device.
    assert "prefill: 1 step of 420 µs, 47.6 % of it computing, 2 requests at once" in text
    assert "decode: 2 steps of 1.00 ms, 20.0 % of it computing, 4 requests at once" in text


def test_show__changed_calls_of_one_line__told_apart_by_their_shapes(tmp_path: Path) -> None:
    base, head = (served(tmp_path / f"{side}.pt.trace.json", slowdown=side) for side in (1, 4))
    text = first_screen(head, "--base", base)
    assert "slower aten::mm: +450 µs, from [[64, 8], [8, 8]] · model.py:7" in text
    assert "slower aten::mm: +450 µs, from [[3, 8], [8, 512]] · model.py:7" in text


def test_show__another_kernel_beside_larger_changes_of_time__named_first(tmp_path: Path) -> None:
    base, head = tmp_path / "base.pt.trace.json", tmp_path / "head.pt.trace.json"
    text = first_screen(served(head, slowdown=4, kernel="gemm_tma"), "--base", served(base, slowdown=1), "--limit", "2")
    first, second = text.partition("in one whole recording:")[2].splitlines()[2:4]
    assert first.startswith("- replaced gemm → gemm_tma")
    assert second.startswith("- slower aten::mm: +450 µs")
