"""The parts of the comment."""

from __future__ import annotations

WORDS = {
    "{numbers} missing: what is not there may have got worse too": "缺少{numbers}：缺少的部分也可能已变差",
    # table of what moved
    "calls of {metric}": "{metric} 的调用次数",
    "{rows} moved": "{rows}有变化",
    "{more} of this table: see `decision.json`.": "本表{more}见 `decision.json`。",
    "{more}: see `decision.json`.": "{more}见 `decision.json`。",
    "{here} {op}": "{op} {here}",
    "{here} held in {tensor} of {op}": "{op} 的 {tensor} 占用{here}",
    "{here} held by {op}": "{op} 占用{here}",
    "{here} copied by {op}": "{op} 拷贝{here}",
    "{here} block taken by {op}": "{op} 申请的内存块{here}",
    "{here} blocks taken by {op}": "{op} 申请的内存块{here}",
    "{op} on {head_input} instead of {base_input}": "{op} 的输入由 {base_input} 变为 {head_input}",
    " ({in_all} in all, also at {other_lines})": "（共 {in_all}，另见 {other_lines}）",
    " ({in_all} in all)": "（共 {in_all}）",
    "{here} floating-point operations in {op}": "{op} 的浮点运算{here}",
    ": {more} floating-point operations ({base} → {head})": "：浮点运算{more}（{base} → {head}）",
    "{here} call of {op}": "{op} 的调用{here}",
    "{here} calls of {op}": "{op} 的调用{here}",
    "{here} bytecodes in {op}": "{op} 的字节码{here}",
    ": {more} bytecodes ({base} → {head})": "：字节码{more}（{base} → {head}）",
    ": {more} held at the peak ({base} → {head})": "：峰值时占用{more}（{base} → {head}）",
    ": {more} copied ({base} → {head})": "：拷贝{more}（{base} → {head}）",
    ": {more} blocks taken ({base} → {head})": "：申请内存块{more}（{base} → {head}）",
    ", at most {tensor}": "，最大为 {tensor}",
    " at {lines}": "，代码行 {lines}",
    " and {more_lines}": "，{more_lines}",
    "{op} takes {time} longer": "{op} 多用 {time}",
    "operators changed, see Why": "算子有变化，见“原因”",
    # why, and what to try
    "Why": "原因",
    "{op} in {places}": "{op}，位于 {places}",
    "{op} in {place}": "{op}，位于 {place}",
    ": {more} call ({base} → {head})": "：调用{more} 次（{base} → {head}）",
    ": {more} calls ({base} → {head})": "：调用{more} 次（{base} → {head}）",
    " at {line}": "，代码行 {line}",
    ", {time} more self time": "，自身耗时多 {time}",
    " and {places}": "，{places}",
    " and {more}": "，{more}",
    "and {more}, see `report.html`": "{more}，见 `report.html`",
    "and {more}, see `decision.json`.": "{more}，见 `decision.json`。",
    "Try": "建议尝试",
    "**{total} slower** (of {tested} tested over {pairs}; this informs and fails nothing)": (
        "**{total}变慢**（共检验 {tested} 个，{pairs}；仅供参考，不影响判定）"
    ),
    ": {change}, {share} of the call": "：{change}，占一次调用的 {share}",
    "; end to end {call}": "；端到端{call}",
    # trace, if intended
    "Trace": "轨迹",
    "Flame graph": "火焰图",
    " in {job_url}": "，位于{job_url}",
    "the measuring job's own files": "测量作业自己的文件",
    "Reproduce": "复现",
    "If intended": "若属预期",
    " a wrong output cannot be accepted: correct the model, or the workload's `check` in a change of its own.": (
        "：输出错误不能被接受，请修正模型，或在单独的改动中修正 workload 的 `check`。"
    ),
    " accept it for this commit where the runs of main are kept, `perfgate baseline accept METRIC --reason TEXT`.": (
        "：在保存 main 运行结果的机器上为此提交接受它：`perfgate baseline accept METRIC --reason TEXT`。"
    ),
    " Or raise the limit on the base branch first, under `[limits]`:": "或先在 base 分支的 `[limits]` 中提高限值：",
    " Or raise the budget on the base branch first, under `[budget]`:": "或先在 base 分支的 `[budget]` 中提高预算：",
    " Or allow it on the base branch first, in `perfgate.toml` under `[gate.tolerance]` (a change cannot loosen the gate it "
    "has to pass):": ("或先在 base 分支 `perfgate.toml` 的 `[gate.tolerance]` 中放宽（改动不能放宽自己要过的门禁）："),
    " A count that was 0 has no relative limit: merging it makes it part of the next base.": (
        "原为 0 的计数没有相对限值：合入后即成为下一次的 base。"
    ),
    # what got better
    "**Better than the base**: ": "**优于 base**：",
    ". Merged, this is the baseline that the next change is held to; `perfgate baseline record` on main keeps it for the "
    "trend.": "。合入后即成为下一次改动的基线；在 main 上运行 `perfgate baseline record` 可将其记入趋势。",
    " A budget in `perfgate.toml` that would hold on to it: ": "可在 `perfgate.toml` 中设以下预算以守住：",
    # errors, notes, workload file
    "**Error** in the {side}, {what} of {workload} ({kind}": "{side} 出现**错误**：{workload} 的 {what}（{kind}",
    "Note:": "提示：",
    "How it was compared: base, testbed, noise floor": "比较方式：base、测试环境、噪声底",
    " (changed at {places})": "（改动处：{places}）",
    "**The workload file changed**, and the head's measured both sides:": "**workload 文件有改动**，两侧均以 head 的文件测量：",
    # folds
    "Checklist of the head: ": "head 的检查清单：",
    "; ": "；",
    "about {pairs_needed}": "约需 {pairs_needed}",
    "{undecided} undecided": "{undecided} 个未判定",
    "{not_compared} not comparable": "{not_compared} 个不可比",
    "Unchanged time means: a slowdown above {margin} is excluded.": "时间无变化是指：可排除超过 {margin} 的变慢。",
    "{total} recorded, not compared": "{total}为录制值，未作比较",
    "Recorded under a profiler, at different times: nothing follows from a difference. `perfgate check` measures base and "
    "head side by side.": (
        "在 profiler 下于不同时间录制：差异不说明任何问题。`perfgate check` 会把 base 与 head 放在一起测量。"
    ),
    "self time of ": "自身耗时 ",
    "{time_of}{name} of {place}:": "{place} 的{time_of}{name}：",
    # main's stored runs
    "Main's stored runs": "main 的保存记录",
    "main's stored runs": "main 的保存记录",
    "Measured on other days: this informs, and the verdict rests on what this job measured itself.": (
        "测于其他日子：仅供参考，判定只依据本作业自己的测量。"
    ),
    "main, typically": "main 通常",
    "range of one more run": "再运行一次的范围",
    "the head lies": "head 的位置",
    "from": "依据",
    "{name} of {place}:": "{place} 的{name}：",
    "too few runs to say": "运行太少，无法判断",
    "inside the range": "在范围内",
    "above the range": "高于范围",
    "below the range": "低于范围",
    # procedure
    "Procedure, noise and discarded samples": "过程、噪声与丢弃的样本",
    "Procedure, noise and discarded samples: {failed_count} failed": "过程、噪声与丢弃的样本：{failed_count}失败",
    "perfgate {version}, procedure {name} version {procedure_version}, seed {seed}": (
        "perfgate {version}，过程 {name} 第 {procedure_version} 版，随机种子 {seed}"
    ),
    "exact counts of two recordings were compared; chance has no part in it": (
        "比较的是两份录制数据的精确计数，与随机性无关"
    ),
    "chance of a false alarm of the whole gate at most {alpha}; unchanged means that a slowdown above {margin} is excluded": (
        "整个门禁的误报概率至多 {alpha}；无变化是指可排除超过 {margin} 的变慢"
    ),
    "both errors are spent over looks at {looks} pairs": "两类错误概率分摊到 {looks} 对时的各次查看",
    "; the pairs of {rounds} are put together": "；合并了 {rounds}的对",
    "the workers waited {waited} of the measured time for a CPU that other processes had": (
        "worker 有 {waited} 的测量时间在等待被其他进程占用的 CPU"
    ),
    "device {device}": "设备 {device}",
    "run document of the {side}: sha256 {digest}": "{side} 的运行文档：sha256 {digest}",
    "testbed: ": "测试环境：",
    "package: ": "软件包：",
    "and {more_packages}, see `decision.json`": "{more_packages}，见 `decision.json`",
    "weights and inputs of {workload} stayed in place: luck of the layout may look like 1 %": "{workload} 的权重和输入"
    "未移动：布局的偶然性可能表现为 1 % 的差异",
    "noise floor of {metric} of {place}: {floor} (base against base)": "{place} {metric}噪声底：{floor}（base 对 base）",
    "failed: {what} of {workload}": "失败：{workload} 的 {what}",
    # the end
    "Left out for size: ": "因篇幅略去：",
    "perfgate wrote its comment twice at the same time; the other one has the numbers": (
        "perfgate 同时写了两条评论；数值见另一条"
    ),
    " with {head}; the comment of perfgate above has the numbers": "（{head}）；数值见上方 perfgate 的评论",
    ". ": "。",
    ".": "。",
    "Everything else is in report.html and decision.json of this check": "其余内容见本次检查的 report.html 与 decision.json",
    "Everything else is in report.html and decision.json, in {artifact_url}": (
        "其余内容见 report.html 与 decision.json，位于{artifact_url}"
    ),
    "the artifact": "构建产物",
    "the job": "作业",
}
