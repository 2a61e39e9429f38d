"""Step 5: batch size."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_TRANSFERS, own

CARD = StepCard(
    number=5,
    slug="batch",
    title=Text("Batch size", "批大小"),
    question=Text(
        "Which batch size is the best, and which smaller one is nearly as good?",
        "哪个 batch size 最好，哪个更小的与之相差无几？",
    ),
    how=Text(
        "Batch sizes are visited in random order, in rounds, and compared round by round. The knee is the smallest size "
        "that the fastest one is not shown to beat by 10 % throughput, and its interval ends at the smallest that is shown "
        "to be so good; the best size has the highest throughput that keeps the SLA.",
        "按轮次以随机顺序访问各 batch size，并逐轮比较。拐点是未被证明比最快者吞吐低 10 % 以上的最小 batch，其区间止于已证明"
        "达到该水平的最小 batch；最佳 batch 是满足 SLA 的吞吐最高者。",
    ),
    remedy=Text(
        "Configure the best size where latency allows. A knee at size 1 means that the device is full, or that "
        "the work per item does not run in parallel.",
        "时延允许时采用最佳 batch。拐点在 1，说明设备已满，或单条数据的工作无法并行。",
    ),
    cost=Text(
        "3 s quick and 25 s in full, of the first shape only.",
        "只测第一个 shape：quick 模式 3 s，完整模式 25 s。",
    ),
    devices={
        "npu": Text(
            "All of it; a size that does not fit into device memory ends the sweep.",
            "全部指标；某个 batch 放不进设备内存时扫描结束。",
        ),
        "cuda": Text(
            "All of it; a size that does not fit into device memory ends the sweep.",
            "全部指标；某个 batch 放不进设备内存时扫描结束。",
        ),
        "cpu": Text(
            "All of it. With few cores the knee comes early: a larger batch is only more work.",
            "全部指标。核数少时拐点来得早：batch 变大只是工作量变多。",
        ),
    },
    metrics=(
        Metric(
            name="batch.knee",
            title=Text("batch knee", "batch 拐点"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=5,
            explanation=Text(
                "The smallest batch size that is not shown to be worse than the fastest one by 10 % of throughput; up to "
                "the smallest that is shown to be no worse.",
                "未被证明吞吐比最快者低 10 % 以上的最小 batch size；区间上端为已证明不低的最小者。",
            ),
            source="smallest b whose signed-rank interval of throughput(fastest) / throughput(b) reaches below 1.10",
        ),
        Metric(
            name="batch.best",
            title=Text("best batch size", "最佳 batch size"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=5,
            explanation=Text(
                "The batch size with the highest throughput that keeps the SLA.", "满足 SLA 且吞吐最高的 batch size。"
            ),
            source="argmax of throughput",
        ),
        Metric(
            name="batch.loss",
            title=Text("throughput left on the table", "未用上的吞吐"),
            unit="1",
            better="lower",
            kind="noisy",
            step=5,
            explanation=Text(
                "How far the configured batch size stays below the best one.",
                "当前配置的 batch size 比最佳值低多少吞吐。",
            ),
            source="1 - throughput(configured) / throughput(best)",
            share=True,
        ),
        Metric(
            name="batch.throughput",
            title=Text("throughput at a batch size", "某 batch size 的吞吐"),
            unit="items/s",
            better="higher",
            kind="noisy",
            step=5,
            explanation=Text(
                "Items per second at one batch size of the sweep.", "扫描中某个 batch size 下每秒处理的条数。"
            ),
            source="median over visits in random order",
        ),
    ),
    limits=(
        Limit("batch.loss.warning", 0.05, AS_TRANSFERS),
        Limit("batch.loss.severe", 0.2, AS_TRANSFERS),
        Limit(
            "batch.knee.gain",
            1.1,
            own("a tenth more throughput is worth a larger batch", "吞吐高十分之一即值得更大的 batch"),
        ),
    ),
    rules=(
        Rule(
            "batch.out_of_memory",
            Text("the device's memory is full from batch size {batch} on", "从 batch size {batch} 起设备内存不足"),
        ),
        Rule(
            "batch.too_slow",
            Text(
                "a call of batch size {batch} is too long for the sweep to go on",
                "batch size {batch} 的单次调用过长，扫描到此为止",
            ),
        ),
        Rule(
            "batch.knee",
            Text(
                "not reached: throughput still rises at the largest batch size, {batch}",
                "未出现拐点：到最大的 batch size {batch} 吞吐仍在上升",
            ),
        ),
        Rule(
            "batch.refused",
            Text("the workload does not take a batch size of {batch}", "workload 不接受 batch size {batch}"),
        ),
        Rule(
            "batch.loss",
            Text(
                "the configured batch size of {batch} leaves throughput on the table; {best} gives the most",
                "当前配置的 batch size {batch} 没有用满吞吐；{best} 的吞吐最高",
            ),
        ),
    ),
)
