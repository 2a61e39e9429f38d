"""Why the steps that look at the machine have no number: caches, communication, memory, the profile, heat."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    # caches
    Text(
        "nobody tells how large the device's last cache is, or twice as much memory is not free",
        "无法得知设备末级缓存的大小，或没有两倍于它的空闲内存",
    ),
    Text(
        "the recording has no counters of the L2 cache; on an NPU record it with aic_metrics=AiCMetrics.L2Cache, or on 910A "
        "and 310P with l2_cache=True",
        "录制数据中没有 L2 Cache 计数；NPU 上请以 aic_metrics=AiCMetrics.L2Cache 采集，910A 与 310P 用 l2_cache=True",
    ),
    Text("the inputs hold no tensor", "输入中没有 Tensor"),
    Text(
        "an input has {size} bytes: {needed} copies of it would be needed to fill the cache twice",
        "一份输入为 {size} 字节：要装满缓存两遍需 {needed} 份副本",
    ),
    # communication
    Text(
        "one process has nobody to talk to, and this one sees one device of kind {kind}; where the workload is spread over "
        "several, write e.g. ranks=2 in its Workload",
        "单个进程没有通信对象，而本进程只能看到一个 {kind} 设备；若 workload 分布在多个设备上，请在其 Workload 中写明，例如 "
        "ranks=2",
    ),
    Text("the recording holds no collective", "录制数据中没有集合通信"),
    Text(
        "torch.distributed has no backend for devices of kind {kind}", "torch.distributed 没有适用于 {kind} 设备的后端"
    ),
    Text(
        "the workload has ranks={ranks}, and this process sees {seen} devices of kind {kind}",
        "workload 的 ranks={ranks}，而本进程只能看到 {seen} 个 {kind} 设备",
    ),
    Text(
        "{count} sizes fit into memory and time, a line takes three",
        "内存与时间只容得下 {count} 种大小，拟合直线至少需要三种",
    ),
    Text("a larger message took no longer than a small one", "较大消息的耗时并不比小消息长"),
    # memory
    Text("the framework keeps no pool of this device's memory", "框架没有为本设备维护内存池"),
    Text("the device's allocations cannot be counted", "无法统计本设备的内存分配"),
    Text(
        "the recording holds no memory: record with profile_memory=True",
        "录制数据中没有内存数据：请以 profile_memory=True 采集",
    ),
    # the profile
    Text(
        "the recording joins nothing that ran with a stack of the host; record the host too, on a CPU with_stack=True",
        "录制数据没有把运行内容与 Host 侧调用栈关联；请同时采集 Host 侧，CPU 上用 with_stack=True",
    ),
    Text("the trace shows nothing that ran", "轨迹中没有任何运行内容"),
    Text("a recording shows profiled calls alone", "录制数据只有 profiler 下的调用"),
    Text("the recording holds tables, and no timeline to draw", "录制数据只有表格，没有可绘制的时间线"),
    # heat
    Text("the recording holds no clock of the device's cores", "录制数据中没有设备核的频率"),
    Text(
        "the sensor answered {times} times in {seconds} s of calls, {fewest} are needed",
        "在 {seconds} s 的调用中传感器应答 {times} 次，至少需要 {fewest} 次",
    ),
    Text(
        "the sensor tells no clock of a device at work beside its rated one",
        "传感器没有给出设备工作时可与额定值对照的频率",
    ),
    Text("the sensor tells no power of this device", "传感器没有给出本设备的功耗"),
    Text("the sensor tells no temperature of this device", "传感器没有给出本设备的温度"),
    Text(
        "no sensor of this CPU below /sys, as is usual in a virtual machine",
        "/sys 下没有本 CPU 的传感器，虚拟机中通常如此",
    ),
    Text(
        "nothing tells the temperature, clock or power of a {kind} device", "没有途径得知 {kind} 设备的温度、频率或功耗"
    ),
    Text(
        "the process that reads temperature, clock and power ended with exit status {status}",
        "读取温度、频率与功耗的进程已退出，退出码 {status}",
    ),
    Text(
        "the process that reads temperature, clock and power said nothing for {seconds} s",
        "读取温度、频率与功耗的进程 {seconds} s 内没有输出",
    ),
    Text("{command} is neither on PATH nor in {folders}", "PATH 与 {folders} 中都没有 {command}"),
    Text(
        "{command} did not answer within {seconds} s; is a card in reset?",
        "{command} 在 {seconds} s 内没有应答；是否有卡正在复位？",
    ),
    Text("{command} cannot be started: {error}", "{command} 无法启动：{error}"),
)
