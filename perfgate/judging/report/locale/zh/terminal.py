"""What only the terminal says."""

from __future__ import annotations

WORDS = {
    "measured on a busy machine: the worker waited {share} of the time for a CPU that others had": (
        "在繁忙的机器上测得：worker 有 {share} 的时间在等待被其他进程占用的 CPU"
    ),
    "note:": "提示:",
    "undecided, so the push goes on; --strict would stop it": "未能判定，推送继续；--strict 会阻止推送",
    "error in workload": "workload 出错",
    "error in the {side}: {what} of {workload} ({kind})": "{side} 出错：{workload} 的 {what}（{kind}）",
    "Recorded, not compared: measure with perfgate check": "录制值，未作比较：请用 perfgate check 测量",
    "… {count} more in decision.json": "… 另外 {count} 项见 decision.json",
    "{more} in run.json": "{more}见 run.json",
    ", ": "、",
    "{names}: not available": "{names}：不可用",
    "{names}: not available, {reason}": "{names}：不可用（{reason}）",
    "from a recording": "取自录制数据",
    "at {commit}": "提交 {commit}",
    "outside git": "不在 git 中",
    " on {device}, {steps}": "，设备 {device}，{steps}",
}
