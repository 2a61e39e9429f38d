"""Sentences that the gate and the checklist write into documents, and their Chinese words.

Documents are English whatever language a report is in. A test holds every sentence here against the code that writes it.
"""

from __future__ import annotations

from perfgate.catalogue.card import Text

MESSAGES: tuple[Text, ...] = (
    # notes of both sides hold each other's sentences
    Text("base and head: {note}", "base 与 head：{note}"),
    # why this base
    Text("{revision} as given, the same commit as head", "按指定的 {revision}，与 head 为同一提交"),
    Text("{revision}, an ancestor of head", "{revision}，head 的祖先"),
    Text("{revision} as given, it is ahead of head", "按指定的 {revision}，领先于 head"),
    Text("merge base of {revision} and head", "{revision} 与 head 的共同祖先"),
    # what is not proven
    Text("base against base differs in {metric}", "base 对 base 的 {metric} 不同"),
    Text("the testbeds differ between base and head", "base 与 head 的测试环境不同"),
    Text("no comparison could be made", "无法作任何比较"),
    Text("only the {side} has it", "只有 {side} 有"),
    Text("the device was throttled", "设备被降频"),
    Text("the clock stood below {share} of its rate", "频率低于额定值的 {share}"),
    Text("another process used the device", "有其他进程使用设备"),
    Text(
        "{what}; {few} of {pairs} pairs have too few undisturbed blocks",
        "{what}；{pairs} 对中有 {few} 对未受干扰的块太少",
    ),
    Text(
        "the worker's clock misses at least {share} of the time that passed outside it",
        "worker 的时钟至少漏掉了外部经过时间的 {share}",
    ),
    Text(
        "the {busy} goes on working while the turn is the {other}'s, for {share} of that time (the "
        "{quiet}: {rest}); a thread or process of it slows the other side",
        "轮到 {other} 时 {busy} 仍在工作，占该时间的 {share}（{quiet}：{rest}）；其线程或进程拖慢了另一侧",
    ),
    Text("the calls of a block take longer than the block itself", "一个块内的调用比块本身还长"),
    Text("a call takes no time at all", "有调用耗时为零"),
    Text(
        "a block takes longer by the worker's clock than the conductor waited for it",
        "worker 时钟上的块耗时超过调度进程等待它的时间",
    ),
    Text(
        "{side}, pair {pair}: the worker used {used} CPUs where {granted} were granted",
        "{side}，第 {pair} 对：worker 用了 {used} 个 CPU，而只分配了 {granted} 个",
    ),
    Text(
        "pair {pair}: the base ran with {name} {before}, the head with {after}",
        "第 {pair} 对：base 运行时 {name} 为 {before}，head 为 {after}",
    ),
    Text(
        "the {side} still got faster from block to block when its time to warm up was over, in "
        "{unsteady} of {members} pairs",
        "预热时间结束后 {side} 仍逐块变快，{members} 对中有 {unsteady} 对如此",
    ),
    # counters and the output
    Text(
        "same-input caching: a call on an input it has just seen skips operators, which a call on a "
        "new input never does",
        "按输入缓存：对刚见过的输入会跳过部分算子，而新输入的调用不会",
    ),
    Text(
        "counted in a single step of {sides}, so nothing shows that it repeats",
        "{sides} 只统计了一个 step，无从证明可重复",
    ),
    Text(
        "repeated calls of the head give different counts, those of the base did not",
        "head 重复调用的计数不一致，而 base 一致",
    ),
    Text(
        "the count differs between repeated calls of the same code, so it is not exact here",
        "同一代码重复调用的计数不一致，因此在这里不精确",
    ),
    Text(
        "counted over whole recordings, which mark no steps: one may hold more iterations than the other",
        "按整份录制数据统计，其中没有标出 step：两份的迭代次数可能不同",
    ),
    Text("the output changed from {old} to {new}", "输出由 {old} 变为 {new}"),
    Text("the correctness check could not run", "正确性检查无法运行"),
    # budgets
    Text("the base breaks this bound too", "base 同样违反此限"),
    Text("the value is beyond the bound, and its interval still holds it", "数值超出界限，但其区间仍包含界限"),
    Text(
        "step {step} measured no such value; name the step with --steps",
        "第 {step} 步没有测得该值；请用 --steps 指定该步",
    ),
    # times
    Text("recorded, not compared: measure with perfgate check", "录制值，未作比较：请用 perfgate check 测量"),
    Text(
        "times not compared: {why}; perfgate check measures base and head side by side",
        "未比较时间：{why}；perfgate check 会把 base 与 head 放在一起测量",
    ),
    Text("those of recordings prove nothing", "录制数据的时间不足为据"),
    Text("the sides were measured apart", "两侧是分开测量的"),
    Text(
        "against {sessions} stored sessions of main; suspected until measured side by side",
        "对照 main 的 {sessions} 次保存记录；成对测量之前仅为疑似",
    ),
    Text(
        "the limit of {limit} lies below this job's noise floor of {floor}", "限值 {limit} 低于本作业的噪声底 {floor}"
    ),
    Text("at most {bound} % with {confidence} % confidence", "至多 {bound} %，置信度 {confidence} %"),
    Text("{pairs} pairs are too few for a bound", "{pairs} 对太少，给不出界"),
    Text("a slowdown of {size} % is not excluded ({seen})", "不能排除 {size} % 的变慢（{seen}）"),
    # the workload file
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
    # notes of a session
    Text(
        "{workload}: nothing checks the output; give the workload a `check`, so that a wrong model cannot pass",
        "{workload}：没有检查输出；请为 workload 提供 `check`，以免结果错误的模型通过",
    ),
    Text(
        "the {kind} reports health {health}; perfgate doctor says what to do",
        "{kind} 上报健康状态 {health}；请运行 perfgate doctor 查看处理办法",
    ),
    # steps that say why they have no number
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
        "not reached: doubling the batch still pays at every size measured",
        "未出现拐点：在测过的每个取值上，batch 翻倍仍有收益",
    ),
    Text("no batch size keeps the SLA", "没有 batch size 能满足 SLA"),
    Text(
        "it needs the throughput of the configured and of the best batch size", "需要当前配置与最佳 batch size 的吞吐"
    ),
)
