"""Step 1: latency and throughput."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import HARDWARE, QUANTILE

CARD = StepCard(
    number=1,
    slug="latency",
    title=Text("Latency and throughput", "时延与吞吐"),
    question=Text(
        "How long does one call take, how many items a second go through, and what does the first call cost?",
        "一次调用要多久，每秒能处理多少条数据，首次调用的代价有多大？",
    ),
    how=Text(
        "Calls are timed one by one, each waited for, after a steady state was detected; inputs "
        "rotate. Quantiles come with order-statistic intervals; one that the number of calls cannot "
        "support is reported as not estimable. Throughput is timed with several calls in flight, as "
        "the median of windows. Where the workload has traffic, or its SLA a rate, calls are also "
        "sent at that rate whether or not earlier ones are done, and their latency counts from when "
        "each was to start (label rate): a stall counts for all that had to wait. Their intervals "
        "allow for calls in one queue being alike.",
        "检测到稳态后逐次计时，每次调用都等待完成，输入轮换使用。分位数附带顺序统计量置信区间；调用次"
        "数不足以支撑的分位数标为不可估计。吞吐在多个调用同时在途时测量，取各时间窗的中位数。若 "
        "workload 给出 traffic，或其 SLA 给出 rate，则另按该速率开环发送调用（不等待先前的调用完成），"
        "时延从预定开始时刻算起（标签 rate）：一次卡顿会计入所有被迫等待的调用；其置信区间已考虑同一"
        "队列中调用之间的相关性。",
    ),
    remedy=Text(
        "A first call much slower than the rest is compilation or lazy loading: warm up before serving. A long "
        "tail on a quiet machine points to work that happens only in some calls: allocation, recompilation, other"
        " shapes.",
        "首次调用远慢于其余调用，说明存在编译或延迟加载：上线前先预热。机器空闲时仍有长尾，说明有些工"
        "作只在部分调用中发生：内存申请、重新编译、其他 shape。",
    ),
    cost=Text(
        "3 s quick, for all shapes together; 15 s a shape in full.",
        "quick 模式所有 shape 合计 3 s；完整模式每个 shape 15 s。",
    ),
    devices={
        "npu": Text(
            "Wall time of calls that each end with a synchronize of the NPU; torch_npu launches from a "
            "thread of its own, so that the host's share shows in the gap between calls.",
            "每次调用以 NPU 同步结束的墙钟时间；torch_npu 由独立线程下发，Host 侧的部分体现在调用间隙中。",
        ),
        "cuda": Text(
            "Wall time of calls that each end with a synchronize of the current stream.",
            "每次调用以当前 stream 同步结束的墙钟时间。",
        ),
        "cpu": Text(
            "Everything: a call returns when it is done, and CPU time is known beside wall time.",
            "全部指标：调用返回即已完成，除墙钟时间外还能得到 CPU 时间。",
        ),
    },
    metrics=(
        Metric(
            name="latency.low",
            title=Text("fast-path latency", "快速路径时延"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "The time of a call that nothing disturbed. It moves with the work a call does and hardly with "
                "what else the machine does, so it is the metric that decides first. Two processes that took "
                "turns are compared by the average of two logarithms: of their 10th percentiles, and of their "
                "fastest calls within each quad of blocks.",
                "未受干扰的一次调用的耗时。它随调用本身的工作量变化，几乎不受机器上其他负载影响，因此首先以它"
                "判定。两个轮流运行的进程按两个对数差的平均值比较：各自的第 10 百分位，以及每组四个时间块内最"
                "快的调用。",
            ),
            source="mean of the difference of log P10 and the median over quads of the difference of log minimum",
        ),
        Metric(
            name="latency.wall",
            title=Text("fast-path wall time", "快速路径墙钟时间"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Fast-path latency by the clock on the wall, shown where another clock decides: workers waited for more than "
                "2 % of the measured time for CPUs that other processes had, so CPU time or the device's own decides. What "
                "sleeps, or waits for a lock or a file, shows in the turnaround, which is without that waiting too.",
                "按墙钟计的快速路径时延，仅在由其他时钟判定时列出：worker 等待被其他进程占用的 CPU 超过测量时间的 2 %，"
                "故由 CPU 时间或设备时间判定。休眠、等锁或等文件体现在往返时间中，其中同样不含等待 CPU 的时间。",
            ),
            source="as fast-path latency",
        ),
        Metric(
            name="latency.p50",
            title=Text("P50 latency", "P50 时延"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("Half of the calls were faster than this.", "一半的调用比它快。"),
            source=QUANTILE,
        ),
        Metric(
            name="latency.p90",
            title=Text("P90 latency", "P90 时延"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("Nine of ten calls were faster than this.", "十次调用中有九次比它快。"),
            source=QUANTILE,
        ),
        Metric(
            name="latency.p99",
            title=Text("P99 latency", "P99 时延"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "99 of 100 calls were faster than this. It takes 662 calls until a bound on it does not hang on "
                "the single slowest one (MLPerf LoadGen's rule); with fewer it is reported as not estimable "
                "rather than guessed. The gate compares another number, which it calls P99 CPU time or P99 device time: on "
                "wall time a tail shows the neighbours of the machine more than the code. It is taken over as many pairs "
                "together as have 100 calls, and may lie below the P50 of the same calls, which is wall time.",
                "一百次调用中有九十九次比它快。至少 662 次调用，其上界才不取决于最慢的那一次（MLPerf LoadGen "
                "的规则）；次数不足时标为不可估计，不作猜测。门禁比较的是另一个数，称为 P99 CPU 时间或 P99 设备时间："
                "墙钟时间的尾部更多反映同机的其他负载；它把若干对进程合并到满 100 次调用再计算，可能低于同一批调用的 P50"
                "（墙钟时间）。",
            ),
            source=QUANTILE,
        ),
        Metric(
            name="latency.max",
            title=Text("slowest call", "最慢调用"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text("The slowest measured call.", "测得的最慢一次调用。"),
            source="maximum",
        ),
        Metric(
            name="latency.first_call",
            title=Text("first call", "首次调用"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "The first call after loading: lazy initialisation, compilation and allocation included.",
                "加载后的第一次调用：包含延迟初始化、编译和内存申请。",
            ),
            source="one call",
        ),
        Metric(
            name="latency.warm_up_calls",
            title=Text("warm-up calls", "预热调用次数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "How many calls passed before the steady state was detected.", "检测到稳态之前经过的调用次数。"
            ),
            source="three windows that agree",
        ),
        Metric(
            name="throughput.median",
            title=Text("throughput", "吞吐"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=1,
            explanation=Text(
                "Items per second with a bounded number of calls in flight: the median of windows of one second.",
                "在途调用数有上限时每秒处理的条数：各一秒时间窗的中位数。",
            ),
            source="completed items over window length",
        ),
        Metric(
            name="throughput.min",
            title=Text("lowest throughput", "最低吞吐"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=1,
            explanation=Text("The worst of the throughput windows.", "各吞吐时间窗中最差的一个。"),
            source="completed items over window length",
        ),
        Metric(
            name="throughput.gap",
            title=Text("gap between calls", "调用间隙"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Time that passes between the end of one call and the start of the next. A loss here lowers the "
                "throughput while every single call looks as fast as before.",
                "一次调用结束到下一次调用开始之间的时间。它变长会降低吞吐，而单次调用看上去和以前一样快。",
            ),
            source="10th percentile over blocks of (block length - sum of its calls) / calls",
        ),
        Metric(
            name="throughput.turnaround",
            title=Text("turnaround", "周转时间"),
            unit="s",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Seconds a call as the conductor sees them from outside, by its own clock: unrecorded calls, gaps"
                " and the collection of garbage included. Time that a change hides from the worker's clock shows "
                "here.",
                "调度进程用自己的时钟从外部看到的每次调用耗时：包含未计入的调用、间隙和垃圾回收。改动若把时间"
                "藏在 worker 时钟之外，会在这里显现。",
            ),
            source="mean logarithm of the 10th to 30th percentile over blocks of (request to reply) / (calls + 1)",
        ),
        Metric(
            name="hardware.instructions",
            title=Text("instructions", "指令数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Instructions that the processor executes in a call, in user space, all threads together. They hardly "
                "spread, so that half a percent more work shows where times are too noisy. They only inform where calls "
                "got faster, and where the host waits for a device, as waiting executes instructions too. Nothing is "
                "compared where the kernel does not count them, as in many virtual machines.",
                "处理器在一次调用中于用户态执行的指令数，所有线程合计。其波动极小，即使时间噪声太大，也能看出 0.5 % 的额外"
                "工作。若调用变快，或 Host 需等待设备（等待本身也会执行指令），则仅供参考。内核不提供该计数时（许多虚拟机如"
                "此）不作比较。",
            ),
            source=HARDWARE,
        ),
        Metric(
            name="hardware.cycles",
            title=Text("cycles", "周期数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Cycles that the processor takes for a call, in user space, all threads together: time without the clock's "
                "speed. They stand beside the instructions and inform.",
                "处理器在一次调用中于用户态所用的周期数，所有线程合计：不受频率影响的时间。列在指令数旁，仅供参考。",
            ),
            source=HARDWARE,
        ),
        Metric(
            name="hardware.cache_misses",
            title=Text("cache misses", "缓存未命中数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=1,
            explanation=Text(
                "Reads and writes of a call that the caches could not serve, mostly the last one's, as the processor defines "
                "it. They stand beside the instructions and inform.",
                "一次调用中缓存未能满足的读写次数，多指末级缓存，以处理器的定义为准。列在指令数旁，仅供参考。",
            ),
            source=HARDWARE,
        ),
    ),
    rules=(
        Rule(
            "latency.saturated",
            Text(
                "shape {shape} does not keep up with {rate} calls a second: the queue grows without end",
                "shape {shape} 跟不上每秒 {rate} 次调用：排队无限增长",
            ),
        ),
        Rule(
            "latency.steady_state",
            Text(
                "shape {shape} reached no steady state; its numbers are a best effort and may still drift",
                "shape {shape} 未达到稳态；其数值仅供参考，仍可能漂移",
            ),
        ),
        Rule("sla.p99", Text("the P99 latency of shape {shape} is above the SLA", "shape {shape} 的 P99 时延超出 SLA")),
        Rule(
            "sla.p99.near",
            Text(
                "the P99 latency of shape {shape} is above the SLA, but its interval still reaches below it",
                "shape {shape} 的 P99 时延超出 SLA，但其置信区间的下端仍低于 SLA",
            ),
        ),
        Rule(
            "sla.p99.few_calls",
            Text(
                "these calls are too few to show that shape {shape} keeps the SLA",
                "调用次数太少，不足以证明 shape {shape} 满足 SLA",
            ),
        ),
    ),
)
