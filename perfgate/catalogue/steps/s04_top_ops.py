"""Step 4: operators that take the most time."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import CHECKLIST, CI_CHECK, DISPATCH, TRACE, own

CARD = StepCard(
    number=4,
    slug="top_ops",
    title=Text("Operators that take the most time", "耗时最多的算子"),
    question=Text(
        "Which operators take the time, and how often does one call dispatch them?",
        "时间花在哪些算子上，一次调用分发它们多少次？",
    ),
    how=Text(
        "Self time by operator in a recorded trace of steady calls; counters come from single calls, repeated, "
        "and count as exact only when every repetition gave the same number. A single run that takes too long is "
        "named, and so is a kernel that [expect] kernels in perfgate.toml asks for and that never ran.",
        "在稳态调用的轨迹中按算子统计自身耗时；计数取自重复的单次调用，每次重复结果都一致才视为精确。单次执行过长的 kernel "
        "会被指出，perfgate.toml 的 [expect] kernels 要求却未运行的 kernel 也会被指出。",
    ),
    remedy=Text(
        "Copies and reshapes near the top are layout changes: keep one layout through the model. Many calls of "
        "one small operator are a loop: do it once on the whole tensor.",
        "拷贝和 reshape 排在前列说明存在布局变化：整个模型保持一种布局。同一小算子被大量调用说明有循"
        "环：改为对整个张量执行一次。",
    ),
    cost=Text(
        "1.2 s a shape quick and 3 s in full; where no step before it did, it records the trace that later steps look at "
        "too, which takes seconds more on an NPU.",
        "每个 shape quick 模式 1.2 s，完整模式 3 s；若之前的步骤尚未录制，则由本步录制供后续步骤共用的轨迹，NPU 上另需数秒。",
    ),
    devices={
        "npu": Text(
            "Kernels by type (MatMulV2, TransData) from torch_npu.profiler at Level1; operators that "
            "torch_npu runs on the host because the NPU has none, with their line.",
            "torch_npu.profiler Level1 给出的按类型统计的 kernel（MatMulV2、TransData）；NPU 未实现而由 "
            "torch_npu 回退到 Host 的算子及其代码行。",
        ),
        "cuda": Text("Kernels by name from torch.profiler.", "torch.profiler 给出的按名称统计的 kernel。"),
        "cpu": Text("Framework operators by self time from torch.profiler.", "torch.profiler 给出的框架算子自身耗时。"),
    },
    metrics=(
        Metric(
            name="ops.coverage",
            title=Text("attributed share", "归因占比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=4,
            explanation=Text("Share of the busy time that the operator table explains.", "算子表所能解释的忙时占比。"),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="ops.share",
            title=Text("share of an op class", "某类算子占比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=4,
            explanation=Text(
                "Share of the busy time spent in one class of operators, collectives apart.",
                "某一类算子占忙时的比例，不含集合通信。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="ops.time",
            title=Text("operator time", "算子耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=4,
            explanation=Text("Self time of one operator per call.", "一次调用中单个算子的自身耗时。"),
            source=TRACE,
        ),
        Metric(
            name="ops.kernel_time",
            title=Text("longest single run of a kernel", "单次执行最长的 kernel 耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=4,
            explanation=Text(
                "The longest single run of an operator or kernel in a typical call, without the operators inside it; "
                "collectives, which mostly wait, do not count.",
                "典型的一次调用中单个算子或 kernel 单次执行的最长耗时，不含其内部的算子；集合通信大多在等待，不计入。",
            ),
            source=TRACE,
        ),
        Metric(
            name="ops.expected_kernels",
            title=Text("expected kernels", "期望的 kernel"),
            unit="1",
            better="higher",
            kind="exact",
            step=4,
            explanation=Text(
                "How many of the patterns of [expect] kernels in perfgate.toml fit a kernel or operator that ran.",
                "perfgate.toml 的 [expect] kernels 中有多少个模式与运行过的 kernel 或算子相符。",
            ),
            source=TRACE,
        ),
        Metric(
            name="kernels.time",
            title=Text("time of all kernels", "全部 kernel 耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=4,
            explanation=Text(
                "Of a recording: the time of all kernels in a step on the device, those of collectives apart. Two recordings "
                "are compared by it from three steps a side on.",
                "对录制数据：一个 step 内设备上所有 kernel 的耗时之和，不含集合通信。两侧各有三个及以上 step 时才作比较。",
            ),
            source="the profiler's table of kernels, else its timeline of the device",
        ),
        Metric(
            name="kernels.mac_time",
            title=Text("matrix unit time of an operator", "算子的矩阵单元耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=4,
            explanation=Text(
                "Of a recording: how long the matrix units of the cores computed in a step, by operator and shape of its "
                "inputs, as the hardware counted. What moves data or waits is not in it, so it repeats.",
                "对录制数据：一个 step 内各核矩阵单元的计算时间，按算子与输入 shape 统计，由硬件计数。"
                "不含搬运与等待，因此可重复。",
            ),
            source="aic_mac_time of kernel_details.csv (AiCMetrics.PipeUtilization)",
        ),
        Metric(
            name="kernels.vec_time",
            title=Text("vector unit time of an operator", "算子的向量单元耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=4,
            explanation=Text(
                "Of a recording: how long the vector units of the cores computed in a step, by operator and shape of its "
                "inputs, as the hardware counted.",
                "对录制数据：一个 step 内各核向量单元的计算时间，按算子与输入 shape 统计，由硬件计数。",
            ),
            source="aiv_vec_time of kernel_details.csv (AiCMetrics.PipeUtilization)",
        ),
        Metric(
            name="counters.fallbacks",
            title=Text("ops run on the host per call", "每次调用回退到 Host 的算子数"),
            unit="1",
            better="lower",
            kind="exact",
            step=4,
            explanation=Text(
                "Framework operators that the device has no kernel for, so that their inputs go to the host, and "
                "their results back, in every call.",
                "设备上没有实现的框架算子：每次调用都要把输入送到 Host、再把结果送回设备。",
            ),
            source="the framework's own warnings, and " + DISPATCH,
        ),
    ),
    limits=(
        Limit(
            "ops.coverage.warning",
            0.98,
            own("shares are of what is shown, so nearly all has to be", "占比以可见部分为准，因此须近乎完整"),
        ),
        Limit("ops.share.conv_matmul.info", 0.6, CHECKLIST),
        Limit("ops.share.copy.severe", 0.3, CHECKLIST),
        Limit("ops.share.reshape.warning", 0.2, CHECKLIST),
        Limit("ops.share.softmax.warning", 0.15, CHECKLIST),
        Limit("ops.kernel_time.warning", 0.05, CI_CHECK),
    ),
    rules=(
        Rule(
            "ops.coverage",
            Text(
                "much of the time is spread over so many operators that the table does not explain it",
                "时间分散在过多算子上，算子表无法解释",
            ),
        ),
        Rule(
            "ops.share.conv_matmul",
            Text(
                "convolutions and matrix products take most of the time, as they should",
                "卷积和矩阵乘占了大部分时间，符合预期",
            ),
        ),
        Rule("ops.share.copy", Text("copies of data take much of the time", "数据拷贝占用了大量时间")),
        Rule(
            "ops.share.reshape",
            Text("operators that only rearrange dimensions take much of the time", "只做维度重排的算子占用了大量时间"),
        ),
        Rule("ops.share.softmax", Text("softmax takes much of the time", "softmax 占用了大量时间")),
        Rule(
            "ops.kernel_time",
            Text(
                "one run of {op} alone takes longer than a single kernel may",
                "{op} 单次执行的耗时就超出了单个 kernel 的限值",
            ),
        ),
        Rule(
            "ops.missing_kernel",
            Text(
                "no kernel named {kernel} ran, as perfgate.toml expects; names nearest to it: {nearest}",
                "perfgate.toml 期望的 kernel {kernel} 没有运行；名称最接近的有：{nearest}",
            ),
        ),
        Rule(
            "ops.fallback",
            Text(
                "the device has no kernel for this operator: its inputs go to the host and its results back, "
                "in every call",
                "设备没有该算子的实现：每次调用都要把输入送到 Host，再把结果送回设备",
            ),
        ),
        Rule(
            "counters.unstable",
            Text(
                "these counters differ between calls on inputs of one shape, so they are not compared exactly",
                "同一 shape 的输入下这些计数在各次调用间不一致，因此不作精确比较",
            ),
        ),
    ),
)
