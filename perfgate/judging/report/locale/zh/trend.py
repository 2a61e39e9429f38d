"""The weekly issue, its page and its table in the terminal."""

from __future__ import annotations

WORDS = {
    # headline and facts
    "perfgate: how main is doing": "perfgate：main 的性能走势",
    "how main is doing": "main 的性能走势",
    "{project} on main: {headline}": "{project} 的 main：{headline}",
    "nothing moved": "无变化",
    "too few runs to look at yet": "运行次数太少，尚无法检查",
    "nothing moved; {still} still open": "无新变化；{still}仍未解决",
    "{moved}; {still} still open": "{moved}；{still}仍未解决",
    "{count} other changes": "{count} 项其他变化",
    "{count} settled": "{count} 项已了结",
    "{count} commit": "{count} 个提交",
    "{count} more commit": "另外 {count} 个提交",
    "{count} more name": "另外 {count} 个名称",
    "{count} more series": "另外 {count} 个序列",
    "{count} more change": "另外 {count} 项变化",
    "{count} run": "{count} 次运行",
    "{count} series": "{count} 个序列",
    "{count} value": "{count} 个值",
    "{count} version": "{count} 个版本",
    "No history is long enough yet: a time needs {needed} of main on one testbed, a counter two; there are {runs}.": (
        "历史还不够长：时间指标需要同一测试环境上 main 的 {needed}，计数需要两个；目前有 {runs}。"
    ),
    "Looked at {series} with {values}, {new} of them new; chance alone may show up to {chance} suspected changes in these.": (
        "共检查 {series}、{values}，其中 {new} 个是新值；仅凭偶然，其中最多可能出现 {chance} 项疑似变化。"
    ),
    "Suspected means seen in stored runs of different days; confirmed means that both commits were measured side by side.": (
        "“疑似”指从不同日期的运行记录中看出；“已确认”指两个提交已并排实测。"
    ),
    "Newest run of {newest}; last report on the runs up to {since}.": "最新运行：{newest}；上次报告截至 {since} 的运行。",
    "Newest run of {newest}; this is the first report.": "最新运行：{newest}；这是首次报告。",
    "{runs} stored, the newest of {newest}.": "已存 {runs}，最新一次在 {newest}。",
    # tables of changes
    "Worse": "变差",
    "Still open": "仍未解决",
    "Changed, which is neither better nor worse": "有变化，但无所谓好坏",
    "Better: {better_count}": "改善：{better_count}",
    "since": "起始",
    "how sure": "确定程度",
    "history": "历史",
    "exact count": "精确计数",
    "confirmed": "已确认",
    "suspected": "疑似",
    "refuted": "已排除",
    ", one of {commit_count}": "，{commit_count}之一",
    ", after {good}": "，在 {good} 之后",
    "after {good}": "在 {good} 之后",
    "after {good} up to {bad}": "{good} 之后，至 {bad}",
    "one of {commit_count}": "{commit_count}之一",
    "one of {commits}": "{commits}之一",
    "; side by side it was not decided": "；并排实测未能判定",
    "side by side it was not decided": "并排实测未能判定",
    "side by side: {measured}": "并排实测：{measured}",
    "{more}: see `trend.html`.": "{more}见 `trend.html`。",
    "Settled since the last report": "上次报告以来已了结",
    " since {bad}": "（自 {bad}）",
    " since {resolved_by}": "（自 {resolved_by}）",
    "the level is back": "已恢复原水平",
    "accepted by {accepted}": "已由 {accepted} 接受",
    "refuted: both commits measured side by side show {measured}": "已排除：两个提交并排实测为 {measured}",
    "with the new runs no change of level is seen there any more": "加入新的运行后，不再看到水平变化",
    "No metric is worse on main than it was.": "main 上没有指标变差。",
    "Commits that may have done it": "可能的提交",
    "The text above has the numbers and the commits.": "数值与提交见上方正文。",
    # runner
    "How the runs went": "运行情况",
    "{runs} stored; by week: ": "已存 {runs}；按周：",
    "The testbed is a new one since {since}; what was measured before it is not compared with it.": (
        "自 {since} 起测试环境已更换；与此前的测量不作比较。"
    ),
    "The testbed is a new one since {since}; its series start anew.": "自 {since} 起测试环境已更换；其序列重新开始。",
    "Failed, of the last {opened}:": "最近 {opened}中失败的有：",
    "None of the last {opened} failed.": "最近 {opened}无失败。",
    "Steps of the checklist to look at in the newest run:": "最新运行中需关注的检查步骤：",
    "Base against base differed by up to {floor}.": "base 对 base 的差异最大为 {floor}。",
    "The device reached {temperature}.": "设备最高温度 {temperature}。",
    "What was not looked at": "未检查的内容",
    "{series} series {reason}:": "{series} 个序列，{reason}：",
    "fewer versions than it takes to tell a change from noise": "版本太少，无法区分变化与噪声",
    "that no run of the last four weeks has": "最近四周的运行中没有",
    "on a testbed that main is no longer measured on": "所在测试环境已不再用于测量 main",
    "of metrics that the gate does not judge; name them with `--metric`": "其指标不由门禁判定；可用 `--metric` 指定",
    "Pictures of every series: `trend.html`": "各序列的图：`trend.html`",
    "artifact": "制品",
    "job": "作业",
    # page
    "What moved": "变化",
    "No longer seen": "不再出现",
    "Every series": "全部序列",
    "newest": "最新值",
    "versions": "版本数",
    "noise": "噪声",
    "newest change": "最新变化",
    "no longer measured": "不再测量",
    "before the last report": "早于上次报告",
    "open": "未解决",
    "settled": "已了结",
    "One version differs from the next by {noise} without any change.": "无改动时，相邻版本相差 {noise}。",
    "The dotted line is where another testbed begins; nothing is compared across it.": (
        "虚线处更换了测试环境；不作跨环境比较。"
    ),
    "A dot is one version, the thin line its interval where the run says one, the thick line the level, a mark at the edge a "
    "value beyond the picture.": "一个点是一个版本，细线是运行给出的区间，粗线是水平，边缘的空心点是超出图外的值。",
    "{more_pictures} in trend.json.": "{more_pictures}见 trend.json。",
    "Checklist over time": "检查清单走势",
    "One column a run, the newest at the right; of several workloads the worst counts.": (
        "每列一次运行，最右为最新；有多个 workload 时取最差。"
    ),
    "Runner": "运行机器",
    "Runs a week": "每周运行次数",
    "Testbeds": "测试环境",
    "testbed": "测试环境",
    "from": "自",
    "to": "至",
    "runs": "运行次数",
    "unlike the one before": "与前一环境的差异",
    "Newest runs": "最近的运行",
    "run": "运行",
    "noise floor": "噪声下限",
    "discarded": "丢弃",
    "hottest": "最高温度",
    "throttled": "降频",
    "warnings": "提示",
    "{series} series have fewer versions than it takes to tell a change from noise": (
        "{series} 个序列的版本太少，无法区分变化与噪声"
    ),
    "{series} series that no run of the last four weeks has": "{series} 个序列在最近四周的运行中没有",
    "{series} series are of a testbed that main is no longer measured on": "{series} 个序列所在的测试环境已不再用于测量 main",
    "{series} series are of metrics that the gate does not judge": "{series} 个序列的指标不由门禁判定",
    "perfgate {version}; suspected: the level of stored runs shifted for good; confirmed: both commits were measured side by "
    "side on one machine.": "perfgate {version}；疑似：运行记录的水平持久改变；已确认：两个提交已在同一台机器上并排实测。",
    # pictures
    "history of {metric}": "{metric} 的历史",
    "another testbed": "另一测试环境",
    "steps of the checklist over time": "检查步骤走势",
    "step {number}, {title}, {when}: {status}": "第 {number} 步，{title}，{when}：{status}",
    "runs a week": "每周运行次数",
    # terminal
    "… {count} more in trend.json": "… 另外 {count} 项见 trend.json",
    "{count} series are too short: a time needs {needed} on one testbed.": (
        "{count} 个序列太短：时间指标需要同一测试环境上的 {needed}。"
    ),
}
