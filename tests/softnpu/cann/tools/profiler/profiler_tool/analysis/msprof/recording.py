"""What the software NPU recorded between start and stop of a profile, and the names CANN would give it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# aclprofCreateConfig's data types (acl_prof.h of the wheel).
TASK_TIME, L2_CACHE = 0x2, 0x10

CUBE_CORES, VECTOR_CORES = 20, 40  # of an Ascend910B3
HOST_CALLS = {"aclrtMemcpy"}  # no task of the device
COPY_TASKS = {"MemcpyH2D": "PCIE_DMA_SQE", "MemcpyD2H": "PCIE_DMA_SQE", "MemcpyD2D": "SDMA_SQE", "Memset": "SDMA_SQE"}

# What CANN calls the kernel of an API: its stage and operator type. Rows with a stage of their own and most types are
# as kernel_details.csv of an Ascend910B with CANN 8 shows them; what is not listed is named after the API.
KERNELS = {
    "Mm": ("MatMulCommon", "MatMulV2"),
    "Addmm": ("MatMulCommon", "MatMulV2"),
    "Matmul": ("MatMulCommon", "MatMulV2"),
    "BatchMatMul": ("BatchMatMulNd", "BatchMatMulV2"),
    "Baddbmm": ("BatchMatMulNd", "BatchMatMulV2"),
    "Convolution": ("Conv2d5HdFp16", "Conv2D"),
    "ConvolutionBackward": ("Conv2DBackpropInput", "Conv2DBackpropInputD"),
    "FlashAttentionScore": ("FlashAttentionScore", "FlashAttentionScore"),
    "FlashAttentionScoreGrad": ("FlashAttentionScoreGrad", "FlashAttentionScoreGrad"),
    "InplaceCopy": ("TensorMoveAiCore", "TensorMove"),
    "Contiguous": ("TensorMoveAiCore", "TensorMove"),
    "InplaceRelu": ("Relu", "Relu"),
    "ThresholdBackward": ("ReluGrad", "ReluGrad"),
    "InplaceFillScalar": ("FillAiCore", "Fill"),
    "InplaceZero": ("ZerosLikeAiCore", "ZerosLike"),
    "InplaceOne": ("OnesLikeAiCore", "OnesLike"),
    "Adds": ("AddAiCore", "Add"),
    "InplaceAdds": ("AddAiCore", "Add"),
    "Subs": ("SubAiCore", "Sub"),
    "InplaceSubs": ("SubAiCore", "Sub"),
    "Muls": ("MulAiCore", "Mul"),
    "InplaceMuls": ("MulAiCore", "Mul"),
    "Div": ("RealDivAiCore", "RealDiv"),
    "Divs": ("RealDivAiCore", "RealDiv"),
    "InplaceDivs": ("RealDivAiCore", "RealDiv"),
    "Softmax": ("SoftmaxAiCore", "SoftmaxV2"),
    "LogSoftmax": ("LogSoftmaxAiCore", "LogSoftmaxV2"),
    "LogSoftmaxBackward": ("LogSoftmaxGrad", "LogSoftmaxGrad"),
    "LayerNorm": ("LayerNormV3WithImplMode", "LayerNormV3"),
    "LayerNormBackward": ("LayerNormGradV3", "LayerNormGradV3"),
    "ReduceSum": ("ReduceSumOpAiCore", "ReduceSum"),
    "Mean": ("ReduceMeanAiCore", "ReduceMean"),
    "Embedding": ("GatherV2AiCore", "GatherV2"),
    "Cat": ("ConcatD", "ConcatD"),
    "MaxPool2dWithMask": ("MaxPoolWithArgmaxV1AiCore", "MaxPoolWithArgmaxV1"),
    "MaxPool2dWithMaskBackward": ("MaxPoolGradWithArgmaxV1AiCore", "MaxPoolGradWithArgmaxV1"),
    "AdaptiveAvgPool2d": ("AdaptiveAvgPool3dAiCore", "AdaptiveAvgPool3d"),
    "AdaptiveAvgPool2dBackward": ("AdaptiveAvgPool3dGradAiCore", "AdaptiveAvgPool3dGrad"),
    "NLLLossBackward": ("NLLLossGradAiCore", "NLLLossGrad"),
    "EqTensor": ("EqualAiCore", "Equal"),
}
CUBE_TYPES = {"MatMulV2", "BatchMatMulV2", "Conv2D", "Conv2DBackpropInputD"}
MIXED_TYPES = {"FlashAttentionScore": "MIX_AIC", "FlashAttentionScoreGrad": "MIX_AIC", "ReduceSum": "MIX_AIV"}


@dataclass(frozen=True)
class Side:
    """The tensors a task reads or writes."""

    shapes: str
    types: str
    formats: str


@dataclass(frozen=True)
class Link:
    """What a collective or message moved; times in ns of the recording's clock."""

    group: str
    ranks: int
    rank: int
    bytes: int
    peer: int  # -1: everyone
    waited_ns: int


@dataclass(frozen=True)
class Task:
    """One task of the device; times in ns of CLOCK_MONOTONIC_RAW."""

    index: int
    api: str
    stream: int
    thread: int
    launch_begin: int
    launch_end: int
    begin: int
    end: int
    inputs: Side
    outputs: Side
    link: Link | None

    @property
    def is_copy(self) -> bool:
        return self.api in COPY_TASKS

    @property
    def is_kernel(self) -> bool:
        return not self.is_copy and self.link is None

    @cached_property
    def type(self) -> str:
        if self.api.startswith("trans_"):
            return self.api.split("_")[1]
        return KERNELS.get(self._operator, (None, self._operator.removeprefix("Inplace")))[1]

    @cached_property
    def name(self) -> str:
        if self.is_copy:
            return "Memset" if self.api == "Memset" else "MEMCPY_ASYNC"
        if self.link is not None:
            # hcom_allReduce__586_0_1: the last digits of the group, the number in it, the stream's number
            return f"{self.api}_{int(self.link.group.split('_')[-1], 16) % 1000}_{self.index}_1"
        if not self.api.startswith("aclnn"):
            return self.api
        stage = KERNELS.get(self._operator, (f"{self.type}AiCore",))[0]
        return f"{self.api}_{stage}_{self.type}"

    @property
    def core(self) -> str:
        """The value of Task Type: where the task ran."""
        if self.is_copy:
            return COPY_TASKS[self.api]
        if self.link is not None:
            return "COMMUNICATION"
        return MIXED_TYPES.get(self.type, "AI_CORE" if self.type in CUBE_TYPES else "AI_VECTOR_CORE")

    @property
    def uses_cube(self) -> bool:
        return self.core in ("AI_CORE", "MIX_AIC")

    @property
    def cores(self) -> int:
        return CUBE_CORES if self.uses_cube else VECTOR_CORES

    @property
    def duration_us(self) -> float:
        return (self.end - self.begin) / 1000

    @property
    def _operator(self) -> str:
        return self.api.removeprefix("aclnn")


@dataclass(frozen=True)
class Recording:
    """One PROF_* folder."""

    folder: Path
    device: int
    process: int
    data_types: int
    metrics: int
    offset_ns: int  # wall clock less CLOCK_MONOTONIC_RAW
    tasks: list[Task]
    calls: list[Task]  # that worked on the host alone

    @property
    def has_operators(self) -> bool:
        """Whether names and shapes were asked for: Level1 and above."""
        return bool(self.data_types & TASK_TIME)

    @property
    def has_l2_cache(self) -> bool:
        return bool(self.data_types & L2_CACHE)

    def wall_us(self, ns: int) -> str:
        """Word a time as msprof does: microseconds of the wall clock with three decimals."""
        ns += self.offset_ns
        return f"{ns // 1000}.{ns % 1000:03d}"


def read(folder: Path) -> Recording:
    """Read the raw file of the first device that has tasks."""
    start = ast.literal_eval((folder / "host" / "start_info").read_text())
    raw = max(folder.glob("device_*/data/softnpu.tsv"), key=lambda path: path.stat().st_size)
    first, *rows = raw.read_text().splitlines()
    _, data_types, metrics, process = first.split("\t")
    ordered = sorted((task(row.split("\t")) for row in rows), key=lambda one: one["begin"])
    tasks = [Task(index=index, **fields) for index, fields in enumerate(ordered)]
    return Recording(
        folder=folder,
        device=int(raw.parts[-3].removeprefix("device_")),
        process=int(process),
        data_types=int(data_types),
        metrics=int(metrics),
        offset_ns=int(start["collectionTimeBegin"]) * 1000 - int(start["clockMonotonicRaw"]),
        tasks=[one for one in tasks if one.api not in HOST_CALLS],
        calls=[one for one in tasks if one.api in HOST_CALLS],
    )


def task(cells: list[str]) -> dict:
    """Return the fields of one row."""
    api, *numbers = cells[:7]
    stream, thread, launch_begin, launch_end, begin, end = map(int, numbers)
    group, *link = cells[13].split(";")
    return {
        "api": api,
        "stream": stream,
        "thread": thread,
        "launch_begin": launch_begin,
        "launch_end": max(launch_end, launch_begin + 1),
        "begin": begin,
        "end": max(end, begin + 1),
        "inputs": Side(*cells[7:10]),
        "outputs": Side(*cells[10:13]),
        "link": Link(group, *map(int, link)) if link else None,
    }
