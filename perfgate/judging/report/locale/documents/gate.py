"""What the gate says of comparisons and verdicts."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    # why this base
    Text("{revision} as given, the same commit as head", "按指定的 {revision}，与 head 为同一提交"),
    Text("{revision}, an ancestor of head", "{revision}，head 的祖先"),
    Text("{revision} as given, it is ahead of head", "按指定的 {revision}，领先于 head"),
    Text("merge base of {revision} and head", "{revision} 与 head 的共同祖先"),
    # what is not proven
    Text("base against base differs in {metric}", "base 对 base 的 {metric} 不同"),
    Text("the testbeds differ between base and head", "base 与 head 的测试环境不同"),
    Text("no comparison could be made", "无法作任何比较"),
    Text("nothing relevant changed: 1 file, by the rule {rules}", "没有相关改动：1 个文件，依据规则 {rules}"),
    Text(
        "nothing relevant changed: {count} files, by the rule {rules}", "没有相关改动：{count} 个文件，依据规则 {rules}"
    ),
    Text("not measured: the time budget was spent before", "未测量：时间预算已用完"),
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
    Text("calls take less time", "调用耗时减少"),
    Text(
        "the host waits for the device, and waiting executes instructions too",
        "Host 在等待设备，而等待本身也会执行指令",
    ),
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
    Text(
        "{number} more operators a call compute in full precision, in lower precision before",
        "每次调用多出 {number} 个算子以全精度计算，之前为低精度",
    ),
    Text(
        "{number} more operators a call compute in full precision ({op} at {line}), in lower precision before",
        "每次调用多出 {number} 个算子以全精度计算（{op}，{line}），之前为低精度",
    ),
    Text("{computed}; the workload's check accepts the output", "{computed}；workload 的 check 接受其输出"),
    Text("{computed} and no check looks at it", "{computed}，且没有 check 检查输出"),
    Text(
        "{more} more operators a call compute below 32-bit floating point",
        "每次调用多出 {more} 个算子以低于 32 位浮点的精度计算",
    ),
    Text(
        "{more} more operators a call compute below 32-bit floating point ({op} at {line})",
        "每次调用多出 {more} 个算子以低于 32 位浮点的精度计算（{op}，{line}）",
    ),
    # budgets
    Text("the base breaks this bound too", "base 同样违反此限"),
    Text("the value is beyond the bound, and its interval still holds it", "数值超出界限，但其区间仍包含界限"),
    Text(
        "step {step} measured no such value; name the step with --steps",
        "第 {step} 步没有测得该值；请用 --steps 指定该步",
    ),
    Text("one run of {op}", "{op} 的单次执行"),
    # expected kernels
    Text(
        "step 4 kept no names of kernels; name the step with --steps",
        "第 4 步没有留下 kernel 名称；请用 --steps 指定该步",
    ),
    Text("more names of kernels were recorded than are kept", "录制到的 kernel 名称多于所保留的"),
    Text("at {rate} calls a second: {reason}", "每秒 {rate} 次调用时：{reason}"),
    Text("at {rate} calls a second", "每秒 {rate} 次调用时"),
    # times
    Text("recorded, not compared: measure with perfgate check", "录制值，未作比较：请用 perfgate check 测量"),
    Text("the {side} has no times of kernels", "{side} 没有 kernel 耗时"),
    Text("steps are missing from its times", "其耗时缺少部分 step"),
    Text("needs {few} steps a side, there are {base} and {head}", "两侧各需 {few} 个 step，现有 {base} 与 {head} 个"),
    Text("the steps of a side differ by more than the two sides", "同一侧各 step 的差别大于两侧之间的差别"),
    Text("the {side} does not tell it of every operator", "{side} 没有给出每个算子的数值"),
    Text("the recordings tell no time of kernels in a step", "录制数据没有给出 step 内的 kernel 耗时"),
    Text(
        "the limit of {limit} lies below this job's noise floor of {floor}", "限值 {limit} 低于本作业的噪声底 {floor}"
    ),
    Text("at most {bound} % with {confidence} % confidence", "至多 {bound} %，置信度 {confidence} %"),
    Text("{pairs} pairs are too few for a bound", "{pairs} 对太少，给不出界"),
    Text("a slowdown of {size} % is not excluded ({seen})", "不能排除 {size} % 的变慢（{seen}）"),
)
