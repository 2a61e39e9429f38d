"""Step 10: continuous batching."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import own

_QUEUE = Text("latencies from arrival to answer", "从请求到达到应答的时延")

CARD = StepCard(
    number=10,
    slug="batching",
    title=Text("Continuous batching", "连续批处理"),
    question=Text(
        "Requests come in one by one: how are they best put into batches, and how many a second can be answered in time?",
        "请求逐个到达：怎样组 batch 最好，每秒最多能按时应答多少请求？",
    ),
    how=Text(
        "Calls of every batch size give a service model; a batch between two sizes is padded to the larger. On seeded arrivals "
        "of the workload's traffic three ways are simulated: static (wait until the configured batch is full), time-out (or "
        "until the oldest request waited max_wait) and continuous (start with whoever is there; who comes meanwhile joins the "
        "next call). Then static batching and the way with the lowest P99 are replayed in turns, by real calls at real times, "
        "and the replay is held against the simulation. Latency counts from arrival. Continuous here means that a request "
        "joins the next call: scheduling inside a call (iteration-level batching of generated tokens, preemption, KV cache "
        "memory), several instances, the collation of a batch and network time are not modelled.",
        "对各 batch 大小计时得到服务模型，介于两档之间的 batch 补齐到较大一档。在按种子生成的到达序列上模拟三种方式："
        "静态（等配置的 batch 凑满）、超时（或最早的请求已等待 max_wait）、连续（设备空闲即用已到达的请求组 batch，"
        "期间到达的请求加入下一次调用）。随后把静态方式与 P99 最低的方式按真实时间轮流回放，并与模拟结果比对。时延从"
        "到达时刻算起。此处的「连续」指请求加入下一次调用；不建模调用内部的调度（逐 token 的迭代级批处理、抢占、KV "
        "cache 显存）、多实例、组 batch 的拷贝与网络时间。",
    ),
    remedy=Text(
        "Let the server start with whoever is there and cap the batch at the size that is named; where a batch must be filled, "
        "bound the wait (max_queue_delay of Triton, batch_timeout of a queue). Where no way keeps up, a faster call or another "
        "instance is needed, not another policy.",
        "让服务在设备空闲时立即用已到达的请求组 batch，并以给出的大小为上限；必须凑 batch 时给等待设上限（如 Triton 的 "
        "max_queue_delay）。若任何方式都跟不上，需要更快的调用或更多实例，而不是换调度策略。",
    ),
    cost=Text("quick about 5 s, full about 35 s", "quick 模式约 5 s，完整模式约 35 s"),
    devices={
        "npu": Text("All of it.", "全部可测。"),
        "cuda": Text("All of it.", "全部可测。"),
        "cpu": Text(
            "All of it; batches gain less, because one call already fills the cores.",
            "全部可测；单次调用已占满 CPU 核，组 batch 的收益较小。",
        ),
    },
    metrics=(
        Metric(
            name="batching.p50",
            title=Text("P50 from arrival", "到达起 P50 时延"),
            unit="s",
            better="lower",
            kind="noisy",
            step=10,
            explanation=Text(
                "Half of the requests were answered within this, counted from when they came in.",
                "一半请求从到达起在此时间内得到应答。",
            ),
            source=_QUEUE,
        ),
        Metric(
            name="batching.p99",
            title=Text("P99 from arrival", "到达起 P99 时延"),
            unit="s",
            better="lower",
            kind="noisy",
            step=10,
            explanation=Text(
                "99 of 100 requests were answered within this, counted from when they came in. The interval allows for "
                "requests in one queue being alike.",
                "100 个请求中有 99 个从到达起在此时间内得到应答。置信区间已考虑同一队列中请求的相关性。",
            ),
            source=_QUEUE,
        ),
        Metric(
            name="batching.goodput",
            title=Text("goodput at the SLA", "满足 SLA 的吞吐"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=10,
            explanation=Text(
                "Requests a second that were answered within the promised P99.",
                "每秒在 SLA 的 P99 之内得到应答的请求数。",
            ),
            source=Text("requests within sla.p99 / time", "满足 sla.p99 的请求数 / 时间"),
        ),
        Metric(
            name="batching.max_rate",
            title=Text("highest rate under the SLA", "SLA 下的最高请求速率"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=10,
            explanation=Text(
                "The most requests a second of this pattern at which the simulated P99 still keeps the SLA.",
                "在该到达模式下，模拟 P99 仍满足 SLA 的最高每秒请求数。",
            ),
            source=Text(
                "bisection over simulations of the same arrivals at other rates", "对同一到达序列缩放速率后二分"
            ),
        ),
        Metric(
            name="batching.fill",
            title=Text("fill of batches", "batch 填充率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=10,
            explanation=Text(
                "How full batches were on average, of the policy's size.", "batch 平均占策略上限大小的比例。"
            ),
            source=Text("requests per call / batch", "每次调用的请求数 / batch"),
            share=True,
        ),
        Metric(
            name="batching.gain",
            title=Text("gain over static batches, simulated", "相对静态批处理的收益（模拟）"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=10,
            explanation=Text(
                "By how much the P99 of static batches is longer than that of the best way, in the simulation.",
                "模拟中静态批处理的 P99 比最优方式长多少。",
            ),
            source=Text("P99(static) / P99(best) - 1", "P99(静态) / P99(最优) - 1"),
            share=True,
        ),
        Metric(
            name="batching.speedup",
            title=Text("speed-up over static batches, replayed", "相对静态批处理的加速比（回放）"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=10,
            explanation=Text(
                "How many times as fast requests were answered by the best way as by static batches, by real calls on the same "
                "requests in turns.",
                "对同一批请求轮流真实调用时，最优方式应答请求的速度是静态批处理的多少倍。",
            ),
            source=Text(
                "Hodges-Lehmann estimate over blocks of requests of log mean latency, signed-rank interval",
                "按请求块的对数平均时延差的 Hodges-Lehmann 估计，符号秩区间",
            ),
        ),
        Metric(
            name="batching.simulation_error",
            title=Text("replay against simulation", "回放与模拟之差"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=10,
            explanation=Text(
                "By how much the mean latency of the replay was longer than a simulation of the same requests says. Far from "
                "0, calls under traffic do not take what they take one by one.",
                "回放的平均时延比同一批请求的模拟长多少。偏离 0 较大说明负载下的调用耗时与逐次测得的不同。",
            ),
            source=Text("mean replayed / mean simulated - 1", "回放均值 / 模拟均值 - 1"),
            share=True,
        ),
    ),
    limits=(
        Limit(
            "batching.gain.warning",
            0.2,
            own("a fifth shorter waiting is worth another way to batch", "等待缩短五分之一即值得更换组批方式"),
        ),
        Limit(
            "batching.simulation_error.info",
            0.2,
            own("a simulation that is a fifth off predicts nothing", "误差达五分之一的模拟不足为据"),
        ),
        Limit(
            "batching.agreement",
            0.01,
            Text(
                "relative to the largest output; kernels of other batch sizes add up in another order",
                "相对最大输出；不同 batch 的算子累加顺序不同",
            ),
        ),
    ),
    rules=(
        Rule(
            "batching.gain",
            Text(
                "{rate} requests a second are answered sooner by {policy} batching of at most {batch} than by static batches "
                "of {configured}",
                "每秒 {rate} 个请求时，上限为 {batch} 的 {policy} 批处理比 batch 为 {configured} 的静态批处理应答更快",
            ),
        ),
        Rule(
            "batching.unconfirmed",
            Text(
                "{policy} batching of at most {batch} should answer sooner by simulation, and the replay does not show it",
                "模拟显示上限为 {batch} 的 {policy} 批处理应答更快，但回放未能证实",
            ),
        ),
        Rule(
            "batching.simulation_error",
            Text(
                "the replay of {policy} batching is not what the simulation says: calls after a pause, or beside other work on "
                "the machine, take another time than calls one after another",
                "{policy} 批处理的回放与模拟不符：空闲后的调用、或与机器上其他负载并行的调用，耗时与连续调用不同",
            ),
        ),
        Rule(
            "batching.differs",
            Text(
                "an item is answered otherwise in a batch of {batch} than alone, so batches may not be chosen freely",
                "同一数据在 batch 为 {batch} 时的输出与单独处理时不一致，不能随意组 batch",
            ),
        ),
        Rule(
            "batching.saturated",
            Text(
                "no way of batching keeps up with {rate} requests a second; the most is about {most}",
                "任何组 batch 方式都跟不上每秒 {rate} 个请求，上限约为 {most}",
            ),
        ),
    ),
)
