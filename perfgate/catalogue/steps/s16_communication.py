"""Step 16: communication between devices."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_UTILIZATION, DISPATCH, TRACE

_JOB = "torch.distributed over torchrun, the slowest rank of each repetition, results checked"
_RECORDED = (
    "communication.json and step_trace_time.csv of torch_npu.profiler, or the collectives on the device's timeline"
)

CARD = StepCard(
    number=16,
    slug="communication",
    title=Text("Communication between devices", "设备间通信"),
    question=Text(
        "How fast do the devices of this machine exchange data, how much of it hides behind computing, and which rank do the "
        "others wait for?",
        "本机各设备之间交换数据有多快，其中多少被计算掩盖，其他 rank 在等哪一个？",
    ),
    how=Text(
        "A job of several processes runs all-reduce, all-gather and reduce-scatter from 1 KiB on, each size four times the one "
        "before. A repetition takes as long as its slowest rank; results are checked. Bus bandwidth is size / time x 2(n-1)/n "
        "for all-reduce and (n-1)/n for the others, as nccl-tests has it. time = start-up + size / bandwidth is fitted so that "
        "a wild size hardly counts. Ranks that do the same work and then meet show who comes last. How much of the "
        "communication hides behind computing is read from a trace, where the workload itself communicates.",
        "由多个进程组成的作业依次执行 all-reduce、all-gather、reduce-scatter，数据量从 1 KiB 起每次乘以 4。一次重复以最慢的"
        " rank 为准，并校验结果。总线带宽按 nccl-tests 计算：数据量 / 时间 × 2(n−1)/n（all-reduce）或 (n−1)/n（其余）。"
        "对 时间 = 启动开销 + 数据量 / 带宽 做稳健拟合，个别异常点几乎不影响结果。各 rank 做同样的工作后汇合，可看出"
        "谁最后到达。若负载自身有通信，则从轨迹中读取被计算掩盖的比例。",
    ),
    remedy=Text(
        "Little bandwidth on large messages: look at the links (npu-smi info -t topo, nvidia-smi topo -m) and at which of them "
        "the backend uses. Many small messages: put them into buckets, as DDP does, because each pays the start-up. Exposed "
        "communication: begin it while something is still computed (async_op=True, DDP's buckets, prefetching of FSDP). A rank "
        "that is always last: look at its clock, its input and its share of the work.",
        "大消息带宽低：检查链路（npu-smi info -t topo、nvidia-smi topo -m）以及后端实际使用的链路。小消息过多：像 DDP 那样"
        "合并成桶，因为每条消息都要付启动开销。通信未被掩盖：在计算尚未结束时就发起（async_op=True、DDP 分桶、FSDP 预取）。"
        "某个 rank 总是最后：检查它的频率、输入和分到的工作量。",
    ),
    cost=Text("7 s quick, up to 2 minutes in full.", "quick 模式 7 s，完整模式最多 2 分钟。"),
    devices={
        "npu": Text(
            "HCCL over all NPUs that are visible. Of a recording: what communication.json says of every collective (elapsed, "
            "transit, wait), the bandwidth of every link, and what was exposed.",
            "在所有可见 NPU 上运行 HCCL。对录制数据：communication.json 中每个集合通信的 Elapse、Transit、Wait 时间，"
            "各链路带宽，以及未被掩盖的部分。",
        ),
        "cuda": Text("NCCL over all GPUs that are visible.", "在所有可见 GPU 上运行 NCCL。"),
        "cpu": Text(
            "gloo between as many processes as the workload names in ranks=; without it, not applicable.",
            "由负载的 ranks= 指定进程数并使用 gloo；未指定则不适用。",
        ),
    },
    metrics=(
        Metric(
            name="counters.collectives",
            title=Text("collectives per call", "每次调用的集合通信次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=16,
            explanation=Text(
                "Collective operations that one call takes part in, with the lines that call them.",
                "一次调用参与的集合通信次数及其代码行。",
            ),
            source=f"operators of torch.distributed (c10d) over {DISPATCH}; without such, {TRACE}",
        ),
        Metric(
            name="communication.bus_bandwidth",
            title=Text("bus bandwidth", "总线带宽"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=16,
            explanation=Text(
                "The highest load of a link that any size reached, comparable between operations and numbers of ranks.",
                "各数据量中链路达到的最高负载，不同操作和 rank 数之间可比。",
            ),
            source="size / time x 2(n-1)/n or (n-1)/n (nccl-tests, doc/PERFORMANCE.md); " + _JOB,
        ),
        Metric(
            name="communication.peak_share",
            title=Text("share of the links' peak", "占链路峰值的比例"),
            unit="1",
            better="higher",
            kind="noisy",
            step=16,
            explanation=Text(
                "Bus bandwidth of the all-reduce over the peak that the project gives as the limit communication.peak.",
                "all-reduce 的总线带宽与项目在 communication.peak 中给出的峰值之比。",
            ),
            source="communication.bus_bandwidth / communication.peak",
            share=True,
        ),
        Metric(
            name="communication.start_up",
            title=Text("start-up of a collective", "集合通信启动开销"),
            unit="s",
            better="lower",
            kind="noisy",
            step=16,
            explanation=Text(
                "What a collective takes however little it carries.", "不论数据量多小，一次集合通信都要付出的时间。"
            ),
            source="robust fit of time = start-up + size / bandwidth; " + _JOB,
        ),
        Metric(
            name="communication.bandwidth",
            title=Text("bandwidth beyond the start-up", "扣除启动开销后的带宽"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=16,
            explanation=Text(
                "Bytes a second that a growing message gains, start-up left out.",
                "不计启动开销，消息增大时每秒能多传的字节数。",
            ),
            source="robust fit of time = start-up + size / bandwidth; " + _JOB,
        ),
        Metric(
            name="communication.fit",
            title=Text("how well a line describes it", "直线拟合优度"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=16,
            explanation=Text(
                "Share of the variance of log time that start-up and bandwidth explain; where it is low, the backend changes "
                "its algorithm with the size.",
                "启动开销与带宽对对数时间方差的解释比例；偏低说明后端随数据量切换算法。",
            ),
            source="r squared of log time; " + _JOB,
            share=True,
        ),
        Metric(
            name="communication.residual",
            title=Text("typical miss of the line", "拟合的典型偏差"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=16,
            explanation=Text(
                "Median relative distance of a size's time from the line.", "各数据量的时间与拟合直线的相对偏差中位数。"
            ),
            source="median |fitted / measured - 1|; " + _JOB,
            share=True,
        ),
        Metric(
            name="communication.time",
            title=Text("time of a collective", "集合通信耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=16,
            explanation=Text(
                "Median time of one operation at one size; of a recording, the time of one kind of collective in one step.",
                "某操作在某数据量下的耗时中位数；对录制数据为一步中某类集合通信的总时间。",
            ),
            source=_JOB + "; " + _RECORDED,
        ),
        Metric(
            name="communication.skew",
            title=Text("first to last rank", "首尾 rank 到达时差"),
            unit="s",
            better="lower",
            kind="noisy",
            step=16,
            explanation=Text(
                "Median time from the first to the last rank after all did the same work.",
                "各 rank 完成同样工作后，从第一个到最后一个到达的时间差中位数。",
            ),
            source="arrivals by the clock that all processes of a machine share",
        ),
        Metric(
            name="communication.hidden",
            title=Text("communication hidden by computing", "被计算掩盖的通信占比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=16,
            explanation=Text(
                "Share of the time of communication in which something was computed too.",
                "通信时间中同时有计算在进行的比例。",
            ),
            source="1 - exposed / all communication; " + _RECORDED,
            share=True,
        ),
        Metric(
            name="communication.exposed",
            title=Text("exposed communication", "未掩盖的通信占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=16,
            explanation=Text(
                "Share of a step in which the device communicated and computed nothing.",
                "一步中只有通信、没有计算的时间占比。",
            ),
            source="exposed communication / length of the step; " + _RECORDED,
            share=True,
        ),
        Metric(
            name="communication.waiting",
            title=Text("waiting within collectives", "集合通信中的等待占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=16,
            explanation=Text(
                "Of the time in which this rank waited for others or sent and received, the share of waiting.",
                "本 rank 在集合通信中等待其他 rank 或收发数据的时间里，等待所占的比例。",
            ),
            source="Wait Time Ratio: Wait Time / (Wait Time + Transit Time) of communication.json",
            share=True,
        ),
        Metric(
            name="communication.transit",
            title=Text("transit within collectives", "集合通信中的传输占比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=16,
            explanation=Text(
                "Share of the time of collectives in which data were sent or received.",
                "集合通信时间中收发数据的比例。",
            ),
            source="Transit Time / Elapse Time of communication.json",
            share=True,
        ),
        Metric(
            name="communication.idle",
            title=Text("idling within collectives", "集合通信中的空闲占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=16,
            explanation=Text(
                "Share of the time of collectives in which this rank neither sent nor received nor waited for a signal: "
                "mostly until the last rank came.",
                "集合通信时间中既无收发也不在等待信号的比例：多为等最后一个 rank 到来。",
            ),
            source="Idle Time / Elapse Time of communication.json",
            share=True,
        ),
        Metric(
            name="communication.link_bandwidth",
            title=Text("bandwidth of a kind of link", "某类链路的带宽"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=16,
            explanation=Text(
                "Bytes that one kind of link carried over the time it took, all collectives together.",
                "所有集合通信中，某类链路传输的字节数除以所用时间。",
            ),
            source="Transit Size / Transit Time of communication.json",
        ),
    ),
    limits=(
        Limit(
            "communication.peak",
            0.0,
            Text(
                "bytes a second that the links should carry; 0: not known, and then nothing is judged",
                "链路应达到的带宽（B/s）；0 表示未知，此时不做判断",
            ),
        ),
        Limit("communication.peak_share.warning", 0.8, AS_UTILIZATION),
        Limit("communication.peak_share.severe", 0.5, AS_UTILIZATION),
        Limit(
            "communication.exposed.warning",
            0.2,
            Text(
                "as for exposed copies of step 3: perfgate's own mark", "与第 3 步未掩盖的拷贝相同：perfgate 自定阈值"
            ),
        ),
        Limit(
            "communication.slow_rank.warning",
            0.1,
            Text("skew over the work before it: perfgate's own mark", "时差与之前工作时间之比：perfgate 自定阈值"),
        ),
        Limit(
            "communication.first.info",
            5.0,
            Text("times the median of its kind: perfgate's own mark", "相对同类中位数的倍数：perfgate 自定阈值"),
        ),
    ),
    rules=(
        Rule(
            "communication.wrong_result",
            Text(
                "{operation} gave a rank wrong numbers: look at the links, the driver and the versions of the backend",
                "{operation} 使某个 rank 得到错误结果：请检查链路、驱动与后端版本",
            ),
        ),
        Rule(
            "communication.refused",
            Text("{backend} has no {operation} here: {why}", "此处的 {backend} 不支持 {operation}：{why}"),
        ),
        Rule(
            "communication.peak_share",
            Text(
                "an all-reduce uses little of what the links could carry",
                "all-reduce 只用到了链路能力的一小部分",
            ),
        ),
        Rule(
            "communication.slow_rank",
            Text(
                "rank {rank} nearly always comes last after the same work: its device is slower, or others use it too",
                "做同样的工作，rank {rank} 几乎总是最后到达：其设备较慢，或还有其他进程在使用",
            ),
        ),
        Rule(
            "communication.exposed",
            Text(
                "much of a step is communication behind which nothing is computed",
                "一步中有很大部分是没有被计算掩盖的通信",
            ),
        ),
        Rule(
            "communication.first",
            Text(
                "the first {collective} of {shape} took much longer than the others of its kind: it holds how far apart the "
                "ranks began, and says nothing of the links",
                "{shape} 的第一个 {collective} 远长于其余同类：其中包含各 rank 的启动时差，不反映链路速度",
            ),
        ),
        Rule(
            "collectives.slowest_rank",
            Text(
                "{longest} spends most time in {collective}, {shortest} least; in a collective all wait for "
                "the rank that comes last",
                "{longest} 在 {collective} 中耗时最多，{shortest} 最少；集合通信中所有 rank 都在等最后到达的那个",
            ),
        ),
    ),
)
