"""What the publishing job says of an artifact, and of what it judges by."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    # why this base
    Text("an ancestor of what this job has checked out", "本作业所检出提交的祖先"),
    Text("what the merge queue puts the change on", "合并队列中改动所基于的提交"),
    # what there is to note
    Text(
        "the base's perfgate.toml cannot be read, so perfgate's own tolerances judge: {error}",
        "无法读取 base 的 perfgate.toml，按 perfgate 自带的容差判定：{error}",
    ),
    Text(
        "the base has no perfgate.toml, so perfgate's own tolerances judge",
        "base 没有 perfgate.toml，按 perfgate 自带的容差判定",
    ),
    Text(
        "which files this change edits is not known, what judges it among them",
        "无法得知本次改动修改了哪些文件，其中可能包括判定它的文件",
    ),
    Text(
        "this change edits what decides how it is measured ({files}): read that before these numbers; the tolerances are the "
        "base's",
        "本次改动修改了决定如何测量它的文件（{files}）：请先查看这些修改，再看数值；容差取自 base",
    ),
    Text(
        "the store could not be read: nothing is compared with main's history, and no acceptance is known",
        "无法读取存储：没有与 main 的历史比较，也不知道有哪些接受记录",
    ),
    # why there is no verdict
    Text("artifact: {why}", "产物：{why}"),
    Text("policy: perfgate.toml of the base cannot be read: {why}", "策略：无法读取 base 的 perfgate.toml：{why}"),
    Text(
        "the measuring job was cancelled or ran into its time limit; run it again",
        "测量作业被取消或超过了时间限制；请重新运行",
    ),
    Text("it has no {name}; see the log of the measuring job", "其中没有 {name}；请查看测量作业的日志"),
    Text("there is none with a {name}; see the log of the measuring job", "没有含 {name} 的产物；请查看测量作业的日志"),
    Text(
        "run {run} has left none named {name}; see the log of its jobs",
        "运行 {run} 没有留下名为 {name} 的产物；请查看其作业日志",
    ),
    Text("{name} has expired; run the measuring job again", "{name} 已过期；请重新运行测量作业"),
    Text(
        "{name} has the {what} {found}, but this job runs for {wanted}",
        "{name} 的 {what} 为 {found}，而本作业对应 {wanted}",
    ),
    Text(
        "{name} was not measured in CI, and publish takes only what its own pipeline measured",
        "{name} 不是在 CI 中测量的，而 publish 只接受本流水线测量的结果",
    ),
    Text(
        "{base} measured {commit}, which does not lie on {target} after {fork}, where the change left it",
        "{base} 测量的是 {commit}，它不在 {target} 上、改动的分叉点 {fork} 之后",
    ),
)
