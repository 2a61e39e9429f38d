"""What ``perfgate explain`` says around the words of the cards. Labels take ten columns: five Chinese characters' width."""

from __future__ import annotations

WORDS = {
    "a count": "个数",
    "a share of the whole": "占整体的比例",
    "bytes": "字节",
    "bytes per second": "字节每秒",
    "items per second": "条每秒",
    "seconds": "秒",
    "lower is better": "越低越好",
    "higher is better": "越高越好",
    "neither direction is better": "无所谓高低",
    "step {number}, {slug}: {title}": "第 {number} 步，{slug}：{title}",
    "How: {how}": "测法：{how}",
    "Here, on {kind}: {here}": "当前设备 {kind}：{here}",
    "On other devices:": "在其他设备上：",
    "Metrics:": "指标：",
    "Limits, to be set under [limits] in perfgate.toml:": "限值，可在 perfgate.toml 的 [limits] 中设置：",
    "What it may notice:": "可能的发现：",
    "When it asks to be looked at: {remedy}": "需关注时：{remedy}",
    "What it costs: {cost}": "耗时：{cost}",
    " (perfgate.toml; the default is {default})": "（取自 perfgate.toml；默认值为 {default}）",
    ": {source}": "：{source}",
    "unit      {unit}; {better}": "单位      {unit}；{better}",
    "kind      exact: repeated measurement gives the same number, so any change is real": (
        "类型      精确：重复测量得到相同的数，因此任何变化都是真实的"
    ),
    "kind      noisy: read it with its interval; the gate compares it over pairs of processes": (
        "类型      有噪声：应结合区间来看；门禁以进程对来比较"
    ),
    "step      {step}, {step_title}": "步骤      {step}，{step_title}",
    "source    {source}": "来源      {source}",
    "gate      a worsening above {tolerance} regresses; set it under [gate.tolerance] in perfgate.toml": (
        "门禁      变差超过 {tolerance} 即为劣化；可在 perfgate.toml 的 [gate.tolerance] 中设置"
    ),
    "limit     {limit_line}; set it under [limits] in perfgate.toml": (
        "限值      {limit_line}；可在 perfgate.toml 的 [limits] 中设置"
    ),
    "What to do: {remedy}": "如何处理：{remedy}",
    "notices   {message}": "发现      {message}",
    "severity  {severity}": "级别      {severity}",
    "set in    perfgate.toml; the default is {default}": "取自      perfgate.toml；默认值为 {default}",
    "default   set it under [limits] in perfgate.toml": "默认值    可在 perfgate.toml 的 [limits] 中设置",
}
