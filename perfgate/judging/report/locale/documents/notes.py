"""What commands note beside the numbers of a run."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    # of one side
    Text("base and head: {note}", "base 与 head：{note}"),
    Text("base: {note}", "base：{note}"),
    Text("head: {note}", "head：{note}"),
    # of a session
    Text(
        "{workload}: nothing checks the output; give the workload a `check`, so that a wrong model cannot pass",
        "{workload}：没有检查输出；请为 workload 提供 `check`，以免结果错误的模型通过",
    ),
    Text(
        "the {kind} reports health {health}; perfgate doctor says what to do",
        "{kind} 上报健康状态 {health}；请运行 perfgate doctor 查看处理办法",
    ),
    Text(
        "not measured, because --workload names others: {names}", "因 --workload 指定了其他 workload 而未测量：{names}"
    ),
    Text("left 1 process running, now killed: {names}", "遗留 1 个进程，已终止：{names}"),
    Text("left {count} processes running, now killed: {names}", "遗留 {count} 个进程，已终止：{names}"),
    Text(
        "measured with a token in the job's environment ({names}), by --allow-token-in-env",
        "测量时作业环境中有令牌（{names}），由 --allow-token-in-env 允许",
    ),
    Text(
        "removed from the output folder, as it leads out of it or may hold credentials: {names}",
        "已从输出目录删除，因其指向目录之外或可能含有凭据：{names}",
    ),
    Text(
        "reused kernel caches that an earlier job may have filled: {names}",
        "复用了可能由更早作业写入的 kernel 缓存：{names}",
    ),
    Text(
        "{workload}: base differed from base in {pairs} pairs, so all was measured again in other memory layouts",
        "{workload}：base 与 base 在 {pairs} 对中不同，因此在其他内存布局下全部重新测量",
    ),
    Text(
        "nothing watched {device} beside the pairs: {why}",
        "成对测量期间无法监测 {device}：{why}",
    ),
    Text(
        "measured in an environment that an earlier job made, and could have put anything into",
        "在更早作业创建的环境中测量，该作业可能在其中放入任何内容",
    ),
    Text(
        "{names} differs between base and head, and both sides ran with what is installed; set [measure] setup to give "
        "each its own environment",
        "base 与 head 的 {names} 不同，而两侧都用已安装的环境运行；请设置 [measure] setup，让两侧各用自己的环境",
    ),
    Text(
        "{names} differ between base and head, and both sides ran with what is installed; set [measure] setup to give "
        "each its own environment",
        "base 与 head 的 {names} 不同，而两侧都用已安装的环境运行；请设置 [measure] setup，让两侧各用自己的环境",
    ),
    Text("no flame graph: {error}", "没有火焰图：{error}"),
    # of the advisor
    Text(
        "{tool} advisor: not asked, {size} MB are more than it reads in time",
        "{tool} advisor：未运行，{size} MB 超出其可及时读取的大小",
    ),
    Text("{tool} advisor: its workbook could not be read: {error}", "{tool} advisor：无法读取其结果表：{error}"),
    Text("{tool} advisor gave no result: {last}", "{tool} advisor 没有给出结果：{last}"),
    Text("it printed nothing", "没有任何输出"),
    # of a recording
    Text(
        "made from a recording: counts and times of kernels are compared, the other times with nothing",
        "取自录制数据：计数作精确比较，时间不作比较",
    ),
    Text("not in the recording, so not checked to be equal: {what}", "录制数据中没有，因此未核对是否一致：{what}"),
    Text("the device's name", "设备名称"),
    Text("versions of the software", "软件版本"),
    Text("the profiler's level", "profiler 的采集级别"),
    Text("its AI Core metrics", "AI Core 指标"),
    Text("{what}: nothing is counted; record it again", "{what}：不作计数；请重新录制"),
    Text("not recorded: {what} ({why})", "未录制：{what}（{why}）"),
    Text(
        "counted over the whole recording ({shapes}), as it marks no steps: only equal counts tell",
        "录制数据没有标出 step，按整份数据计数（{shapes}）：只有计数相等才能说明问题",
    ),
    Text(
        "counted in one {unit} alone ({shapes}): nothing shows that it repeats; record three steps",
        "只在一个 {unit} 中计数（{shapes}），无从证明可重复；请录制三个 step",
    ),
    Text("there is no {table}.csv: {why}", "没有 {table}.csv：{why}"),
    Text("the profiler recorded no device, or its analysis failed", "profiler 没有录制设备，或解析失败"),
    Text("torch_npu writes it from profiler level 1 on", "torch_npu 从 profiler Level1 起才写出"),
    Text("it is written with profile_memory=True", "profile_memory=True 时才写出"),
    Text("it is written with ProfilerActivity.CPU", "采集 ProfilerActivity.CPU 时才写出"),
    Text("{rows} rows of {table} lack cells", "{table} 有 {rows} 行缺少单元格"),
    Text(
        "op_statistic counts {said} kernels, the table of kernels has {counted} ({named})",
        "op_statistic 统计了 {said} 个 kernel，kernel 表有 {counted} 个（{named}）",
    ),
    Text(
        "the timeline shows {seen} kernels, the table of kernels has {tabled}",
        "时间线上有 {seen} 个 kernel，kernel 表有 {tabled} 个",
    ),
    Text(
        "the table of steps has {said} ms of computing in step {number}, its kernels {seen} ms",
        "step 表中第 {number} 步的计算为 {said} ms，其 kernel 合计 {seen} ms",
    ),
    Text(
        "there is no communication.json: it is written for several ranks, from level 1 on",
        "没有 communication.json：多 rank 且 Level1 及以上时才写出",
    ),
    Text(
        "there is no trace_view.json, so nothing is known of the host and of launches",
        "没有 trace_view.json，因此 Host 侧与下发情况未知",
    ),
    Text(
        "there is no msprof_*.json, so nothing is known of the host and of launches",
        "没有 msprof_*.json，因此 Host 侧与下发情况未知",
    ),
    Text(
        "the table of kernels does not say which of {devices} devices they ran on",
        "kernel 表没有写明这些 kernel 在 {devices} 个设备中的哪一个上运行",
    ),
    Text("they are in analysis.db; name the folder it lies in", "它们在 analysis.db 中；请指定其所在目录"),
    Text(
        "a timeline alone has no table of kernels; name the folder it lies in",
        "单独的时间线没有 kernel 表；请指定其所在目录",
    ),
    Text(
        "nothing ran on a device while this was recorded, or the profiler was not told to look",
        "录制期间没有内容在设备上运行，或 profiler 未开启设备采集",
    ),
    Text("{spans} spans were begun and never ended, and are left out", "{spans} 个区间只有开始没有结束，已略去"),
    Text(
        "the trace marks no steps; call the profiler's step() after each",
        "轨迹没有标出 step；请在每个 step 后调用 profiler 的 step()",
    ),
)
