"""Step 12: small operators."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, INTERPRETER, TRACE, own

_LAYERS = Text(
    "more than the layers of most models, so that a line in a layer does not look like a loop",
    "多于大多数模型的层数，使层内的一行代码不会被当成循环",
)

CARD = StepCard(
    number=12,
    slug="small_ops",
    title=Text("Small operators", "小算子"),
    question=Text(
        "How many launches does a call take, how short are they, and does the host keep the device's queue filled?",
        "一次调用要下发多少次，每次有多短，Host 能否让设备队列一直不空？",
    ),
    how=Text(
        "A short trace gives the kernels of a call and how long they run. Without the profiler, the time until a call "
        "into an empty queue returns is taken, and divided by the time in which its kernels run: the launch-bound "
        "index. One more call is watched operator by operator, to find those that one line dispatches again and again.",
        "用一段短轨迹得到一次调用的 kernel 及其时长。不开 profiler 时，测出向空队列下发一次调用所需的时间，除以其 kernel "
        "的运行时间，即下发瓶颈指数。再逐算子观察一次调用，找出同一行代码反复分发的算子。",
    ),
    remedy=Text(
        "Do a loop of small operators as one operator on the whole tensor. Fuse chains of elementwise operators, or "
        "run the model in graph mode (torch.compile with torchair, NPUGraph, CUDA graphs), so that a call is one "
        "launch. Where none of that is possible, raise the batch: kernels get longer and launches do not.",
        "把小算子循环改成对整个张量的一个算子；把逐元素算子链融合，或改用图模式（torch.compile 配 torchair、NPUGraph、"
        "CUDA Graph），一次调用只下发一次。都做不到时增大 batch：kernel 变长，下发次数不变。",
    ),
    cost=Text(
        "1 to 1.5 s a shape quick, 6 s in full; on an NPU seconds more where no earlier step has recorded the trace.",
        "quick 模式每个 shape 1～1.5 s，完整模式 6 s；NPU 上若之前的步骤尚未录制轨迹，另需数秒。",
    ),
    devices={
        "npu": Text(
            "Kernels with their durations and pauses, Node@launch time from the host's calls, the launch-bound index "
            "with the task queue as it is set.",
            "kernel 的时长与间隙，Host 侧 Node@launch 耗时，以及当前任务队列设置下的下发瓶颈指数。",
        ),
        "cuda": Text(
            "Kernels with their durations and pauses, the time in cudaLaunchKernel, the launch-bound index.",
            "kernel 的时长与间隙，cudaLaunchKernel 耗时，以及下发瓶颈指数。",
        ),
        "cpu": Text(
            "Operators as they are dispatched, the share of short ones, and loops. A call on a CPU returns when it is "
            "done, so there is no launch-bound index.",
            "实际分发的算子、其中短算子的占比，以及小算子循环。CPU 上调用返回即已完成，因此没有下发瓶颈指数。",
        ),
    },
    metrics=(
        Metric(
            name="small_ops.launches",
            title=Text("launches per call", "每次调用的下发次数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=12,
            explanation=Text(
                "Kernels in one traced call, those of collectives and copies apart; on a CPU, operators that are no "
                "views and lie in no other.",
                "轨迹中一次调用的 kernel 数，不含集合通信和拷贝；CPU 上是非视图、且不在其他算子之内的算子数。",
            ),
            source=TRACE,
        ),
        Metric(
            name="small_ops.short_share",
            title=Text("short launches", "短 kernel 数量占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=12,
            explanation=Text(
                "How many of the launches run for less than the limit small_ops.short, 10 us.",
                "运行时间短于限值 small_ops.short（10 us）的下发所占的比例。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="small_ops.time_share",
            title=Text("time in short launches", "短 kernel 耗时占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=12,
            explanation=Text(
                "Which part of the time of all launches is that of the short ones.",
                "短 kernel 的耗时占全部 kernel 耗时的比例。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="small_ops.gap",
            title=Text("mean gap between launches", "kernel 间平均间隙"),
            unit="s",
            better="lower",
            kind="noisy",
            step=12,
            explanation=Text(
                "Seconds in which nothing ran on the device between the first and the last of a call's kernels, over "
                "the number of pauses. The profiler slows launching, so without it the gaps are shorter.",
                "一次调用的首个与最后一个 kernel 之间设备无任务的秒数，除以间隙个数。profiler 会拖慢下发，不开时间隙更短。",
            ),
            source="complement of the union of everything that ran, from " + TRACE,
        ),
        Metric(
            name="small_ops.launch_time",
            title=Text("host time in launches", "Host 下发耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=12,
            explanation=Text(
                "Seconds of one call that the host spends in the runtime's launch calls, under the profiler.",
                "一次调用中 Host 花在运行时下发接口上的秒数，开着 profiler。",
            ),
            source="Node@launch of api_statistic.csv, or the runtime's launch calls in the trace",
        ),
        Metric(
            name="small_ops.launch_bound",
            title=Text("launch-bound index", "下发瓶颈指数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=12,
            explanation=Text(
                "Time in which the host puts one call into an empty queue, over the time in which kernels of one call "
                "run. From 1 on the device waits for the host in every call, however fast its kernels are.",
                "Host 把一次调用放入空队列的时间，除以一次调用的 kernel 运行时间。达到 1 以后，无论 kernel 多快，设备每次调用"
                "都要等 Host。",
            ),
            source="host clock around calls that are not waited for, over the union of kernels in " + TRACE,
        ),
        Metric(
            name="counters.framework_ops",
            title=Text("framework ops per call", "每次调用的框架算子数"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "How many framework operators with work to do one call dispatches. Each costs a launch; a loop of"
                " small ops shows here first. Views (transpose, slice, reshape without a copy) launch nothing and"
                "are not counted.",
                "一次调用分发了多少个真正干活的框架算子。每个都要下发一次，小算子循环首先在这里显现。视图类操作（transpose、slice、"
                "不产生拷贝的 reshape）不下发任何任务，不计入。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="counters.flops",
            title=Text("floating-point operations per call", "每次调用的浮点运算次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "Arithmetic of the matrix products, convolutions and attention of one call, by torch's own formulas: a wider "
                "layer or a longer sequence shows, however fast it is computed.",
                "一次调用中矩阵乘、卷积和注意力的运算量，按 torch 自身公式计算：层变宽或序列变长都会显现，与计算快慢无关。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="counters.python_calls",
            title=Text("Python calls per call", "每次调用的 Python 函数调用数"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "Python functions that one call of the workload calls in its own thread, torch's among them. A forward hook or "
                "a wrapper around every layer shows without a clock. Up to 20 more are no regression.",
                "一次调用在其所在线程中调用的 Python 函数数，含 torch 自身的函数。前向钩子或逐层包装无需计时即可看出。"
                "增加不超过 20 个不算退化。",
            ),
            source=INTERPRETER,
        ),
        Metric(
            name="counters.bytecodes",
            title=Text("Python bytecodes per call", "每次调用的 Python 字节码数"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "Bytecodes that one call of the workload executes in its own thread, some 30 ns each: a loop in Python, a deep "
                "copy of a configuration, a log record. Up to 300 more are no regression. Not counted from a million on.",
                "一次调用在其所在线程中执行的字节码数，每条约 30 ns：Python 循环、配置深拷贝、日志记录。"
                "增加不超过 300 条不算退化，超过一百万条则不计。",
            ),
            source=INTERPRETER,
        ),
        Metric(
            name="counters.kernels",
            title=Text("kernel launches per call", "每次调用的 kernel 下发数"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "How many kernels one call runs on the device, those of collectives apart. Each costs a launch "
                "and a gap. Only where the profiler shows them.",
                "一次调用在设备上运行多少个 kernel，不含集合通信。每个都有下发开销和间隙。仅在 profiler 能显示时才有。",
            ),
            source=TRACE,
        ),
        Metric(
            name="counters.recorded_ops",
            title=Text("recorded framework ops per step", "每个 step 录到的框架算子数"),
            unit="1",
            better="lower",
            kind="exact",
            step=12,
            explanation=Text(
                "Framework operators in one step of a recording of a CPU, views and operators inside operators "
                "included. Only of recordings made elsewhere, in which nothing else can be counted.",
                "CPU 录制数据中一个 step 的框架算子数，含视图和算子内部的算子。仅用于他处录制、无法另行计数的数据。",
            ),
            source=TRACE,
        ),
    ),
    limits=(
        Limit(
            "small_ops.short",
            10e-6,
            own("about what launching one kernel takes a host", "约为 Host 下发一个 kernel 的耗时"),
        ),
        Limit("small_ops.time_share.warning", 0.5, own("half of the time", "一半耗时")),
        Limit(
            "small_ops.launch_bound.warning",
            0.7,
            own("seven tenths of the way to a device that waits", "距设备等待已过七成"),
        ),
        Limit(
            "small_ops.launch_bound.severe",
            1.0,
            own("from 1 on launching takes longer than the work", "达到 1 时下发比执行更久"),
        ),
        Limit("small_ops.loop.warning", 50, _LAYERS),
    ),
    rules=(
        Rule(
            "small_ops.time_share",
            Text(
                "most of the time goes to work so short that launching it costs as much: {short} of {launches} "
                "launches in a call are short",
                "大部分时间花在短得与下发开销相当的算子上：一次调用 {launches} 次下发中有 {short} 次是短的",
            ),
        ),
        Rule(
            "small_ops.launch_bound",
            Text(
                "the host needs about as long for the {launches} launches of a call as the device for running them",
                "Host 完成一次调用的 {launches} 次下发所需的时间，与设备执行它们的时间相当或更长",
            ),
        ),
        Rule(
            "small_ops.loop",
            Text(
                "one line dispatches {op} {count} times in one call, each time on little data",
                "同一行代码在一次调用中分发了 {count} 次 {op}，每次数据量都很小",
            ),
        ),
    ),
)
