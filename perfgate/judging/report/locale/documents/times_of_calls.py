"""Why the steps that time calls have no number: latency, utilization, transfers, batches, preprocessing."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    Text(
        "it takes calls made here, with settings of their own; a recording shows calls that were made",
        "需要在本机以专门的设置发起调用；录制数据只有已发生的调用",
    ),
    Text(
        "the recording marks no steps; call prof.step() after every iteration, so that a step can be "
        "told from the next",
        "录制数据没有标出 step；请在每次迭代后调用 prof.step()，以区分相邻的 step",
    ),
    Text("the recording does not say when its steps began and ended", "录制数据没有记录各 step 的起止"),
    Text("the recording shows nothing that ran on a device", "录制数据中没有在设备上运行的内容"),
    Text(
        "the recording does not say what the device did in each of its steps",
        "录制数据没有记录设备在各 step 中做了什么",
    ),
    Text(
        "nothing says when the first step began: there is no timeline, and the table of steps has no column Preparing",
        "无从得知第一个 step 何时开始：没有时间线，step 表中也没有 Preparing 列",
    ),
    Text(
        "the recording has no timeline of the device, and tables of kernels hold no copies",
        "录制数据没有设备时间线，而 kernel 表中不含拷贝",
    ),
    Text("the recording holds no operator of its steps", "录制数据中没有各 step 的算子"),
    Text("a recording has one batch size", "一份录制数据只有一种 batch size"),
    Text(
        "not estimable: a P99 needs {needed} calls, there are {calls}; see P90",
        "不可估计：P99 需要 {needed} 次调用，现有 {calls} 次；请看 P90",
    ),
    Text(
        "the profiler shows no kernels of this device on a timeline of their own; see utilization.host",
        "profiler 没有给出本设备 kernel 的单独时间线；请看 utilization.host",
    ),
    Text(
        "the driver told its utilization {times} times in {seconds} s of calls",
        "在 {seconds} s 的调用中驱动上报了 {times} 次利用率",
    ),
    Text("the device works in host memory: there is nothing to copy", "设备直接使用 Host 内存：没有拷贝"),
    Text("nothing was copied", "没有拷贝"),
    Text(
        "the trace holds no operator: a call runs none that the profiler knows",
        "轨迹中没有算子：调用未运行 profiler 认识的算子",
    ),
    Text("the trace holds no operator", "轨迹中没有算子"),
    Text("the workload names no batch size but the configured {size}", "workload 只给出了当前配置的 batch size {size}"),
    Text(
        "the batch size is fixed at {configured}: a batch of {size} is refused ({error})",
        "batch size 固定为 {configured}：拒绝 batch {size}（{error}）",
    ),
    Text(
        "no batch size but the configured {size} fits into the device's memory",
        "只有当前配置的 batch size {size} 能放进设备内存",
    ),
    Text(
        "not reached: the largest batch size measured is beyond doubt the fastest",
        "未出现：所测的最大 batch size 无疑最快",
    ),
    Text("no batch size keeps the SLA", "没有 batch size 能满足 SLA"),
    Text(
        "it needs the throughput of the configured and of the best batch size", "需要当前配置与最佳 batch size 的吞吐"
    ),
    # open loop and traffic
    Text(
        "{rate} calls a second are fewer than {fewest} in {seconds}",
        "每秒 {rate} 次调用，在{seconds}内不足 {fewest} 次",
    ),
    Text("the time for it", "可用时间"),
    Text("the time that the full run takes for it", "完整运行的可用时间"),
    Text("the queue grows without end at {rate} calls a second", "每秒 {rate} 次调用时，队列无限增长"),
    Text(
        "not estimable: a P99 needs {needed} calls, there are {calls}",
        "不可估计：P99 需要 {needed} 次调用，现有 {calls} 次",
    ),
    Text(
        "not estimable: a P99 needs {needed} requests, there are {found}",
        "不可估计：P99 需要 {needed} 个请求，现有 {found} 个",
    ),
    Text(
        "the workload does not say how requests come in; add traffic=Traffic(rate=...) with requests a second to it, or "
        "Traffic(arrivals=[...]) with recorded times",
        "workload 没有说明请求如何到达；请加上 traffic=Traffic(rate=...)（每秒请求数），或 Traffic(arrivals=[...])（录制的"
        "到达时刻）",
    ),
    Text("a training iteration answers no requests", "训练迭代不处理请求"),
    Text(
        "{rate} requests a second are too few for a replay in the time for it",
        "每秒 {rate} 个请求太少，在可用时间内无法回放",
    ),
    Text("static batches answer soonest already", "静态 batch 的响应已最快"),
    Text("not compared: they are no tensors with a row an item", "未比较：输出不是每个样本一行的 Tensor"),
    # preprocessing
    Text(
        "the workload gives no preprocess, so its inputs are taken as ready; give it preprocess=function, or a mapping of "
        "names to functions, to have it measured",
        "workload 没有提供 preprocess，视其输入已就绪；要测量预处理，请提供 preprocess=函数，或“名称到函数”的映射",
    ),
    Text(
        "the recording holds no span of a DataLoader, no Preparing column and no data_preprocess.csv, so it does not say "
        "what loading takes",
        "录制数据中没有 DataLoader 区间、没有 Preparing 列，也没有 data_preprocess.csv，无法得知数据加载的耗时",
    ),
    Text(
        "the recording does not say when its steps began and ended, so there is nothing to take a share of",
        "录制数据没有记录各 step 的起止，因此无从计算占比",
    ),
)
