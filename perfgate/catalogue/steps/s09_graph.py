"""Step 9: graph mode."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import TRACE

_FRAMES = Text(
    "torch._dynamo's record of compiled frames over calls of every shape, without a dispatch mode",
    "torch._dynamo 对各 shape 调用所编译帧的记录，不启用 dispatch mode",
)
_FIRST_CALL = Text("wall time of the first call of a compiled twin", "编译版本首次调用的墙钟时间")

CARD = StepCard(
    number=9,
    slug="graph",
    title=Text("Graph mode", "图模式"),
    question=Text(
        "Is the call faster as a compiled graph, after how many calls has compiling paid, and what breaks the graph?",
        "编译成图后调用是否更快，多少次调用后能收回编译代价，又是什么打断了图？",
    ),
    how=Text(
        "A copy of the model is compiled in this process and forgotten afterwards. First only its graphs are taken, for "
        "every shape: breaks, and what is compiled again, with reason and line. Then the first shape is compiled for the "
        "device with empty caches (cold), timed in turns with the call as it is, and compiled once more from the caches "
        "on disk (cached); importing the compiler and trying out the C++ toolchain are in neither. The output has to "
        "agree. A trace of compiled calls says how long the host takes to the first operator or kernel, in parts. What "
        "is compiled already is compared with itself run without the compiler.",
        "在本进程中编译模型的副本，事后全部清除。首先只对每个 shape 取图：断图与重编译及其原因和代码行。随后在空缓存下"
        "为第一个 shape 编译（冷编译），与原调用交替计时，再从磁盘缓存编译一次（缓存编译）；导入编译器与试探 C++ 工具链"
        "均不计入。输出必须一致。编译后调用的轨迹给出 Host 到第一个算子或 kernel 的分段耗时。已编译的工作负载与其关闭"
        "编译器的自身比较。",
    ),
    remedy=Text(
        "Take out what breaks the graph: prints, .item() and branches on data, calls into libraries. Against recompiles "
        "pad to few shapes, mark dimensions as dynamic (torch._dynamo.mark_dynamic), and keep counters and lists that "
        "grow out of forward. Compile once at start-up and keep the cache (TORCHINDUCTOR_CACHE_DIR).",
        "去掉打断图的代码：print、.item()、依赖数据的分支、对外部库的调用。减少重编译：把输入补齐到少数几种 shape，用 "
        "torch._dynamo.mark_dynamic 标记动态维，不要在 forward 中使用不断增长的计数器或列表。启动时编译一次并保留缓存"
        "（TORCHINDUCTOR_CACHE_DIR）。",
    ),
    cost=Text(
        "11 s quick, at most 20: what is not compiled after 14 s is given up, and said; up to three minutes in full.",
        "quick 模式 11 s，至多 20 s：14 s 内未编译完则放弃并说明；完整模式最多三分钟。",
    ),
    devices={
        "npu": Text(
            "torchair, which torch_npu registers as backend npu; the host's part is split at npu_fx_compiler inference "
            "and ExecuteGraph. Of a recording: kernels whose Model ID is that of a graph, and Node@launch a step.",
            "后端为 torch_npu 注册的 npu（torchair）；Host 侧耗时以 npu_fx_compiler inference 与 ExecuteGraph 分段。"
            "对录制的轨迹：Model ID 属于图的 kernel，以及每步的 Node@launch 次数。",
        ),
        "cuda": Text(
            "inductor, which needs triton. Of a recording: cudaGraphLaunch and cudaLaunchKernel a step.",
            "后端为 inductor，需要 triton。对录制的轨迹：每步的 cudaGraphLaunch 与 cudaLaunchKernel 次数。",
        ),
        "cpu": Text(
            "inductor, which needs a C++ compiler on PATH.",
            "后端为 inductor，PATH 中需要有 C++ 编译器。",
        ),
    },
    metrics=(
        Metric(
            name="graph.speedup",
            title=Text("speed-up by compiling", "编译带来的加速比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=9,
            explanation=Text(
                "How many times as fast a steady compiled call is as the same call without the compiler. Only where "
                "the outputs agree.",
                "稳态下编译后的调用比不编译快多少倍。仅在输出一致时给出。",
            ),
            source=Text(
                "both calls in turns, Hodges-Lehmann estimate with signed-rank interval",
                "两种调用交替计时，Hodges-Lehmann 估计与符号秩置信区间",
            ),
        ),
        Metric(
            name="graph.compile_cold",
            title=Text("cold compile time", "冷编译时间"),
            unit="s",
            better="lower",
            kind="noisy",
            step=9,
            explanation=Text(
                "What the first compiled call takes with empty caches, beyond a steady one.",
                "空缓存下首次编译调用比稳态调用多花的时间。",
            ),
            source=_FIRST_CALL,
        ),
        Metric(
            name="graph.compile_cached",
            title=Text("cached compile time", "缓存编译时间"),
            unit="s",
            better="lower",
            kind="noisy",
            step=9,
            explanation=Text(
                "The same when the compiler finds its results on disk, as a restarted server does.",
                "编译器能在磁盘上找到结果时的同一时间，如服务重启后。",
            ),
            source=_FIRST_CALL,
        ),
        Metric(
            name="graph.break_even",
            title=Text("calls until compiling has paid", "收回编译代价所需调用数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=9,
            explanation=Text(
                "After how many calls the time that compiled calls save is what the cold compilation took.",
                "编译后的调用节省的时间累计到冷编译耗时所需的调用次数。",
            ),
            source=Text(
                "cold compile time / (time of a call - time of a compiled call)",
                "冷编译时间 /（原调用时间 - 编译后调用时间）",
            ),
        ),
        Metric(
            name="graph.breaks",
            title=Text("graph breaks when compiled", "编译时的断图数"),
            unit="1",
            better="lower",
            kind="exact",
            step=9,
            explanation=Text(
                "Places in which the compiler gives up a graph and goes back to Python, whether or not the workload "
                "compiles anything today.",
                "编译器放弃图并回到 Python 的位置数，无论工作负载目前是否使用编译。",
            ),
            source=_FRAMES,
        ),
        Metric(
            name="graph.recompiles",
            title=Text("recompiles over the shapes", "各 shape 间的重编译数"),
            unit="1",
            better="lower",
            kind="exact",
            step=9,
            explanation=Text(
                "How often something already compiled is compiled again while every shape is called for the first "
                "times and then all in turn. One for each function is torch's change to dynamic shapes.",
                "各 shape 首次调用及随后轮流调用期间，已编译内容再次编译的次数。每个函数一次属于 torch 转为动态 shape。",
            ),
            source=_FRAMES,
        ),
        Metric(
            name="graph.head",
            title=Text("head overhead of a compiled call", "编译调用的头开销"),
            unit="s",
            better="lower",
            kind="noisy",
            step=9,
            explanation=Text(
                "Time on the host from the beginning of a compiled call to its first operator or kernel, by parts: "
                "framework until the compiler's entry, compiler until the graph is run, graph until the first work. On "
                "an NPU these are the framework, TorchAir and the graph engine (GE).",
                "编译调用开始到第一个算子或 kernel 的 Host 耗时，分为：到编译器入口为 framework，到图执行为 compiler，"
                "到首个计算为 graph。在 NPU 上分别为框架、TorchAir 与图引擎（GE）。",
            ),
            source=TRACE,
        ),
        Metric(
            name="graph.replayed_share",
            title=Text("kernels run from graphs", "由图执行的 kernel 占比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=9,
            explanation=Text(
                "Share of the kernels of a recording that carry the number of a graph; eager ones carry 4294967295.",
                "录制中带有图编号的 kernel 占比；单算子 kernel 的编号为 4294967295。",
            ),
            source=Text("Model ID in the profiler's table of kernels", "profiler kernel 表中的 Model ID"),
            share=True,
        ),
        Metric(
            name="graph.launches",
            title=Text("launches by the host", "Host 下发次数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=9,
            explanation=Text(
                "How often the host launches a kernel or a whole graph in one call or step, by kind; close to none of "
                "single kernels where a graph is replayed.",
                "一次调用或一步中 Host 下发单个 kernel 或整图的次数，按类别给出；图重放时单 kernel 下发接近零。",
            ),
            source=TRACE,
        ),
        Metric(
            name="counters.graph_breaks",
            title=Text("graph breaks", "断图次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=9,
            explanation=Text(
                "Places where torch.compile gives up a graph and goes back to Python, when everything is compiled"
                " anew for the shapes of the workload. Only where the workload compiles something.",
                "针对工作负载各 shape 全部重新编译时，torch.compile 放弃图并回到 Python 的位置数。仅在工作负载使用编译时统计。",
            ),
            source=Text(
                "torch._dynamo's record of graph breaks, each place and reason once",
                "torch._dynamo 的断图记录，每个位置与原因计一次",
            ),
        ),
        Metric(
            name="counters.recompiles",
            title=Text("recompiles", "重编译次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=9,
            explanation=Text(
                "Compilations that steady calls still set off after every shape was called often enough to be "
                "compiled. Each stops a call for as long as a compiler runs. Only where the workload compiles "
                "something.",
                "每个 shape 都已充分调用并完成编译后，稳态调用仍触发的编译次数。每次都会让调用停顿至编译结束。仅在工作负载使用"
                "编译时统计。",
            ),
            source=Text(
                "torch._dynamo's count of compiled frames over steady calls, without a dispatch mode",
                "torch._dynamo 在稳态调用期间的编译帧计数，不启用 dispatch mode",
            ),
        ),
    ),
    limits=(
        Limit(
            "graph.recompiles.warning",
            1,
            Text(
                "torch compiles a function twice where shapes differ: once for the first, once for any",
                "shape 不同时 torch 对一个函数编译两次：一次固定 shape，一次动态 shape",
            ),
        ),
        Limit(
            "graph.difference.most",
            1e-3,
            Text(
                "the largest difference over the largest value: compiled kernels add up in another order",
                "最大差值与最大值之比：编译后的 kernel 累加顺序不同",
            ),
        ),
    ),
    rules=(
        Rule(
            "graph.break",
            Text(
                "the compiler gives up the graph here: {reason}",
                "编译器在此处断图：{reason}",
            ),
        ),
        Rule(
            "graph.recompiles",
            Text(
                "compiled again and again over the shapes of the workload, because of {reason}",
                "在工作负载的各 shape 间反复重编译，原因是 {reason}",
            ),
        ),
        Rule(
            "graph.gain",
            Text(
                "the call is faster compiled, and the output agrees; the evidence has the gain and when it has paid",
                "编译后调用更快且输出一致；收益与收回代价所需次数见证据",
            ),
        ),
        Rule(
            "graph.no_gain",
            Text(
                "the workload is compiled and no faster for it",
                "工作负载已编译，但并未因此变快",
            ),
        ),
        Rule(
            "graph.disagrees",
            Text(
                "the compiled call answers differently, by more than rounding; its speed is no gain",
                "编译后的输出差异超过舍入误差；其速度不算收益",
            ),
        ),
        Rule(
            "graph.compiled_already",
            Text(
                "the workload compiles itself; it is compared with itself run without the compiler",
                "工作负载自身已使用编译；与关闭编译器的自身比较",
            ),
        ),
    ),
)
