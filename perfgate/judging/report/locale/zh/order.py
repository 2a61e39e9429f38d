"""Replies to orders in comments."""

from __future__ import annotations

WORDS = {
    "perfgate measures {workload} of {head}": "perfgate 正在测量 {head} 的 {workload}",
    "perfgate measures {head}": "perfgate 正在测量 {head}",
    "{metric} of {head} is accepted; the verdict of perfgate is now {verdict}": (
        "{head} 的 {metric} 变慢已被接受；perfgate 现在的判定为 {verdict}"
    ),
    "{metric} of {head} is accepted; it counts as soon as this commit is measured": (
        "{head} 的 {metric} 变慢已被接受；该提交测量之后生效"
    ),
    "perfgate takes `/perfgate run [WORKLOAD]` and `/perfgate accept METRIC REASON` on the first line of a comment; "
    "for a fork, `/perfgate run COMMIT [WORKLOAD]` and `/perfgate accept COMMIT METRIC REASON`": (
        "perfgate 只认评论首行的 `/perfgate run [WORKLOAD]` 和 `/perfgate accept METRIC REASON`；"
        "来自 fork 的拉取请求用 `/perfgate run COMMIT [WORKLOAD]` 和 `/perfgate accept COMMIT METRIC REASON`"
    ),
    "perfgate does nothing: for a pull request from a fork somebody else than its author has to ask": (
        "perfgate 未执行：来自 fork 的拉取请求须由作者以外的人提出"
    ),
    "perfgate does nothing: this pull request comes from a fork, so name the commit that you have looked at; "
    "its head is {head}": ("perfgate 未执行：该拉取请求来自 fork，请写明您看过的提交；其最新提交为 {head}"),
    "perfgate does nothing: the head is {head} now, not {named}; look at it first": (
        "perfgate 未执行：最新提交已是 {head}，而不是 {named}；请先查看"
    ),
    "perfgate does nothing: it knows no metric {metric}; did you mean {close}?": (
        "perfgate 未执行：没有指标 {metric}；是否指 {close}？"
    ),
    "perfgate does nothing: it knows no metric {metric}": "perfgate 未执行：没有指标 {metric}",
}
