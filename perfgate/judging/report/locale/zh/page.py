"""The page, and its plots."""

from __future__ import annotations

WORDS = {
    "What to do": "如何处理",
    "Notes": "提示",
    "The workload file changed, and the head's measured both sides": "workload 文件有改动，两侧均以 head 的文件测量",
    "Errors": "错误",
    "{side}: {what} of {workload}": "{side}：{workload} 的 {what}",
    "Comparisons": "比较",
    "within the limit": "限值以内",
    "The line is the confidence interval, the dot the estimate.": "线为置信区间，点为估计值。",
    "Exact counters have neither.": "精确计数两者皆无。",
    "Exact counters have neither: they gave the same number in every repetition.": (
        "精确计数两者皆无：每次重复都得到相同的数。"
    ),
    "Why, and what to try": "原因与建议",
    "Samples": "样本",
    "{calls}, seconds per call on a logarithmic axis, lines at the medians": (
        "{calls}，每次调用的秒数（对数坐标），竖线为中位数"
    ),
    "head against base, {pairs}": "head 对 base，{pairs}",
    "base against base, {noise_pairs}": "base 对 base，{noise_pairs}",
    "effect of each pair": "每一对的差异",
    "call times of base and head": "base 与 head 的调用耗时",
    "pair {number}: {change}": "第 {number} 对：{change}",
    "median of the {side}: {time}": "{side} 的中位数：{time}",
    "Operators, tested one by one": "逐个检验的算子",
    "Self time per call of both members of each pair, under a light profiler, most time lost first. Of the operators called "
    "slower at most 5 in 100 are so by chance. They inform and never fail the gate.": (
        "每一对两侧在轻量 profiler 下的每次调用自身耗时，损失时间多者在前。判为变慢的算子中至多 5 % 出于偶然。仅供参考，不会"
        "使门禁不通过。"
    ),
    "Operators of {place}": "{place} 的算子",
    "Self time per call, from the recorded trace.": "每次调用的自身耗时，取自轨迹。",
    "Self time per call as the pairs profiled it in turns; head differs from base by the paired estimate. Counts are from "
    "the traces.": "每次调用的自身耗时，由配对双方轮流 profile 得到；head 与 base 之差即配对估计值。次数取自轨迹。",
    "Recorded, not compared: measure with perfgate check.": "录制值，未作比较：请用 perfgate check 测量。",
    "{more} in run.json.": "{more}见 run.json。",
    "Exact counters of one step": "一个 step 的精确计数",
    "Exact counters of one call": "一次调用的精确计数",
    "Checklist of the head": "head 的检查清单",
    "and {more}": "{more}",
    "this page": "本页",
    "Not part of this run:": "本次未执行：",
    "Testbed": "测试环境",
    "Observed on the head, free to differ": "head 上的观测值，允许不同",
    "Files": "文件",
}
