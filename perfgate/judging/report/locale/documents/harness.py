"""What the gate says of a workload file that changed."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    # what changed
    Text("the base does not run under the head's workload file", "base 无法在 head 的 workload 文件下运行"),
    Text("the base cannot run a workload that is new", "base 无法运行新增的 workload"),
    Text(
        "what the base's own workload file measures is not known: {why}",
        "无法得知 base 自己的 workload 文件测量什么：{why}",
    ),
    Text("no reason given", "未说明原因"),
    Text("workload {name} is new", "新增 workload {name}"),
    Text("the head no longer measures workload {name}", "head 不再测量 workload {name}"),
    Text("the head no longer measures shape {shape}", "head 不再测量 shape {shape}"),
    Text("shape {shape} is new", "新增 shape {shape}"),
    Text("shape {shape} was {before} and is {after}", "shape {shape} 由 {before} 变为 {after}"),
    Text("the batch was {before} and is {after}", "batch 由 {before} 变为 {after}"),
    Text("the sizes of the batch sweep changed", "batch 扫描的取值有变"),
    Text("the SLA of the P99 latency was {before} s and is {after} s", "P99 时延的 SLA 由 {before} s 变为 {after} s"),
    Text("the head removed the SLA of the P99 latency", "head 去掉了 P99 时延的 SLA"),
    Text("the head added an SLA of the P99 latency", "head 新增了 P99 时延的 SLA"),
    Text("the head removed {function}=", "head 去掉了 {function}="),
    Text("the head added {function}=", "head 新增了 {function}="),
    Text("the head changed {function}=", "head 修改了 {function}="),
    Text("other code of {file}, or of a module beside it, changed", "{file} 的其他代码或其旁边的模块有改动"),
    Text("without arguments", "无参数"),
)
