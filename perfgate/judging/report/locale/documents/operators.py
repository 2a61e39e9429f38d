"""Why the steps that look at operators have no number: fusion, formats, precision, small operators, tiling, contiguity."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    # traces of calls
    Text(
        "{path}: the trace holds {found} of {calls} calls, so the profiler dropped events; run again, with --quick for a "
        "shorter trace",
        "{path}：轨迹中只有 {calls} 次调用中的 {found} 次，profiler 丢失了事件；请用 --quick 以更短的轨迹重跑",
    ),
    Text(
        "{path}: the trace holds {devices} devices where one was measured",
        "{path}：轨迹中有 {devices} 个设备，而只测量了一个",
    ),
    Text(
        "torch's profiler gave no events; this build of torch has no Kineto",
        "torch 的 profiler 没有给出事件；此 torch 版本编译时未带 Kineto",
    ),
    Text("no call was counted", "没有统计到任何调用"),
    Text("the trace shows no operators of the host", "轨迹中没有 Host 侧算子"),
    Text(
        "the traced calls ran other operators, or in another order, than the counted one",
        "被追踪的调用与被计数的调用相比，运行的算子或其顺序不同",
    ),
    Text(
        "the recording does not join kernels with the operators of the host that launched them",
        "录制数据没有把 kernel 与下发它的 Host 侧算子关联起来",
    ),
    # fusion
    Text(
        "a call dispatches no product, softmax or elementwise operators, of which a pattern could be made",
        "调用中没有可构成融合模式的矩阵乘、softmax 或逐元素算子",
    ),
    Text("two calls of the shape do not dispatch the same operators", "同一 shape 的两次调用下发的算子不同"),
    Text("the trace does not say which operator the time belongs to", "轨迹没有写明耗时属于哪个算子"),
    Text("the profiler shows no kernels of this device", "profiler 没有给出本设备的 kernel"),
    Text(
        "the workload is compiled: watched operator by operator, a compiled region shows what it was made of",
        "workload 已编译：逐算子观察时，编译区域显示的是编译前的算子",
    ),
    Text("the recording holds no kernels of a device", "录制数据中没有设备 kernel"),
    Text("{names} and {count} more", "{names} 等（另有 {count} 个）"),
    # formats and contiguity
    Text(
        "a call dispatches no operator of the framework, and the device shows no kernels",
        "调用没有下发框架算子，设备也没有给出 kernel",
    ),
    Text(
        "the recording shows no kernel of a device, and operators of a host do not say in which format tensors are",
        "录制数据中没有设备 kernel，而 Host 侧算子没有写明 Tensor 的格式",
    ),
    Text(
        "the recording shows no kernel of a device, and operators of a host do not say how tensors lie in memory",
        "录制数据中没有设备 kernel，而 Host 侧算子没有写明 Tensor 的内存排布",
    ),
    Text(
        "the output in channels_last is another one, so its speed is no gain",
        "channels_last 下的输出不同，因此再快也不算收益",
    ),
    Text(
        "an NPU keeps images in formats of its own; channels_last is none of them",
        "NPU 用自己的格式存放图像，channels_last 不在其中",
    ),
    Text("every convolution runs in channels_last already", "所有卷积都已是 channels_last"),
    # another layout or precision
    Text(
        "a training iteration changes the model it runs on, so two ways of it are not the same work",
        "训练迭代会改变模型本身，因此两种方式做的不是同样的工作",
    ),
    Text(
        "the workload's model is no torch.nn.Module, so it cannot be copied into another layout or precision",
        "workload 的模型不是 torch.nn.Module，无法复制成其他排布或精度",
    ),
    Text(
        "the same input gives another output each time, so outputs of two ways cannot be compared",
        "同一输入每次输出都不同，因此无法比较两种方式的输出",
    ),
    Text("the outputs hold no tensors of one shape that could be compared", "输出中没有 shape 相同、可作比较的 Tensor"),
    Text("there is no memory for a copy of the model", "内存不足以容纳模型副本"),
    Text("the model cannot be copied: {error}", "模型无法复制：{error}"),
    # precision
    Text(
        "a call has no matrix product, convolution or attention whose precision could be lowered",
        "调用中没有可以降低精度的矩阵乘、卷积或注意力",
    ),
    Text(
        "the recording shows no kernel of a device, and operators of a host do not say in which precision they compute",
        "录制数据中没有设备 kernel，而 Host 侧算子没有写明计算精度",
    ),
    Text(
        "the recording does not say in which precision its kernels compute; record at Level1",
        "录制数据没有写明 kernel 的计算精度；请以 Level1 采集",
    ),
    Text("the device does not count what a call allocates", "设备不统计一次调用分配的内存"),
    Text("the output in full precision is zero throughout", "全精度下的输出全为零"),
    Text(
        "the call turns autocast on by itself, so it cannot be had in full precision from outside",
        "调用自行开启了 autocast，无法从外部让它以全精度运行",
    ),
    Text("the call fails under autocast: {error}", "调用在 autocast 下失败：{error}"),
    Text("a float32 copy of the model cannot be called: {error}", "模型的 float32 副本无法调用：{error}"),
    Text("the workload's check says: {said}", "workload 的 check 报告：{said}"),
    Text("{count} elements became NaN or infinite", "有 {count} 个元素变成 NaN 或无穷大"),
    Text(
        "it is off by {difference} of its largest value, allowed are {tolerance}",
        "偏差达最大值的 {difference}，允许 {tolerance}",
    ),
    # small operators
    Text(
        "the host is the device: a call returns when it is done, so there is no queue to keep filled",
        "Host 即设备：调用返回即已完成，没有需要填满的下发队列",
    ),
    Text(
        "a recording shows calls under the profiler, which slows launching; it takes calls made here",
        "录制的是 profiler 下的调用，会拖慢下发；需要在本机发起调用",
    ),
    Text("the trace holds no kernel and no operator", "轨迹中既没有 kernel 也没有算子"),
    Text("no kernel ran on the device", "没有 kernel 在设备上运行"),
    Text(
        "a call waits for the device {waits} times itself, and that time cannot be told from launching",
        "一次调用自身等待设备 {waits} 次，这段时间无法与下发区分",
    ),
    # tiling
    Text(
        "the sizes of all matrix products and convolutions are multiples already, or padding would cost more than a quarter",
        "所有矩阵乘与卷积的尺寸都已对齐，或补齐代价超过四分之一",
    ),
    Text(
        "a call runs no matrix product and no convolution whose sizes could be tried",
        "调用中没有可以试验尺寸的矩阵乘或卷积",
    ),
    Text(
        "the profiler of this device tells neither cores nor pipes of a kernel",
        "本设备的 profiler 不给出 kernel 的核数与流水线数据",
    ),
    Text(
        "the shares of the pipes were not collected; on an NPU record at Level1 with AiCMetrics.PipeUtilization",
        "没有采集流水线占比；NPU 上请以 Level1 和 AiCMetrics.PipeUtilization 采集",
    ),
    Text(
        "nobody tells how many cores the device has, so the numbers of blocks say nothing",
        "无从得知设备有多少个核，因此 block 数不能说明什么",
    ),
    Text(
        "the recording does not say over how many cores a kernel was split; on an NPU record at Level1",
        "录制数据没有写明 kernel 切分到多少个核；NPU 上请以 Level1 采集",
    ),
    Text(
        "the padded operands give another result, so this is no way to do the same",
        "补齐后的操作数结果不同，不能算同样的计算",
    ),
    Text("one run takes {seconds} s, too long to be repeated here", "运行一次需 {seconds} s，太长，无法在此重复"),
    Text("the device has no memory left for the operands", "设备内存不足以容纳操作数"),
)
