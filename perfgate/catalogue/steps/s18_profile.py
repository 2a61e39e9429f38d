"""Step 18: deep profile."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import TRACE, own

_STACKS = Text(
    "the recorded trace: host calls by how they nest on their thread, device work by the call that launched it",
    "profiler 轨迹：Host 侧按线程内的嵌套关系，Device 侧按下发它的调用",
)

CARD = StepCard(
    number=18,
    slug="profile",
    title=Text("Deep profile", "深度剖析"),
    question=Text(
        "Is there a trace that can be trusted, and does it lead from each kernel back to the line that asked for it?",
        "是否留有可信的轨迹，能否从每个 kernel 追溯到发起它的代码？",
    ),
    how=Text(
        "The trace that step 4 kept is read again, or one is recorded: how much of the busy time has a known stack of the "
        "host, what the profiler lost, how large and deep it is. Plain and profiled calls take turns, and the ratio of their "
        "times is the profiler's overhead. flame.html draws the traces, in a check base beside head.",
        "读取第 4 步保留的轨迹（没有则录制一份）：有多少忙碌时间能对应到 Host 调用栈，profiler 丢了什么，轨迹多大、多深。"
        "普通调用与被 profiler 记录的调用交替进行，两者时间之比即 profiler 开销。flame.html 绘制这些轨迹的火焰图，"
        "在 check 中同时展示 base 与 head。",
    ),
    remedy=Text(
        "Little attributed: record with stacks, and let threads that launch work be started inside the profiled call. Lost "
        "events: profile fewer calls. High overhead: read shares from the trace, and times from step 1.",
        "归因比例低：录制时打开调用栈（with_stack），并让下发任务的线程在被记录的调用内启动。丢失事件：减少被记录的调用次数。"
        "开销高：从轨迹读占比，从第 1 步读时延。",
    ),
    cost=Text(
        "1 s quick and 3 s in full on a CPU; 5 to 9 s on an NPU, where msprof analyses two more recordings.",
        "CPU 上 quick 模式 1 s，完整模式 3 s；NPU 上 5～9 s，因 msprof 还要解析另外两份录制。",
    ),
    devices={
        "npu": Text(
            "torch_npu.profiler: kernels, copies and collectives under the operator and the Python function that enqueued "
            "them, also where the task queue launched them from a thread of its own.",
            "torch_npu.profiler：kernel、拷贝与集合通信归到把它们入队的算子和 Python 函数之下，"
            "经任务队列由另一线程下发的也是如此。",
        ),
        "cuda": Text(
            "torch.profiler: kernels under the runtime call that launched them, joined by correlation.",
            "torch.profiler：kernel 按 correlation 归到下发它的 runtime 调用之下。",
        ),
        "cpu": Text(
            "torch.profiler: operators under the Python functions that called them.",
            "torch.profiler：算子归到调用它的 Python 函数之下。",
        ),
    },
    metrics=(
        Metric(
            name="profile.attributed",
            title=Text("attributed share", "可归因占比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=18,
            explanation=Text(
                "Share of the busy time with a known stack of the host: kernels under the operator that launched them, on a "
                "CPU operators under the Python function that called them.",
                "忙碌时间中能对应到 Host 调用栈的比例：kernel 对应下发它的算子；CPU 上为算子对应调用它的 Python 函数。",
            ),
            source=_STACKS,
            share=True,
        ),
        Metric(
            name="profile.overhead",
            title=Text("profiler overhead", "profiler 开销"),
            unit="1",
            better="lower",
            kind="noisy",
            step=18,
            explanation=Text(
                "Time of a call under the profiler over the time of a plain one; 1.3 is 30 % more.",
                "被 profiler 记录的一次调用与普通调用的时间之比；1.3 即多 30 %。",
            ),
            source=Text(
                "medians of plain and profiled calls that take turns", "普通与被记录的调用交替进行，取中位数之比"
            ),
        ),
        Metric(
            name="profile.lost_events",
            title=Text("lost events", "丢失的事件"),
            unit="1",
            better="lower",
            kind="noisy",
            step=18,
            explanation=Text(
                "Device work whose launch is missing although launches were recorded, and calls of the host without their end.",
                "记录了下发信息却找不到其下发调用的 Device 任务，以及缺少结束标记的 Host 调用。",
            ),
            source=TRACE,
        ),
        Metric(
            name="profile.events",
            title=Text("events per call", "每次调用的事件数"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=18,
            explanation=Text(
                "Calls and device work that one traced call shows.",
                "一次被记录的调用中出现的 Host 调用与 Device 任务数。",
            ),
            source=TRACE,
        ),
        Metric(
            name="profile.depth",
            title=Text("stack depth", "调用栈深度"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=18,
            explanation=Text(
                "How many calls lie in one another at most, device work included.",
                "调用嵌套的最大层数，含 Device 任务。",
            ),
            source=_STACKS,
        ),
        Metric(
            name="profile.size",
            title=Text("trace size", "轨迹大小"),
            unit="B",
            better="neutral",
            kind="noisy",
            step=18,
            explanation=Text("Bytes of the trace as it is kept.", "保留的轨迹文件字节数。"),
            source=TRACE,
        ),
    ),
    limits=(
        Limit(
            "profile.attributed.warning",
            0.9,
            own("a table that lacks a tenth of the time names the wrong operators", "缺失十分之一耗时的表会指错算子"),
        ),
        Limit(
            "profile.overhead.info",
            1.1,
            own("a call a tenth slower under the profiler is another call", "在 profiler 下慢十分之一的调用已非原调用"),
        ),
        Limit("profile.lost_events.warning", 0.0, own("a trace is whole or it is not", "轨迹或完整或不完整")),
    ),
    rules=(
        Rule(
            "profile.attributed",
            Text(
                "much of the busy time has no known stack: the trace does not say which code asked for it",
                "相当一部分忙碌时间没有对应的调用栈，轨迹无法说明是哪段代码发起的",
            ),
        ),
        Rule(
            "profile.overhead",
            Text(
                "calls take longer under the profiler: compare times of the trace with each other, not with measured ones",
                "profiler 使调用明显变慢：轨迹中的时间只能相互比较，不能与实测时延比较",
            ),
        ),
        Rule(
            "profile.lost_events",
            Text(
                "the profiler lost events, so what the trace does not show may have happened all the same",
                "profiler 丢失了事件，轨迹中没有的不代表没有发生",
            ),
        ),
    ),
)
