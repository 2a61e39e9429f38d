"""Step 15: cache sensitivity."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, own

CARD = StepCard(
    number=15,
    slug="cache",
    title=Text("Cache sensitivity", "缓存敏感性"),
    question=Text(
        "How much of the measured speed comes from a cache that production will not find filled?",
        "测得的速度有多少来自缓存命中，而生产环境中缓存并没有预先填好？",
    ),
    how=Text(
        "The same call in three ways, in turns: on the same buffers again and again (hot); after twice the last-level "
        "cache was read, outside the timed span (cold); and on so many copies of the inputs that no cache holds them "
        "(rotating). Hit rates of single operators come from recordings with hardware counters.",
        "同一调用以三种方式轮流测量：反复使用同一组缓冲区（热）；计时之外先读两倍末级缓存大小的数据再调用（冷）；在缓存放不下的"
        "多份输入之间轮换（轮换）。单个算子的命中率取自带硬件计数器的录制数据。",
    ),
    remedy=Text(
        "Trust the cold number for a service whose calls are far apart or share the device, the hot one for a tight "
        "loop. To get less sensitive: smaller weights (quantization, sharing), larger batches that use each weight "
        "more often, fused operators that keep data on the chip.",
        "调用间隔长或与他人共享设备的服务，以冷数值为准；紧密循环才以热数值为准。要降低敏感性：减小权重（量化、共享），增大 "
        "batch 让每个权重多用几次，用融合算子把数据留在片上。",
    ),
    cost=Text(
        "2 s quick, 12 s in full, for the first shape; 2 s more where memory of twice 500 MB has to be filled first.",
        "仅测第一个 shape：quick 模式 2 s，完整模式 12 s；缓存为 500 MB 时，填充两倍大小的内存再加至多 2 s。",
    ),
    devices={
        "npu": Text(
            "Hot, cold and rotating against the L2 cache that torch_npu names. Hit rates where a recording was made "
            "with AiCMetrics.L2Cache (hits over hits and misses) or has l2_cache.csv (910A, 310P).",
            "以 torch_npu 给出的 L2 大小测量热、冷、轮换三种情况。用 AiCMetrics.L2Cache 录制的数据（命中/(命中+缺失)）或含 "
            "l2_cache.csv 的数据（910A、310P）给出命中率。",
        ),
        "cuda": Text(
            "Hot, cold and rotating against the L2 cache of the device's properties; hit rates take Nsight Compute.",
            "以设备属性中的 L2 大小测量热、冷、轮换三种情况；命中率需要 Nsight Compute。",
        ),
        "cpu": Text(
            "Hot, cold and rotating against the last-level cache that the kernel names; a virtual machine may name one "
            "that it shares with others.",
            "以内核给出的末级缓存大小测量热、冷、轮换三种情况；虚拟机给出的可能是与他人共享的缓存。",
        ),
    },
    metrics=(
        Metric(
            name="cache.sensitivity",
            title=Text("cold over hot", "冷热时延比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=15,
            explanation=Text(
                "Time of a call on inputs or memory that no cache holds, over its time on the same buffers again: 1 "
                "means that the cache does not matter. Cold: nothing of weights and inputs is cached. Rotating: only "
                "the inputs are not.",
                "缓存未命中时一次调用的时间，除以反复使用同一组缓冲区时的时间；1 表示与缓存无关。冷：权重和输入都不在缓存中；"
                "轮换：只有输入不在。",
            ),
            source="calls in turns; Hodges-Lehmann estimate of the log ratios with its signed-rank interval",
        ),
        Metric(
            name="cache.call_time",
            title=Text("call by state of the cache", "不同缓存状态下的调用时间"),
            unit="s",
            better="lower",
            kind="noisy",
            step=15,
            explanation=Text(
                "Median seconds of a call with hot, cold or rotating buffers.",
                "热、冷、轮换缓冲区下一次调用的时间中位数（秒）。",
            ),
            source="host clock around calls that are waited for",
        ),
        Metric(
            name="cache.hit_rate",
            title=Text("L2 hit rate", "L2 命中率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=15,
            explanation=Text(
                "Of what all runs of an operator read from the L2 cache, or wrote to it, the part that was there. What is "
                "written for the first time always misses, so only reads are judged.",
                "一个算子所有执行对 L2 的读（或写）请求中命中的比例。首次写入必然缺失，因此只判断读。",
            ),
            source="*_cache_hit and *_cache_miss_allocate columns of AiCMetrics.L2Cache, else l2_cache.csv",
            share=True,
        ),
        Metric(
            name="counters.repeat_saves",
            title=Text("ops saved by a repeated input", "重复输入省去的算子数"),
            unit="1",
            better="lower",
            kind="exact",
            step=15,
            explanation=Text(
                "How many framework operators fewer a call dispatches when it gets an input again that it has "
                "just seen. More than 0 means that results are cached by input: a benchmark that repeats its "
                "inputs then shows a speed that new inputs never get.",
                "再次给出刚见过的输入时，一次调用少分发多少个框架算子。大于 0 说明结果按输入缓存：反复用相同输入做基准测试，"
                "得到的速度在新输入上永远达不到。",
            ),
            source="one call on a never-used input against the same call again, over " + DISPATCH,
        ),
    ),
    limits=(
        Limit(
            "cache.sensitivity.warning",
            1.2,
            own(
                "a fifth slower with a cold cache: the measured time is not that of production",
                "缓存未命中时慢五分之一：测得的时间不代表生产环境",
            ),
        ),
        Limit("cache.hit_rate.info", 0.5, own("half of the reads go to memory", "一半读取落到内存")),
    ),
    rules=(
        Rule(
            "cache.sensitivity",
            Text(
                "the measured number depends on the cache ({buffers} buffers are slower than the same ones again); "
                "production is colder than a benchmark",
                "测得的数值依赖缓存（{buffers} 缓冲区比反复使用同一组更慢）；生产环境比基准测试更“冷”",
            ),
        ),
        Rule(
            "cache.hit_rate",
            Text(
                "{op}, one of the heaviest operators, misses the L2 cache more often than it hits when it reads",
                "{op} 是最耗时的算子之一，读取时 L2 缺失多于命中",
            ),
        ),
    ),
)
