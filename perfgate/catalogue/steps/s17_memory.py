"""Step 17: memory."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import own

_STATISTICS = "statistics of the device's caching allocator (torch.cuda.memory_stats, torch.npu.memory_stats)"
_THEIL_SEN = "Theil-Sen slope over consecutive steady calls, garbage collected after each (Sen 1968)"
_OWN = Text(
    "perfgate's own mark: below it lies what a process grows by without a leak",
    "perfgate 自定阈值：低于它的增长不算泄漏",
)

CARD = StepCard(
    number=17,
    slug="memory",
    title=Text("Memory", "内存"),
    question=Text(
        "How much memory does the workload hold, is it well used, and does it grow from call to call?",
        "负载占用多少内存，利用得好不好，是否随调用次数增长？",
    ),
    how=Text(
        "Fifty and more steady calls, each waited for and its garbage collected; after each the allocator's statistics and the "
        "resident bytes are read. Growth is the Theil-Sen slope, and a leak is one whose whole interval lies above the limit; "
        "single calls are then watched for the operator and line whose result outlives them.",
        "至少五十次稳态调用，每次都等待完成并回收垃圾，之后读取分配器统计与常驻内存。增长取 Theil-Sen 斜率，整个置信区间都高于"
        "阈值才判为泄漏；随后逐次观察调用，找出结果未被释放的算子及其代码行。",
    ),
    remedy=Text(
        "Growth: find who keeps the result of the named line (a list of outputs, a loss kept with its graph: use .item() or "
        ".detach(), a cache without a bound). New segments in steady calls: keep shapes the same or pad them, and leave out "
        "empty_cache(). Fragmentation: expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF or PYTORCH_NPU_ALLOC_CONF. Page "
        "faults on the host: MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ set high and MALLOC_MMAP_MAX_=0, or a malloc that "
        "keeps memory (jemalloc, tcmalloc).",
        "增长：找出是谁保留了所指代码行的结果（保存输出的列表、连同计算图一起保存的 loss（用 .item() 或 .detach()）、没有上限的"
        "缓存）。稳态调用仍申请新段：固定或补齐 shape，去掉 empty_cache()。碎片：在 PYTORCH_CUDA_ALLOC_CONF 或 "
        "PYTORCH_NPU_ALLOC_CONF 中设置 expandable_segments:True。Host 缺页：调高 MALLOC_TRIM_THRESHOLD_ 与 MALLOC_TOP_PAD_，"
        "设 MALLOC_MMAP_MAX_=0，或改用会保留内存的 malloc（jemalloc、tcmalloc）。",
    ),
    cost=Text("3.5 s quick, 20 s in full, over all shapes.", "所有 shape 合计：quick 模式 3.5 s，完整模式 20 s。"),
    devices={
        "npu": Text(
            "The caching allocator of torch_npu (PTA), and the host's process. Of a recording: the peaks of memory_record.csv, "
            "PTA beside what the whole process holds (APP).",
            "torch_npu 缓存分配器（PTA）与 Host 进程。对录制数据：memory_record.csv 中的峰值，PTA 与整个进程（APP）并列给出。",
        ),
        "cuda": Text("The caching allocator of torch, and the host's process.", "torch 缓存分配器与 Host 进程。"),
        "cpu": Text(
            "torch keeps no pool of host memory: what calls leave behind comes from its allocation events; resident bytes and "
            "page faults from the kernel.",
            "torch 在 Host 上没有内存池：每次调用遗留的内存取自分配事件；常驻内存与缺页次数取自内核。",
        ),
    },
    metrics=(
        Metric(
            name="counters.allocations",
            title=Text("allocations per call", "每次调用的内存分配次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=17,
            explanation=Text("Blocks of memory one call takes from the allocator.", "一次调用向分配器申请的内存块数。"),
            source="the device's allocator events over single steady calls",
        ),
        Metric(
            name="memory.peak",
            title=Text("peak memory of a call", "单次调用的内存峰值"),
            unit="B",
            better="lower",
            kind="exact",
            step=17,
            explanation=Text(
                "The most memory one call holds on top of the model and its inputs.",
                "一次调用在模型和输入之外最多占用的内存。",
            ),
            source="running sum of allocator events over single steady calls",
        ),
        Metric(
            name="memory.kept",
            title=Text("memory a call leaves behind", "一次调用遗留的内存"),
            unit="B",
            better="lower",
            kind="exact",
            step=17,
            explanation=Text(
                "Bytes by which every steady call raises what the process holds: a leak. The smallest growth of "
                "several consecutive calls, garbage collected after each, so that a buffer that is replaced or "
                "grows now and then is none. Memory of the framework's allocator only.",
                "每次稳态调用使占用增加的字节数，即泄漏。取连续若干次调用中的最小增量，每次之后都回收垃圾，因此被替换或偶尔增长的"
                "缓冲区不计入。仅统计框架分配器的内存。",
            ),
            source="allocator events over consecutive steady calls: held after a call - held before it",
        ),
        Metric(
            name="memory.allocated",
            title=Text("peak of allocated memory", "已分配内存峰值"),
            unit="B",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "The most memory in use at once during steady calls: model, inputs and what calls hold.",
                "稳态调用期间同时使用的最大内存：模型、输入以及调用本身占用的部分。",
            ),
            source=_STATISTICS,
        ),
        Metric(
            name="memory.reserved",
            title=Text("peak of reserved memory", "已预留内存峰值"),
            unit="B",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "The most memory taken from the driver, in use or not: what other processes cannot have.",
                "从驱动申请的最大内存，无论是否在用：其他进程无法使用这部分。",
            ),
            source=_STATISTICS,
        ),
        Metric(
            name="memory.fragmentation",
            title=Text("reserved memory not in use", "预留未用内存占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "How much of the memory taken from the driver was not in use even at the peak.",
                "即使在峰值时也未使用的预留内存比例。",
            ),
            source="1 - peak allocated / peak reserved",
            share=True,
        ),
        Metric(
            name="memory.inactive_split",
            title=Text("free memory in blocks that are partly in use", "部分占用块中的空闲内存"),
            unit="B",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "Free bytes that cannot go back to the driver, because another part of their block is in use.",
                "因同一内存块的其他部分仍在使用而无法归还驱动的空闲字节。",
            ),
            source=_STATISTICS,
        ),
        Metric(
            name="memory.retries",
            title=Text("allocations tried again", "分配重试次数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "How often the driver had no memory left during steady calls, so that the allocator gave its cache back first.",
                "稳态调用期间驱动内存不足、分配器不得不先释放缓存再重试的次数。",
            ),
            source=_STATISTICS,
        ),
        Metric(
            name="memory.segments",
            title=Text("segments taken per call", "每次调用新申请的内存段"),
            unit="1",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "How often a steady call asks the driver for memory; the cache should serve all of it.",
                "一次稳态调用向驱动申请内存的次数；本应全部由缓存满足。",
            ),
            source=_STATISTICS,
        ),
        Metric(
            name="memory.growth",
            title=Text("growth of allocated memory per call", "已分配内存的每次调用增量"),
            unit="B",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "By how much each call raises what the framework's allocator holds on the device.",
                "每次调用使框架分配器在设备上的占用增加多少。",
            ),
            source=_THEIL_SEN,
        ),
        Metric(
            name="memory.resident",
            title=Text("resident memory of the process", "进程常驻内存"),
            unit="B",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "The most host memory the process holds during steady calls, interpreter and libraries included.",
                "稳态调用期间进程占用的最大 Host 内存，含解释器与各类库。",
            ),
            source="/proc/self/statm",
        ),
        Metric(
            name="memory.resident_growth",
            title=Text("growth of the process per call", "进程内存的每次调用增量"),
            unit="B",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "By how much each call raises the resident memory of the process.", "每次调用使进程常驻内存增加多少。"
            ),
            source=_THEIL_SEN,
        ),
        Metric(
            name="memory.faults",
            title=Text("page faults on the host per call", "每次调用的 Host 缺页次数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=17,
            explanation=Text(
                "How often the kernel hands the process a page of memory during one call (minor faults). Workers run with a "
                "malloc that keeps memory, so a deployment without those settings has more.",
                "一次调用期间内核向进程提供内存页的次数（次缺页）。测量进程使用会保留内存的 malloc 设置，未做这些设置的部署会"
                "更多。",
            ),
            source="getrusage: ru_minflt",
        ),
    ),
    limits=(
        Limit("memory.growth.warning", 64.0, _OWN),
        Limit("memory.resident_growth.warning", 4096.0, _OWN),
        Limit(
            "memory.segments.warning",
            0.0,
            own("a steady call needs no new memory from the driver", "稳态调用不应再向驱动申请内存"),
        ),
        Limit("memory.retries.warning", 0.0, own("a steady call never finds memory full", "稳态调用不应遇到内存耗尽")),
        Limit(
            "memory.faults.warning",
            10.0,
            Text(
                "measured: a stack of convolutions with 288 to 418 faults a call ran 40 % slower than with none",
                "实测：每次调用 288 至 418 次缺页的卷积网络比无缺页时慢 40 %",
            ),
        ),
        Limit(
            "memory.fragmentation.info",
            0.5,
            Text(
                "perfgate's own mark, for at least memory.fragmentation.size bytes reserved",
                "perfgate 自定阈值，仅在预留达到 memory.fragmentation.size 字节时判断",
            ),
        ),
        Limit(
            "memory.fragmentation.size",
            float(1 << 30),
            Text(
                "perfgate's own mark: below it the allocator's smallest segments decide",
                "perfgate 自定阈值：更小时由分配器的最小段决定",
            ),
        ),
    ),
    rules=(
        Rule(
            "memory.growth",
            Text(
                "every call leaves memory behind: what it makes is kept by a list, a cache without a bound, or a graph that a "
                "stored tensor holds on to",
                "每次调用都遗留内存：其结果被列表、无上限的缓存，或某个张量所连带的计算图保留",
            ),
        ),
        Rule(
            "memory.resident_growth",
            Text(
                "the process grows with every call, beyond what torch holds: look at Python objects, numpy arrays, libraries",
                "进程内存随每次调用增长，且超出 torch 所占部分：请检查 Python 对象、numpy 数组和各类库",
            ),
        ),
        Rule(
            "memory.segments",
            Text(
                "a steady call still takes memory from the driver, which makes it wait: its shapes change, or it empties the "
                "cache",
                "稳态调用仍向驱动申请内存，造成等待：shape 在变化，或调用中清空了缓存",
            ),
        ),
        Rule(
            "memory.retries",
            Text(
                "the device's memory was full during steady calls: the allocator gave its cache back and tried again",
                "稳态调用期间设备内存已满：分配器释放缓存后重试",
            ),
        ),
        Rule(
            "memory.fragmentation",
            Text(
                "much of the memory taken from the driver is not in use even at the peak",
                "从驱动申请的内存即使在峰值时也有很大部分未被使用",
            ),
        ),
        Rule(
            "memory.faults",
            Text(
                "a steady call takes memory from the kernel page by page: set MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ high "
                "and MALLOC_MMAP_MAX_=0, or use a malloc that keeps what is freed",
                "稳态调用逐页向内核申请内存：请调高 MALLOC_TRIM_THRESHOLD_ 与 MALLOC_TOP_PAD_ 并设 MALLOC_MMAP_MAX_=0，或改用会"
                "保留已释放内存的 malloc",
            ),
        ),
        Rule(
            "memory.largest",
            Text(
                "of all operators `{op}` allocated most over the recording",
                "录制期间 `{op}` 是分配内存最多的算子",
            ),
        ),
    ),
)
