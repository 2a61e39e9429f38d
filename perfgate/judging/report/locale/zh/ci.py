"""What CI hosts show besides the comment."""

from __future__ import annotations

WORDS = {
    "perfgate has no verdict: {why}": "perfgate 没有得出判定：{why}",
    ". The command that measured ended with exit code {code}: see its log.": "。测量命令的退出码为 {code}：见其日志。",
    ". The command that measured ended with exit code {code}, {end}: see its log.": (
        "。测量命令的退出码为 {code}（{end}）：见其日志。"
    ),
    "wrong use or configuration": "用法或配置有误",
    "the measuring itself failed": "测量本身失败",
    "a bug in perfgate": "perfgate 自身的缺陷",
    "interrupted": "被中断",
}
