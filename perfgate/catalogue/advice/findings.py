"""What to try about every rule that a step may notice.

A rule without advice only says how a number came about, or that nothing was gained: UNADVISED names those.
"""

from __future__ import annotations

from perfgate.catalogue.advice.advice import Advice, Estimated, Measured
from perfgate.catalogue.card import Text

# These say how a number came about, what a step left out or that something is as it should be: there is nothing to try.
UNADVISED = frozenset(
    {
        "batch.knee",
        "batch.out_of_memory",
        "batch.refused",
        "batch.too_slow",
        "batching.simulation_error",
        "batching.unconfirmed",
        "communication.first",
        "communication.refused",
        "counters.unstable",
        "fusion.unknown_cost",
        "graph.compiled_already",
        "memory.largest",
        "precision.rounded",
        "profile.overhead",
        "thermal.shared",
    }
)

_LATENCY = (
    Advice(
        "latency.saturated",
        Text(
            "give one instance fewer calls a second than {rate}, add instances, or answer in batches: step 10 finds the way of "
            "batching that answers soonest",
            "让单个实例每秒的调用少于 {rate}，增加实例，或组 batch 应答：第 10 步会找出应答最快的组 batch 方式",
        ),
        steps=(1, 10),
    ),
    Advice(
        "latency.steady_state",
        Text(
            "look for what changes the speed of calls for seconds (lazy compilation, growing caches, other work on the "
            "machine), and do it when the model is built",
            "请找出使调用速度在数秒内变化的原因（延迟编译、不断增长的缓存、机器上的其他负载），并在构建模型时完成",
        ),
        steps=(1, 9, 15),
    ),
    Advice(
        "sla.p99",
        Text(
            "look at what the slowest calls of shape {shape} do: the largest operators (4), waiting for the host (2), "
            "allocation (17)",
            "请看 shape {shape} 最慢的调用在做什么：最大的算子（4）、等待 Host（2）、内存分配（17）",
        ),
        steps=(1, 2, 4, 17),
    ),
    Advice(
        "sla.p99.near",
        Text(
            "measure shape {shape} longer, without --quick: the interval then says whether the SLA is kept",
            "请不带 --quick 更长时间地测量 shape {shape}：届时区间会说明是否满足 SLA",
        ),
    ),
    Advice(
        "sla.p99.few_calls",
        Text(
            "measure shape {shape} longer, without --quick: it takes more calls to show that the SLA is kept",
            "请不带 --quick 更长时间地测量 shape {shape}：需要更多调用才能证明满足 SLA",
        ),
    ),
)

_DEVICE = (
    Advice(
        "utilization.busy",
        Text(
            "let the host run ahead of the device: fewer and larger operators, no value fetched for Python inside the call, "
            "or the whole call as one captured graph",
            "让 Host 跑在设备前面：算子更少更大、调用中不取回 Python 数值，或把整个调用捕获成一张图（图模式）",
        ),
        gain=Estimated("utilization.busy", rest=True),
        steps=(2, 9, 12),
    ),
    Advice(
        "utilization.communication",
        Text(
            "let communication run behind computing: smaller buckets started earlier, or fewer and larger collectives",
            "让通信隐藏在计算之后：更早启动的小桶，或更少更大的集合通信",
        ),
        gain=Estimated("exposed communication"),
        steps=(2, 16),
    ),
    Advice(
        "utilization.copies",
        Text(
            "copy from pinned memory without blocking, while the step before is computed",
            "使用锁页内存做非阻塞拷贝，与上一个 step 的计算并行",
        ),
        gain=Estimated("exposed copies"),
        steps=(2, 3),
    ),
    Advice(
        "utilization.preparing",
        Text(
            "prepare the next batch while the device still works (workers of the DataLoader), and launch the first operator "
            "of a step earlier",
            "在设备仍在工作时准备下一个 batch（DataLoader 的 worker），并更早下发 step 的首个算子",
        ),
        gain=Estimated("preparing"),
        steps=(2, 11),
    ),
    Advice(
        "utilization.host",
        Text(
            "grant the workload the CPUs it can use and no more ([gate] cpus, [measure] threads), and nothing else beside it",
            "只分配 workload 用得上的 CPU（[gate] cpus、[measure] threads），并避免其他负载",
        ),
    ),
    Advice(
        "transfer.share",
        Text(
            "pin the host memory and copy without blocking; bring the next input over while the current one is computed",
            "使用锁页内存并非阻塞拷贝；在计算当前输入的同时搬运下一个输入",
        ),
        gain=Estimated("transfer.share"),
        code="x = x.pin_memory().to(device, non_blocking=True)",
    ),
    Advice(
        "ops.coverage",
        Text(
            "no single operator is worth the work: fuse or compile what runs, and see what is left then",
            "没有哪个算子值得单独优化：请先融合或编译，再看剩下什么",
        ),
        tried=Measured("graph.speedup"),
        instead=Text(
            "no single operator is worth the work, and compiling the model was measured and is not faster: fuse what runs, "
            "and see what is left then",
            "没有哪个算子值得单独优化，且已实测编译模型并不更快：请先融合，再看剩下什么",
        ),
        steps=(6, 9, 12),
    ),
    Advice(
        "ops.share.conv_matmul",
        Text(
            "what is left to try is a lower precision, and sizes that fit the hardware's blocks",
            "剩下可试的是更低精度，以及与硬件分块匹配的尺寸",
        ),
        steps=(8, 13),
    ),
    Advice(
        "ops.share.copy",
        Text(
            "find the lines that copy (step 14 names them), and keep one layout, dtype and device through the model",
            "请找出拷贝所在的代码行（第 14 步会指出），并在整个模型内保持一种布局、dtype 和设备",
        ),
        gain=Estimated("ops.share.copy", of_busy=True),
        steps=(3, 14),
    ),
    Advice(
        "ops.share.reshape",
        Text(
            "lay tensors out the way the next operator reads them, so that a permute stays a view and no reshape copies",
            "让张量按下一个算子读取的方式排布，使 permute 只是视图，reshape 不产生拷贝",
        ),
        gain=Estimated("ops.share.reshape", of_busy=True),
        steps=(14,),
    ),
    Advice(
        "ops.share.softmax",
        Text(
            "let scaled_dot_product_attention do the softmax inside the attention; elsewhere reduce what it runs over",
            "让 scaled_dot_product_attention 在注意力内部完成 softmax；其他位置请减小其规约范围",
        ),
        gain=Estimated("ops.share.softmax", of_busy=True),
        code="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        steps=(6,),
    ),
    Advice(
        "ops.kernel_time",
        Text(
            "split the work of {op}, or let less data into it; try its sizes padded (13) and in low precision (8)",
            "请拆分 {op} 的工作，或减少送入的数据；可试补齐尺寸（13）与低精度（8）",
        ),
        steps=(4, 8, 13),
    ),
    Advice(
        "ops.missing_kernel",
        Text(
            "find out why {kernel} does not run: an option, a version, inputs it does not take; or correct [expect] kernels "
            "in perfgate.toml",
            "请查明 {kernel} 为何没有运行：选项、版本、不支持的输入；或更正 perfgate.toml 的 [expect] kernels",
        ),
    ),
    Advice(
        "ops.fallback",
        Text(
            "use an operator that the device has a kernel for, or move it out of the call",
            "请换用设备有实现的算子，或移出调用",
        ),
    ),
    Advice(
        "batch.loss",
        Text(
            "use a batch size of {best} instead of {batch}, if the latency of a whole batch allows it",
            "若整个 batch 的时延允许，请把 batch size 由 {batch} 改为 {best}",
        ),
        gain=Measured("batch.loss", of="item", lost=True),
        steps=(1, 5),
    ),
)

_FUSION = (
    Advice(
        "fusion.attention",
        Text(
            "compute the attention in one operator, on tensors of four dimensions (batch, heads, length, size)",
            "用一个算子计算注意力，输入为四维张量（batch、头数、长度、维度）",
        ),
        gain=Estimated("fusion.share", of_busy=True),
        code="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    ),
    Advice(
        "fusion.layer_norm",
        Text("normalize the layer in one operator", "用一个算子完成层归一化"),
        gain=Estimated("fusion.share", of_busy=True),
        code="torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)",
    ),
    Advice(
        "fusion.rms_norm",
        Text("normalize by the root mean square in one operator", "用一个算子完成 RMS 归一化"),
        gain=Estimated("fusion.share", of_busy=True),
        code="torch.nn.functional.rms_norm(x, x.shape[-1:], weight)  # NPU: torch_npu.npu_rms_norm(x, weight)[0]",
    ),
    Advice(
        "fusion.conv_norm_activation",
        Text(
            "fold the normalization into the convolution's weights for inference",
            "推理时把归一化折叠进卷积权重",
        ),
        gain=Estimated("fusion.share", of_busy=True),
        code="torch.nn.utils.fusion.fuse_conv_bn_eval(conv, bn)",
        steps=(6, 9),
    ),
    Advice(
        "fusion.matmul_activation",
        Text(
            "compile the model, so that what follows a matrix product is computed with it",
            "编译模型，使矩阵乘之后的运算与其一起计算",
        ),
        gain=Estimated("fusion.share", of_busy=True),
        code="model = torch.compile(model)",
        tried=Measured("graph.speedup"),
        steps=(6, 9),
    ),
    Advice(
        "fusion.gelu",
        Text("compute GELU in one operator", "用一个算子计算 GELU"),
        gain=Estimated("fusion.share", of_busy=True),
        code='torch.nn.functional.gelu(x, approximate="tanh")  # or approximate="none", as the formula has it',
    ),
    Advice(
        "fusion.elementwise",
        Text(
            "compile the model, so that operators on single elements become one kernel that reads and writes once",
            "编译模型，使逐元素算子合成一个只读写一次的 kernel",
        ),
        gain=Estimated("fusion.share", of_busy=True),
        code="model = torch.compile(model)",
        tried=Measured("graph.speedup"),
        steps=(6, 9),
    ),
    Advice(
        "fusion.sequence_share",
        Text(
            "run the call as a compiled graph, which may make one kernel of those that follow one another ({kernels})",
            "以编译后的图运行调用，可把前后相接的 kernel（{kernels}）合成一个",
        ),
        gain=Estimated("fusion.sequence_share", of_busy=True),
        code="model = torch.compile(model)",
        tried=Measured("graph.speedup"),
        steps=(6, 9),
    ),
    Advice(
        "fusion.pass_without_effect",
        Text(
            "find out why the pass {name} takes no effect: its conditions are on dtype, format and shape",
            "请查明融合 pass {name} 为何不生效：其条件涉及 dtype、格式与 shape",
        ),
    ),
)

_FORMAT = (
    Advice(
        "format.share",
        Text(
            "keep one format through the model, or convert once outside the call; most of the time goes to {pair}",
            "在整个模型内保持一种格式，或在调用之外转换一次；耗时最多的是 {pair}",
        ),
        gain=Estimated("format.share", of_busy=True),
    ),
    Advice(
        "format.mixed",
        Text(
            "put model and inputs into channels_last together, or neither",
            "让模型与输入同时使用 channels_last，或都不使用",
        ),
        code="model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
        steps=(7, 14),
    ),
    Advice(
        "format.boundary",
        Text(
            "let neighbouring modules keep one NPU format, first where {module} changes it ({change})",
            "让相邻模块保持同一种 NPU 格式，先看 {module} 处的变化（{change}）",
        ),
    ),
)

_PRECISION = (
    Advice(
        "precision.gain",
        Text("run the call under autocast to {dtype}", "让调用在 {dtype} 的 autocast 下运行"),
        gain=Measured("precision.speedup"),
        code="with torch.autocast(x.device.type, dtype=torch.{dtype}):",
    ),
    Advice(
        "precision.inaccurate",
        Text(
            "keep what loses precision in float32 (sums, normalization, the last layer) and the rest under autocast to "
            "{dtype}",
            "把损失精度的部分（求和、归一化、最后一层）保留为 float32，其余在 {dtype} 的 autocast 下运行",
        ),
        code="with torch.autocast(x.device.type, enabled=False):",
    ),
    Advice(
        "precision.slower",
        Text(
            "compute in float32 on this device: it has no fast {dtype}",
            "在本设备上用 float32 计算：它没有快速的 {dtype}",
        ),
        gain=Measured("precision.speedup", inverse=True),
        code="model = model.float()",
    ),
    Advice(
        "precision.error",
        Text(
            "keep sums, normalization and the last layer in float32, or use a dtype with more digits than {dtype}",
            "把求和、归一化与最后一层保留为 float32，或使用比 {dtype} 位数更多的 dtype",
        ),
        code="with torch.autocast(x.device.type, enabled=False):",
    ),
    Advice(
        "precision.not_finite",
        Text(
            "compute in bfloat16, whose range is that of float32, or scale what overflows in {dtype}",
            "改用数值范围与 float32 相同的 bfloat16，或对在 {dtype} 中溢出的部分做缩放",
        ),
        code="model = model.bfloat16()",
    ),
    Advice(
        "precision.low_share",
        Text(
            "bring the inputs of {op} into the precision of the rest; now it computes in {dtype}",
            "让 {op} 的输入与其余部分精度一致；现在它以 {dtype} 计算",
        ),
    ),
    Advice(
        "precision.cast_share",
        Text(
            "keep one dtype from operator to operator; most casts are {change}",
            "让算子之间保持同一种 dtype；最多的转换是 {change}",
        ),
        gain=Estimated("precision.cast_share", of_busy=True),
    ),
)

_GRAPH = (
    Advice(
        "graph.break",
        Text(
            "take out of the compiled part what breaks its graph: {reason}",
            "请把造成断图的内容移出被编译的部分：{reason}",
        ),
    ),
    Advice(
        "graph.recompiles",
        Text(
            "mark the size that changes as dynamic, or pad inputs to a few sizes",
            "请把变化的维度标为动态，或把输入补齐到少数几种大小",
        ),
        code="torch._dynamo.mark_dynamic(x, 0)",
    ),
    Advice(
        "graph.gain",
        Text(
            "compile the model: the same call is faster, and its output agrees",
            "请编译模型：同样的调用更快，且输出一致",
        ),
        gain=Measured("graph.speedup"),
        code="model = torch.compile(model)",
    ),
    Advice(
        "graph.no_gain",
        Text(
            "leave torch.compile away, or give it larger parts without breaks: it costs its compilation and gains nothing",
            "去掉 torch.compile，或让它编译更大的、不断图的部分：目前只有编译代价而无收益",
        ),
    ),
    Advice(
        "graph.disagrees",
        Text(
            "find the operator that answers differently when compiled before using it: compile parts of the model one by one",
            "使用前请先找出编译后结果不同的算子：逐部分编译模型",
        ),
        code='torch.compile(model, backend="aot_eager")',
    ),
)

_SERVING = (
    Advice(
        "batching.gain",
        Text(
            "answer by {policy} batching of at most {batch} instead of static batches of {configured}, at {rate} requests a "
            "second",
            "在每秒 {rate} 个请求下，用 {policy} 方式、至多 {batch} 组 batch，代替固定 batch {configured}",
        ),
        gain=Measured("batching.speedup", of="answer"),
    ),
    Advice(
        "batching.differs",
        Text(
            "before batching, find out why an item of a batch of {batch} is answered otherwise than alone: normalization over "
            "the batch, padding without a mask",
            "组 batch 之前，请查明 batch {batch} 中的条目为何与单独应答不同（跨 batch 归一化、补齐未加掩码）",
        ),
    ),
    Advice(
        "batching.saturated",
        Text(
            "add instances, or make a call faster: one instance answers about {most} requests a second at most, {rate} come",
            "请增加实例，或让调用更快：单实例每秒至多约应答 {most} 个请求，而到达 {rate} 个",
        ),
    ),
    Advice(
        "preprocess.exposed_share",
        Text(
            "prepare the next batch while the model works (workers of the DataLoader), and make {stage} faster first",
            "在模型计算时准备下一个 batch（DataLoader 的 worker），并先加快 {stage}",
        ),
        gain=Estimated("preprocess.exposed_share"),
        code="DataLoader(dataset, num_workers=4, pin_memory=True, prefetch_factor=4)",
    ),
    Advice(
        "preprocess.contention",
        Text(
            "give preprocessing cores of its own, or the model fewer threads",
            "为预处理分配独立的 CPU 核，或减少模型的线程数",
        ),
        code="torch.set_num_threads(…)",
    ),
    Advice(
        "preprocess.loading_share",
        Text(
            "give the DataLoader more workers, pinned memory and something to prefetch",
            "给 DataLoader 更多 worker、锁页内存与预取",
        ),
        gain=Estimated("preprocess.loading_share"),
        code="DataLoader(dataset, num_workers=4, pin_memory=True, prefetch_factor=4)",
    ),
    Advice(
        "preprocess.on_device",
        Text(
            "preprocess on the device: raw batches are brought over, and the output is the same",
            "在设备上做预处理：直接搬运原始 batch，输出相同",
        ),
        gain=Measured("preprocess.device_speedup", of="input"),
    ),
    Advice(
        "preprocess.device_differs",
        Text(
            "make preprocess_on_device agree with preprocess first: resizing and rounding mostly differ",
            "请先让 preprocess_on_device 与 preprocess 一致：常见差异是缩放与取整",
        ),
    ),
)

_LAUNCHES = (
    Advice(
        "small_ops.time_share",
        Text(
            "merge short operators: batch what a loop does, use fused ones, or run the call as a compiled or captured graph",
            "合并短算子：把循环改成批量运算，使用融合算子，或以编译、捕获的图运行调用",
        ),
        gain=Estimated("small_ops.time_share", of_busy=True),
        code="model = torch.compile(model)",
        tried=Measured("graph.speedup"),
        instead=Text(
            "merge short operators: batch what a loop does, use fused ones; compiling the model was measured and is not "
            "faster",
            "合并短算子：把循环改成批量运算，使用融合算子；已实测编译模型，并不更快",
        ),
        steps=(6, 9, 12),
    ),
    Advice(
        "small_ops.launch_bound",
        Text(
            "launch fewer kernels than {launches} a call, or all at once as a captured graph",
            "把每次调用的下发次数降到 {launches} 以下，或以捕获的图一次性下发",
        ),
        code='model = torch.compile(model, mode="reduce-overhead")',
        steps=(9, 12),
    ),
    Advice(
        "small_ops.loop",
        Text(
            "do {op} once on the whole tensor (stack, a broadcast, one fused op) instead of {count} times",
            "对整个张量执行一次 {op}（stack、广播或一个融合算子），而不是 {count} 次",
        ),
    ),
    Advice(
        "tiling.attained",
        Text(
            "look at the shapes of {op}: sizes that fit the blocks of the {unit} cores, and fewer, larger runs",
            "请看 {op} 的 shape：使尺寸与 {unit} 核的分块匹配，次数更少、每次更大",
        ),
        gain=Estimated("time_share", of_busy=True, stays="tiling.attained"),
    ),
    Advice(
        "tiling.occupancy",
        Text(
            "give {op} more to split over the {unit} cores: a larger batch, or several of its runs joined",
            "让 {op} 有更多可切分到 {unit} 核的工作：更大的 batch，或合并多次执行",
        ),
        gain=Estimated("time_share", of_busy=True, stays="tiling.occupancy"),
        steps=(5, 13),
    ),
    Advice(
        "tiling.padding_gain",
        Text("pad {op} from {sizes} to {padded}", "把 {op} 的尺寸由 {sizes} 补齐到 {padded}"),
        gain=Estimated("saves", seconds=True),
    ),
)

_MEMORY = (
    Advice(
        "contiguity.copy_share",
        Text(
            "keep one layout through the block, so that {op} has nothing to copy, or convert once outside the call",
            "在整个模块内保持一种布局，使 {op} 无需拷贝，或在调用之外转换一次",
        ),
    ),
    Advice(
        "contiguity.kernel_share",
        Text(
            "find the lines that call {op}, and lay tensors out the way the next operator reads them",
            "请找出调用 {op} 的代码行，让张量按下一个算子读取的方式排布",
        ),
        gain=Estimated("contiguity.kernel_share", of_busy=True),
    ),
    Advice(
        "contiguity.channels_last",
        Text("keep model and inputs in channels_last", "让模型与输入使用 channels_last"),
        gain=Measured("contiguity.channels_last_speedup"),
        code="model = model.to(memory_format=torch.channels_last)",
    ),
    Advice(
        "cache.sensitivity",
        Text(
            "take the number of the {buffers} buffers for production, and measure with inputs that differ",
            "对生产环境请以 {buffers} 缓冲区的数值为准，并用不同的输入测量",
        ),
    ),
    Advice(
        "cache.hit_rate",
        Text(
            "let {op} read less at once, or right after it was written: smaller batches, fused neighbours",
            "让 {op} 一次少读一些，或紧接写入之后读取：更小的 batch、与相邻算子融合",
        ),
        steps=(6, 15),
    ),
    Advice(
        "memory.growth",
        Text(
            "detach what is stored beyond a call, and bound lists and caches",
            "对保存到调用之外的张量 detach，并给列表和缓存设上限",
        ),
        code="history.append(loss.detach())",
    ),
    Advice(
        "memory.resident_growth",
        Text(
            "look for Python objects, numpy arrays and buffers of libraries that a call leaves behind",
            "请查找调用之后留下的 Python 对象、numpy 数组与库的缓冲区",
        ),
        code="tracemalloc.start(); …; tracemalloc.take_snapshot().statistics('lineno')",
    ),
    Advice(
        "memory.segments",
        Text(
            "warm up with the largest shape first, keep shapes few, and never empty the cache inside the call",
            "先用最大的 shape 预热，减少 shape 种类，不要在调用中清空缓存",
        ),
        code="PYTORCH_NPU_ALLOC_CONF=expandable_segments:True  # PYTORCH_CUDA_ALLOC_CONF on CUDA",
    ),
    Advice(
        "memory.retries",
        Text(
            "use a smaller batch, or free tensors earlier: the device's memory is full",
            "请减小 batch，或更早释放张量：设备内存已满",
        ),
        steps=(5, 17),
    ),
    Advice(
        "memory.fragmentation",
        Text(
            "let segments grow, or warm up with the largest shape first",
            "让内存段可扩展，或先用最大的 shape 预热",
        ),
        code="PYTORCH_NPU_ALLOC_CONF=expandable_segments:True  # PYTORCH_CUDA_ALLOC_CONF on CUDA",
    ),
    Advice(
        "memory.faults",
        Text(
            "let the host's malloc keep what is freed",
            "让 Host 的 malloc 保留已释放的内存",
        ),
        code="export MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456 MALLOC_MMAP_MAX_=0",
    ),
)

_MACHINE = (
    Advice(
        "communication.wrong_result",
        Text(
            "stop here: {operation} gives wrong numbers; test the links, and use one version of driver and backend everywhere",
            "请先停止：{operation} 的结果错误；请检测链路，并在各处使用同一版本的驱动与后端",
        ),
    ),
    Advice(
        "communication.peak_share",
        Text(
            "send larger buckets, and look at which links the backend uses (topology, environment of HCCL or NCCL)",
            "使用更大的通信桶，并查看后端使用了哪些链路（拓扑、HCCL 或 NCCL 的环境变量）",
        ),
        code="DistributedDataParallel(model, bucket_cap_mb=100)",
    ),
    Advice(
        "communication.slow_rank",
        Text(
            "look at the machine of rank {rank}: clock, temperature, other processes, its share of the data",
            "请查看 rank {rank} 所在的机器：频率、温度、其他进程、其数据量",
        ),
        steps=(16, 19),
    ),
    Advice(
        "communication.exposed",
        Text(
            "let communication run behind computing: smaller buckets started earlier, gradients joined as views",
            "让通信隐藏在计算之后：更早启动的小桶，梯度以视图方式合并",
        ),
        gain=Estimated("communication.exposed"),
        code="DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=25)",
    ),
    Advice(
        "collectives.slowest_rank",
        Text(
            "balance the work of {longest} and {shortest}: who waits longest has least to do",
            "请平衡 {longest} 与 {shortest} 的工作：等待最久者工作最少",
        ),
    ),
    Advice(
        "profile.attributed",
        Text(
            "record with stacks, so that kernels get the lines that ask for them",
            "录制时带上调用栈，使 kernel 能对应到代码行",
        ),
        code="torch_npu.profiler.profile(with_stack=True)  # torch.profiler.profile elsewhere",
    ),
    Advice(
        "profile.lost_events",
        Text(
            "record fewer steps, or a lower level of detail",
            "请录制更少的 step，或降低录制级别",
        ),
    ),
    Advice(
        "thermal.derating",
        Text(
            "cool the device better, raise its power limit, or count on the speed it keeps",
            "改善散热、提高功耗上限，或以其能持续的速度为准",
        ),
    ),
    Advice(
        "thermal.drift",
        Text(
            "look for what grows from call to call: a list, a cache, a graph that is kept",
            "请查找逐次调用增长的内容：列表、缓存、被保留的计算图",
        ),
        steps=(17, 19),
    ),
    Advice(
        "thermal.throttled",
        Text(
            "let the device cool down or fix its clock, then measure again",
            "请让设备降温或固定频率，然后重新测量",
        ),
    ),
    Advice(
        "thermal.clock",
        Text(
            "record again on a device whose clock is fixed, or that is cool",
            "请在固定频率或已降温的设备上重新录制",
        ),
    ),
)

FINDINGS: tuple[Advice, ...] = (
    *_LATENCY,
    *_DEVICE,
    *_FUSION,
    *_FORMAT,
    *_PRECISION,
    *_GRAPH,
    *_SERVING,
    *_LAUNCHES,
    *_MEMORY,
    *_MACHINE,
)
